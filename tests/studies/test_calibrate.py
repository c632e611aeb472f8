"""calibrate: the bracket contains the exact parameter of mechanisms with a known epsilon."""

import math
import re
from dataclasses import dataclass

import numpy as np
import pytest
from limits import most
from scipy.optimize import brentq
from scipy.special import ndtr

import dpverify as dpv
from dpverify.studies.calibrate import Calibration, estimate_epsilon

DELTA = 0.01
FEW = {"partition": "atoms", "events": "union", "select_runs": 500, "test_runs": 2000}
QUICK = {"partition": "atoms", "events": "union", "select_runs": 1000, "test_runs": 20_000, "block": 2000}


@dataclass(frozen=True)
class Response:
    """Randomised response: epsilon ln((p - delta) / (1 - p)) at delta."""

    truth: float

    def __call__(self, data, runs, rng):
        return np.where(rng.random(runs) < self.truth, data, 1 - data)


@dataclass(frozen=True)
class Laplace:
    scale: float

    def __call__(self, data, runs, rng):
        return data + rng.laplace(scale=self.scale, size=(runs, 1))


@dataclass(frozen=True)
class Gaussian:
    scale: float

    def __call__(self, data, runs, rng):
        return data + rng.normal(scale=self.scale, size=(runs, 1))


EXACT = {
    Response: (math.e + DELTA) / (1 + math.e),
    Laplace: 1 / (1 - 2 * math.log(1 - DELTA)),
    Gaussian: 1 / brentq(lambda mu: ndtr(mu / 2 - 1 / mu) - math.e * ndtr(-mu / 2 - 1 / mu) - DELTA, 0.01, 5),
}


def test_the_bracket_contains_the_exact_parameter(tmp_path):
    """Epsilon increases with the probability of a true response, so `sufficient` is the smaller end."""
    call = (Response, (0.5, 0.99), 0.0, 1.0, 1.0, DELTA)
    calibration = dpv.calibrate(*call, folder=tmp_path, **QUICK)
    exact = EXACT[Response]
    assert calibration.sufficient < exact < calibration.insufficient
    assert calibration.parameter == pytest.approx(exact, rel=0.05)
    assert calibration.sufficient < calibration.parameter < calibration.insufficient
    tested = {parameter: report for parameter, report in calibration.tried if report.epsilon is not None}
    assert tested[calibration.insufficient].refuted
    assert tested[calibration.sufficient].holds_on_cells
    assert tested[calibration.insufficient].alpha < 0.05  # the attempts share alpha
    assert calibration.report is tested[calibration.parameter]
    assert len({report.settings.seed for _, report in calibration.tried}) == len(calibration.tried)
    again = dpv.calibrate(*call, folder=tmp_path, **QUICK)
    assert again.tried == calibration.tried
    assert len(list((tmp_path / "reports").iterdir())) == len(again.tried)  # nothing was run again


def test_bounds_that_do_not_enclose_the_required_epsilon_are_refused():
    with pytest.raises(dpv.InputError, match=r"bounds: found epsilon .* expected one below and one above 1; widen"):
        dpv.calibrate(Response, (0.8, 0.9), 0.0, 1.0, 1.0, DELTA, **QUICK)


def test_a_family_whose_epsilon_jumps_is_refused():
    def family(x):
        return Response(0.6 if x < 0.3 else 0.95)

    with pytest.raises(dpv.InputError, match="family: found a jump of epsilon over 1"):
        dpv.calibrate(family, (0, 1), 0.0, 1.0, 1.0, DELTA, **(FEW | {"select_runs": 100, "test_runs": 200}))


def test_a_voiding_diagnostic_stops_the_calibration():
    data = np.zeros(1)
    with pytest.raises(dpv.InputError, match=r"family\(0.5\): both datasets are equal"):
        dpv.calibrate(Response, (0.5, 0.99), data, data, 1.0, DELTA, **FEW)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"bounds": (1, 0)}, "bounds: found"), ({"bounds": 3}, "bounds: found"), ({"epsilon": 0}, "epsilon: found 0")],
)
def test_bad_arguments_are_refused(change, message):
    call = {"bounds": (0.5, 0.9), "first": 0.0, "second": 1.0, "epsilon": 1.0, "delta": DELTA} | change
    with pytest.raises(dpv.InputError, match=message):
        dpv.calibrate(Response, **call)


