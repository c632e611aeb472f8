"""The schedule of a verification that may stop early: batches, selections and looks, and the parts of alpha.

Nothing here depends on the number of test runs, except the ends of budgets. So a verification can be continued with
more test runs: it repeats the same batches up to the end of its first budget, and goes on from there.

The lower bound and the upper bounds have an alpha each, as in every verification. Of the first, `EARLY_SHARE` (in
`report.sequence`) is for the wealth, and the rest is for the exact test at the end of the first budget. The second is
divided among the looks at the upper bounds (docs/method.md, section 5.8).
"""

from __future__ import annotations

from typing import NamedTuple

from dpverify.sampling.blocks import FIRST_COMPILED_BLOCK

LOOK_SHARES = (0.05, 0.1, 0.4, 0.1)  # of the looks after the partition was fixed; a later look has half of the last
BUDGET_LOOK_SHARE = 0.25  # of the look at the end of the first budget
MIN_BATCH = 4
BATCH_SHARE = 1 / 16  # of the runs so far
BLOCKS_PER_BATCH = 8  # so that several workers can share a batch
COMPILED_BLOCKS = (
    FIRST_COMPILED_BLOCK,
    512,
    4096,
)  # the only block sizes of a mechanism that JAX compiles for each size
SELECTION_RATIO = 4  # between the runs of two selections
MIN_SELECTION_RUNS = 128
PLANNED_RATIO = 4  # test runs that a selection plans for, in selection runs


def batch_size(runs: int, block: int = 1) -> int:
    """Return the size of the batch after so many runs; it has at least one block.

    Examples
    --------
    >>> batch_size(16), batch_size(1600), batch_size(16, block=64)
    (4, 100, 64)
    """
    return max(MIN_BATCH, int(runs * BATCH_SHARE), block)


def block_size(batch: int, sizes: tuple[int, ...] = ()) -> int:
    """Return the block size of a batch: a power of two with about `BLOCKS_PER_BATCH` blocks, or one of given sizes.

    Examples
    --------
    >>> block_size(4), block_size(1000), block_size(1000, COMPILED_BLOCKS)
    (4, 64, 512)
    """
    if sizes:
        return max([size for size in sizes if size <= batch], default=sizes[0])
    size = MIN_BATCH
    while 2 * size * BLOCKS_PER_BATCH <= batch:
        size *= 2
    return size


def look_share(number: int) -> float:
    """Return the share of the upper bounds' alpha of look `number`, from 0 up; all shares sum to 1 at most.

    Examples
    --------
    >>> BUDGET_LOOK_SHARE + sum(look_share(number) for number in range(60)) <= 1
    True
    """
    last = len(LOOK_SHARES) - 1
    return LOOK_SHARES[min(number, last)] * 0.5 ** max(number - last, 0)


class Schedule(NamedTuple):
    """When something other than a batch happens, in runs per data set.

    Attributes
    ----------
    selections : tuple of int
        When events are selected. The last selection freezes the event of the exact test.
    ends : tuple of int
        The ends of the budgets: that of this call, and before it those of the calls that it continues.
    """

    selections: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def make(cls, first_runs: int, select_runs: int, budgets: tuple[int, ...]) -> Schedule:
        """Return the schedule.

        Parameters
        ----------
        first_runs : int
            The runs before the first bet.
        select_runs : int
            The runs after which the event is frozen.
        budgets : tuple of int
            Numbers of test runs.

        Examples
        --------
        >>> Schedule.make(16, 50_000, (200_000,))
        Schedule(selections=(195, 781, 3125, 12500, 50000), ends=(250000,))
        """
        frozen = max(select_runs, first_runs)
        sizes = [frozen]
        while sizes[-1] // SELECTION_RATIO >= max(MIN_SELECTION_RUNS, first_runs):
            sizes.append(sizes[-1] // SELECTION_RATIO)
        return cls(tuple(sizes[::-1]), tuple(frozen + budget for budget in budgets))

    @property
    def frozen(self) -> int:
        """When the event of the exact test is frozen."""
        return self.selections[-1]

    @property
    def fixed(self) -> int:
        """When the partition that is bounded is fixed."""
        return self.selections[-2:][0]

    def look_number(self, runs: int) -> int | None:
        """Return the number of the look that is due after so many runs, from 0 up, or None: the looks double."""
        number, look = 0, 2 * self.fixed
        while look < runs:
            number, look = number + 1, 2 * look
        return number if look == runs else None

    def next_stop(self, runs: int) -> int:
        """Return after how many runs the current batch has to end."""
        look = 2 * self.fixed
        while look <= runs:
            look *= 2
        return min([look, *(stop for stop in (*self.selections, *self.ends) if stop > runs)])
