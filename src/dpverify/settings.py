"""The settings of one verification, checked when they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpverify.errors import InputError
from dpverify.util.checks import check_choice, check_epsilon, check_probability, check_whole_number, nearest_name

CHOICES = {
    "partition": ("auto", "grid", "equal-mass", "tree", "atoms"),
    "events": ("auto", "cell", "union", "score"),
    "test": ("exact", "thinned"),
    "nonfinite": ("error", "event"),
}
ARGUMENTS = ("epsilon", "delta", "executor", "folder", "error", "log_lipschitz", "progress")  # beside the settings


@dataclass(frozen=True)
class Settings:
    """How a verification is done. `Settings.paper()` follows the paper to the letter."""

    alpha: float = 0.05  # of each of the two budgets
    select_runs: int = 50_000  # a side
    test_runs: int = 200_000  # a side
    partition: str = "auto"
    resolution: int | None = None  # r of the grid; number of cells of the others
    events: str | Callable[[Any], Any] = "auto"
    test: str = "exact"  # "thinned": the paper's randomised test
    selection_epsilon: float | None = None  # None: by the promised bound; a number: the paper's selector
    nonfinite: str = "error"  # "event": NaN and infinite estimates are a cell
    beta: float = 0.05  # region: mass left out,
    gamma: float = 1e-9  # confidence of the scenario bound,
    joint: bool = True  # one program over all steps, runs of both sides; False: each step on its own, first side only
    block: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            if name == "events" and (callable(value) or ":" in str(value)):
                continue  # a user's score; by its name where it was read from JSON
            check_choice(name, value, choices)
        for name in ("alpha", "beta", "gamma"):
            check_probability(name, getattr(self, name))
        for name, least in (("select_runs", 4), ("test_runs", 1), ("resolution", 1), ("block", 1), ("seed", 0)):
            number = getattr(self, name)
            if number is None and name in ("resolution", "block"):
                continue
            object.__setattr__(self, name, check_whole_number(name, number, least))
        if self.partition == "tree" and self.selection_epsilon is not None:
            raise InputError(
                'partition: found "tree" with selection_epsilon; a tree grows on selection runs; use "grid"'
            )
        if self.events == "score" and self.nonfinite == "event":
            raise InputError('events: found "score" with nonfinite="event"; a score needs finite runs; use "union"')
        if not isinstance(self.joint, bool):
            raise InputError(f"joint: found {self.joint!r}; expected True or False")
        if self.selection_epsilon is not None:
            check_epsilon(self.selection_epsilon, "selection_epsilon")

    @classmethod
    def paper(cls, **changes: Any) -> Settings:
        """The paper's own procedure. It prints neither n nor m: 1000 and 2000 are our guess from its examples."""
        return cls(
            select_runs=1000,
            test_runs=2000,
            partition="grid",
            resolution=2,
            events="cell",
            test="thinned",
            selection_epsilon=1.0,
            joint=False,
        ).change(**changes)

    def change(self, /, **changes: Any) -> Settings:
        """A copy with some settings replaced; an unknown name is refused with the nearest one."""
        names = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in names:
                near = nearest_name(name, (*names, *ARGUMENTS))  # either may have been meant
                kind = "the argument " if near in ARGUMENTS else ""
                hint = f"the nearest is {kind}{near!r}; " if near else ""
                raise InputError(f"unknown setting {name!r}; {hint}all are: {', '.join(names)}")
        return dataclasses.replace(self, **changes)

    def spawn(self, number: int) -> Settings:
        """The same with a seed of its own: verification `number` of many draws runs that no other one draws."""
        state = np.random.SeedSequence(self.seed, spawn_key=(number,)).generate_state(1, np.uint64)
        return self.change(seed=int(state[0] >> np.uint64(11)))  # 53 bits: every reader of JSON keeps them
