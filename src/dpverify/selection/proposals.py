"""Which event is tested: candidates compete on held-out selection runs; the winner and its direction are frozen.

The paper's selector takes the cell with the smallest p-value at one fixed epsilon (Algorithm 4). Ours takes the event
that promises the highest bound from the planned test runs (docs/method.md, section 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaincinv, ndtr, ndtri

from dpverify.events.event import Event
from dpverify.events.partition import Partition
from dpverify.events.scores import Levels, Score, UserScore, n_parameters
from dpverify.sampling.counts import EXTREMES_KEPT, Counts, Extremes, occupied_codes
from dpverify.stats.paper_test import p_values
from dpverify.stats.upper_bound import epsilon_upper_bound, frontier, frontier_bound
from dpverify.util.arrays import array_namespace, digitize, evaluate_method, is_jax, is_pytree

MAX_UNION_CELLS = 4096  # cells; an event of more is noise, and too long to write down
PROPOSAL_PENALTIES = (0.75, 1.5, 2.5, 4.0)  # standard errors charged to an event while it is one of thousands
RANKING_PENALTY = 1.5  # of them, when scores are compared
SIMPLER_WINS_WITHIN = 0.25  # standard errors within which the simpler event wins
PENALTY_PER_DOUBLING = 0.15  # a doubling of learned numbers
FINE_LEVELS = 1024  # levels of a score while it competes
BOUNDING_LEVEL_COUNTS = (16, 32, 64, 128, 256)  # levels that the bound on the partition may have


class Proposal(NamedTuple):
    """An event, and how often each side fell into it in the runs that proposed it."""

    event: Event
    counts: tuple[int, int]


class SelectionObjective(NamedTuple):
    """What a promise is measured by: the planned test runs, the claim's delta and level, and the last charge."""

    planned: int
    delta: float
    alpha: float
    caution: float


def cautious_lower_bound(
    c1: Any, c2: Any, selected: int, aim: SelectionObjective, errors: float, learned: int = 0
) -> np.ndarray:
    """The epsilon bound that the planned runs are expected to give for p1 <= e^eps p2 + delta, less a charge.

    The charge is so many standard errors at the size of the selection, more where more numbers were learned: of two
    events that promise about the same the simpler one wins. Approximations suffice: a promise only chooses.
    """
    c1, c2 = np.asarray(c1, float), np.asarray(c2, float)
    f1, f2 = (c1 + 0.5) / (selected + 1), (c2 + 0.5) / (selected + 1)
    level = ndtr(-errors - PENALTY_PER_DOUBLING * np.log2(1 + learned))
    # How far off either count may be, as Poisson limits: standard errors at large counts, and fair to small ones.
    low = f1 - np.sqrt(1 - f1) * (f1 - _gamma_quantile(np.maximum(c1, 0.5), level) / (selected + 1))
    high = f2 + np.sqrt(1 - f2) * (_gamma_quantile(c2 + 1, 1 - level) / (selected + 1) - f2)
    excess = f1 - aim.delta
    with np.errstate(divide="ignore", invalid="ignore"):
        charge = np.hypot(np.log(excess / (low - aim.delta)), np.log(high / f2))
        spread = -ndtri(aim.alpha) * np.sqrt((f1 * (1 - f1) / excess**2 + (1 - f2) / f2) / aim.planned)
        return np.where(low > aim.delta, np.log(np.maximum(excess, 1e-300) / f2) - spread - charge, -np.inf)


def _gamma_quantile(counts: np.ndarray, level: Any) -> np.ndarray:
    """For every count; few of them differ where many thresholds share few runs, and a quantile is dear."""
    distinct, places = np.unique(counts, return_inverse=True)
    return gammaincinv(distinct, level)[places]


# Cells of a given partition.


class SelectionCounts(NamedTuple):
    """Both sides' counts of some selection runs."""

    first: Counts
    second: Counts
    runs: int


def paper_selector(partition: Partition, both: SelectionCounts, epsilon: float, rng: np.random.Generator) -> Event:
    """Algorithm 4: the cell with the smallest of all p-values at one fixed epsilon."""
    codes = occupied_codes(both.first, both.second)
    forward, backward = p_values(both.first.of(codes), both.second.of(codes), both.runs, epsilon, rng)
    worst = int(np.argmin(np.minimum(forward, backward)))
    return Event(partition, codes[[worst]], int(backward[worst] < forward[worst]))


def propose_cells(partition: Partition, held: SelectionCounts, aim: SelectionObjective) -> list[Proposal]:
    """For every charge the cell that promises most."""
    codes = occupied_codes(held.first, held.second)
    c = held.first.of(codes), held.second.of(codes)
    found = []
    for errors in PROPOSAL_PENALTIES:
        promises = np.stack([cautious_lower_bound(c[side], c[1 - side], held.runs, aim, errors) for side in (0, 1)])
        direction, cell = np.unravel_index(int(np.argmax(promises)), promises.shape)
        event = Event(partition, codes[[cell]], int(direction))
        found.append(Proposal(event, (int(c[0][cell]), int(c[1][cell]))))
    return found


