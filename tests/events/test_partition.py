import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpverify as dpv
from dpverify.events.partition import FIRST_CELL, HASHED_SIZE, OUTSIDE, equal_mass, grid, make_partition
from dpverify.sampling.probe import make_region
from dpverify.util.arrays import cell_codes, enable_x64


def normal(runs=600, steps=1, dimension=2, seed=0):
    return np.random.default_rng(seed).standard_normal((runs, steps, dimension))


def build(kind, pilot, resolution=None, nonfinite="error"):
    region, points, _ = make_region([pilot], nonfinite)
    return make_partition(kind, region, points, resolution)


def test_the_papers_number_of_events():
    """T 8, N 5: four evaluated steps of two coordinates, two bins each."""
    partition = build("grid", normal(steps=8 + 1 - 5), 2)
    assert partition.n_cells == 256 + 1  # and the complement of the region
    codes = partition.codes(normal(100_000, 4, seed=1))
    assert len(np.unique(codes[codes >= FIRST_CELL])) == 256


@pytest.mark.parametrize("kind", ["grid", "equal-mass", "atoms"])
@pytest.mark.parametrize(("steps", "dimension"), [(1, 1), (4, 2), (50, 1), (1, 10), (50, 10)])
def test_every_run_has_one_code_and_numpy_and_jax_agree(kind, steps, dimension):
    import jax.numpy as jnp

    pilot = normal(100, steps, dimension)
    pilot[::5, 0, 0] = np.nan
    partition = build(kind, pilot, nonfinite="event")
    samples = 1.5 * normal(300, steps, dimension, seed=1)
    samples[:6] = pilot[:6]
    samples[6:9, 0, 0] = np.nan, np.inf, -np.inf
    codes = partition.codes(samples)
    assert codes.dtype == np.int64
    assert (codes[:6] != OUTSIDE).all()
    assert codes[0] != codes[1]
    with enable_x64():
        on_device = jnp.asarray(samples)
    np.testing.assert_array_equal(cell_codes(partition, on_device), codes)
    if partition.size < HASHED_SIZE:
        assert codes.min() >= 0
        assert codes.max() < partition.size


def test_outside_the_region_is_one_cell():
    partition = build("grid", normal(), 4)
    assert (partition.codes(normal() + 100) == OUTSIDE).all()


def test_far_outside_does_not_overflow():
    partition = build("equal-mass", normal())
    assert partition.codes(np.full((1, 1, 2), 1e308))[0] == OUTSIDE
    assert partition.codes(np.full((1, 1, 2), -1e308))[0] == OUTSIDE


def test_equal_mass_cells_hold_equal_mass():
    pilot = normal(6400)
    codes = build("equal-mass", pilot, 64).codes(pilot)
    counts = np.bincount(codes)[FIRST_CELL:]
    assert len(counts) == 64
    assert counts.min() == counts.max() == 100


def test_the_papers_outline_does_not_cover_and_ours_does():
    """docs/method.md, section 2.2: complements of ellipsoids of subsets, eta .2."""
    eta = 0.2
    rng = np.random.default_rng(0)
    pilot = normal(dpv.scenario_size(2, 0.05, 1e-9))
    region = dpv.high_likely_set(pilot)
    size = dpv.scenario_size(2, eta, 1e-9)
    fresh = normal(20_000, seed=1)
    fresh = fresh[region.contains(fresh)]
    covered = np.zeros(len(fresh), bool)
    for _ in range(200):
        inner = dpv.high_likely_set(pilot[rng.choice(len(pilot), size, replace=False)])
        covered |= ~inner.contains(fresh)
    assert covered.mean() < 0.2
    assert (equal_mass(region, pilot, 16).codes(fresh) >= FIRST_CELL).all()


def test_repeated_values_are_atoms_whatever_the_dtype():
    rng = np.random.default_rng(1)
    flag = rng.integers(0, 2, (500, 1, 1)).astype(float)
    pilot = np.concatenate([flag, rng.standard_normal((500, 1, 1))], axis=2)
    for kind in ("grid", "equal-mass", "atoms"):
        partition = build(kind, pilot)
        codes = partition.codes(pilot)
        assert not set(codes[flag[:, 0, 0] == 0]) & set(codes[flag[:, 0, 0] == 1])
    assert build("atoms", pilot).n_cells == 3 + 1  # 0, 1, neither; outside


def test_auto_takes_atoms_for_discrete_outputs():
    integers = np.random.default_rng(2).geometric(0.3, (600, 1, 1)).astype(float)
    partition = build("auto", integers)
    repeated = np.unique(integers, return_counts=True)[1] > 1
    assert partition.n_cells == repeated.sum() + 1 + 1
    assert build("auto", normal()).n_cells == 64 + 1


def test_cells_have_boxes_that_hold_their_runs():
    pilot = normal(800, 2, 2)
    samples = normal(5000, 2, 2, seed=5)
    for kind, resolution in (("grid", 3), ("equal-mass", 32)):
        partition = build(kind, pilot, resolution)
        codes = partition.codes(samples)
        for code in np.unique(codes[codes >= FIRST_CELL])[:40]:
            low, high = partition.box(int(code), pilot)
            inside = samples[codes == code].reshape(-1, 4)
            assert (inside >= low - 1e-12).all()
            assert (inside <= high + 1e-12).all()


def test_a_mixed_code_is_described_by_an_example():
    pilot = normal(100, 50, 2)
    partition = build("grid", pilot, 4)
    assert partition.size == HASHED_SIZE
    code = int(partition.codes(pilot[:1])[0])
    low, high = partition.box(code, pilot)
    assert ((pilot[0].ravel() >= low) & (pilot[0].ravel() <= high)).all()
    assert partition.box(code + 1, pilot) is None


def test_mixing_does_not_merge_the_cells_of_real_runs():
    pilot = normal(200, 50, 2)
    samples = normal(20_000, 50, 2, seed=3)
    partition = build("grid", pilot, 4)
    inside = partition.region.contains(samples)
    rows = np.unique(partition.cells.digits(samples[inside].reshape(inside.sum(), -1)), axis=0)
    assert len(np.unique(partition.codes(samples)[inside])) == len(rows)


@given(
    arrays(np.float64, (20, 1, 2), elements=st.floats(-1e6, 1e6)), st.floats(-100, 100), st.sampled_from([0.25, 1, 8])
)
def test_shifting_and_scaling_a_coordinate_moves_its_bins(samples, shift, scale):
    pilot = normal(50)
    region = dpv.high_likely_set(pilot)
    partition = grid(region, pilot, 4)
    # The same region, moved exactly: powers of two and a rounding-free comparison of the bins alone.
    moved = partition.cells._replace(low=partition.cells.low * scale, scale=partition.cells.scale / scale)
    flat = samples.reshape(20, 2)
    np.testing.assert_array_equal(partition.cells.digits(flat), moved.digits(flat * scale))
