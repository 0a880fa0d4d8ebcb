#!/usr/bin/env python
"""Django's command line, where a wrong configuration is one sentence and not a traceback."""

import os
import sys

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import OperationalError


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        execute_from_command_line(sys.argv)
    except (ImproperlyConfigured, OperationalError, psycopg.OperationalError) as error:
        if "--traceback" in sys.argv:
            raise
        sys.exit(_sentence(error))


def _sentence(error: Exception) -> str:
    if isinstance(error, (OperationalError, psycopg.OperationalError)):
        # PostgreSQL adds advice on further lines, which does not fit ours.
        return f"The database cannot be used: {str(error).splitlines()[0].rstrip('.')}."
    return str(error)


if __name__ == "__main__":
    main()
