"""The demonstration of the paper's W2-MHE."""

import pytest

from dpverify.paper.demo import rows


@pytest.mark.slow
def test_the_bounds_of_the_demo_are_in_order():
    """The proved lower bound is below the certified epsilon, and that is below the paper's, for every s."""
    for mechanism, report, certified, paper in rows((0.8, 0.5)):
        assert 0 < report.epsilon_lower <= certified <= paper
        assert report.name == mechanism.name
