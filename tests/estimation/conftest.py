"""Most of the time of these tests goes into compiling; files that draw little compile with less optimisation.

Not in a run that has the long tests too: that one compiles as a user's does.
"""

import jax
import pytest

DRAWS_MANY = {"test_gibbs"}


@pytest.fixture(autouse=True, scope="module")
def quick_to_compile(request):
    quick = request.config.option.markexpr == "not slow" and request.module.__name__ not in DRAWS_MANY
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
