"""What may be said of the counts, each with its scope in its name: all events, unions of cells, the paper's."""

from __future__ import annotations

import enum
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpverify.errors import InputError
from dpverify.events.event import Event
from dpverify.settings import Settings
from dpverify.stats.binomial import lower_limit, upper_limit
from dpverify.stats.lower_bound import claim_p_value, epsilon_lower_bound
from dpverify.stats.paper_test import critical_epsilon, p_values, paper_lambda
from dpverify.stats.power import MAX_PLANNED_RUNS, detectable_epsilon, plan_runs
from dpverify.stats.upper_bound import (
    delta_upper_bound,
    epsilon_upper_bound,
    frontier,
    frontier_bound,
    smallest_epsilon,
)
from dpverify.util.checks import check_delta, check_epsilon
from dpverify.util.formatting import format_count, format_number, format_percent

THINNING_KEY, SWEEP_KEY = 100, 101  # spawn keys of the paper's random p-values, apart from those of the stages
PROFILE_EPSILONS = (
    0,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.65,
    0.8,
    1,
    1.25,
    1.5,
    1.75,
    2,
    2.5,
    3,
    3.5,
    4,
    5,
    6,
    8,
    10,
    12,
    15,
)
P_VALUE_FLOOR = (
    2e-3  # times alpha: no p-value of the test at level alpha is much smaller; below, `small_p_value` has steps
)
SMALLEST_LEVEL = 1e-12


class Verdict(enum.Enum):
    """The value is the sentence that is printed."""

    REFUTED = "the claim is false: an event was found that breaks it"
    BOUNDED = "no union of this partition's cells breaks the claim; other events are not bounded"
    NOT_REFUTED = "no event was found that breaks the claim, which does not prove that it holds"
    MEASURED = "no claim was made; this is what was measured"


@dataclass(frozen=True)
class Witness:
    """The frozen event and how often each data set fell into it in the test runs."""

    event: Event
    counts: tuple[int, int]
    runs: int
    alpha: float
    text: str
    shape: tuple[int, int]  # steps and dimensions of one output

    @property
    def direction(self) -> tuple[int, int]:
        """(i, j): tested was whether P_i <= e^eps P_j + delta, with the first data set 1 and the second 2."""
        return (1, 2) if self.event.direction == 0 else (2, 1)

    @property
    def ordered(self) -> tuple[int, int]:
        """The counts, that of the exceeding side first."""
        first, second = self.counts
        return (first, second) if self.event.direction == 0 else (second, first)

    @property
    def probabilities(self) -> tuple[tuple[float, float, float], ...]:
        """For each side the share of its runs, and two-sided Clopper-Pearson limits at 1 - alpha."""
        a, m = self.alpha / 2, self.runs
        return tuple((c / m, float(lower_limit(c, m, a)), float(upper_limit(c, m, a))) for c in self.counts)

    @property
    def cell(self) -> int | None:
        """The code of the cell, where the event is a single one of a given partition."""
        return self.event.cell

    @property
    def step(self) -> int | None:
        """0 where an output has only one step, None where it has several."""
        return 0 if self.shape[0] == 1 else None

    def contains(self, samples: Any) -> np.ndarray:
        """Which runs of (runs,), (runs, d) or (runs, K, d) fall into the event."""
        samples, (steps, dimension) = np.asarray(samples, float), self.shape
        if samples.size % (steps * dimension) or (samples.ndim > 1 and samples.shape[-1] != dimension):
            raise InputError(
                f"samples: found shape {samples.shape}; expected runs of {steps} steps in {dimension} dimensions"
            )
        return self.event.contains(samples.reshape(-1, steps, dimension))


