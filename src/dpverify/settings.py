"""The settings of a verification, and the options that every function that calls `verify` forwards to it.

`Settings` is a frozen dataclass that checks its values when it is made. `SettingsChanges` and `VerifyOptions` are the
types of the keyword arguments of `verify` and of the functions that call it, such as `verify_pairs` and `calibrate`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np

from dpverify.errors import InputError
from dpverify.util.arrays import Array
from dpverify.util.checks import check_choice, check_epsilon, check_probability, check_whole_number, nearest_name
from dpverify.util.serialization import to_plain

CHOICES = {
    "partition": ("auto", "grid", "equal-mass", "tree", "atoms"),
    "events": ("auto", "cell", "union", "score"),
    "search": ("auto", "quick", "thorough"),
    "test": ("exact", "thinned", "averaged"),
    "nonfinite": ("error", "event"),
}
PROBABILITIES = ("alpha", "beta", "gamma")
SMALLEST_WHOLE_NUMBERS = {"select_runs": 4, "test_runs": 1, "resolution": 1, "block": 1, "seed": 0}
OPTIONAL_WHOLE_NUMBERS = ("resolution", "block")
SEED_BITS = 53  # every reader of JSON represents a whole number of this size exactly


class SettingsChanges(TypedDict, total=False):
    """Single settings, given by name. `Settings` explains each of them."""

    alpha: float
    select_runs: int
    test_runs: int
    partition: str
    resolution: int | None
    events: str | Callable[[Array], Array]
    search: str
    test: str
    selection_epsilon: float | None
    nonfinite: str
    beta: float
    gamma: float
    joint: bool
    complement: bool
    coupled_selection: bool
    block: int | None
    stop_early: bool
    seed: int


@dataclass(frozen=True)
class Settings:
    """How a verification is carried out.

    All numbers of runs are per dataset. The defaults suit mechanisms with up to a few hundred output numbers and at
    least some thousand runs per second. `Settings.paper()` gives the procedure of the paper.

    Attributes
    ----------
    alpha : float, default 0.05
        Type I error of each of the two groups of statements, between 0 and 1. The lower bound and the p-value hold
        with confidence 1 - alpha, and so do the upper bounds on the partition; both groups together hold with
        confidence 1 - 2 alpha. Use a small value, such as 1e-6, where a false alarm is expensive, for example in
        continuous integration.
    select_runs : int, default 50_000
        Runs per dataset that are used to select the event, at least 4. Increase it if a better event may exist: many
        output dimensions, or rare events.
    test_runs : int, default 200_000
        Runs per dataset that are used to test the selected event, at least 1. Increase it for tighter bounds: the
        width of the bounds is about proportional to 1 / sqrt(test_runs).
    partition : {"auto", "grid", "equal-mass", "tree", "atoms"}, default "auto"
        The partition of the output space whose unions of cells are bounded from above. "auto" uses the level sets of
        the selected score (for `events="cell"`, "atoms" or "equal-mass", whichever suits the outputs). "grid" divides
        every coordinate of the region into equal bins. "equal-mass" makes cells of about equal probability. "tree" is
        a decision tree that is grown on selection runs. "atoms" gives every repeated output value a cell, for discrete
        outputs.
    resolution : int or None, default None
        Fineness of the partition: bins per coordinate for "grid" (default 2), number of cells for the others (default
        64 for "equal-mass", 256 for "tree", and 16 to 256 level sets, whichever gives the tightest bound). Increase it
        to bound more events; the upper bounds become wider.
    events : {"auto", "cell", "union", "score"} or callable, default "auto"
        The events among which one is selected. "cell": single cells of the partition. "union": unions of cells.
        "score": level sets of fitted scores. "auto": all that apply. A callable `score(samples)` returns one number
        per run, and the level sets of this score are used; pass it if a good test statistic is known.
    search : {"auto", "quick", "thorough"}, default "auto"
        How many kinds of scores are fitted. "quick": few, for short verifications. "auto": all plain ones. "thorough":
        a general learner besides, which finds differences that no plain score describes; it takes seconds to a minute
        and needs scikit-learn (the extra `learn`).
    test : {"exact", "thinned", "averaged"}, default "exact"
        The hypothesis test. "exact" is the unconditional test of this library. The others are those of the paper, for
        comparison, and support delta 0 only. "thinned" is the randomised test as printed. "averaged" is the exact mean
        of its p-value over all thinnings, which the figures of the paper's authors show (docs/paper.md).
    selection_epsilon : float or None, default None
        None selects the event with the largest expected lower bound. A number is the epsilon at which the selector of
        the paper compares single cells.
    nonfinite : {"error", "event"}, default "error"
        "error": an output with NaN or infinity stops the verification. "event": NaN, inf and
        -inf are atoms of their coordinates, and the other coordinates of such a run count.
    beta : float, default 0.05
        The largest probability that the likely region may leave out, between 0 and 1. Pilot runs, which are drawn
        first, locate this region, and partitions divide it. A smaller value needs more pilot runs.
    gamma : float, default 1e-9
        Probability that the region leaves out more than beta, between 0 and 1. This is 1 minus the confidence of the
        scenario bound. It affects the number of pilot runs only; no privacy bound depends on it.
    joint : bool, default True
        True: the region is one scenario program over all time steps and over pilot runs of both datasets. False: each
        step has its own ellipsoid, from the first dataset only, as in the paper.
    complement : bool, default True
        Whether the complement of the region is an event like the cells. False leaves it out of the paper's selection,
        as the paper's experiments do; it needs `selection_epsilon`.
    coupled_selection : bool, default False
        Whether the selection runs of both datasets use the same random numbers. If the noise of the mechanism does
        not depend on the data, the ratio of two probabilities is then estimated more precisely, and rarer events are
        found. Smooth models of all selection runs then choose one of the tested events. Test runs are always
        independent. `search_pairs` sets it; with `stop_early` it must be False.
    block : int or None, default None
        Runs that the mechanism draws in one call. None uses the attribute `block` of the mechanism, or a power of two
        from 64 to 65 536 with 64 to 128 blocks in the test, halved until the outputs of a block take at most 64 MB.
        Random streams belong to blocks, so another block size gives other runs. Set it if one block does not fit into
        memory.
    stop_early : bool, default False
        Whether the verification ends as soon as the claim is refuted, or certified over all events. The events are then
        selected from all runs so far, again and again, and `select_runs` and `test_runs` are the largest numbers of
        runs (docs/method.md, section 5.8). Without a claim nothing stops early.
    seed : int, default 0
        Seed of all random streams, at least 0. The same seed gives the same report. Change it for an independent
        repetition.

    Examples
    --------
    >>> from dpverify import Settings
    >>> settings = Settings(test_runs=10_000, seed=3)
    >>> settings.change(alpha=0.01).test_runs
    10000
    >>> Settings.paper().partition
    'grid'
    """

    alpha: float = 0.05
    select_runs: int = 50_000
    test_runs: int = 200_000
    partition: str = "auto"
    resolution: int | None = None
    events: str | Callable[[Array], Array] = "auto"
    search: str = "auto"
    test: str = "exact"
    selection_epsilon: float | None = None
    nonfinite: str = "error"
    beta: float = 0.05
    gamma: float = 1e-9
    joint: bool = True
    complement: bool = True
    coupled_selection: bool = False
    block: int | None = None
    stop_early: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            # A score function is stored in JSON by its name, "module:function", and read back as this text.
            if name == "events" and (callable(value) or ":" in str(value)):
                continue
            check_choice(name, value, choices)
        for name in PROBABILITIES:
            check_probability(name, getattr(self, name))
        for name, smallest in SMALLEST_WHOLE_NUMBERS.items():
            value = getattr(self, name)
            if value is None and name in OPTIONAL_WHOLE_NUMBERS:
                continue
            object.__setattr__(self, name, check_whole_number(name, value, smallest))
        if self.partition == "tree" and self.selection_epsilon is not None:
            raise InputError(
                'partition: found "tree" with selection_epsilon; a tree is grown on selection runs; use "grid"'
            )
        if self.events == "score" and self.nonfinite == "event":
            raise InputError('events: found "score" with nonfinite="event"; a score needs finite runs; use "union"')
        for name in ("joint", "complement", "coupled_selection", "stop_early"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name}: found {getattr(self, name)!r}; expected True or False")
        if self.stop_early and self.follows_paper:
            raise InputError(
                "use stop_early, or the paper's test or selection, not both: these need a fixed number of runs; "
                'set test="exact" and selection_epsilon=None'
            )
        if self.stop_early and self.coupled_selection:
            raise InputError(
                "use coupled_selection or stop_early, not both, because stop_early also selects events from test runs, "
                "which are independent"
            )
        if not self.complement and self.selection_epsilon is None:
            raise InputError(
                "complement: found False without selection_epsilon; only the paper's selection leaves the complement "
                "of the region out; pass selection_epsilon=1.0, or complement=True"
            )
        if self.selection_epsilon is not None:
            check_epsilon(self.selection_epsilon, "selection_epsilon")

    @classmethod
    def paper(cls, **changes: Unpack[SettingsChanges]) -> Settings:
        """Return the settings of the paper's procedure as printed, with one random thinning for each epsilon.

        `Settings.paper(test="averaged")` averages the p-values over all thinnings instead, as the authors did. The
        events are the cells of the region; its complement does not compete. `select_runs` is 1000, because every eta in
        the paper is a multiple of 1/1000. `test_runs` is a guess, because the paper does not print it.

        Parameters
        ----------
        **changes
            Single settings that replace those of the paper.
        """
        return cls(
            select_runs=1000,
            test_runs=2000,
            partition="grid",
            resolution=2,
            events="cell",
            test="thinned",
            selection_epsilon=1.0,
            joint=False,
            complement=False,
        ).change(**changes)

    def change(self, /, **changes: Unpack[SettingsChanges]) -> Settings:
        """Return a copy in which the given settings are replaced.

        Raises
        ------
        InputError
            If a name is not a setting. The message names the nearest setting or argument of `verify`.
        """
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                raise InputError(_unknown_setting(name, names))
        return dataclasses.replace(self, **changes)

    @property
    def identity(self) -> dict[str, object]:
        """The settings that identify a verification, as plain data.

        With `stop_early` the number of test runs is not among them, because a verification may be continued with more.
        """
        plain = {name: value for name, value in to_plain(self).items() if name != "kind"}
        del plain["test_runs" if self.stop_early else "stop_early"]
        # Some settings are newer than others. Runs and folders of earlier versions are kept.
        if self.complement:
            del plain["complement"]
        if not self.coupled_selection:
            del plain["coupled_selection"]
        if self.search == "auto":
            del plain["search"]
        return plain

    @property
    def follows_paper(self) -> bool:
        """Whether the test or the selection of the paper is used, so that its quantities are printed."""
        return self.test != "exact" or self.selection_epsilon is not None

    def spawn(self, number: int) -> Settings:
        """Return a copy with a seed of its own, for verification `number` of several.

        Different numbers give independent random streams.
        """
        state = np.random.SeedSequence(self.seed, spawn_key=(number,)).generate_state(1, np.uint64)
        return self.change(seed=int(state[0] >> np.uint64(64 - SEED_BITS)))


class VerifyOptions(SettingsChanges, total=False):
    """Keyword arguments that functions which call `verify` forward to it unchanged.

    `verify` explains each of them. Write `**options: Unpack[VerifyOptions]` in a signature.
    """

    settings: Settings
    executor: int | Executor | None
    folder: str | os.PathLike[str] | None
    error: Callable[[Array], Array] | None
    log_lipschitz: float | tuple[float, float] | None
    log_density: Callable[..., Array] | None
    learn: Callable[..., Callable[[Array], Array]] | None
    progress: bool | None
    trust_results: bool


# Arguments of `verify` that are not settings.
ARGUMENTS = (
    "epsilon",
    "delta",
    "claim",
    *(name for name in VerifyOptions.__annotations__ if name not in SettingsChanges.__annotations__),
)


def _unknown_setting(name: str, names: list[str]) -> str:
    """Return the error message for a name that is not a setting."""
    nearest = nearest_name(name, (*names, *ARGUMENTS))
    kind = "the argument " if nearest in ARGUMENTS else ""
    hint = f"did you mean {kind}{nearest!r}?" if nearest else f"the settings are {', '.join(names)}"
    return f"unknown setting {name!r}; {hint}"


def type_one_error_factor(settings: Settings) -> int:
    """Return how many times alpha the type I error of the test can be.

    The randomised test of the paper refutes a claim if the smaller of two p-values is at most alpha, so that it refutes
    a true claim with probability up to about 2 alpha. For means, of which only twice is a p-value, it is up to 4 alpha.
    """
    return {"exact": 1, "thinned": 2, "averaged": 4}[settings.test]
