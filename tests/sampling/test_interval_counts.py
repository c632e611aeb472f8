"""Partitions of a scalar output that are counted together have the counts of their own codes, to the last bit."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.events.partition import make_partition
from dpverify.events.region import RegionIndicator
from dpverify.events.scores import Additive, CellScore, Features, Levels, Linear, Quadratic
from dpverify.sampling.accumulators import CountAccumulator
from dpverify.sampling.counts import CellCounter, Statistics, count_cells
from dpverify.sampling.interval_counts import MIN_VALUES_COUNTED, IntervalCells, IntervalTables

DISTRIBUTIONS = {
    "normal": lambda rng: rng.normal(3.0, 1.0, 300),
    "cauchy": lambda rng: 1e3 * rng.standard_cauchy(300),
    "integers": lambda rng: rng.integers(-9, 10, 300).astype(float),
    "mixed": lambda rng: np.where(rng.random(300) < 0.3, 0.0, rng.normal(size=300)),
    "denormal": lambda rng: rng.normal(size=300) * 1e-310,
    "huge": lambda rng: rng.normal(size=300) * 1e307,
    "constant": lambda rng: np.full(300, 0.1),
}


def make_partitions(pilot):
    """Return partitions of the line of all kinds; the last one has cells that are no known intervals."""
    region = dpv.high_likely_set(pilot)
    grid = make_partition("grid", region, pilot, 50, True)
    equal_mass = make_partition("equal-mass", region, pilot, 16, False)
    edges, numbers = np.unique(np.quantile(pilot, np.linspace(0, 1, 23))), np.random.default_rng(0).normal(size=12)
    coordinate = Features(np.zeros(1), None)
    whitened = Features(np.array([np.median(pilot)]), np.array([[-3.0 / max(np.abs(pilot).max(), 1e-300)]]))
    steps = Additive(
        coordinate, np.zeros(1, int), edges[None], np.random.default_rng(1).normal(size=(1, edges.size + 1))
    )
    return [
        RegionIndicator(region),
        grid,
        make_partition("atoms", region, pilot, None, True),
        equal_mass,
        Levels(Linear(np.array([1 / 3])), np.unique(edges / 3)),
        Levels(Linear(np.array([-0.7])), np.unique(edges * -0.7)),
        Levels(CellScore(equal_mass, np.arange(2, 14), numbers, np.zeros(())), np.array([-0.5, 0.0, 0.5])),
        Levels(steps, np.array([-0.5, 0.1])),
        Levels(Quadratic(whitened, np.array([0.3]), np.array([[-0.2]])), np.array([-3.0, -0.7, 0.1, 1.0])),
        Levels(Quadratic(coordinate, np.array([1.1]), np.array([[0.7]])), np.array([-0.4, 0.2, 5.0])),
        Levels(Quadratic(coordinate, np.ones(1), np.ones((1, 1))), np.array([0.0, 1.0])),
    ]


def hard_values(pilot, partitions):
    """Return values on the edges, next to them, between them, far away, and values that are not finite."""
    edges = np.concatenate([one for one in (part.interval_edges() for part in partitions) if one is not None])
    rng = np.random.default_rng(2)
    spread = rng.choice(pilot, 4000) + rng.normal(size=4000) * np.ptp(pilot / 4)
    near = [np.nextafter(edges, -np.inf), edges, np.nextafter(edges, np.inf)]
    return np.concatenate([*near, pilot, spread, [np.inf, -np.inf, np.nan, 1e308, -1e308, 0.0, -0.0]])


@pytest.mark.parametrize("law", DISTRIBUTIONS)
def test_joint_counts_are_those_of_each_partition(law):
    pilot = DISTRIBUTIONS[law](np.random.default_rng(0)).reshape(-1, 1, 1)
    partitions = make_partitions(pilot)
    cells = IntervalCells.of(partitions)
    assert cells is not None
    assert len(partitions) - 1 not in cells.numbers
    assert len(cells.numbers) == {"constant": 5, "denormal": 5}.get(law, 10)  # these two pin their only coordinate
    samples = hard_values(pilot.ravel(), partitions).reshape(-1, 1, 1)
    tables = IntervalTables(cells)
    tables.add(samples[:1000])
    tables.add(samples[1000:])
    for partition, table in zip(cells.partitions, tables.read(), strict=True):
        np.testing.assert_array_equal(table, np.bincount(partition.codes(samples), minlength=partition.size))
    assert tables.read() == []


def test_an_edge_that_is_wrong_in_the_last_bit_is_noticed():
    pilot = DISTRIBUTIONS["normal"](np.random.default_rng(0)).reshape(-1, 1, 1)
    partition = make_partitions(pilot)[4]
    cells = IntervalCells.of([partition])
    assert cells is not None
    samples = hard_values(pilot.ravel(), [partition]).reshape(-1, 1, 1)
    tables = IntervalTables(cells._replace(edges=np.nextafter(cells.edges, np.inf)))
    tables.add(samples)
    assert (tables.read()[0] != np.bincount(partition.codes(samples), minlength=partition.size)).any()


def test_accumulators_count_blocks_of_any_size_together():
    rng = np.random.default_rng(3)
    pilot = rng.laplace(size=(300, 1, 1))
    partitions = make_partitions(pilot)
    statistics = Statistics(tuple(map(CellCounter, partitions)))
    first, second = CountAccumulator(statistics), CountAccumulator(statistics)
    buffer, blocks = np.empty((3 * MIN_VALUES_COUNTED, 1, 1)), []
    for number, size in enumerate([5, 3000, MIN_VALUES_COUNTED, 2 * MIN_VALUES_COUNTED, 1, 3 * MIN_VALUES_COUNTED]):
        buffer[:size] = rng.laplace(size=(size, 1, 1))  # a mechanism may use its array again
        (first if number % 2 else second).add(number, buffer[:size], size - size // 3)
        blocks.append(buffer[: size - size // 3].copy())
    first.finish()
    first.merge(second)
    for partition, counts in zip(partitions, first.results(), strict=True):
        expected = count_cells(partition, np.concatenate(blocks))
        np.testing.assert_array_equal(counts.codes, expected.codes)
        np.testing.assert_array_equal(counts.counts, expected.counts)


def test_every_number_near_a_root_of_a_quadratic_has_its_computed_level():
    rng = np.random.default_rng(4)
    steps = np.arange(-200, 201)
    for _ in range(100):
        mean, scale, weight, curvature = rng.normal(size=4)
        z = rng.normal(size=5)
        edges = np.unique((z * curvature + weight) * z)
        features = Features(np.array([mean]), np.array([[scale]]))
        levels = Levels(Quadratic(features, np.array([weight]), np.array([[curvature]])), edges)
        cells = IntervalCells.of([levels])
        assert cells is not None
        x = (cells.edges + steps[:, None] * np.spacing(cells.edges)).ravel()
        codes = cells.codes[0][np.searchsorted(cells.edges, x)]
        np.testing.assert_array_equal(codes, levels.codes(x.reshape(-1, 1, 1)))


def test_the_levels_at_the_vertex_of_a_quadratic_are_no_known_intervals():
    levels = Levels(Quadratic(Features(np.zeros(1), None), np.ones(1), np.ones((1, 1))), np.array([-0.25]))
    assert levels.interval_edges() is None
    below = levels._replace(edges=np.array([-0.3])).interval_edges()
    assert below is not None
    assert below.size == 0
