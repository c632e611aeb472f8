"""Settings of all tests: how many examples a property is checked with, and imports that do not leak between tests."""

import sys

import pytest
from hypothesis import settings

# `make test` uses few examples, `make test-all` thousands; they are always the same.
settings.register_profile("few", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("many", max_examples=5000, deadline=None, derandomize=True)
settings.load_profile("few")


@pytest.fixture(autouse=True)
def _no_leaked_imports():
    """Remove what a test added to sys.path, and modules that it imported from its temporary folder."""
    path, modules = [*sys.path], set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if "pytest-of-" in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]
