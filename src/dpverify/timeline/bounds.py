"""The bounds of every prefix of an output, for one pair of data sets. All of them are computed from stored counts."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.document import dump_json
from dpverify.report.evaluate import divide_p_value
from dpverify.report.sequence import StoppedBy
from dpverify.report.statements import OnPartition, Verdict
from dpverify.settings import Settings
from dpverify.stats.claim_kinds import Approximate, Claim
from dpverify.stats.curve_test import parameter_lower_bound
from dpverify.stats.frontier_cover import quick_epsilon_upper_bound
from dpverify.stats.lower_bound import epsilon_lower_bound
from dpverify.stats.profile import small_curve_p_value
from dpverify.timeline.events import PrefixEvents
from dpverify.timeline.looks import plan_looks
from dpverify.util.checks import check_epsilon
from dpverify.util.dataframes import make_dataframe
from dpverify.util.formatting import format_number
from dpverify.util.serialization import to_plain

if TYPE_CHECKING:
    import pandas


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
        lines = [f"budget epsilon {format_number(self.epsilon)}, delta {format_number(self.delta)}:"]
        if self.bounded:
            steps = "the first step stays" if self.bounded == 1 else f"the first {self.bounded} steps stay"
            lines.append(f"  {steps} within it, over unions of cells; other events are not bounded")
        if self.exceeded is not None:
            lines.append(f"  {self.exceeded} steps or more exceed it; this is proved")
        if self.unknown:
            first, last = self.unknown[0], self.unknown[-1]
            span = f"{first} steps" if first == last else f"{first} to {last} steps"
            lines.append(f"  unknown for {span}; more test_runs narrow this down")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class PrefixBounds:
    """What the test runs prove about every prefix; `PrivacyOverTime` describes the fields, and adds text and pages."""

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
        return isinstance(other, PrefixBounds) and self.digest == other.digest

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
        """The number of test runs per data set; with `stop_early` those that were drawn."""
        return int(self.counts[0, 0].sum())

    @property
    def share(self) -> float:
        """The share of alpha of these statements: 1, or with `stop_early` that of the look that ended the run."""
        return next(look.share for look in plan_looks(self.settings) if look.runs == self.runs)

    @property
    def look_alpha(self) -> float:
        """The level of the statements of this look."""
        return self.share * self.alpha

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
        return self.look_alpha / int(self.events.tested.sum())

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
        level = self.look_alpha / self.steps
        return OnPartition(first, second, np.ones(cells, np.int64), self.runs, level, cells, 0.0)

    @functools.cached_property
    def epsilon_upper(self) -> np.ndarray:
        """Upper bounds on epsilon over unions of cells, one per step, for all steps together; may be infinite."""
        parts = [self.on_partition(step) for step in range(self.steps)]
        deltas = [self.delta if part.is_bounded_at(self.delta) else 0.0 for part in parts]
        return np.array(
            [quick_epsilon_upper_bound(p.c1, p.c2, p.runs, d, p.alpha) for p, d in zip(parts, deltas, strict=True)]
        )

    @functools.cached_property
    def p_values(self) -> np.ndarray | None:
        """The p-value of the claim for every prefix on its own, over all looks together; None without a claim."""
        if self.claim is None:
            return None
        values = []
        for c1, c2 in self.event_counts.tolist():
            p_value = small_curve_p_value(c1, c2, self.runs, self.claim, self.look_alpha)
            values.append(divide_p_value(p_value, self.share, self.alpha))
        return np.array(values)

    @property
    def refuted_from(self) -> int | None:
        """The earliest step from which on the claim is proved to be false, or None.

        The prefixes are tested from the longest to the shortest at level alpha, until one is not refuted. The statement
        holds with confidence 1 - alpha for one claim that was fixed before the runs. For claims that are chosen later,
        use `epsilon_lower`, which holds for all epsilons together.
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
    def stopped(self) -> StoppedBy | None:
        """Why a run with `stop_early` ended: "refuted", "bounded" or "budget"; None without `stop_early`."""
        if not self.settings.stop_early:
            return None
        if self.voiding or self.runs == self.settings.test_runs:
            return StoppedBy.BUDGET
        return StoppedBy.REFUTED if self.refuted else StoppedBy.BOUNDED

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