PAIRS = {"near": (0.0, 0.3), "far": (0.0, 1.0), "half": (1.0, 1.5)}


def test_the_worst_of_several_pairs_is_calibrated_and_all_of_them_are_bounded():
    runs = {"runs": 1500, "select_runs": 500, "test_runs": 8000, "resolution": 8, "events": "union", "alpha": 0.01}
    result = dpv.calibrate(Laplace, (0.2, 10.0), pairs=PAIRS, epsilon=1.0, delta=DELTA, **runs)
    assert (result.pair, result.bounded_pairs) == ("far", 3)
    assert result.insufficient < EXACT[Laplace] < result.sufficient
    bounded = [report for parameter, report in result.tried if parameter == result.sufficient]
    assert [report.holds_on_cells for report in bounded[:3]] == [True] * 3
    assert len({report.alpha for report in bounded[:3]}) == 1
    assert 3 * bounded[0].alpha <= 0.01 / 2  # the pairs share the level of the attempt
    text = str(result)
    assert "of the worst pair, far" in text
    assert "the claim holds over the cells, for all 3 pairs (confidence 99%)" in text


def test_the_worst_pair_of_a_box_is_calibrated():
    def pair_at(theta):
        return 0.0, float(1.0 - abs(theta[0] - 0.5))

    runs = {"runs": 12_000, "select_runs": 500, "test_runs": 4000, "resolution": 8, "events": "union"}
    result = dpv.calibrate(Laplace, (0.2, 10.0), pairs=pair_at, box=[(0, 1)], epsilon=1.0, delta=DELTA, **runs)
    assert pair_at(result.pair)[1] > 0.9
    assert result.bounded_pairs == 1
    assert "over the cells, for this pair (confidence" in str(result)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"first": 0.0, "second": 1.0}, "use first and second, or pairs, not both"),
        ({"first": 0.0}, "use first and second, or pairs, not both"),
        ({"pairs": None}, "found neither first and second nor pairs; expected first and second, or pairs"),
        ({"pairs": None, "first": 0.0}, "found neither second nor pairs; expected first and second, or pairs"),
        ({"delta": None}, "found epsilon 1.0 and delta None; expected the required privacy, both numbers"),
        ({"pairs": []}, "pairs: found 0 pairs"),
    ],
)
def test_bad_pairs_are_refused(change, message):
    call = {"pairs": PAIRS, "epsilon": 1.0, "delta": DELTA} | change
    with pytest.raises(dpv.InputError, match=message):
        dpv.calibrate(Laplace, (0.2, 10.0), **call)


def test_the_estimate_uses_the_shares_of_the_cells():
    report = dpv.verify(Response(0.75), 0.0, 1.0, None, DELTA, **QUICK)
    part = report.on_partition
    shares = [(c1 / 20_000, c2 / 20_000) for c1, c2 in zip(part.c1, part.c2, strict=True)]
    expected = max(math.log((max(pair) - DELTA) / min(pair)) for pair in shares)
    assert estimate_epsilon(report, DELTA) == pytest.approx(expected, rel=1e-5)
    expected = max(math.log(max(pair) / min(pair)) for pair in shares)
    assert estimate_epsilon(report, 0.0) == pytest.approx(expected, rel=1e-12)


def test_the_thinned_test_is_made_at_half_the_level():
    """The type I error of the thinned test is up to twice its level, so attempt k is made at alpha / 2^(k + 1)."""
    calibration = dpv.calibrate(Response, (0.5, 0.99), 0.0, 1.0, 1.0, 0.0, test="thinned", **QUICK)
    levels = [report.alpha for _, report in calibration.tried if report.epsilon is not None]
    position = [parameter for parameter, report in calibration.tried if report.epsilon is not None]
    attempts = position.index(calibration.insufficient) + 1
    assert levels[:attempts] == [0.05 / 2 ** (k + 1) for k in range(1, attempts + 1)]
    assert 2 * sum(levels[:attempts]) < 0.05
    bounded = levels[attempts:-1]
    assert bounded == [0.05 / 2**k for k in range(1, len(bounded) + 1)]
    assert calibration.report.alpha == 0.05


