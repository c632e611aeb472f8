"""Coverage and tightness in the same runs, against closed forms and against the frozen partition's own values.

The cells of one-dimensional and discrete outputs have exact probabilities: the codes are constant between the places
where the partition cuts. Trajectories are compared with a large reference sample.
"""

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import laplace as laplace_law
from scipy.stats import norm

import dpverify as dpv
from dpverify.demo import PrivateTracker
from dpverify.scores import Additive, CellScore, Linear
from limits import box_bound, most

RUNS = {"select_runs": 10_000, "test_runs": 20_000}
EPSILON = 0.5


def laplace(data, runs, rng):
    return data + rng.laplace(size=runs)


def gaussian(data, runs, rng):
    return data + rng.standard_normal(runs)


def geometric(data, runs, rng):
    return data + rng.geometric(0.5, runs) - rng.geometric(0.5, runs)


def response(data, runs, rng):
    return (rng.random(runs) < (0.75 if data else 0.25)).astype(int)


def gaussian_steps(data, runs, rng):
    return 0.4 * data + rng.standard_normal((runs, 8, 1))


def laplace_steps(data, runs, rng):
    return 0.2 * data + rng.laplace(size=(runs, 8, 1))


TRACKER = PrivateTracker(0.25)
TRACK = np.sin(0.3 * np.arange(6)), np.sin(0.3 * np.arange(6)) + 0.1 * (np.arange(6) == 2)


def tracker(data, runs, rng):
    return TRACKER(TRACK[int(data)], runs, rng)


def gaussian_delta(mu):
    return lambda e: ndtr(mu / 2 - e / mu) - math.exp(e) * ndtr(-mu / 2 - e / mu)


def discrete_delta(p, q):
    return lambda e: max(np.maximum(a - math.exp(e) * b, 0).sum() for a, b in ((p, q), (q, p)))


SUPPORT = np.arange(-60, 62)


def geometric_law(shift):
    return 0.5 ** np.abs(SUPPORT - shift) / 3


def laplace_sum_delta(e):
    """Eight Laplace steps: the log-ratio of one step by its law, convolved on a fine grid."""
    grid = np.linspace(-0.2, 0.2, 401)  # of one step's log-ratio |x - .2| - |x|
    cdf = 1 - laplace_law.cdf((0.2 - grid) / 2)  # under the first law the log-ratio exceeds g where x < (.2 - g) / 2
    mass = np.diff(np.concatenate([[0.0], cdf[1:], [1.0]]))  # lumps at both ends: x beyond the two centres
    law = mass
    for _ in range(7):
        law = np.convolve(law, mass)
    ratio = np.linspace(-1.6, 1.6, law.size)
    return float((law * np.maximum(1 - np.exp(e - ratio), 0)).sum())


CASES = {
    "laplace": (laplace, lambda e: 1 - math.exp(min(0.0, (e - 1) / 2)), 1.0),
    "gaussian": (gaussian, gaussian_delta(1.0), math.inf),
    "geometric": (geometric, discrete_delta(geometric_law(0), geometric_law(1)), math.log(2)),
    "response": (response, discrete_delta(np.array([0.75, 0.25]), np.array([0.25, 0.75])), math.log(3)),
    "gaussian steps": (gaussian_steps, gaussian_delta(0.4 * math.sqrt(8)), math.inf),
    "laplace steps": (laplace_steps, laplace_sum_delta, 1.6),
    "tracker": (tracker, lambda e: TRACKER.delta(e, *TRACK), math.inf),
}
EXACT_CELLS = {
    "laplace": lambda side, x: laplace_law.cdf(x - side),
    "gaussian": lambda side, x: norm.cdf(x - side),
    "geometric": None,
    "response": None,
}


def breaks(levels):
    """Every place on the line where the code can change."""
    score = levels.score
    if isinstance(score, Linear):
        return levels.edges / score.weights[0]
    if isinstance(score, Additive):
        return score.edges.ravel()
    if isinstance(score, CellScore):
        region, cells = score.partition.region, score.partition.cells
        return np.concatenate(
            [np.ravel(region.centre - region.half), np.ravel(region.centre + region.half), np.ravel(cells.edges)]
        )
    return np.sort(np.concatenate([np.linspace(-40, 40, 800_001)]))  # smooth scores: a fine grid


