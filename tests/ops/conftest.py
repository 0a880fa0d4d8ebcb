"""People of the admin's tests, for the tests of notifications."""

from tests.admin.conftest import colleague, operator, plain_static_files, team  # noqa: F401
