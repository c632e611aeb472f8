"""The looks of `privacy_over_time`: after how many test runs it may end, and which share of alpha each look has.

The events are fixed before the first test run, so only the number of test runs has to be decided. Every look has its
own share of alpha. The statements of all looks therefore hold together, and so do those of the look that ends the run.
"""

from __future__ import annotations

from typing import NamedTuple

from dpverify.settings import Settings

EARLY_LOOKS = ((16, 0.1), (4, 0.1))  # a look after one 16th of the test runs has 10% of alpha, and so on
MIN_BLOCKS = 4  # before a look, so that noise that the runs of a block share is noticed


class PlannedLook(NamedTuple):
    """A number of test runs per data set, and the share of alpha of the statements that are made there."""

    runs: int
    share: float


def plan_looks(settings: Settings) -> tuple[PlannedLook, ...]:
    """Return the looks in their order: the last one is after all test runs, and is the only one without `stop_early`.

    An early look is after whole blocks. Looks after equal numbers of runs are one look, with the first share.

    Examples
    --------
    >>> plan_looks(Settings(test_runs=6400, block=100, stop_early=True))
    (PlannedLook(runs=400, share=0.1), PlannedLook(runs=1600, share=0.1), PlannedLook(runs=6400, share=0.8))
    >>> plan_looks(Settings(test_runs=6400))
    (PlannedLook(runs=6400, share=1.0),)
    """
    runs, block = settings.test_runs, settings.block or 1
    early: dict[int, float] = {}
    for divisor, share in EARLY_LOOKS if settings.stop_early else ():
        part = max(-(-runs // (divisor * block)), MIN_BLOCKS) * block
        if part < runs:
            early.setdefault(part, share)
    return (*(PlannedLook(*look) for look in early.items()), PlannedLook(runs, 1.0 - sum(early.values())))
