"""Scores with structure: equal in NumPy, in JAX and after JSON; each finds what it is made for and ignores noise."""

import json

import numpy as np
import pytest

from dpverify.events.scores import STRUCTURED_FAMILIES, Levels, summarise
from dpverify.events.scores.additive import segmented_ratio
from dpverify.events.scores.interactions import Interaction, interaction_learners
from dpverify.events.scores.moments import (
    Banded,
    Quadratic,
    banded_precision,
    covariance_learners,
    fit_banded,
    fit_gaussian,
)
from dpverify.events.scores.shared import Shared, shared_learners
from dpverify.events.scores.training import quantile_edges
from dpverify.events.scores.transformed import (
    LowBits,
    OrderStatistics,
    Transformed,
    make_order,
    rounding_score,
    transformed_learners,
)
from dpverify.report.report import KINDS
from dpverify.selection.learn import promising_scores, separation
from dpverify.selection.objective import TUNING
from dpverify.util import serialization as serial
from dpverify.util.arrays import cell_codes, enable_x64

RUNS = 6000


def autoregression(side, rng, steps=70, runs=RUNS):
    """Two stationary processes with the same variance and different correlations."""
    coefficient = (0.5, 0.1)[side]
    x = rng.standard_normal((runs, steps, 1))
    for k in range(1, steps):
        x[:, k] = coefficient * x[:, k - 1] + np.sqrt(1 - coefficient**2) * x[:, k]
    return x


def one_direction(side, rng, coordinates=80):
    x = rng.standard_normal((RUNS, coordinates, 1))
    if side == 0:
        x += 0.3 * rng.standard_normal((RUNS, 1, 1)) * np.sin(np.arange(coordinates))[:, None]
    return x


def burst(side, rng, steps=30, size=5.0):
    """Laplace noise, and for the first dataset one large number at a random time."""
    x = rng.laplace(size=(RUNS, steps, 1))
    if side == 0:
        x[np.arange(RUNS), rng.integers(steps, size=RUNS)] += size
    return x


def permuted(side, rng):
    values = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 0.0, 3.0, 3.0]])[side]
    return (rng.permuted(np.tile(values, (RUNS, 1)), axis=1) + rng.standard_normal((RUNS, 4)))[:, None]


def heavy(side, rng, coordinates=5):
    scale = np.sqrt(3 / rng.chisquare(3, (RUNS, 1)))
    return (rng.standard_normal((RUNS, coordinates)) * scale + (0.8 if side == 0 else 0.0))[:, None]


def parity(side, rng, number=3, coordinates=12):
    x = rng.standard_normal((RUNS, coordinates))
    positive = rng.random(RUNS) < (0.8, 0.2)[side]
    x[(np.prod(x[:, 2 : 2 + number], axis=1) > 0) != positive, 2] *= -1
    return x[:, None]


def rounded(side, rng):
    return (float(side) + rng.laplace(size=RUNS))[:, None, None]


def two_sides(law, seed=0):
    rng = np.random.default_rng(seed)
    return [law(side, rng) for side in (0, 1)]


def fit(learners, law):
    scores = [score for one in learners(summarise(two_sides(law))) for score in one.fit()]
    return best_score(scores, law)


def best_score(scores, law):
    """Return the score that separates fresh runs best, and its separation."""
    first, second = (side.reshape(len(side), -1) for side in two_sides(law, seed=1))
    separations = [separation(score.values(first), score.values(second), 0.0) for score in scores]
    return scores[int(np.argmax(separations))], max(separations)


CASES = {
    "banded": (covariance_learners, autoregression, 3.5),
    "low rank": (covariance_learners, one_direction, 3.0),
    "burst": (shared_learners, burst, 3.0),
    "permuted": (transformed_learners, permuted, 1.8),
    "heavy tails": (transformed_learners, heavy, 1.8),
    "parity": (interaction_learners, parity, 1.0),
}
KINDS_OF_CASES = {
    **{"banded": Banded, "low rank": Quadratic, "burst": Shared, "permuted": Transformed},
    **{"heavy tails": Transformed, "parity": Interaction},
}


@pytest.mark.parametrize("case", CASES)
def test_each_score_finds_what_it_is_made_for_and_is_plain_data(case):
    learners, law, least = CASES[case]
    score, separated = fit(learners, law)
    assert isinstance(score, KINDS_OF_CASES[case])
    assert separated > least
    assert score.n_parameters > 0
    check_plain_data(score, two_sides(law, seed=2)[0])
    # Negative control: the same score does not separate runs of the same dataset.
    same = [law(1, np.random.default_rng(seed)).reshape(RUNS, -1) for seed in (3, 4)]
    assert separation(score.values(same[0]), score.values(same[1]), 0.0) < 0.5


