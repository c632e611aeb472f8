"""Selection of events: which event is selected, that it is plain data, and that selection causes no false alarms."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from limits import most
from scipy.special import ndtr

import dpverify as dpv
from dpverify import Report, Settings, verify
from dpverify.events.partition import FIRST_CELL
from dpverify.events.scores import Levels
from dpverify.sampling.count import Counts
from dpverify.selection.objective import TUNING, SelectionObjective, cautious_lower_bound
from dpverify.selection.proposals import (
    Extremes,
    PairedHistogram,
    _expected_upper_bound,
    threshold_counts,
)
from dpverify.selection.select import select_cell
from dpverify.stats.upper import epsilon_upper_bound
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 10_000, "test_runs": 20_000}
FEW_BLOCKS = {**SMALL, "block": 2500}  # takes less time
FEWER = {"select_runs": 4000, "test_runs": 8000, "block": 2000}


def left_and_right(cells):
    """docs/method.md, section 4.2: equal mass in every cell; one distribution on left halves, the other on right."""

    def mechanism(data, runs, rng):
        return (rng.integers(cells, size=runs) + (rng.random(runs) + data) / 2) / cells

    return mechanism


def test_privacy_on_a_partition_is_not_privacy():
    """docs/method.md, section 4.2: 16 cells show no difference, yet one event separates the datasets."""
    small = {"partition": "grid", "resolution": 16, "test_runs": 100_000}
    cells = verify(left_and_right(16), 0, 1, 1.0, 0.05, events="union", **small)
    assert (cells.verdict.name, cells.holds_on_cells) == ("NOT_REFUTED", True)
    assert cells.certificate is None
    assert "events that split a cell were not checked" in str(cells)
    scored = verify(left_and_right(16), 0, 1, 1.0, events="score", **small)
    assert scored.refuted
    assert scored.epsilon_lower >= 3


def test_the_lambda_of_the_paper_is_not_a_guarantee():
    """docs/method.md, section 4.2: the paper's lambda stays small although the true delta is 1."""
    report = verify(left_and_right(64), 0, 1, 0.1, partition="grid", resolution=64, events="union", **SMALL)
    scored = verify(left_and_right(64), 0, 1, 0.1, 0.5, events="score", select_runs=50_000, test_runs=20_000)
    assert report.paper.lambda_ < 0.3 < 0.7 < scored.delta_lower(report.epsilon_critical)


@pytest.mark.parametrize("shape", ["one coordinate", "all coordinates"])
def test_scores_beat_boxes_on_trajectories(shape):
    shift = np.zeros((8, 2))
    if shape == "one coordinate":
        shift[3, 1] = 1.0
    else:
        shift[:] = 0.25
    data = np.zeros((8, 2)), shift

    def proved(**settings):
        reports = [verify(gaussian_trajectory, *data, seed=s, **settings, **FEW_BLOCKS) for s in range(3)]
        return np.median([report.epsilon_lower for report in reports])

    boxes, level_sets, auto = proved(events="union", partition="tree"), proved(events="union"), proved()
    least = 1.3 if shape == "all coordinates" else 0.9  # a tree finds one coordinate as well
    assert level_sets > least * boxes
    assert auto > least * boxes


def test_single_precision_keeps_the_scores_of_innovations():
    """A random walk in single precision: all of its values repeat by chance, and they are no atoms."""

    def walk(data, runs, rng, kind=float):
        steps = data + rng.laplace(size=(runs, 6, 1))
        return np.cumsum(steps, axis=1).astype(kind)

    def single(data, runs, rng):
        return walk(data, runs, rng, np.float32)

    settings = {"select_runs": 60_000, "test_runs": 20_000, "block": 5000}
    double, rounded = (verify(m, 0.0, 0.5, **settings).epsilon_lower for m in (walk, single))
    assert rounded > 0.95 * double