@dataclass(frozen=True)
class OnPartition:
    """What is bounded over unions of the partition's cells, and over nothing else."""

    c1: np.ndarray  # distinct pairs of counts,
    c2: np.ndarray
    number: np.ndarray  # and how many cells have them
    runs: int
    alpha: float
    cells: int
    region_mass: float

    @functools.cached_property
    def _columns(self) -> tuple[np.ndarray, np.ndarray]:
        return np.repeat(self.c1, self.number), np.repeat(self.c2, self.number)

    def delta_upper(self, epsilon: float) -> float:
        """No union of the cells breaks (epsilon, this), in either order; this one value at 1 - alpha."""
        c1, c2 = self._columns
        return max(delta_upper_bound(a, b, self.runs, epsilon, self.alpha) for a, b in ((c1, c2), (c2, c1)))

    def epsilon_upper(self, delta: float = 0.0) -> float:
        """No union of the cells breaks (this, delta), in either order; this one value at 1 - alpha."""
        c1, c2 = self._columns
        if delta == 0 and c1.size < self.cells:  # a cell that no run hit may hold mass of one side alone
            return math.inf
        return epsilon_upper_bound(c1, c2, self.runs, delta, self.alpha)

    def meets(self, epsilon: float, delta: float) -> bool:
        """Whether `epsilon_upper(delta)` is at most epsilon; for delta > 0 one value of the falling bound tells."""
        return self.delta_upper(epsilon) <= delta if delta > 0 else self.epsilon_upper() <= epsilon

    def curve(self, epsilons: np.ndarray) -> np.ndarray:
        """Upper bounds on delta that hold at all the given epsilons together, and on the chords in e^epsilon between.

        Each node has an equal part of alpha; between them the partition's delta is convex in e^epsilon.
        """
        c1, c2 = self._columns
        lines = [frontier(a, b, self.runs, self.alpha / len(epsilons)) for a, b in ((c1, c2), (c2, c1))]
        return np.clip([max(frontier_bound(line, e) for line in lines) for e in epsilons], 0.0, 1.0)


@dataclass(frozen=True)
class OnAllEvents:
    """What holds for all events, from a stated Lipschitz constant of the log-densities.

    On every bounded cell the log-ratio varies by at most `variation`; all the rest counts in full against the claim
    (docs/method.md, section 5).
    """

    c1: np.ndarray
    c2: np.ndarray
    rest: tuple[int, int]
    variation: float
    runs: int
    alpha: float

    @functools.cached_property
    def _lines(self) -> tuple[Any, Any]:
        c1, c2 = self.c1, self.c2
        return (
            frontier(np.append(c1, self.rest[0]), np.append(c2, 0), self.runs, self.alpha),
            frontier(np.append(c2, self.rest[1]), np.append(c1, 0), self.runs, self.alpha),
        )

    def delta_upper(self, epsilon: float) -> float:
        """The mechanism is (epsilon, this)-private on this pair, in either order; this one value at 1 - alpha."""
        check_epsilon(epsilon)
        bound = max(frontier_bound(line, epsilon - self.variation) for line in self._lines)
        return min(1.0, max(0.0, bound))

    def epsilon_upper(self, delta: float = 0.0) -> float:
        """The mechanism is (this, delta)-private on this pair; infinite where delta is less than what lies outside."""
        check_delta(delta)
        return smallest_epsilon(self.delta_upper, delta)


@dataclass(frozen=True)
class Paper:
    """The paper's own numbers, shown as the paper's: lambda is not a certificate (docs/method.md, section 4.2)."""

    p_values: tuple[float, float] | None
    eta: float
    lambda_: float


def check_claim(settings: Settings, epsilon: float | None, delta: float) -> None:
    if epsilon is not None:
        check_epsilon(epsilon)
    check_delta(delta)
    if settings.test == "thinned" and delta > 0:
        raise InputError(
            f'delta: found {delta} with test="thinned"; the paper\'s test knows delta 0 only; use test="exact"'
        )


def evaluate_claim(
    witness: Witness, part: OnPartition, eta: float, settings: Settings, epsilon: float | None, delta: float
) -> dict[str, Any]:
    """Everything that depends on the claim, from the frozen event's counts."""
    check_claim(settings, epsilon, delta)
    m, alpha = witness.runs, settings.alpha
    lower = epsilon_lower_bound(*witness.ordered, m, delta, alpha)
    critical, p_value, thinned = lower, None, None
    if epsilon is not None:
        thinned = thinned_p_values(witness, settings, epsilon)
    if settings.test == "thinned":
        critical = critical_epsilon(*witness.counts, m, alpha, _generator(settings, SWEEP_KEY))
        p_value = min(thinned) if thinned else None
    elif epsilon is not None:
        p_value = small_p_value(*witness.ordered, m, epsilon, delta, alpha)
    if epsilon is None or p_value is None:
        verdict = Verdict.MEASURED
    elif p_value <= alpha:
        verdict = Verdict.REFUTED
    elif part.meets(epsilon, delta):
        verdict = Verdict.BOUNDED
    else:
        verdict = Verdict.NOT_REFUTED
    detectable = detectable_epsilon(m, (witness.ordered[1] + 0.5) / (m + 1), epsilon or 0.0, delta, alpha)
    return {
        "verdict": verdict,
        "epsilon": None if epsilon is None else float(epsilon),
        "delta": float(delta),
        "epsilon_lower": lower,
        "p_value": p_value,
        "epsilon_critical": critical,
        "epsilon_detectable": detectable,
        "paper": Paper(thinned, eta, paper_lambda(settings.beta, eta, critical)),  # type: ignore[arg-type]
        "next_step": next_step(verdict, witness, epsilon or 0.0, delta, alpha, detectable),
    }