def propose_unions(
    partition: Partition, train: SelectionCounts, held: SelectionCounts, aim: SelectionObjective
) -> list[Proposal]:
    """Training runs order the cells by their ratio, held-out runs tell how many of them, and which way."""
    codes = occupied_codes(train.first, train.second, held.first, held.second)
    trained = train.first.of(codes), train.second.of(codes)
    counts = held.first.of(codes), held.second.of(codes)
    found = []
    for side in (0, 1):
        order = np.argsort(-(trained[side] + 0.5) / (trained[1 - side] + 0.5), kind="stable")[:MAX_UNION_CELLS]
        c = np.cumsum(counts[0][order]), np.cumsum(counts[1][order])
        for at in sorted(
            {int(np.argmax(cautious_lower_bound(c[side], c[1 - side], held.runs, aim, e))) for e in PROPOSAL_PENALTIES}
        ):
            event = Event(partition, np.sort(codes[order[: at + 1]]), side)
            found.append(Proposal(event, (int(c[0][at]), int(c[1][at]))))
    return found


# Level sets of a score.


class BinnedScore(NamedTuple):
    """A score with fine edges: measures how many runs lie between them."""

    score: Score
    edges: np.ndarray

    @property
    def result_kind(self) -> type[ScoreHistogram]:
        return ScoreHistogram

    def measure(self, samples: Any) -> ScoreHistogram:
        if is_jax(samples) and is_pytree(self):
            table, low, high = evaluate_method(self, "_on_device", samples)
            return ScoreHistogram(table, Extremes(low, high))
        values = score_values(self.score, samples)
        table = np.bincount(digitize(self.edges, values), minlength=self.edges.size + 1)
        return ScoreHistogram(table, Extremes.of(values))

    def _on_device(self, samples: Any) -> tuple[Any, Any, Any]:
        xp = array_namespace(samples)
        values = xp.sort(self.score.values(samples.reshape(samples.shape[0], -1)))
        # Of sorted values as many lie in a level as there are between its two edges.
        places = xp.searchsorted(values, self.edges, side="right")
        ends = xp.array([0]), xp.array([values.shape[0]])
        return xp.diff(xp.concatenate([ends[0], places, ends[1]])), values[:EXTREMES_KEPT], values[-EXTREMES_KEPT:]

    @property
    def is_plain(self) -> bool:
        return not isinstance(self.score, UserScore)


class ScoreHistogram(NamedTuple):
    table: np.ndarray
    extremes: Extremes

    @staticmethod
    def merge(results: Sequence[ScoreHistogram]) -> ScoreHistogram:
        table = np.sum([result.table for result in results], axis=0)
        return ScoreHistogram(table, Extremes.merge([result.extremes for result in results]))

    def to_arrays(self) -> list[np.ndarray]:
        return [self.table, *self.extremes.to_arrays()]

    @staticmethod
    def from_arrays(arrays: Iterator[np.ndarray]) -> ScoreHistogram:
        return ScoreHistogram(next(arrays), Extremes.from_arrays(arrays))


class PairedHistogram(NamedTuple):
    """A score's held-out counts, one column a side: runs in each level, and the extremes."""

    table: tuple[np.ndarray, np.ndarray]
    extremes: tuple[Extremes, Extremes]
    runs: int


def score_values(score: Score, samples: Any) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(score.values(np.asarray(samples).reshape(len(samples), -1)), float)


def midpoints(values: np.ndarray) -> np.ndarray:
    """Midpoints between the distinct ones of some sorted values.

    Values closer than rounding are one: a sum taken in another order must not change sides.
    """
    gaps = (
        np.diff(values) > 1e-9 * max(values[-1] - values[0], np.finfo(float).tiny) if values.size else np.zeros(0, bool)
    )
    low, high = values[:-1][gaps], values[1:][gaps]
    return low + (high - low) / 2


