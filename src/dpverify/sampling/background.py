"""Counting in a second thread, while the mechanism draws the next block in this one.

NumPy computes without Python's global lock, so that two cores share the work. The mechanism is always called in the
thread that called `verify`. Only code of dpverify runs in the second thread, on a copy of the samples.
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from dpverify.sampling.block_sums import BlockSums
from dpverify.util.parallel import available_cores

# The second thread saves at most the shorter one of drawing and counting. Handing over a block takes time too.
MIN_SAVED_SECONDS = 3e-4  # per block
MIN_SAVED_SHARE = 0.15  # of the time of a block
MAX_RELATIVE_SECONDS = 1.3  # the second thread is given up if a block takes so many times as long as without it


class PendingBlock(NamedTuple):
    """A block that the second thread is adding to some sums."""

    sums: BlockSums
    side: int
    block: int
    added: Future[None]


class BackgroundCounter:
    """Adds blocks to sums, in a second thread if this saves time.

    The first blocks are added in this thread and timed. A block in the second thread has been added when `wait`
    returns; until then its sums are not consistent.
    """

    def __init__(self, pool: ThreadPoolExecutor | None):
        self._pool = pool
        self._pending: PendingBlock | None = None
        self._is_overlapping = False
        self._counting_seconds = 0.0  # of the blocks since the last call of `choose`, in this thread
        self._seconds_alone = np.inf  # of one block that is drawn and then counted
        self._overlapping_blocks, self._overlapping_seconds = 0, 0.0

    def add(self, sums: BlockSums, side: int, block: int, samples: np.ndarray) -> None:
        """Add the samples of one block, or start to add them."""
        self.wait()
        if self._pool is None or not self._is_overlapping:
            start = time.perf_counter()
            sums.add(side, block, samples)
            self._counting_seconds += time.perf_counter() - start
            return
        # The samples are copied, because a mechanism may use its array again. The order of the numbers in memory stays,
        # because it determines the rounding of sums. The context has NumPy's error handling.
        run, copied = contextvars.copy_context().run, samples.copy(order="K")
        sums.is_consistent = False
        try:
            added = self._pool.submit(run, sums.accumulators[side].add, block, copied)
        except RuntimeError:
            # No thread can be started. The pool may keep the block, but it has no thread and is not used again.
            self._pool = None
            sums.add(side, block, samples)
            return
        self._pending = PendingBlock(sums, side, block, added)

    def wait(self) -> None:
        """Wait until all blocks have been added; raise the exception of the second thread, if there was one."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None  # first: after an interruption the sums stay inconsistent
        pending.added.result()
        pending.sums.done[pending.side].append((pending.block, pending.block + 1))
        pending.sums.is_consistent = True

    def choose(self, blocks: int, seconds: float) -> None:
        """Decide for the next blocks whether the second thread is used, given the duration of the last blocks.

        A mechanism that holds Python's global lock slows the second thread down. The thread is then given up for this
        stage.
        """
        if self._pool is None:
            return
        if self._is_overlapping:
            self._overlapping_blocks += blocks
            self._overlapping_seconds += seconds
            if self._overlapping_seconds > MAX_RELATIVE_SECONDS * self._seconds_alone * self._overlapping_blocks:
                self._pool = None
            return
        counting, self._counting_seconds = self._counting_seconds, 0.0
        self._seconds_alone = seconds / blocks
        saved = min(counting, seconds - counting)
        self._is_overlapping = saved > max(blocks * MIN_SAVED_SECONDS, MIN_SAVED_SHARE * seconds)


@contextlib.contextmanager
def background_counter(is_allowed: bool) -> Iterator[BackgroundCounter]:
    """Provide a counter for the blocks of a stage; its thread ends with the context."""
    if not is_allowed or available_cores() < 2:
        yield BackgroundCounter(None)
        return
    with ThreadPoolExecutor(1, "dpverify-counting") as pool:
        yield BackgroundCounter(pool)
