"""The privacy of every prefix of an output, for one pair of data sets. All bounds are computed from stored counts."""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import numpy as np

from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.document import dump_json
from dpverify.report.statements import OnPartition, Verdict
from dpverify.settings import Settings
from dpverify.stats.claim_kinds import Approximate, Claim
from dpverify.stats.curve_test import parameter_lower_bound
from dpverify.stats.frontier_cover import quick_epsilon_upper_bound
from dpverify.stats.lower_bound import epsilon_lower_bound
from dpverify.stats.profile import small_curve_p_value
from dpverify.timeline import documents, texts
from dpverify.timeline.events import PrefixEvents
from dpverify.util.checks import check_epsilon
from dpverify.util.dataframes import make_dataframe
from dpverify.util.files import write_file
from dpverify.util.serialization import to_plain

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class StreamBudget(NamedTuple):
    """For how many steps an output may be released under a budget (`PrivacyOverTime.until`).

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    bounded : int
        The first so many steps together are within the budget, over unions of the cells of their partitions.
    exceeded : int or None
        The number of steps that is proved to exceed the budget, over all events; None if nothing is proved.
    steps : int
        The number of steps of the output.
    """

    epsilon: float
    delta: float
    bounded: int
    exceeded: int | None
    steps: int

    @property
    def unknown(self) -> tuple[int, ...]:
        """The numbers of steps about which nothing is known."""
        end = self.steps + 1 if self.exceeded is None else self.exceeded
        return tuple(range(self.bounded + 1, end))

    def __str__(self) -> str:
        """Return the answer in words."""
        return texts.budget_text(self)