def fine_edges(values: np.ndarray, most: int = FINE_LEVELS) -> np.ndarray:
    """Edges between the values of the training runs: near equal shares of them, and near halving shares at the ends."""
    edges = midpoints(np.sort(values))
    if edges.size > most:
        n = edges.size
        halving = 2 ** np.arange(int(np.log2(n)))
        places = np.unique(np.concatenate([np.arange(1, most) * n // most, halving - 1, n - halving]))
        edges = edges[places]
    return edges if edges.size else values[:1]


def threshold_counts(heat: PairedHistogram, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Thresholds t, and how many runs of each side lie above each: at the edges, and between values in the tails."""
    thresholds, counts = [edges], [np.stack([heat.runs - np.cumsum(table)[:-1] for table in heat.table])]
    top = max(e.high[0] if e.high.size == EXTREMES_KEPT else -np.inf for e in heat.extremes)
    bottom = min(e.low[-1] if e.low.size == EXTREMES_KEPT else np.inf for e in heat.extremes)
    high = midpoints(np.sort(np.concatenate([e.high for e in heat.extremes])))
    low = midpoints(np.sort(np.concatenate([e.low for e in heat.extremes])))
    high, low = high[high >= top], low[low < bottom]
    thresholds += [high, low]
    counts.append(np.stack([e.high.size - np.searchsorted(e.high, high, side="right") for e in heat.extremes]))
    counts.append(heat.runs - np.stack([np.searchsorted(e.low, low, side="right") for e in heat.extremes]))
    return np.concatenate(thresholds), *np.concatenate(counts, axis=1)


def propose_levels(ruler: BinnedScore, heat: PairedHistogram, aim: SelectionObjective) -> tuple[float, list[Proposal]]:
    """For every charge and direction the best {score > t} or {score <= t}, as a union of level sets.

    The level sets have all the chosen thresholds as edges. The first number is the highest promise of them.
    """
    thresholds, c1, c2 = threshold_counts(heat, ruler.edges)
    n, learned = heat.runs, n_parameters(ruler.score)
    chosen: dict[tuple[float, int], tuple[int, int]] = {}
    best = -np.inf
    for errors in PROPOSAL_PENALTIES:
        for direction, (a, b) in enumerate(((c1, c2), (n - c2, n - c1))):
            promises = cautious_lower_bound(a, b, n, aim, errors, learned)
            at = int(np.argmax(promises))
            chosen[float(thresholds[at]), direction] = (
                (int(a[at]), int(b[at])) if direction == 0 else (int(b[at]), int(a[at]))
            )
            best = max(best, float(promises[at])) if errors == RANKING_PENALTY else best
    levels = Levels(ruler.score, np.array(sorted({t for t, _ in chosen})))
    return best, [Proposal(level_event(levels, *key), counts) for key, counts in sorted(chosen.items())]


def level_event(levels: Levels, threshold: float, direction: int) -> Event:
    """{score > threshold} for direction 0, {score <= threshold} for direction 1; the threshold must be an edge."""
    at = int(np.searchsorted(levels.edges, threshold))
    codes = np.arange(at + 1, levels.size) if direction == 0 else np.arange(at + 1)
    return Event(levels, codes, direction)


def threshold_of(event: Event) -> float:
    assert isinstance(event.partition, Levels)
    return float(event.partition.edges[event.codes[0] - 1 if event.direction == 0 else event.codes[-1]])


def prefer_simpler(found: list[tuple[float, float, Event]]) -> tuple[Event, float]:
    """Of (promise, standard error, event) the highest promise; one hardly lower wins if fewer numbers were learned."""
    best, error, _ = max(found, key=lambda one: one[0])
    near = [one for one in found if one[0] >= best - SIMPLER_WINS_WITHIN * error]
    promise, _, event = min(near, key=lambda one: (learned_numbers(one[2]), -one[0]))
    return event, promise


def learned_numbers(event: Event) -> int:
    return n_parameters(event.partition.score) if isinstance(event.partition, Levels) else event.codes.size


def decided_bound(
    proposal: Proposal, first: Counts, second: Counts, runs: int, aim: SelectionObjective
) -> tuple[float, float, Event]:
    """What an event promises on the runs that proposed it together with as many that did not, and its noise."""
    event = proposal.event
    learned = n_parameters(event.partition.score) if isinstance(event.partition, Levels) else 0
    c = proposal.counts[0] + event.count(first), proposal.counts[1] + event.count(second)
    error = float(np.sqrt(1 / (c[0] + 0.5) + 1 / (c[1] + 0.5)))
    promise = cautious_lower_bound(c[event.direction], c[1 - event.direction], runs, aim, aim.caution, learned)
    return float(promise), error, event


def bounding_levels(
    event: Event,
    promise: float,
    ruler: BinnedScore,
    heat: PairedHistogram,
    aim: SelectionObjective,
    resolution: int | None,
) -> Levels:
    """Level sets for the bound on the partition, with the event's threshold among the edges.

    Many cells say more and bound worse: of several numbers the one with the smallest promised bound is taken.
    """
    edges, threshold = ruler.edges, threshold_of(event)
    share = np.cumsum(heat.table[0] + heat.table[1])[:-1] / (2 * heat.runs)
    best, winner = np.inf, None
    for number in (resolution,) if resolution else BOUNDING_LEVEL_COUNTS:
        places = np.unique(np.clip(np.searchsorted(share, np.arange(1, number) / number), 0, edges.size - 1))
        chosen = np.unique(np.append(edges[places], threshold))
        group = np.searchsorted(chosen, np.append(edges, np.inf))
        per_run = aim.planned / heat.runs
        one, two = (np.floor(np.bincount(group, t, chosen.size + 1) * per_run) for t in heat.table)
        if aim.delta == 0:
            bound = epsilon_upper_bound(one, two, aim.planned, 0.0, aim.alpha)
        else:
            lines = (frontier(a, b, aim.planned, aim.alpha) for a, b in ((one, two), (two, one)))
            bound = max(frontier_bound(line, max(promise, 0.0)) for line in lines)
        if winner is None or bound < best:
            best, winner = bound, Levels(ruler.score, chosen)
    assert winner is not None
    return winner
