"""Sums over blocks do not depend on the blocks, on their order, or on the worker that adds them."""

import json

import jax
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
    Counts,
    KeptSamples,
    MeanError,
    as_arrays,
    from_arrays,
    occupied_codes,
)
from dpverify.selection.proposals import BinnedScore, BinnedScores

codes = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5)  # hashed codes use all 64 bits
split = st.lists(st.integers(0, 400), max_size=6)
values = st.floats(-1e300, 1e300)

PILOT = np.random.default_rng(0).standard_normal((60, 1, 2))
PARTITION = grid(dpv.high_likely_set(PILOT), PILOT, 3)
BINNED_SCORE = BinnedScore(Linear(np.ones(2)), np.linspace(-1, 1, 5))


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
    assert equal(Counts.merge(parts), whole)
    assert equal(Counts.merge([Counts.merge(parts[:2]), *parts[2:]]), whole)
    assert whole.total == len(runs) == whole.of(occupied_codes(*parts)).sum()


@given(
    arrays(float, st.tuples(st.integers(1, 40), st.just(1), st.just(2)), elements=st.floats(-3, 3)),
    split,
    st.integers(0, 3),
    st.randoms(use_true_random=False),
)
def test_accumulators_of_several_workers_merge_into_one(runs, cuts, late, random):
    """Blocks in any order, added by two workers that send their arrays, compared with all blocks in sequence."""
    blocks = [(i, block) for i, block in enumerate(np.split(runs, sorted(cuts))) if len(block)]
    levels = CellCounter(Levels(BINNED_SCORE.score, BINNED_SCORE.edges))
    measure = (CellCounter(PARTITION), BinnedScores((BINNED_SCORE,)), levels, MeanError(lambda x: x.sum((1, 2))))
    for statistics in (measure, (KeptSamples(),)):
        serial, *workers = (Accumulator(statistics) for _ in range(3))
        for block, samples in blocks:
            serial.add(block, samples)
        shuffled = blocks[:]
        random.shuffle(shuffled)
        for position, (block, samples) in enumerate(shuffled):
            workers[position > late].add(block, samples)
        sent, whole = Accumulator(statistics), Accumulator(statistics)
        for worker in workers:
            results = worker.results()
            if results:
                places = as_arrays(results, stored := [])
                sent.merge(from_arrays(json.loads(json.dumps(places)), stored))
                whole.merge(results)
        for one in (whole, sent):
            if statistics is measure:
                for a, b in zip(serial.results()[:3], one.results()[:3], strict=True):
                    assert jax.tree.structure(a) == jax.tree.structure(b)
                    assert all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))
                assert one.results()[3].mean(len(runs)) == serial.results()[3].mean(len(runs))
                counts, (histogram,), *_ = one.results()
                assert counts.total == histogram.table.sum() == len(runs)
            elif blocks:
                ((numbers, samples),) = one.results()
                kept = {number: own.tolist() for number, own in zip(numbers.tolist(), samples, strict=True)}
                assert kept == {block: samples.tolist() for block, samples in blocks}
