"""Cells are disjoint and cover everything: every point has one code and lies in that cell, edge cases included."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpverify as dpv
from dpverify.events.partition import (
    FIRST_CELL,
    HASHED_SIZE,
    OUTSIDE,
    Edges,
    code_weights,
    make_partition,
    make_partition_of,
)
from dpverify.events.region import RegionIndicator
from dpverify.events.scores import CellScore, Features, Levels, Linear, Quadratic
from dpverify.sampling.count import counts_from_table, occupied_codes
from dpverify.sampling.probe import make_region
from dpverify.selection.objective import TUNING, SelectionObjective, cautious_lower_bound
from dpverify.selection.proposals import SelectionCounts, propose_cells, select_paper_cell

costly = settings(max_examples=settings().max_examples // 4)
DIMENSION = 2
numbers = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True, width=64)
points = arrays(float, (12, 1, DIMENSION), elements=numbers)
DISTRIBUTIONS = {
    "normal": lambda rng: rng.normal(size=(60, 1, DIMENSION)),
    "integers": lambda rng: rng.integers(-2, 3, (60, 1, DIMENSION)).astype(float),
    "mixed": lambda rng: np.where(rng.random((60, 1, DIMENSION)) < 0.3, 0.0, rng.normal(size=(60, 1, DIMENSION))),
    "denormal": lambda rng: rng.normal(size=(60, 1, DIMENSION)) * 1e-310,
    "huge": lambda rng: rng.normal(size=(60, 1, DIMENSION)) * 1e307,
    "constant": lambda rng: np.full((60, 1, DIMENSION), 0.1),
}
CASES = [(law, kind) for law in DISTRIBUTIONS for kind in ("grid", "equal-mass", "atoms", "edges", "steps")]
PILOTS = {law: make(np.random.default_rng(5)) for law, make in DISTRIBUTIONS.items()}


def build(law, kind):
    pilot = PILOTS[law]
    region, *_ = make_region([pilot], "event")
    if kind == "edges":
        edges = np.sort(np.unique(pilot.ravel())[:6])
        edges = np.stack([edges, edges])
        return make_partition_of(region, Edges(edges, code_weights([edges.shape[1] + 1] * DIMENSION)), [])
    if kind == "steps":  # so many coordinates that codes are hashes
        pilot = np.repeat(pilot, 40, axis=1)
        return make_partition("grid", make_region([pilot], "event")[0], pilot, 4)
    return make_partition(kind, region, pilot, 8)


PARTITIONS = {case: build(*case) for case in CASES}


@costly
@given(st.sampled_from(CASES), points, st.randoms(use_true_random=False))
def test_the_code_of_a_point_does_not_depend_on_other_points(case, drawn, random):
    partition, pilot = PARTITIONS[case], PILOTS[case[0]]
    x = np.concatenate([drawn, pilot[:5], np.nextafter(pilot[:5], np.inf), np.nextafter(pilot[:5], -np.inf)])
    x = np.repeat(x, 40, axis=1) if case[1] == "steps" else x
    codes = partition.codes(x)
    assert codes.dtype == np.int64
    assert codes.shape == (len(x),)
    if partition.size < HASHED_SIZE:
        assert ((codes >= 0) & (codes < partition.size)).all()
    filled = partition.region.fill(x)
    assert np.isfinite(filled).all()
    assert (partition.codes(filled) == codes).all()
    assert (codes[len(drawn) : len(drawn) + 5] != OUTSIDE).all()  # pilot runs are inside
    order = list(range(len(x)))
    random.shuffle(order)
    np.testing.assert_array_equal(partition.codes(x[order]), codes[order])
    np.testing.assert_array_equal([int(partition.codes(x[i : i + 1])[0]) for i in range(len(x))], codes)


@given(st.sampled_from([case for case in CASES if case[1] != "steps"]), points)
def test_a_point_lies_in_the_box_of_its_cell_and_in_no_other(case, drawn):
    partition, pilot = PARTITIONS[case], PILOTS[case[0]]
    finite = drawn[np.isfinite(drawn).all((1, 2))]
    x = np.concatenate([finite, pilot[:8], (pilot[:4] + pilot[4:8]) / 2])
    codes = partition.codes(x)
    boxes = {int(code): partition.box(int(code), pilot) for code in np.unique(codes) if code >= FIRST_CELL}
    # Atoms and edges are compared exactly; the edges of the grid are computed and have rounding errors.
    slack = 4 * np.finfo(float).eps * np.abs(pilot).max() if case[1] == "grid" else 0.0
    for point, code in zip(x.reshape(len(x), -1), codes, strict=True):
        if code < FIRST_CELL:
            continue
        low, high = boxes[int(code)]
        assert ((low - slack <= point) & (point <= high + slack)).all()
        if case[1] in ("equal-mass", "edges") and case[0] == "normal":
            for other, (start, end) in boxes.items():
                inside = (start < point) & (point <= end)
                assert inside.all() == (other == code)


@given(points, st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=40, unique=True))
def test_level_codes_increase_with_the_score(drawn, edges):
    x = np.nan_to_num(drawn, nan=0.0, posinf=1.0, neginf=-1.0)
    quadratic = Quadratic(Features(np.zeros(2), None), np.ones(2), np.array([[1.0, 0.5], [0.5, -1.0]]))
    linear = Linear(np.array([1.0, -0.5]))
    cell_score = CellScore(Levels(linear, np.array([-1.0, 0.0, 2.0])), np.arange(4), np.arange(4.0), np.zeros(()))
    for score in (linear, quadratic, cell_score):
        levels = Levels(score, np.sort(np.array(edges)))
        codes = levels.codes(x)
        assert ((codes >= 0) & (codes < levels.size)).all()
        with np.errstate(over="ignore", invalid="ignore"):
            values = score.values(x.reshape(len(x), -1))
        real = ~np.isnan(values)
        assert (np.diff(codes[real][np.argsort(values[real], kind="stable")]) >= 0).all()


@given(points)
def test_nonfinite_runs_are_outside_the_region(drawn):
    region = dpv.high_likely_set(PILOTS["normal"])
    codes = RegionIndicator(region).codes(drawn)
    assert set(codes) <= {0, 1}
    assert (codes[~np.isfinite(drawn).all((1, 2))] == 0).all()


@costly
@given(arrays(np.int64, (2, 6), elements=st.integers(0, 500)).filter(np.any), st.sampled_from([0.0, 0.05]))
def test_the_selection_is_symmetric_in_the_data_sets(table, delta):
    runs, objective = int(table.sum(1).max()), SelectionObjective(10_000, delta, 0.05, 1.0)
    counts = [counts_from_table(column) for column in table]
    both = SelectionCounts(*counts, runs), SelectionCounts(*counts[::-1], runs)
    partition = PARTITIONS["normal", "grid"]
    for penalty, one, other in zip(
        TUNING.proposal_penalties, *(propose_cells(partition, side, objective) for side in both), strict=True
    ):
        bounds = []
        for event, c, *_ in (one, other):
            bounds.append(cautious_lower_bound(c[event.direction], c[1 - event.direction], runs, objective, penalty))
        assert bounds[0] == bounds[1]
    codes = occupied_codes(*counts)
    one, other = (select_paper_cell(partition, side, codes, 0.0, np.random.default_rng(0)) for side in both)
    assert one.codes == other.codes
    assert one.direction == 1 - other.direction or len(set(table[:, one.codes[0]])) == 1