@pytest.mark.parametrize("events", ["cell", "union", "score", "auto"])
@pytest.mark.parametrize("partition", ["auto", "grid", "equal-mass", "tree", "atoms"])
def test_every_kind_of_event_on_every_partition(events, partition, tmp_path):
    report = verify(
        gaussian_trajectory,
        np.zeros((2, 2)),
        np.full((2, 2), 0.8),
        0.1,
        events=events,
        partition=partition,
        **FEWER,
    )
    assert report.refuted or (partition == "atoms" and events in ("cell", "union"))
    report.to_json(tmp_path / "report.json")
    back = Report.from_json(tmp_path / "report.json")
    assert back == report
    samples = np.random.default_rng(0).standard_normal((50, 2, 2))
    np.testing.assert_array_equal(back.witness.contains(samples), report.witness.contains(samples))


def test_the_event_is_a_union_of_the_bounded_cells():
    report = verify(laplace, ZERO, ONE, 0.5, **SMALL)
    levels = report.witness.event.partition
    assert isinstance(levels, Levels)
    assert levels.n_cells == report.on_partition.cells


def test_resolution_sets_the_number_of_cells():
    assert verify(laplace, ZERO, ONE, resolution=8, **SMALL).on_partition.cells in (8, 9)


def test_a_user_score_is_tested_like_any_other():
    report = verify(laplace, ZERO, ONE, 0.5, events=lambda samples: -samples[:, 0, 0], **SMALL)
    assert report.refuted
    assert report.witness.text.startswith("the given score")


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda samples: samples, "found shape"),
        (lambda samples: np.full(len(samples), np.nan), "found NaN as values of the score"),
    ],
)
def test_a_bad_user_score_is_refused_in_one_line(score, message):
    with pytest.raises((dpv.InputError, dpv.MechanismError), match=message):
        verify(laplace, ZERO, ONE, 0.5, events=score, **SMALL)


@pytest.mark.parametrize(
    "score",
    [
        lambda samples: samples[:, 0, 0] - samples[:, 0, 0].mean(),
        lambda samples: np.argsort(np.argsort(samples[:, 0, 0])).astype(float),
    ],
)
def test_a_user_score_must_map_each_run_on_its_own(score):
    with pytest.raises(dpv.InputError, match="maps each run on its own"):
        verify(laplace, ZERO, ONE, 0.5, events=score, **SMALL)


def test_thresholds_of_discrete_scores_lie_between_their_values():
    """Randomised response on three bits: the number of ones has four values with known probabilities."""

    def response(data, runs, rng):
        return (rng.random((runs, 3)) < (0.7 if data else 0.3)).astype(int)

    report = verify(response, 0, 1, **SMALL)
    exact = 3 * math.log(0.7 / 0.3)
    assert 0.9 * exact < report.epsilon_lower < exact
    assert report.on_partition.epsilon_upper() > exact


def test_thresholds_in_the_tails_are_finer_than_the_training_histogram():
    """Exponential noise: the support moves by 1, so the best event is as rare as the number of runs allows."""

    def exponential(data, runs, rng):
        return data + np.max(rng.exponential(10.0, (runs, 3)), axis=1)

    report = verify(exponential, 0.0, 1.0, select_runs=400_000, test_runs=2_000_000)
    # The best threshold with at least five of the 200 000 held-out runs of the rarer dataset.
    t = np.linspace(1 - 10 * np.log(1 - (5 / 2e5) ** (1 / 3)), 4, 40)
    p1, p2 = (1 - np.exp(-t / 10)) ** 3, (1 - np.exp(-(t - 1) / 10)) ** 3
    best = np.max(dpv.epsilon_lower_bound(np.round(2e6 * p1), np.round(2e6 * p2), 2_000_000))
    assert report.epsilon_lower > 0.8 * best


