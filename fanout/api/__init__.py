"""The HTTP API, version 1: the same controls and writes as the admin and the commands, for other programs."""