def small_p_value(c1: int, c2: int, runs: int, epsilon: float, delta: float, alpha: float) -> float:
    """The claim's p-value, also below the floor that the test at level alpha has (about alpha / 700).

    At the floor the test is asked again at ever smaller levels, as long as it rejects; the last of them is the
    answer. To be at or below a level the test must have rejected at it, so this is a p-value too.
    """
    p = claim_p_value(c1, c2, runs, epsilon, delta, alpha)
    if p > P_VALUE_FLOOR * alpha:
        return p
    p = P_VALUE_FLOOR * alpha
    level = alpha / 1000
    while level >= SMALLEST_LEVEL and claim_p_value(c1, c2, runs, epsilon, delta, level) <= level:
        p, level = level, level / 10**6
    return p


def p_value_text(p: float, settings: Settings, below: str = "<= ") -> str:
    """With `below` before it where `small_p_value` only knows that it is at most that."""
    return f"{below if settings.test == 'exact' and p <= P_VALUE_FLOOR * settings.alpha else ''}{p:.3g}"


def thinned_p_values(witness: Witness, settings: Settings, epsilon: float) -> tuple[float, float]:
    """The paper's two p-values of a claim, thinned with a generator of their own: the same whenever they are asked."""
    first, second = p_values(*witness.counts, witness.runs, epsilon, _generator(settings, THINNING_KEY))
    return float(first), float(second)


def _generator(settings: Settings, key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(settings.seed, spawn_key=(key,)))


def next_step(verdict: Verdict, witness: Witness, epsilon: float, delta: float, alpha: float, detectable: float) -> str:
    """What to do now, in one sentence."""
    if verdict is Verdict.REFUTED:
        return "the witness shows where it leaks; more noise there, or a larger claimed epsilon, and verify again"
    if verdict is Verdict.MEASURED:
        return "state a claim, epsilon=..., to have it tested; more select_runs and test_runs sharpen what is said"
    m = witness.runs
    f1, f2 = ((c + 0.5) / (m + 1) for c in witness.ordered)
    seen = math.log((f1 - delta) / f2) if f1 > delta else -math.inf
    able = f"these runs refute a true epsilon of {format_number(detectable)} on this event with probability about 80%"
    if detectable == math.inf:
        able = "these runs are too few to refute any true epsilon above the claim on this event: more test_runs"
    if seen <= epsilon:
        return f"{able}; it does not exceed the claim: more select_runs may find another, or another pair"
    needed = plan_runs(epsilon, seen, min(f1, 1 - 1e-12), delta, alpha / 2)  # a second look: looks add up
    if needed > MAX_PLANNED_RUNS:
        return able
    again = f"test_runs={format_count(needed)} refute the claim as probably, in a second test at alpha/2"
    return f"{able}; if the {format_number(seen)} seen there is real, {again}"


def profile(witness: Witness, part: OnPartition) -> dict[str, np.ndarray]:
    """Columns eps, delta_lower, delta_upper; each column holds as a whole, with its own budget.

    The epsilons are fixed: chosen from the test runs they would void the upper one.
    """
    epsilons = np.array(PROFILE_EPSILONS, float)
    return {"eps": epsilons, "delta_lower": delta_lower_curve(witness, epsilons), "delta_upper": part.curve(epsilons)}


def delta_lower_curve(witness: Witness, epsilons: np.ndarray) -> np.ndarray:
    """Lower bounds on delta that hold at all epsilons together: one pair of limits, read at every epsilon."""
    c1, c2 = witness.ordered
    p1, p2 = lower_limit(c1, witness.runs, witness.alpha / 2), upper_limit(c2, witness.runs, witness.alpha / 2)
    return np.maximum(p1 - np.exp(np.minimum(epsilons, 700.0)) * p2, 0.0)


def describe_shares(witness: Witness) -> str:
    p1, p2 = witness.probabilities
    return f"{format_percent(p1[0])} of runs with the first data set, {format_percent(p2[0])} with the second"
