"""Sums over blocks do not depend on the blocks, on their order, or on the worker that adds them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dpverify as dpv
from dpverify.events.partition import grid
from dpverify.events.scores import Levels, Linear
from dpverify.sampling.count import (
    Accumulator,
    CellCounter,
    CellSum,
    Counts,
    KeptSamples,
    ResultSum,
    Statistics,
    occupied_codes,
)
from dpverify.selection.proposals import EXTREMES_KEPT, BinnedScore, Extremes
from dpverify.util.arrays import enable_x64

codes = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)  # hashed codes use all 64 bits
split = st.lists(st.integers(0, 400), max_size=6)
values = st.floats(-1e300, 1e300)

PILOT = np.random.default_rng(0).standard_normal((60, 1, 2))
PARTITION = grid(dpv.high_likely_set(PILOT), PILOT, 3)
BINNED_SCORE = BinnedScore(Linear(np.ones(2)), np.linspace(-1, 1, 5))
SIZE = 50  # of a block on a device; one size needs one compilation


def counts_of(block):
    return Counts(*np.unique(np.array(block, np.int64), return_counts=True))


def equal(first, second):
    """Whether two results, which are tuples of arrays, are equal."""
    pairs = zip(first, second, strict=True)
    return type(first) is type(second) and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@given(st.lists(codes, max_size=60), split, st.randoms(use_true_random=False))
def test_counts_of_blocks_add_up_to_the_counts_of_all_runs(runs, cuts, random):
    parts = [counts_of(block) for block in np.split(np.array(runs, np.int64), sorted(cuts))]
    random.shuffle(parts)
    whole = counts_of(runs)
    adder = ResultSum(CellCounter(PARTITION))
    for part in parts:
        adder.include(part)
    assert equal(Counts.merge(parts), whole)
    assert equal(Counts.merge([Counts.merge(parts[:2]), *parts[2:]]), whole)
    assert equal(adder.result(), whole)
    assert whole.total == len(runs) == whole.of(occupied_codes(*parts)).sum()
    assert equal(Counts.from_arrays(iter(whole.to_arrays())), whole)


@given(arrays(float, st.integers(0, 3 * EXTREMES_KEPT), elements=values), split, st.randoms(use_true_random=False))
def test_extremes_of_blocks_merge_into_the_extremes_of_all_runs(runs, cuts, random):
    parts = [Extremes.of(block) for block in np.split(runs, sorted(cuts))]
    random.shuffle(parts)
    assert equal(Extremes.merge(parts), Extremes.of(runs))
    assert equal(Extremes.merge([Extremes.merge(parts[:2]), *parts[2:]]), Extremes.of(runs))


@given(
    arrays(float, st.tuples(st.integers(1, 40), st.just(1), st.just(2)), elements=st.floats(-3, 3)),
    split,
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_accumulators_of_several_workers_merge_into_one(runs, cuts, late, random):
    """Blocks in any order, added by two workers that send their arrays, compared with all blocks in sequence."""
    blocks = [(i, block) for i, block in enumerate(np.split(runs, sorted(cuts))) if len(block)]
    measure = Statistics(
        (CellCounter(PARTITION), BINNED_SCORE, CellCounter(Levels(BINNED_SCORE.score, BINNED_SCORE.edges))),
        lambda x: np.exp(x).sum((1, 2)),
    )
    for statistics in (measure, Statistics((KeptSamples(),))):
        serial, *workers = (Accumulator(statistics) for _ in range(3))
        for block, samples in blocks:
            serial.add(block, samples)
        shuffled = blocks[:]
        random.shuffle(shuffled)
        for position, (block, samples) in enumerate(shuffled):
            workers[position > late].add(block, samples)
        sent, whole = Accumulator(statistics), Accumulator(statistics)
        for worker in workers:
            sent.merge_arrays(worker.to_arrays())
            whole.merge(worker)
        if statistics is measure:
            for a, b, c in zip(serial.to_arrays(), whole.to_arrays(), sent.to_arrays(), strict=True):
                np.testing.assert_array_equal(a, b)
                np.testing.assert_array_equal(a, c)
            counts, histogram, *_ = serial.results()
            assert counts.total == histogram.table.sum() == len(runs)
        else:
            for (kept,) in (whole.results(), sent.results()):
                assert {block: samples.tolist() for block, samples in kept.items()} == {
                    block: samples.tolist() for block, samples in blocks
                }


@given(arrays(float, (3 * SIZE, 1, 2), elements=st.floats(-4, 4)), st.permutations(range(3)))
def test_tables_on_a_device_hold_the_same_counts(runs, order):
    import jax.numpy as jnp

    sums = CellSum(CellCounter(PARTITION))
    with enable_x64():
        for block in order:
            sums.add(block, jnp.asarray(runs[block * SIZE : (block + 1) * SIZE]))
    sums.finish()
    counts = sums.result()
    whole = counts_of(PARTITION.codes(runs))
    assert counts.total == len(runs)
    assert equal(Counts(*(leaf.astype(np.int64) for leaf in counts)), whole)
    sums.finish()
    assert equal(sums.result(), counts)  # nothing is added twice
