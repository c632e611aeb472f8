"""Compilation takes most of the time of these tests, so files that draw few samples compile with less optimisation.

A run that includes the slow tests compiles with the default optimisation, as a user's program does.
"""

import jax
import pytest

MODULES_WITH_MANY_DRAWS = {"test_gibbs_sampler"}


@pytest.fixture(autouse=True, scope="module")
def reduce_compilation_time(request):
    quick = request.config.option.markexpr == "not slow" and request.module.__name__ not in MODULES_WITH_MANY_DRAWS
    jax.config.update("jax_disable_most_optimizations", quick)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