@dataclass(frozen=True)
class PrivacyOverTime:
    """The privacy of every prefix of an output: how much the steps 0 to k reveal together, for every k.

    The lower bounds hold over all events and for all steps together, with confidence 1 - alpha. The upper bounds hold
    over unions of the cells of one partition per prefix, for all steps together, with confidence 1 - alpha. Steps count
    from 0. `print` shows a table.

    Attributes
    ----------
    name : str
        The name of the mechanism.
    record : str
        The name of the record in which the two data sets differ; "" without a name.
    delta : float
        The delta at which epsilon is bounded.
    claim : Claim or None
        The claim.
    events : PrefixEvents
        The selected event of every prefix, which was fixed before the test runs.
    counts : ndarray of shape (2, K, E + 1)
        Test runs of each data set in the level sets of every prefix.
    shape : tuple of int
        Steps K and dimensions of one output.
    settings : Settings
        The settings.
    seeded : bool
        Whether the mechanism can be seeded.
    diagnostics : tuple of Diagnostic
        Findings that a reader must know.
    truth : ndarray of shape (K,) or None
        The exact epsilon of every prefix if the mechanism knows it (its method `truth`), otherwise None.
    run : dict
        Time, versions, device and workers; not part of the result.

    Examples
    --------
    >>> import numpy as np
    >>> import dpverify as dpv
    >>> def noisy_stream(data, runs, rng):  # every output is the current reading with Laplace noise
    ...     return data + rng.laplace(size=(runs, len(data), 1))
    >>> first, second = np.zeros((4, 1)), np.array([[0.0], [0.0], [1.0], [1.0]])
    >>> over_time = dpv.privacy_over_time(noisy_stream, first, second, select_runs=4000, test_runs=20_000)
    >>> over_time.start, bool(over_time.epsilon_lower[3] > 1.0)
    (2, True)
    """

    name: str
    record: str
    delta: float
    claim: Claim | None
    events: PrefixEvents
    counts: np.ndarray
    shape: tuple[int, int]
    settings: Settings
    seeded: bool
    diagnostics: tuple[Diagnostic, ...]
    truth: np.ndarray | None
    run: dict[str, Any]

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Return whether both results have the same digest."""
        return isinstance(other, PrivacyOverTime) and self.digest == other.digest

    @property
    def steps(self) -> int:
        """The number of steps K."""
        return self.shape[0]

    @property
    def alpha(self) -> float:
        """One minus the confidence of the lower bounds, of the upper bounds, and of the test of the claim."""
        return self.settings.alpha

    @property
    def runs(self) -> int:
        """The number of test runs per data set."""
        return self.settings.test_runs

    @property
    def voiding(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that make the bounds meaningless."""
        return tuple(diagnostic for diagnostic in self.diagnostics if diagnostic.voids)

    @functools.cached_property
    def event_counts(self) -> np.ndarray:
        """Test runs in the event of every prefix, of shape (K, 2): first the data set that is expected to have more."""
        pairs = []
        for step, direction in enumerate(self.events.direction.tolist()):
            index = int(np.searchsorted(self.events.edges[step], self.events.threshold[step])) + 1
            above = self.counts[:, step, index:].sum(-1)
            pairs.append(above if direction == 0 else (self.counts[:, step].sum(-1) - above)[::-1])
        return np.array(pairs)

    @property
    def step_alpha(self) -> float:
        """The level of the bound of one prefix: the prefixes that are tested share alpha."""
        return self.alpha / int(self.events.tested.sum())

    @functools.cached_property
    def epsilon_lower(self) -> np.ndarray:
        """Lower bounds on epsilon, one per step, over all events and for all steps together.

        A longer prefix reveals at least as much as a shorter one, so a bound also holds for all later steps.
        """
        return self._accumulate(lambda c1, c2: epsilon_lower_bound(c1, c2, self.runs, self.delta, self.step_alpha))

    @functools.cached_property
    def claim_lower(self) -> np.ndarray | None:
        """Lower bounds on the claim's own parameter (epsilon, mu, rho), as `epsilon_lower`; None if it has none."""
        claim = self.claim
        if claim is None or claim.parameter_name is None:
            return None
        if isinstance(claim, Approximate):
            return self.epsilon_lower
        runs = self.runs, self.runs
        return self._accumulate(lambda c1, c2: parameter_lower_bound(c1, c2, runs, claim, self.step_alpha) or 0.0)

    def _accumulate(self, bound: Any) -> np.ndarray:
        """Return the largest bound of each prefix and the prefixes before it."""
        single = [
            bound(int(c1), int(c2)) if tested else 0.0
            for (c1, c2), tested in zip(self.event_counts, self.events.tested, strict=True)
        ]
        return np.maximum.accumulate(np.array(single, float))

    def on_partition(self, step: int) -> OnPartition:
        """Return the upper bounds over unions of the level sets of one prefix; all prefixes together at 1 - alpha."""
        cells = int(np.isfinite(self.events.edges[step]).sum()) + 1
        first, second = self.counts[:, step, :cells]
        return OnPartition(first, second, np.ones(cells, np.int64), self.runs, self.alpha / self.steps, cells, 0.0)

    @functools.cached_property
    def epsilon_upper(self) -> np.ndarray:
        """Upper bounds on epsilon over unions of cells, one per step, for all steps together; may be infinite."""
        parts = [self.on_partition(step) for step in range(self.steps)]
        return np.array([quick_epsilon_upper_bound(p.c1, p.c2, p.runs, self.delta, p.alpha) for p in parts])

    @functools.cached_property
    def p_values(self) -> np.ndarray | None:
        """The p-value of the claim for every prefix on its own; None without a claim."""
        if self.claim is None:
            return None
        pairs = [(int(c1), int(c2)) for c1, c2 in self.event_counts]
        return np.array([small_curve_p_value(*pair, self.runs, self.claim, self.alpha) for pair in pairs])

    @property
    def refuted_from(self) -> int | None:
        """The earliest step from which on the claim is proved to be false, or None.

        The prefixes are tested from the longest to the shortest at level alpha, until one is not refuted. The statement
        holds with confidence 1 - alpha.
        """
        if self.p_values is None or self.voiding:
            return None
        kept = np.flatnonzero(self.p_values > self.alpha)
        earliest = int(kept[-1]) + 1 if kept.size else 0
        return earliest if earliest < self.steps else None

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted for the whole output."""
        return self.refuted_from is not None

    @functools.cached_property
    def verdict(self) -> Verdict:
        """The verdict about the claim for the whole output."""
        if self.voiding:
            return Verdict.NO_ANSWER
        if self.claim is None:
            return Verdict.MEASURED
        if self.refuted:
            return Verdict.REFUTED
        bounded = all(self.on_partition(step).meets_claim(self.claim) for step in range(self.steps))
        return Verdict.BOUNDED if bounded else Verdict.NOT_REFUTED

    @property
    def start(self) -> int | None:
        """The first step at which a privacy loss is proved, or None."""
        positive = np.flatnonzero(self.epsilon_lower > 0)
        return int(positive[0]) if positive.size else None

    @property
    def final(self) -> float:
        """The lower bound on epsilon of the whole output."""
        return float(self.epsilon_lower[-1])

    @property
    def increments(self) -> np.ndarray:
        """What each new output adds to the lower bound. The sum is a bound; a single increment is not."""
        return np.diff(self.epsilon_lower, prepend=0.0)

    @property
    def spent(self) -> np.ndarray:
        """The share of the final lower bound that is reached at each step; 0 if nothing is proved."""
        return self.epsilon_lower / self.final if self.final > 0 else np.zeros(self.steps)

    def until(self, epsilon: float) -> StreamBudget:
        """Return for how many steps the output may be released under a privacy budget.

        Parameters
        ----------
        epsilon : float
            The budget, at the delta of this result.

        Returns
        -------
        StreamBudget
            How many steps are bounded, which number of steps is proved to be too many, and what is unknown. Nothing is
            known if a diagnostic makes the bounds meaningless.
        """
        check_epsilon(epsilon)
        if self.voiding:
            return StreamBudget(epsilon, self.delta, 0, None, self.steps)
        above = np.flatnonzero(self.epsilon_lower > epsilon)
        over = np.flatnonzero(self.epsilon_upper > epsilon)
        bounded = int(over[0]) if over.size else self.steps
        exceeded = int(above[0]) + 1 if above.size else None
        if exceeded is not None:
            bounded = min(bounded, exceeded - 1)
        return StreamBudget(epsilon, self.delta, bounded, exceeded, self.steps)

    def rows(self) -> list[dict[str, object]]:
        """Return one row per step."""
        truth = [None] * self.steps if self.truth is None else self.truth.tolist()
        return [
            {
                "record": self.record,
                "step": step,
                "delta": self.delta,
                "epsilon_lower": float(self.epsilon_lower[step]),
                "epsilon_upper_on_partition": float(self.epsilon_upper[step]),
                "increment": float(self.increments[step]),
                "spent": float(self.spent[step]),
                "p_value": None if self.p_values is None else float(self.p_values[step]),
                "claim_lower": None if self.claim_lower is None else float(self.claim_lower[step]),
                "c1": int(self.event_counts[step, 0]),
                "c2": int(self.event_counts[step, 1]),
                "test_runs": self.runs,
                "exact": truth[step],
            }
            for step in range(self.steps)
        ]

    def to_dataframe(self) -> pandas.DataFrame:
        """Return one row per step as a pandas DataFrame (needs pandas)."""
        return make_dataframe(self.rows())

    @functools.cached_property
    def digest(self) -> str:
        """A hash of the result. It does not depend on executor, number of workers or order of blocks."""
        plain = to_plain(self)
        return hashlib.sha256(dump_json({name: plain[name] for name in plain if name != "run"}).encode()).hexdigest()

    def to_json(self, path: str | Path | TextIO) -> None:
        """Write the result as JSON to a file, or to a stream that is open for text."""
        documents.write_result(self, {"steps": self.rows()}, path)

    @classmethod
    def from_json(cls, path: str | Path) -> PrivacyOverTime:
        """Read a result that `to_json` wrote. All bounds are computed from the counts in the file."""
        return documents.read_result(cls, path)

    def to_html(self, path: str | Path) -> None:
        """Write the result as one self-contained HTML page (needs `dpverify[report]`)."""
        write_file(path, documents.load_pages().curve_page(self))

    def plot(self) -> Figure:
        """Return a figure of the bounds of every step (needs `dpverify[report]`)."""
        return documents.load_pages().curve_plot(self)

    def __str__(self) -> str:
        """Return the result as plain text."""
        return texts.curve_text(self)

    def __repr__(self) -> str:
        """Return name, number of steps and the final bound."""
        bound = "no answer" if self.voiding else f"epsilon >= {math.floor(self.final * 1e4) / 1e4:g}"
        return f"<PrivacyOverTime {self.name}: {self.steps} steps, {bound}>"
