"""What the gallery knows about a mechanism: its source, its claim, its neighbours, and the exact privacy if known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dpverify import Mechanism, claims

Role = Literal["published", "implemented", "corrected", "control"]
ROUNDING = 1e-12  # errors of sums of probabilities
LARGEST_EPSILON = 50.0  # of the search for the epsilon at a delta; larger values count as infinite


@dataclass(frozen=True)
class Truth:
    """The exact privacy of a case, or an upper bound on it.

    Attributes
    ----------
    parameter : float
        The smallest true value of the parameter of the claim: epsilon at the claimed delta, or mu.
    delta : float or None
        The smallest delta that is true at the claimed epsilon; None if it is not computed.
    how : str
        How it was computed, for example "closed form".
    mass : float or None
        The probability of an event that shows at least 0.99 of the parameter (or, with a claimed delta, of the best
        event); None if it is not computed.
    is_exact : bool
        False if the parameter is an upper bound only.
    """

    parameter: float
    delta: float | None
    how: str
    mass: float | None = None
    is_exact: bool = True


class Runs(NamedTuple):
    """Numbers of runs per dataset, for the selection of the event and for its test."""

    select: int
    test: int


QUICK = Runs(20_000, 60_000)
FULL = Runs(250_000, 1_000_000)


@dataclass(frozen=True)
class Case:
    """One verification of the gallery.

    Attributes
    ----------
    name : str
        The name of the case, unique in the gallery.
    title : str
        What distinguishes it from the other cases of the mechanism.
    mechanism : Mechanism
        The mechanism.
    pair : tuple
        The two neighbouring datasets.
    claim : Claim
        The claim that is tested.
    truth : callable or None
        Returns the exact privacy; None if it is not known.
    role : {"published", "implemented", "corrected", "control"}
        "published": the claim of the source. "implemented": a version that implementations use, at the same claim.
        "corrected": a version whose claim holds where such a claim fails.
        "control": a use outside the conditions of the source, which must be refuted.
    events : str or callable
        The setting `events` of the verification; a score where the library's own events cannot see the difference.
    measures_delta : bool
        Whether the bounds are shown for delta at the claimed epsilon instead of epsilon at the claimed delta.
    full, quick : Runs
        Numbers of runs of the full and of the quick form.
    """

    name: str
    title: str
    mechanism: Mechanism
    pair: tuple[object, object]
    claim: claims.Claim
    truth: Callable[[], Truth] | None = None
    role: Role = "published"
    events: str | Callable[[np.ndarray], np.ndarray] = "auto"
    full: Runs = FULL
    quick: Runs = QUICK
    measures_delta: bool = False


@dataclass(frozen=True)
class Entry:
    """A published mechanism with all its cases.

    Attributes
    ----------
    name : str
        The name on the command line.
    title : str
        The name of the mechanism.
    source : str
        Authors, year and title of the publication.
    what : str
        What the mechanism does, with the numbers of this set-up.
    neighbours : str
        Which datasets are neighbours.
    why : str
        Why the claim holds or fails.
    cases : tuple of Case
        The verifications.
    requirement : callable or None
        For a program that has to be installed: returns None, or one line that says what is missing.
    """

    name: str
    title: str
    source: str
    what: str
    neighbours: str
    why: str
    cases: tuple[Case, ...]
    requirement: Callable[[], str | None] | None = None


def make_entry(
    module: str, text: str | None, *cases: Case, requirement: Callable[[], str | None] | None = None
) -> Entry:
    """Return the entry of a module: its docstring has the paragraphs title, source, what, neighbours, and why."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n")]
    title, source, what, neighbours, why = paragraphs
    return Entry(
        module.rpartition(".")[2].replace("_", "-"),
        title.rstrip("."),
        source.rstrip("."),
        what,
        neighbours.removeprefix("Neighbours: "),
        why.removeprefix("Why: "),
        cases,
        requirement,
    )


def approximate_truth(
    delta_at: Callable[[float], float],
    claim: claims.Approximate,
    how: str,
    supremum: float = math.inf,
    mass: float | None = None,
    is_exact: bool = True,
) -> Truth:
    """Return the truth for an (epsilon, delta) claim from the exact delta as a function of epsilon.

    Parameters
    ----------
    delta_at : callable
        The smallest true delta at an epsilon; it does not increase.
    claim : Approximate
        The claim.
    how : str
        How `delta_at` was computed.
    supremum : float
        The smallest epsilon that is true with delta 0.
    mass : float, optional
        As in `Truth`.
    is_exact : bool
        As in `Truth`.

    Examples
    --------
    >>> claim = claims.approximate(1.0, 0.1)
    >>> round(approximate_truth(lambda epsilon: max(0.0, 0.2 - epsilon), claim, "example").parameter, 6)
    0.1
    """
    low, high, allowed = 0.0, min(supremum, LARGEST_EPSILON), claim.delta + ROUNDING
    if claim.delta == 0:
        epsilon = supremum
    elif delta_at(0.0) <= allowed:
        epsilon = 0.0
    elif high < supremum and delta_at(high) > allowed:
        epsilon = math.inf
    else:
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if delta_at(middle) > allowed else (low, middle)
        epsilon = round(high, 12)
    delta = 0.0 if claim.epsilon >= supremum else float(delta_at(claim.epsilon))
    return Truth(epsilon, delta, how, mass, is_exact)
