"""The options that every study forwards to `verify`.

A study accepts the keyword arguments of `verify` and makes one `RunOptions` object of them. Each verification of the
study is a child of it, with its own random seed and its own sub-folder for checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Unpack

from dpverify.mechanisms.protocol import Mechanism
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.sampling.executors import open_pool
from dpverify.selection.objective import ScoreLearner
from dpverify.settings import Settings, SettingsChanges, VerifyOptions
from dpverify.util.arrays import Array


@dataclass(frozen=True)
class RunOptions:
    """All arguments of `verify` except the mechanism, the data sets and the claim.

    Attributes
    ----------
    settings : Settings
        The settings of the verification.
    executor : int, concurrent.futures.Executor or None
        Where runs are drawn: in this process (None), in so many processes, or by an executor.
    folder : pathlib.Path or None
        Folder for checkpoints.
    error : callable or None
        Function from samples to one error per run.
    log_lipschitz : float, pair of float or None
        Lipschitz constant of the log-density, for both data sets or one for each.
    learn : callable or None
        The user's learner of scores.
    progress : bool or None
        Whether progress is shown; None shows it on a terminal and in notebooks.
    trust_results : bool
        Whether results of an unseeded mechanism are used although its source files have changed.
    """

    settings: Settings = field(default_factory=Settings)
    executor: int | Executor | None = None
    folder: Path | None = None
    error: Callable[[Array], Array] | None = None
    log_lipschitz: float | tuple[float, float] | None = None
    learn: ScoreLearner | None = None
    progress: bool | None = None
    trust_results: bool = False

    @classmethod
    def from_keywords(cls, **options: Unpack[VerifyOptions]) -> RunOptions:
        """Build the options from the keyword arguments of `verify`, single settings included.

        Raises
        ------
        InputError
            If a keyword is unknown. The message names the nearest known one.

        Examples
        --------
        >>> RunOptions.from_keywords(test_runs=1000, progress=True).settings.test_runs
        1000
        >>> RunOptions.from_keywords(test_run=1000)
        Traceback (most recent call last):
            ...
        dpverify.errors.InputError: unknown setting 'test_run'; the nearest is 'test_runs'; all are: ...
        """
        settings = options.pop("settings", Settings())
        folder = options.pop("folder", None)
        return cls(
            executor=options.pop("executor", None),
            folder=None if folder is None else Path(folder),
            error=options.pop("error", None),
            log_lipschitz=options.pop("log_lipschitz", None),
            learn=options.pop("learn", None),
            progress=options.pop("progress", None),
            trust_results=options.pop("trust_results", False),
            settings=settings.change(**options),  # the keywords that are left are settings, or unknown
        )

    def child(self, number: int, **changes: Unpack[SettingsChanges]) -> RunOptions:
        """Return the options of verification `number` of a study: its own seed, and its own sub-folder."""
        return dataclasses.replace(
            self,
            settings=self.settings.spawn(number).change(**changes),
            folder=None if self.folder is None else self.folder / str(number),
        )

    @contextlib.contextmanager
    def share_executor(self) -> Iterator[RunOptions]:
        """Open the executor once, and yield options with which several verifications use it."""
        with open_pool(self.executor) as pool:
            yield dataclasses.replace(self, executor=pool.executor)

    def verify(
        self,
        mechanism: Mechanism,
        first: object,
        second: object,
        epsilon: float | None,
        delta: float,
        claim: object = None,
    ) -> Report:
        """Call `verify` with these options."""
        return verify(
            mechanism,
            first,
            second,
            epsilon,
            delta,
            claim=claim,
            settings=self.settings,
            executor=self.executor,
            folder=self.folder,
            error=self.error,
            log_lipschitz=self.log_lipschitz,
            learn=self.learn,
            progress=self.progress,
            trust_results=self.trust_results,
        )
