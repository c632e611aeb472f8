"""The wealth is a supermartingale under every law that a claim allows, and Ville's inequality holds for it."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from dpverify import claims
from dpverify.claims import sloped_boundary
from dpverify.stats.anytime import Bets, divergence, largest_rejected, log_factors, log_wealth, project
from dpverify.stats.boundaries import line_boundary
from support.limits import most

ZCDP = claims.zcdp(0.1)
CLAIMS = {
    "zcdp": ZCDP,
    "equal": claims.pure(0.0),
    "pure": claims.pure(1.0),
    "approximate": claims.approximate(0.5, 0.1),
    "gaussian": claims.gaussian(1.0),
    "renyi": claims.renyi(2.0, 0.5),
    "points": claims.points([(0.2, 0.2), (2.0, 1e-3)]),
    "tradeoff": claims.tradeoff(lambda q: max(0.0, 1 - 1.5 * q)),
    "half": claims.approximate(0.0, 0.5),
    "large delta": claims.approximate(1.0, 0.1),
    "large mu": claims.gaussian(4.0),
}
GENERATOR = np.random.default_rng(1)
A = GENERATOR.uniform(0.001, 0.999, 200)
B = A * GENERATOR.uniform(0.001, 0.999, 200)
SMALL_B = A * GENERATOR.uniform(0.1, 0.9, 200) * np.geomspace(1e-12, 1e-3, 200)  # an event that one dataset hardly has


def test_the_lines_of_a_slow_boundary_are_above_it_and_close():
    q = np.concatenate([np.geomspace(1e-7, 0.5, 200), 1 - np.geomspace(0.5, 1e-7, 200)])[::8]
    exact, lines = ZCDP.boundary(q), sloped_boundary(ZCDP)(q)
    assert (lines >= exact).all()
    assert ((lines - exact) / np.sqrt(exact * (1 - exact) + 1e-12)).max() < 2e-4


@pytest.mark.parametrize("b", [B, SMALL_B], ids=["common", "rare"])
@pytest.mark.parametrize("name", CLAIMS)
def test_the_expected_factor_of_one_run_is_at_most_the_certified_excess(name, b):
    boundary = sloped_boundary(CLAIMS[name])
    q1, q2, growth, log_excess = project(A, b, boundary)
    bet = growth > 0
    assert bet.any() or name == "large mu"
    p2 = np.concatenate([np.linspace(0, 1, 501), np.geomspace(1e-14, 1, 300)])[:, None]
    p1 = boundary(p2[:, 0])[:, None]  # f rises with p1, so this is the worst law
    f = p1 * A / q1 + (1 - p1) * (1 - A) / (1 - q1)
    g = p2 * b / q2 + (1 - p2) * (1 - b) / (1 - q2)
    assert (np.log(f * g)[:, bet] <= log_excess[bet] + 1e-13).all()
    assert log_excess[bet].max(initial=0) < 1e-10


@pytest.mark.parametrize("name", CLAIMS)
def test_the_projection_has_the_smallest_divergence(name):
    boundary = sloped_boundary(CLAIMS[name])
    found = project(A, B, boundary)
    for a, b, growth in list(zip(A, B, found.growth, strict=True))[:25]:
        if a <= boundary(b):
            assert growth == 0
            continue
        q = np.linspace(b, a, 4001)[:-1]
        smallest = (divergence(a, boundary(q)) + divergence(b, q)).min()
        assert growth <= smallest + 1e-12
        assert growth == pytest.approx(smallest, rel=1e-2, abs=1e-6)


def test_a_wrong_projection_is_charged_for_its_excess():
    """The certified excess of a pair that is not the projection covers what that pair can win under the claim."""
    from dpverify.stats.anytime import _log_excess, _Nearest

    boundary = line_boundary(0.5)
    a, b = np.array([0.6]), np.array([0.2])
    q2 = project(a, b, boundary).q2 * 1.1
    q1 = boundary(q2)
    p2 = np.linspace(1e-6, 1, 5001)
    p1 = boundary(p2)
    f = p1 * a / q1 + (1 - p1) * (1 - a) / (1 - q1)
    g = p2 * b / q2 + (1 - p2) * (1 - b) / (1 - q2)
    worst = float(np.log(f * g).max())
    assert worst > 1e-4  # without the charge this bet would win on average
    assert _log_excess(_Nearest(a, b, q1, q2, np.ones(1), np.zeros(1)), boundary)[0] >= worst


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (0.5, 0.1)])
def test_the_expected_factor_of_a_batch_is_at_most_one_by_enumeration(epsilon, delta):
    runs, boundary = 12, line_boundary(epsilon, delta)
    c1, c2 = np.meshgrid(np.arange(runs + 1), np.arange(runs + 1), indexing="ij")
    for a, b in [(0.9, 0.2), (0.5, 0.05), (0.3, 0.01), (0.8, 0.3)]:
        factors = np.exp(log_factors(c1, c2, runs, a, b, boundary))
        for p2 in np.linspace(0, 1, 41):
            for p1 in (float(boundary(np.array(p2))), 0.5 * float(boundary(np.array(p2)))):
                law = np.outer(binom.pmf(np.arange(runs + 1), runs, p1), binom.pmf(np.arange(runs + 1), runs, p2))
                assert (law * factors).sum() <= 1 + 1e-9


def random_bets(generator, batches, p1, p2):
    """Bets on one event whose predictions follow the counts so far."""
    rows, total = [], np.array([1.0, 1.0])
    for batch in range(batches):
        runs = int(generator.integers(1, 20))
        n = 2 + sum(row[5] for row in rows)
        a, b = np.clip(total / n, 0.02, 0.98)
        counts = generator.binomial(runs, [p1, p2])
        rows.append((batch, 0, 0, 1.0, 1.0, runs, *counts.tolist(), a, b))
        total = total + counts
    return Bets(*map(np.array, zip(*rows, strict=True)))


def test_the_wealth_crosses_its_threshold_rarely_under_the_claim_and_always_under_a_violation():
    alpha, trials, boundary = 0.1, 150, line_boundary(0.5)

    def crossings(p1, p2):
        generator = np.random.default_rng(5)
        wealth = [log_wealth(random_bets(generator, 30, p1, p2), boundary) for _ in range(trials)]
        return sum(one.max() >= math.log(1 / alpha) for one in wealth)

    assert crossings(0.3 * math.exp(0.5), 0.3) <= most(trials, alpha)
    assert crossings(0.75, 0.3) > most(trials, alpha)  # negative control: the limit can be exceeded


def test_the_wealth_of_a_portfolio_is_an_average():
    columns = {"batch": [0, 0, 1, 1], "season": [0, 0, 0, 0], "slot": [0, 1, 0, 1], "share": [0.75, 0.25] * 2}
    columns |= {"weight": [1.0] * 4, "runs": [10, 10, 5, 5], "c1": [8, 3, 5, 1], "c2": [2, 3, 1, 1]}
    columns |= {"a": [0.7, 0.5, 0.8, 0.6], "b": [0.3, 0.2, 0.2, 0.1]}
    bets = Bets(**{name: np.array(column) for name, column in columns.items()})
    boundary = line_boundary(0.2)
    steps = np.exp(log_factors(bets.c1, bets.c2, bets.runs, bets.a, bets.b, boundary))
    expected = [0.75 * steps[0] + 0.25 * steps[1], 0.75 * steps[0] * steps[2] + 0.25 * steps[1] * steps[3]]
    assert np.exp(log_wealth(bets, boundary)) == pytest.approx(expected)
    new_season = bets._replace(season=np.array([0, 0, 1, 1]))
    expected = [expected[0], expected[0] * (0.75 * steps[2] + 0.25 * steps[3])]
    assert np.exp(log_wealth(new_season, boundary)) == pytest.approx(expected)
    one_family = bets._replace(slot=np.zeros(4, int), share=np.ones(4), weight=np.array([0.6, 0.4] * 2))
    first, second = 0.6 * steps[0] + 0.4 * steps[1], 0.6 * steps[2] + 0.4 * steps[3]
    assert np.exp(log_wealth(one_family, boundary)) == pytest.approx([first, first * second])


def test_the_largest_of_all_rejected_parameters_is_not_the_bound():
    wealth = np.log([[100.0], [1.0], [100.0]])
    assert largest_rejected(wealth, np.array([0.1, 0.2, 0.3]), 0.05).tolist() == [0.1]


def test_many_claims_are_evaluated_at_once():
    bets = random_bets(np.random.default_rng(2), 10, 0.6, 0.2)
    epsilons = np.array([0.0, 0.4, 1.0])
    together = log_wealth(bets, line_boundary(epsilons[:, None]))
    for row, epsilon in zip(together, epsilons, strict=True):
        assert row == pytest.approx(log_wealth(bets, line_boundary(epsilon)))


def test_a_prediction_that_the_claim_allows_changes_nothing():
    for c1, c2 in itertools.product((0, 5, 10), repeat=2):
        assert float(log_factors(c1, c2, 10, 0.3, 0.2, line_boundary(1.0))) == 0.0
