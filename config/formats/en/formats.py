"""How Django itself writes times: by the 24-hour clock, like every other time here."""

TIME_FORMAT = "H:i"
DATE_FORMAT = "D j M Y"
DATETIME_FORMAT = "D j M Y H:i"
SHORT_DATE_FORMAT = "j M Y"
SHORT_DATETIME_FORMAT = "j M Y H:i"
