"""A parameter between what is proved insufficient and what is bounded; privacy beside accuracy."""

import csv
import math
from dataclasses import dataclass

import numpy as np
import pytest
from limits import most
from scipy.optimize import brentq
from scipy.special import ndtr

import dpverify as dpv
from dpverify.studies.calibrate import estimate_epsilon

DELTA = 0.01
FEW = {"partition": "atoms", "events": "union", "select_runs": 500, "test_runs": 2000}
QUICK = {"partition": "atoms", "events": "union", "select_runs": 1000, "test_runs": 20_000}


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


def test_the_closed_form_lies_in_the_bracket(tmp_path):
    """More truth is less privacy: the bracket is the other way round."""
    call = (Response, (0.5, 0.99), 0.0, 1.0, 1.0, DELTA)
    found = dpv.calibrate(*call, folder=tmp_path, **QUICK)
    exact = EXACT[Response]
    assert found.sufficient < exact < found.insufficient
    assert found.parameter == pytest.approx(exact, rel=0.05)
    assert found.sufficient < found.parameter < found.insufficient
    verdicts = {parameter: report for parameter, report in found.tried if report.epsilon is not None}
    assert verdicts[found.insufficient].refuted
    assert verdicts[found.sufficient].verdict is dpv.Verdict.BOUNDED
    assert verdicts[found.insufficient].alpha < 0.05  # attempts share alpha
    assert found.report is verdicts[found.parameter]
    assert len({report.settings.seed for _, report in found.tried}) == len(found.tried)
    again = dpv.calibrate(*call, folder=tmp_path, **QUICK)
    assert again.tried == found.tried
    assert all(report.run["resumed"] for _, report in again.tried)


def test_without_an_end_that_is_private_there_is_no_bracket():
    with pytest.raises(dpv.InputError, match=r"bounds: found epsilon .* expected one below and one above 1; widen"):
        dpv.calibrate(Response, (0.8, 0.9), 0.0, 1.0, 1.0, DELTA, **QUICK)


def test_a_jump_is_no_family():
    def family(x):
        return Response(0.6 if x < 0.3 else 0.95)

    with pytest.raises(dpv.InputError, match="family: found a jump of epsilon over 1"):
        dpv.calibrate(family, (0, 1), 0.0, 1.0, 1.0, DELTA, **(FEW | {"select_runs": 100, "test_runs": 200}))


@pytest.mark.parametrize(
    ("change", "message"),
    [({"bounds": (1, 0)}, "bounds: found"), ({"bounds": 3}, "bounds: found"), ({"epsilon": 0}, "epsilon: found 0")],
)
def test_what_can_not_be_calibrated(change, message):
    call = {"bounds": (0.5, 0.9), "first": 0.0, "second": 1.0, "epsilon": 1.0, "delta": DELTA} | change
    with pytest.raises(dpv.InputError, match=message):
        dpv.calibrate(Response, **call)


def test_the_estimate_is_that_of_the_shares():
    report = dpv.verify(Response(0.75), 0.0, 1.0, None, DELTA, **QUICK)
    part = report.on_partition
    shares = [(c1 / 20_000, c2 / 20_000) for c1, c2 in zip(part.c1, part.c2, strict=True)]
    expected = max(math.log((max(pair) - DELTA) / min(pair)) for pair in shares)
    assert estimate_epsilon(report, DELTA) == pytest.approx(expected, rel=1e-5)


def test_privacy_beside_accuracy(tmp_path):
    families = {"<quiet>": (Response, (0.6, 0.8)), "other": (Response, (0.7,))}
    table = dpv.tradeoff(families, 0.0, 1.0, DELTA, dpv.rmse([[0.0]]), folder=tmp_path / "kept", **FEW)
    assert [(row["mechanism"], row["parameter"]) for row in table.rows] == [
        ("<quiet>", 0.6),
        ("<quiet>", 0.8),
        ("other", 0.7),
    ]
    for row in table.rows:
        exact = math.log((row["parameter"] - DELTA) / (1 - row["parameter"]))
        assert row["epsilon_lower"] < row["epsilon_estimate"] < row["epsilon_upper_on_partition"]
        assert row["epsilon_estimate"] == pytest.approx(exact, rel=0.15)
        assert row["error_first"] == pytest.approx(1 - row["parameter"], rel=0.1)
    table.to_csv(tmp_path / "table.csv")
    with (tmp_path / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [float(line["epsilon_lower"]) for line in lines] == [row["epsilon_lower"] for row in table.rows]
    table.to_html(tmp_path / "table.html")
    page = (tmp_path / "table.html").read_text()
    assert "&lt;quiet&gt;" in page
    assert "<quiet>" not in page
    with pytest.raises(dpv.InputError, match="expected a path that can be written"):
        table.to_csv(tmp_path / "nowhere" / "table.csv")
    with pytest.raises(dpv.InputError, match="families: found no parameter"):
        dpv.tradeoff({"none": (Response, ())}, 0.0, 1.0, DELTA, dpv.rmse([[0.0]]))


@pytest.mark.slow
@pytest.mark.parametrize("family", [Laplace, Gaussian])
def test_over_many_seeds_the_closed_form_lies_in_the_bracket(family):
    exact, seeds = EXACT[family], 100
    runs = {"select_runs": 10_000, "test_runs": 40_000, "resolution": 16}
    found = [dpv.calibrate(family, (0.2, 10.0), 0.0, 1.0, 1.0, DELTA, seed=seed, **runs) for seed in range(seeds)]
    inside = sum((one.insufficient or 0) < exact < (one.sufficient or 0) for one in found)
    off = np.array([abs(one.parameter / exact - 1) for one in found])
    print(
        f"{family.__name__}: {inside} of {seeds} in the bracket, {(off <= 0.05).sum()} within 5%, worst {off.max():.3f}"
    )
    assert inside >= 95
    assert (off <= 0.05).sum() >= 95


@pytest.mark.slow
def test_a_bracket_is_wrong_no_more_often_than_it_may_be():
    """Few runs, so that mistakes could show: each side at most alpha."""
    seeds, exact = 100, EXACT[Response]
    few = {"partition": "atoms", "events": "union", "select_runs": 200, "test_runs": 1000}
    found = [dpv.calibrate(Response, (0.5, 0.99), 0.0, 1.0, 1.0, DELTA, seed=seed, **few) for seed in range(seeds)]
    assert sum(one.insufficient is not None and one.insufficient < exact for one in found) <= most(seeds, 0.05)
    assert sum(one.sufficient is not None and one.sufficient > exact for one in found) <= most(seeds, 0.05)
