"""What `manage.py demo_data` fills in."""
