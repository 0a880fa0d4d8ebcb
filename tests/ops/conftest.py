"""People of the admin's tests, for the tests of notifications."""

from tests.admin.conftest import colleague, operator, team  # noqa: F401