def cell_probabilities(name, levels):
    """Both sides' probabilities of every cell of the frozen partition."""
    if name == "geometric":
        points, laws = SUPPORT.astype(float), [geometric_law(0), geometric_law(1)]
    elif name == "response":
        points, laws = np.array([0.0, 1.0]), [np.array([0.75, 0.25]), np.array([0.25, 0.75])]
    elif name in EXACT_CELLS:
        cuts = np.unique(breaks(levels))
        cuts = cuts[np.isfinite(cuts)]
        points = np.concatenate([[cuts[0] - 1], (cuts[1:] + cuts[:-1]) / 2, [cuts[-1] + 1]])
        laws = [np.diff(np.concatenate([[0.0], EXACT_CELLS[name](side, cuts), [1.0]])) for side in (0, 1)]
    else:
        samples = [reference(name, side) for side in (0, 1)]
        return [np.bincount(levels.codes(x), minlength=levels.size) / len(x) for x in samples]
    codes = levels.codes(points.reshape(-1, 1, 1))
    return [np.bincount(codes, law, levels.size) for law in laws]


def region_masses(name, region):
    """Both sides' probabilities of the frozen region."""
    if name in ("geometric", "response"):
        points = SUPPORT.astype(float) if name == "geometric" else np.array([0.0, 1.0])
        laws = [geometric_law(0), geometric_law(1)] if name == "geometric" else [[0.75, 0.25], [0.25, 0.75]]
        inside = region.contains(points.reshape(-1, 1, 1))
        return [np.asarray(law)[inside].sum() for law in laws]
    low, high = region.centre.item() - region.half.item(), region.centre.item() + region.half.item()
    return [EXACT_CELLS[name](side, high) - EXACT_CELLS[name](side, low) for side in (0, 1)]


REFERENCES = {}


def reference(name, side, runs=400_000):
    if (name, side) not in REFERENCES:
        samples = CASES[name][0](side, runs, np.random.default_rng(99 + side))
        REFERENCES[name, side] = samples.reshape(runs, *samples.shape[1:])
    return REFERENCES[name, side]


def oracle(name, m):
    """What the event of the true log-ratio would certify from expected counts: the best threshold."""
    delta_of = CASES[name][1]
    epsilons = np.linspace(-3, 6, 181)
    # P1 and P2 of {log-ratio > e} from the slope of delta: delta'(e) = -e^e P2, P1 = delta + e^e P2.
    h = 1e-4
    best = 0.0
    for e in epsilons[epsilons > 0.01]:
        slope = (delta_of(e + h) - delta_of(e - h)) / (2 * h)
        p2 = -slope * math.exp(-e)
        p1 = delta_of(e) + math.exp(e) * p2
        if p2 * m > 1 and p1 < 1:
            best = max(best, math.log(p1 / p2) - 1.645 * math.sqrt((1 / p1 + 1 / p2 - 2) / m))
    return best


