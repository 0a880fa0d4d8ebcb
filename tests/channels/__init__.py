import pytest

# The contract is not a test module by its name, and its assertions should explain themselves all the same.
pytest.register_assert_rewrite("tests.channels.contract")
