"""How many examples a property is held against: few in `make test`, thousands in `make test-all`; always the same."""

from hypothesis import settings

settings.register_profile("few", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("many", max_examples=5000, deadline=None, derandomize=True)
settings.load_profile("few")
