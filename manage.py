#!/usr/bin/env python
"""Django's command line, where a wrong configuration is one sentence and not a traceback."""

import os
import sys

from django.core.management import execute_from_command_line

from config.problems import sentence


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except Exception as error:
        words = "" if "--traceback" in sys.argv else sentence(error)
        if not words:
            raise
        sys.exit(words)


if __name__ == "__main__":
    main()