def test_the_printed_bracket_is_rounded_away_from_the_estimate():
    report = dpv.verify(Response(0.7), 0.0, 1.0, 1.0, DELTA, alpha=0.0125, **FEW)
    lines = str(Calibration(0.7311, 0.738149, 0.720052, report, ())).splitlines()
    assert lines[0] == "Use 0.72 or less; the estimate itself may give too little privacy."
    assert lines[1] == "  Response: parameter for epsilon 1 at delta 0.01, from 0 verifications."
    assert lines[2] == "  Insufficient: 0.7382, refuted by an event (confidence 98.75%)."
    assert lines[3] == "  Estimate: 0.7311."
    assert lines[4].startswith("  Sufficient: 0.72, the claim holds over the cells")
    assert "Use 0.75 or more" in str(Calibration(0.7311, 0.7, 0.75, report, ()))
    nothing = str(Calibration(0.7311, None, None, report, ()))
    assert nothing.startswith("No parameter is shown to be sufficient; use more test runs")
    assert "none found" in nothing


@pytest.mark.slow
@pytest.mark.parametrize("family", [Laplace, Gaussian])
def test_over_many_seeds_the_bracket_contains_the_exact_parameter(family):
    exact, seeds = EXACT[family], 100
    runs = {"select_runs": 10_000, "test_runs": 40_000, "resolution": 16}
    results = [dpv.calibrate(family, (0.2, 10.0), 0.0, 1.0, 1.0, DELTA, seed=seed, **runs) for seed in range(seeds)]
    inside = sum((result.insufficient or 0) < exact < (result.sufficient or 0) for result in results)
    errors = np.array([abs(result.parameter / exact - 1) for result in results])
    print(
        f"{family.__name__}: {inside} of {seeds} brackets contain it, {(errors <= 0.05).sum()} estimates within 5%, "
        f"largest error {errors.max():.3f}"
    )
    assert inside >= 95
    assert (errors <= 0.05).sum() >= 95


@pytest.mark.parametrize(
    ("family", "found"),
    [
        (Laplace(1.0), "a mechanism (its parameters are data, runs, rng)"),
        (lambda a, b: Laplace(a), "a function of (a, b)"),
        (1.0, "float"),
    ],
)
def test_what_is_no_family_is_named(family, found):
    with pytest.raises(dpv.InputError, match=re.escape(f"family: found {found}; expected family(parameter) that")):
        dpv.calibrate(family, (0.1, 1.0), 0.0, 1.0, 1.0, 0.0)
    with pytest.raises(dpv.InputError, match=re.escape(f"families: a: found {found}; expected family(parameter)")):
        dpv.tradeoff({"a": (family, [0.5])}, 0.0, 1.0, 0.01, dpv.rmse([[0.0]]))


ONE_PAIR = {"first": 0.0, "second": 1.0}
TWO_PAIRS = {"pairs": [(0.0, 1.0), (1.0, 0.0)], "runs": 500}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("test", "delta", "data"), [("exact", DELTA, ONE_PAIR), ("thinned", 0.0, ONE_PAIR), ("exact", DELTA, TWO_PAIRS)]
)
def test_each_end_of_the_bracket_is_wrong_with_probability_alpha_at_most(test, delta, data):
    """With few runs, errors would be frequent enough to be observed."""
    seeds, exact = 100, (math.e + delta) / (1 + math.e)
    few = {"partition": "atoms", "events": "union", "select_runs": 200, "test_runs": 1000, "test": test}
    required = {"epsilon": 1.0, "delta": delta, **data, **few}
    results = [dpv.calibrate(Response, (0.5, 0.99), seed=seed, **required) for seed in range(seeds)]
    too_low = sum(result.insufficient is not None and result.insufficient < exact for result in results)
    too_high = sum(result.sufficient is not None and result.sufficient > exact for result in results)
    assert too_low <= most(seeds, 0.05)
    assert too_high <= most(seeds, 0.05)