def test_the_expected_bound_penalises_small_counts_and_many_parameters():
    objective = SelectionObjective(10**6, 0.0, 0.05, 1.85)
    tiny, solid = (
        cautious_lower_bound(4, 0, 10**5, objective, 2.5),
        cautious_lower_bound(4000, 2000, 10**5, objective, 2.5),
    )
    assert tiny < solid < math.log(2)
    assert cautious_lower_bound(4000, 2000, 10**5, objective, 2.5, n_parameters=500) < solid
    assert cautious_lower_bound(4000, 2000, 10**5, objective, 1.0) > solid
    assert cautious_lower_bound(10, 5, 10**5, SelectionObjective(10**6, 0.5, 0.05, 1.85), 1.0) == -math.inf


def test_threshold_counts_are_exact_at_edges_and_in_the_tails():
    rng = np.random.default_rng(0)
    values = rng.standard_normal(5000), rng.standard_normal(5000) + 0.3
    edges = np.quantile(values[0], [0.2, 0.5, 0.8])
    tables = tuple(np.bincount(np.searchsorted(edges, v), minlength=4) for v in values)
    thresholds, c1, c2 = threshold_counts(PairedHistogram(tables, tuple(map(Extremes.of, values)), 5000), edges)
    assert len(thresholds) > 300
    np.testing.assert_array_equal(c1, [(values[0] > t).sum() for t in thresholds])
    np.testing.assert_array_equal(c2, [(values[1] > t).sum() for t in thresholds])


def test_few_level_sets_give_the_expected_upper_bound_of_all():
    rng, runs, differs = np.random.default_rng(0), 200_000, 0
    for number in (16, 64, 256):
        for shift in (0.1, 0.5, 1.0):
            edges = np.sort(rng.standard_normal(number - 1))
            shares = [np.diff(ndtr(edges - mean), prepend=0, append=1) for mean in (0.0, shift)]
            first, second = (rng.multinomial(runs, share).astype(float) for share in shares)
            whole = epsilon_upper_bound(first, second, runs)
            assert _expected_upper_bound(first, second, SelectionObjective(runs, 0.0, 0.05, 1.85), 0.0) == whole
            differs += (
                epsilon_upper_bound(first[: TUNING.compared_limits], second[: TUNING.compared_limits], runs) < whole
            )
    assert differs  # the choice of the level sets matters


def test_a_lipschitz_constant_gives_a_bound_over_all_events():
    """A Gaussian shifted by 1 has a log-ratio of slope 1; half of it is stated for each dataset."""

    def gaussian(data, runs, rng):
        return data + rng.standard_normal(runs)

    report = verify(gaussian, 0.0, 1.0, log_lipschitz=0.5)
    for epsilon in (0.5, 1.0):
        true = ndtr(0.5 - epsilon) - math.exp(epsilon) * ndtr(-0.5 - epsilon)
        assert report.delta_lower(epsilon) < true < report.certificate.delta_upper(epsilon) < true + 0.01
    assert 0.5 < report.certificate.epsilon_upper(0.2) < 1.0
    assert report.certificate.epsilon_upper(1e-9) == math.inf  # the mass outside the region counts in full
    assert "provided that the stated Lipschitz constant is correct" in str(report)


def test_a_lipschitz_constant_is_not_used_in_high_dimensions_or_with_atoms():
    high = verify(gaussian_trajectory, np.zeros((2, 2)), np.ones((2, 2)), log_lipschitz=1.0, **SMALL)
    assert high.certificate is None
    assert "one or two dimensions" in high.notes[0]
    bits = verify(lambda data, runs, rng: rng.integers(0, 2, runs), 0, 1, log_lipschitz=1.0, **SMALL)
    assert "no density" in bits.notes[0]
    with pytest.raises(dpv.InputError, match="log_lipschitz: found"):
        verify(laplace, ZERO, ONE, log_lipschitz=-1.0, **SMALL)


def test_the_worst_pair_is_found_and_verified_with_fresh_runs():
    pairs = [(ZERO, np.array([x])) for x in (0.1, 0.9, 0.3, 1.0, 0.2)]
    found = dpv.search_pairs(laplace, pairs, 0.5, runs=40_000, **SMALL)
    assert found.pair in (1, 3)
    assert found.report.refuted
    assert {candidate.pair for candidate in found.tried[5:]} == {1, 3}  # the second round
    with pytest.raises(dpv.InputError, match="pairs: found 0"):
        dpv.search_pairs(laplace, [], runs=100)


