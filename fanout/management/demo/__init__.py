"""The data that `manage.py demo_data` adds: a development tool."""
