"""What the corpus knows about a bug: the mechanism, wrong and repaired, its claim, and its exact privacy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from dpverify import claims

Kind = Literal["library", "algorithm", "stream"]


@dataclass(frozen=True)
class Version:
    """The mechanism of a bug, as it was published or repaired.

    Attributes
    ----------
    function : callable
        `function(data, runs, rng, repaired)` returns the outputs.
    repaired : bool
        Whether the bug is repaired.
    output_names : tuple of str or None
        Names of the coordinates, for the witness.
    """

    function: Callable[..., Any]
    repaired: bool
    output_names: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The name in reports."""
        return f"{self.function.__module__.rpartition('.')[2]}, {'repaired' if self.repaired else 'wrong'}"

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        """Return `runs` outputs."""
        return self.function(data, runs, rng, self.repaired)


class Truths(NamedTuple):
    """The exact privacy of both versions on the pair: epsilon, or with a claimed delta the delta at its epsilon.

    Attributes
    ----------
    wrong, repaired : float
        The smallest true values.
    how : str
        How they were computed.
    repaired_is_exact : bool
        False if the value of the repaired version is an upper bound only.
    """

    wrong: float
    repaired: float
    how: str
    repaired_is_exact: bool = True


@dataclass(frozen=True)
class Bug:
    """A bug.

    Attributes
    ----------
    name : str
        Its name on the command line.
    title, reference, what, neighbours, why, repair : str
        What the page says: the reference names who reported it; `what` says what is ours.
    kind : {"library", "algorithm", "stream"}
        Whether it was found in a library, belongs to an algorithm, or concerns estimators and streams.
    wrong, repaired : Version
        The mechanism.
    pair : tuple
        The neighbouring datasets.
    claim : Approximate
        The claim of both versions.
    truths : Truths
        Their exact privacy.
    runs : tuple of int or None
        Selection and test runs; None for the default numbers.
    """

    name: str
    title: str
    reference: str
    what: str
    neighbours: str
    why: str
    repair: str
    kind: Kind
    wrong: Version
    repaired: Version
    pair: tuple[Any, Any]
    claim: claims.Approximate
    truths: Truths
    runs: tuple[int, int] | None = None

    @property
    def quantity(self) -> str:
        """What the truths are values of."""
        return "delta" if self.claim.delta > 0 else "epsilon"


def make_bug(
    function: Callable[..., Any],
    text: str | None,
    kind: Kind,
    pair: tuple[Any, Any],
    claim: claims.Approximate,
    truths: Truths,
    output_names: tuple[str, ...] | None = None,
    runs: tuple[int, int] | None = None,
) -> Bug:
    """Return the bug of a module: its docstring has the paragraphs title, reference, what, neighbours, why, repair."""
    title, *labelled = (" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n"))
    reference, what, neighbours, why, repair = (paragraph.partition(": ")[2] for paragraph in labelled)
    return Bug(
        function.__module__.rpartition(".")[2].replace("_", "-"),
        title.rstrip("."),
        *(reference, what, neighbours, why, repair),
        kind,
        Version(function, False, output_names),
        Version(function, True, output_names),
        pair,
        claim,
        truths,
        runs,
    )


OBJECT_RUNS = (10_000, 50_000)  # encoding Python objects takes longer than drawing them
