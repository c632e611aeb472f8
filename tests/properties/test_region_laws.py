"""Laws of regions and their volume: units, axes and the order of runs are the user's choice, not the data's."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpverify as dpv
from dpverify.events.partition import FIRST_CELL, OUTSIDE, make_partition

costly = settings(max_examples=settings().max_examples // 4)
KINDS = ("grid", "equal-mass", "atoms")
BORDER = 3e-3  # the volume is flat at its minimum: certified to 1e-7 it leaves 3e-4 of shape, at either end
NORMAL = np.random.default_rng(1).normal(size=(20, 1, 2))


@st.composite
def clouds(draw, most=3):
    """Runs (n, K, d) of every kind, and a generator for what else is needed."""
    steps, d = draw(st.integers(1, most)), draw(st.integers(1, most))
    n = draw(st.integers(d + 2, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    draws = {
        "normal": lambda: rng.normal(size=(n, steps, d)),
        "cauchy": lambda: rng.standard_cauchy((n, steps, d)),
        "integers": lambda: rng.integers(-3, 4, (n, steps, d)).astype(float),
        "flat": lambda: rng.normal(size=(n, steps, 1)) * np.ones(d),
    }
    return draws[draw(st.sampled_from(sorted(draws)))](), rng


@st.composite
def affine(draw, d):
    """A map of any condition up to 10^6, in any units, and a shift."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scales = 10.0 ** rng.uniform(-3, 3, d) * 10.0 ** draw(st.integers(-12, 12))
    turn = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(2)]
    return turn[0] * scales @ turn[1], rng.normal(size=d) * np.abs(scales).max()


def off_the_border(region, x):
    """Runs that no step has within rounding of its ellipsoid's surface."""
    radii = np.stack(
        [np.linalg.norm(x[:, k] @ A.T - b, axis=1) for k, (A, b) in enumerate(zip(region.A, region.b, strict=True))]
    )
    return (np.abs(radii - 1) > BORDER).all(0)


@costly
@given(clouds(), st.data())
def test_membership_is_the_same_under_any_affine_map(drawn, data):
    x, rng = drawn
    maps = [data.draw(affine(x.shape[2])) for _ in range(x.shape[1])]
    move = lambda y: np.stack([y[:, k] @ m.T + shift for k, (m, shift) in enumerate(maps)], axis=1)  # noqa: E731
    before, after = dpv.high_likely_set(x), dpv.high_likely_set(move(x))
    assert before.contains(x).all()
    assert after.contains(move(x)).all()
    mixed = rng.dirichlet(np.ones(len(x)), 30)[:, :, None, None] * x
    fresh = 1.6 * mixed.sum(1) - 0.6 * x.mean(0)  # in the hull of each step, inside the ellipsoid and out
    clear = off_the_border(before, fresh)
    pinned = before.pins.any(), after.pins.any()
    if not any(pinned):
        np.testing.assert_array_equal(before.contains(fresh)[clear], after.contains(move(fresh))[clear])
    assert pinned[0] <= pinned[1]  # what is flat stays flat


@costly
@given(clouds())
def test_the_order_of_runs_is_no_matter(drawn):
    x, rng = drawn
    before, after = dpv.high_likely_set(x), dpv.high_likely_set(rng.permutation(x))
    fresh = rng.normal(size=(50, *x.shape[1:])) * np.abs(x).max()
    clear = off_the_border(before, fresh)
    np.testing.assert_array_equal(before.contains(fresh)[clear], after.contains(fresh)[clear])
    for kind in KINDS:
        here, there = (make_partition(kind, before, pilot, 8) for pilot in (x, rng.permutation(x)))
        np.testing.assert_array_equal(here.codes(fresh), there.codes(fresh))


@costly
@given(clouds(), st.lists(st.integers(-150, 150), min_size=9, max_size=9), st.sampled_from(KINDS))
@example((NORMAL, np.random.default_rng(0)), [17, -30], "grid")
def test_codes_stay_when_coordinates_change_their_units(drawn, powers, kind):
    """Units that are powers of two, up to 10^90 apart: but for points on a border no cell changes its code."""
    x, rng = drawn
    if dpv.high_likely_set(x).pins.any():  # runs on a line are held to it to a few roundings of the largest unit
        powers = np.clip(powers, -12, 12)
    units = 2.0 ** np.array(powers[: x[0].size]).reshape(x[0].shape)
    compare(x, x * units, lambda y: y * units, rng, kind)


def compare(x, moved, move, rng, kind):
    here, there = (make_partition(kind, dpv.high_likely_set(y), y, 4) for y in (x, moved))
    fresh = np.concatenate([x, x.mean(0) + rng.normal(size=(60, *x.shape[1:])) * x.std(0)])
    fresh = np.round(fresh * 1024) / 1024
    clear = off_the_border(here.region, fresh)
    if kind == "grid":  # its bins are those of the box around an ellipsoid, which is as exact as the ellipsoid
        place = (fresh.reshape(len(fresh), -1) - here.cells.low) * here.cells.scale
        clear &= (np.abs(place - np.round(place)) > BORDER).all(1)
    codes = here.codes(fresh)[clear]
    assert ((codes == OUTSIDE) | (codes >= FIRST_CELL)).all()
    np.testing.assert_array_equal(codes, there.codes(move(fresh))[clear])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_what_is_held_against_the_laws_can_fail(d):
    """A region of the samples' box would not survive a turn, nor its volume."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=(40, d)) * np.arange(1, d + 1)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    before, after = (np.log(np.ptp(y, axis=0)).sum() for y in (x, x @ turn.T))
    assert (abs(before - after) > 0.01) == (d > 1)
