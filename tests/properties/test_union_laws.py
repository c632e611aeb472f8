"""Properties of bounds over unions of cells: they depend on the counts of the cells only.

A bound need not fall in alpha, because it depends on alpha which limit a union has, the joint one or two separate ones.
A bound at delta 0, from single cells, is not comparable with a bound at a small delta, from all unions.
"""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dpverify as dpv
from dpverify.report.statements import CellBounds, distinct_pairs
from dpverify.stats.paper import eta_upper_bound

levels = st.floats(1e-6, 0.5)
claims = st.floats(0, 5)
deltas = st.floats(1e-3, 0.9)
costly = settings(max_examples=settings().max_examples // 4)  # each example is a search over epsilon and over unions


@st.composite
def tables(draw, cells=6):
    """Draw two columns of counts, and numbers of runs that are at least their sums."""
    count = st.integers(0, draw(st.sampled_from([3, 50, 10_000])))
    columns = draw(st.lists(st.tuples(count, count), min_size=1, max_size=cells))
    c1, c2 = np.array(columns).T
    extra = st.just(0) | st.integers(0, 1000)
    return c1, c2, (max(1, int(c1.sum()) + draw(extra)), max(1, int(c2.sum()) + draw(extra)))


def on_partition(table, alpha):
    c1, c2, runs = table
    return CellBounds(*distinct_pairs(c1, c2), max(runs), alpha, len(c1), (1, 1))


@given(tables(), levels, claims, st.floats(0, 1))
def test_delta_upper_falls_in_epsilon(table, alpha, epsilon, more):
    part = on_partition(table, alpha)
    assert part.delta_upper(epsilon + more) <= part.delta_upper(epsilon) + tolerance(table)
    assert (np.diff(part.curve(np.array([epsilon, epsilon + more]))) <= tolerance(table)).all()


def tolerance(table):
    """Return the tolerance of the search along the frontier, in standard errors of the first count."""
    return 1e-3 / math.sqrt(min(table[2]))


@costly
@given(tables(), levels, claims, deltas, st.randoms(use_true_random=False))
@example((np.array([3, 1, 1]), np.array([3, 0, 1]), (10, 10)), 0.05, 0.0, 0.1, None)
def test_bounds_do_not_depend_on_the_order_of_the_cells(table, alpha, epsilon, delta, random):
    c1, c2, runs = table
    order = np.arange(len(c1))[::-1].copy()
    if random is not None:
        random.shuffle(order)
    for bound, claim in ((dpv.delta_upper_bound, epsilon), (dpv.epsilon_upper_bound, delta)):
        assert bound(c1, c2, runs, claim, alpha) == bound(c1[order], c2[order], runs, claim, alpha)
    assert dpv.epsilon_upper_bound(c1, c2, runs, 0.0, alpha) == dpv.epsilon_upper_bound(
        c1[order], c2[order], runs, 0.0, alpha
    )
    assert eta_upper_bound(c1, runs[0], alpha) == eta_upper_bound(c1[order], runs[0], alpha)


@costly
@given(tables(), levels, claims)
def test_a_coarser_partition_has_a_smaller_bound(table, alpha, epsilon):
    c1, c2, runs = table
    coarse = [np.append(c[2:], c[:2].sum()) for c in (c1, c2)]
    bound = dpv.delta_upper_bound(*table, epsilon, alpha)
    assert dpv.delta_upper_bound(*coarse, runs, epsilon, alpha) <= bound + tolerance(table)


@costly
@given(tables(), levels, claims, deltas)
def test_bounds_are_symmetric_in_the_data_sets(table, alpha, epsilon, delta):
    c1, c2, (m1, m2) = table
    swapped = c2, c1, (m2, m1)
    assert on_partition(table, alpha).delta_upper(epsilon) == on_partition(swapped, alpha).delta_upper(epsilon)
    assert dpv.epsilon_upper_bound(*table, 0.0, alpha) == dpv.epsilon_upper_bound(*swapped, 0.0, alpha)
    bound = dpv.epsilon_upper_bound(*table, delta, alpha)
    # The search in the second order starts at the result of the first, so the last digits may differ.
    assert bound == pytest.approx(dpv.epsilon_upper_bound(*swapped, delta, alpha), rel=1e-5, abs=1e-5)


@costly
@given(tables(), levels, deltas, st.floats(1, 10))
def test_epsilon_upper_falls_in_delta_and_agrees_with_delta_upper(table, alpha, delta, factor):
    part = on_partition(table, alpha)
    epsilon = part.epsilon_upper(delta)
    assert part.epsilon_upper(delta / factor) >= epsilon * (1 - 1e-5) - 1e-5
    if epsilon < math.inf:
        assert part.delta_upper(epsilon) <= delta
        assert part.meets_claim(dpv.claims.approximate(epsilon, delta))


@given(tables(), levels, claims)
def test_upper_bounds_lie_above_the_plug_in_estimate(table, alpha, epsilon):
    c1, c2, (m1, m2) = table
    plug_in = np.maximum(c1 / m1 - math.exp(epsilon) * c2 / m2, 0).sum()
    assert dpv.delta_upper_bound(*table, epsilon, alpha) >= min(1, plug_in) - 1e-12
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.abs(np.log(c1 / m1) - np.log(c2 / m2))
    assert dpv.epsilon_upper_bound(*table, 0.0, alpha) >= np.nanmax(ratio, initial=0.0) - 1e-12


@given(tables())
def test_distinct_pairs_represent_every_cell(table):
    c1, c2, _ = table
    d1, d2, number = distinct_pairs(c1, c2)
    restored = sorted(zip(np.repeat(d1, number).tolist(), np.repeat(d2, number).tolist(), strict=True))
    assert restored == sorted(zip(c1.tolist(), c2.tolist(), strict=True))