def check(name, events, seeds):
    mechanism, delta_of, epsilon_true = CASES[name]
    m = RUNS["test_runs"]
    missed = dict.fromkeys(("epsilon_lower", "delta_lower", "delta_upper", "epsilon_upper", "region_mass"), 0)
    lowers, gaps, allowed = [], [], []
    slack = 0.0 if name in EXACT_CELLS else 0.003  # of a reference of 400 000 runs
    for seed in range(seeds):
        report = dpv.verify(mechanism, 0, 1, events=events, seed=seed, **RUNS)
        part, levels = report.on_partition, report.witness.event.partition
        p1, p2 = cell_probabilities(name, levels)
        own = max(np.maximum(a - math.exp(EPSILON) * b, 0).sum() for a, b in ((p1, p2), (p2, p1)))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.abs(np.log(p1 / p2))
        own_epsilon = np.nanmax(ratios)
        upper = part.delta_upper(EPSILON)
        missed["epsilon_lower"] += report.epsilon_lower > epsilon_true
        missed["delta_lower"] += report.delta_lower(EPSILON) > delta_of(EPSILON)
        missed["delta_upper"] += upper < own - slack
        if name in EXACT_CELLS:
            missed["region_mass"] += part.region_mass > min(region_masses(name, report.picture["region"]))
            missed["epsilon_upper"] += part.epsilon_upper(0.0) < own_epsilon - 1e-9
        lowers.append(report.epsilon_lower)
        gaps.append(upper - own)
        bounds = [box_bound(m * a, m * b, m, EPSILON, part.alpha) for a, b in ((p1, p2), (p2, p1))]
        allowed.append(max(bounds) - own)  # two Clopper-Pearson limits on expected counts
    limit = most(seeds, 0.05)
    assert all(number <= limit for number in missed.values()), missed
    # Ten seeds leave the mean itself uncertain; from a hundred on the limit is taken as it stands.
    noise = 3 * np.std(gaps) / math.sqrt(seeds) if seeds < 100 else 0.0
    assert np.mean(gaps) <= 1.1 * np.mean(allowed) + noise
    # Unions of cells of eight coordinates reach .61 to .67 of it (docs/method.md, section 5.3): scores are for those.
    if events != "union" or name in EXACT_CELLS:
        assert np.mean(lowers) >= 0.8 * oracle(name, m)
    return missed, np.mean(lowers), oracle(name, m), np.mean(gaps), np.mean(allowed)


@pytest.mark.parametrize("name", CASES)
def test_bounds_cover_and_are_tight(name):
    print(name, check(name, "auto", 10))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("events", "seeds"), [("union", 1000), ("auto", 100)])
def test_bounds_cover_and_are_tight_over_many_seeds(name, events, seeds):
    print(name, events, check(name, events, seeds))


@pytest.mark.parametrize("seeds", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_half_the_noise_would_be_missed_by_a_bound_that_covers(seeds):
    """The negative control: bounds of a mechanism with half the noise do not cover the closed form of the full one."""
    reports = [dpv.verify(lambda d, n, rng: d + 0.5 * rng.laplace(size=n), 0, 1, seed=s, **RUNS) for s in range(seeds)]
    assert all(report.epsilon_lower > 1.0 for report in reports)


def test_all_events_may_exceed_the_bound_on_the_partition():
    """Equal bins of a Laplace law hold less delta than the law itself: the sentence about the partition stays true."""
    report = dpv.verify(laplace, 0, 1, 0.5, 0.212, partition="grid", resolution=3, events="union", test_runs=2_000_000)
    exact = 1 - math.exp(-0.25)
    assert report.on_partition.delta_upper(0.5) < 0.212 < exact
    assert report.verdict is dpv.Verdict.BOUNDED
    assert "this partition's cells" in report.verdict.value


@pytest.mark.slow
def test_ten_million_runs_of_laplace():
    report = dpv.verify(laplace, 0, 1, test_runs=10**7)
    assert report.epsilon_lower >= 0.995
    assert report.on_partition.epsilon_upper(0.0) <= 1.03


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["one coordinate", "all coordinates"])
def test_long_trajectories_reach_the_true_ratio(shape):
    """K 20, d 2: at least 90% of the bound that the true log-ratio gives when it is cut on the same selection runs."""
    shift = np.zeros((20, 2))
    if shape == "one coordinate":
        shift[7, 1] = 1.0
    else:
        shift[:] = 0.16

    def steps(data, runs, rng):
        return data * shift + rng.standard_normal((runs, 20, 2))

    def true_ratio(samples):
        return -(samples * shift).sum((1, 2))

    runs = {"select_runs": 200_000, "test_runs": 1_000_000}
    ours = np.median([dpv.verify(steps, 0, 1, seed=s, **runs).epsilon_lower for s in range(5)])
    ideal = np.median([dpv.verify(steps, 0, 1, events=true_ratio, seed=s, **runs).epsilon_lower for s in range(5)])
    print(shape, ours, ideal, ours / ideal)
    assert ours >= 0.9 * ideal