def test_runs_beyond_memory_are_only_counted(monkeypatch):
    """Streaming in training and proposing, which normally needs millions of runs, with small limits."""
    monkeypatch.setattr("dpverify.selection.objective.MAX_KEPT_NUMBERS", 1024)
    monkeypatch.setattr("dpverify.selection.select.TUNING", replace(TUNING, ranking_runs=512))
    report = verify(gaussian_trajectory, np.zeros((2, 2)), np.full((2, 2), 0.5), 0.1, block=256, **SMALL)
    assert report.refuted
    assert (
        report.epsilon_lower
        > 0.7 * verify(gaussian_trajectory, np.zeros((2, 2)), np.full((2, 2), 0.5), **SMALL).epsilon_lower
    )


def test_settings_that_exclude_each_other_are_refused():
    with pytest.raises(dpv.InputError, match="a score needs finite runs"):
        verify(laplace, ZERO, ONE, events="score", nonfinite="event")
    with pytest.raises(dpv.InputError, match="no expected lower bound to search by"):
        dpv.search_pairs(laplace, [(ZERO, ONE)], runs=100, settings=dpv.Settings.paper())


@pytest.mark.parametrize(("number", "seeds"), [(6, 30), pytest.param(12, 40, marks=pytest.mark.slow)])
def test_searching_many_pairs_causes_no_false_alarms(number, seeds):
    """All pairs have equal distributions, so reporting the best of many trials without correction would alarm.

    The dataset decides about the sign of the noise, so that common random numbers give different outputs.
    """

    def mirrored(sign, runs, rng):
        return sign * rng.laplace(size=(runs, 1))

    pairs, runs = [(1.0, -1.0)] * number, {"runs": 200 * number, "select_runs": 500, "test_runs": 1000}
    alarms = sum(
        dpv.search_pairs(mirrored, pairs, 0, events="union", seed=1000 * s, **runs).report.refuted for s in range(seeds)
    )
    assert alarms <= most(seeds, 0.05)


class CountedCells(NamedTuple):
    """A stand-in for the selection context with given counts of cells."""

    settings: Settings
    first: Counts
    second: Counts
    runs: dict[str, int]

    def count(self, stage, counters):
        return [(self.first, self.second)]


@pytest.mark.parametrize(("first", "second"), [({0: 10}, {0: 10}), ({0: 4, 5: 6}, {0: 10}), ({1: 10}, {0: 5, 9: 5})])
def test_the_papers_events_are_cells_of_the_region_also_where_they_are_empty(first, second):
    sides = [Counts(np.array(list(side)), np.array(list(side.values()))) for side in (first, second)]
    context = CountedCells(Settings.paper(), *sides, {"train": 10})
    selected = select_cell(context, None, np.random.default_rng(0))
    assert (selected.event.codes >= FIRST_CELL).all()
    assert selected.eta == max((n for code, n in first.items() if code >= FIRST_CELL), default=0) / 10


def test_the_event_of_a_coupled_selection_is_near_the_best_one():
    """Gaussian noise with a shift of 1: the bound is near the best expected one."""

    def gaussian(data, runs, rng):
        return data + rng.standard_normal((runs, 1))

    sizes = {"select_runs": 20_000, "test_runs": 200_000}
    for seed in range(3):
        report = dpv.verify(gaussian, ZERO, ONE, seed=seed, coupled_selection=True, **sizes)
        assert report.epsilon_lower > 0.85 * 3.0  # 3.0 is about the expected bound of the best threshold


def test_outputs_whose_squares_overflow_are_refused():
    def huge(data, runs, rng):
        return 1e160 * (data + rng.laplace(size=(runs, 2)))

    with pytest.raises(dpv.InputError, match=r"found outputs of size \de\+16\d; expected at most 1e\+150"):
        dpv.verify(huge, 0.0, 1.0, select_runs=1000, test_runs=2000)