def check_plain_data(score, fresh):
    import jax.numpy as jnp

    fresh = fresh[:500]
    values = score.values(fresh.reshape(len(fresh), -1))
    levels = Levels(score, np.unique(np.quantile(values, np.linspace(0.1, 0.9, 9), method="inverted_cdf")))
    codes = levels.codes(fresh)
    with enable_x64():
        moved = cell_codes(levels, jnp.asarray(fresh)) != codes
    apart = np.abs(values[moved, None] - levels.edges).min(1)
    assert (apart <= 1e-9 * np.abs(values).max()).all()  # edges are score values, and rounding may cross them
    back = serial.from_plain(json.loads(json.dumps(serial.to_plain(levels))), KINDS)
    np.testing.assert_array_equal(back.codes(fresh), codes)
    assert "score" in score.describe([f"x[{j}]" for j in range(fresh[0].size)])


def test_a_banded_precision_is_that_of_an_autoregression():
    index = np.arange(6)
    matrix = 0.5 ** np.abs(index[:, None] - index) / 0.75
    bands = banded_precision(matrix, 1)
    precision = np.linalg.inv(matrix)
    np.testing.assert_allclose(bands[0], np.diag(precision), rtol=1e-5)
    np.testing.assert_allclose(bands[1, 1:], np.diag(precision, -1), rtol=1e-5)


def test_a_banded_score_is_the_log_ratio_of_two_gaussians():
    rng = np.random.default_rng(0)
    index = np.arange(5)
    moments = [(rng.standard_normal(5), coefficient ** np.abs(index[:, None] - index)) for coefficient in (0.5, 0.2)]
    score = fit_banded(moments, 1)
    x = rng.standard_normal((50, 5))
    quadratics = [np.einsum("ni,ij,nj->n", x - m, np.linalg.inv(c), x - m) for m, c in moments]
    difference = score.values(x) - (quadratics[1] - quadratics[0]) / 2
    np.testing.assert_allclose(difference, difference[0], atol=1e-4)


def test_transforms_are_used_where_they_suit():
    plain = summarise(list(np.random.default_rng(0).standard_normal((2, RUNS, 1, 4)) + np.arange(4)))
    assert make_order(plain) is None
    assert isinstance(make_order(summarise(two_sides(permuted))), OrderStatistics)
    assert len(transformed_learners(plain)) == 1  # distances


def test_segments_find_a_rare_interval_in_the_middle_of_an_axis():
    rng = np.random.default_rng(0)

    def modes(share):
        x = rng.normal(0.0, 0.5, 40_000) + rng.choice([-4.0, 4.0], 40_000)
        x[: int(share * 40_000)] = rng.normal(0.0, 0.3, int(share * 40_000))
        return np.sort(x)

    first, second = modes(0.004), modes(0.0001)
    edges = quantile_edges(np.sort(np.concatenate([first, second])), 64)
    assert (np.abs(edges) < 1).sum() > 2  # a gap between frequent values has bins of its own
    c1, c2 = (np.bincount(np.searchsorted(edges, x), minlength=edges.size + 1) for x in (first, second))
    ratio = segmented_ratio(c1, c2)
    assert ratio[np.searchsorted(edges, 0.0)] > 2
    assert np.abs(ratio[np.searchsorted(edges, [-4.0, 4.0])]).max() < 0.1
    same = segmented_ratio(*(rng.multinomial(40_000, np.full(64, 1 / 64)) for _ in range(2)))
    assert np.ptp(same) == 0  # equal distributions are not divided


def test_low_bits_are_exact():
    bits = LowBits(np.array([0, 0]), np.array([0.0, 1.0])).values(np.array([[1.5], [2.0**-40], [0.0], [-3.0]]))
    np.testing.assert_array_equal(bits[:, 0], [-1, -40, 64, 0])
    np.testing.assert_array_equal(bits[:, 1], [-1, -40, 0, 2])
    np.testing.assert_array_equal(bits[:2, 2], [1, -39])


def test_rounding_shows_the_data_that_laplace_noise_hides():
    score = rounding_score((0.0, 1.0))(*two_sides(rounded))
    _, separated = best_score([score], rounded)
    assert separated > 3  # the noise itself allows 1
    check_plain_data(score, two_sides(rounded, seed=2)[0])

    def on_a_lattice(side, rng):  # noise that is rounded to a common lattice does not show it
        return np.round(rounded(side, rng) * 1024) / 1024

    _, hidden = best_score([rounding_score((0.0, 1.0))(*two_sides(on_a_lattice))], on_a_lattice)
    assert hidden < 1


def test_structured_scores_compete_where_they_are_promising():
    training = summarise(two_sides(burst))
    kept = promising_scores(STRUCTURED_FAMILIES, training, fit_gaussian(training), 0.0)
    assert any(isinstance(score, Shared | Transformed) for score in kept)  # records, or their order
    assert len(kept) <= TUNING.max_structured
    few = summarise([side[:1000] for side in two_sides(burst)])
    assert promising_scores(STRUCTURED_FAMILIES, few, [], 0.0) == []
