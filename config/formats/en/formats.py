"""Formats for the times that Django itself writes: 24-hour clock, like all other times."""

TIME_FORMAT = "H:i"
DATE_FORMAT = "D j M Y"
DATETIME_FORMAT = "D j M Y H:i"
SHORT_DATE_FORMAT = "j M Y"
SHORT_DATETIME_FORMAT = "j M Y H:i"
