"""The readings of the paper's experiment: every choice that the paper does not print, as explicit data.

There is no full product. Each mechanism has a base reading, and varies what its own printed rows depend on, one choice
at a time, together with the combinations that come close to the printed numbers. The Gibbs distribution has no reading
with the paper's angle: the second data set then pushes the estimate to the boundary of K_k, where the exact sampler
needs too many draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from dpverify.paper.readings.results import Reading, ReadingFit

BASE = Reading()
RUNS = (1000, 2000, 3000, 5000, 10_000)  # m: not printed
FIELDS = {  # what the printed rows of each mechanism depend on
    "W2-MHE": ("law", "support", "prior", "span", "tau", "angle", "test_runs", "error_runs", "complement"),
    "input perturbation": (
        "support",
        "prior",
        "span",
        "tau",
        "angle",
        "covariance",
        "noise",
        "test_runs",
        "error_runs",
        "complement",
    ),
    "private EKF": ("angle", "filter", "test_runs", "error_runs", "complement"),
}
WORDS = {
    ("law", "blend"): "blend distribution",
    ("law", "gibbs"): "Gibbs distribution",
    ("support", "constant"): "K_k of constant diameter",
    ("support", "growing"): "K_k of growing diameter",
    ("prior", "carried"): "prior carried from window to window",
    ("prior", "start"): "prior not carried",
    ("span", "closed"): "closed window",
    ("span", "open"): "open window",
    ("angle", "paper"): "the paper's angle",
    ("angle", "exact"): "angle at the exact distance",
    ("covariance", "blocks"): "covariance of 2 x 2 blocks",
    ("covariance", "clipped"): "20 x 20 covariance, negative eigenvalues set to 0",
    ("covariance", "shifted"): "20 x 20 covariance, shifted to be semidefinite",
    ("covariance", "mean"): "covariance I + 11'/2",
    ("covariance", "identity"): "covariance I",
    ("noise", "run"): "input noise once per run",
    ("noise", "window"): "input noise anew for every window",
    ("filter", "true"): "EKF with the true covariances",
    ("filter", "model"): "EKF that trusts its model",
    ("filter", "data"): "EKF that trusts the data",
    ("error_runs", "one"): "errors of one run",
    ("error_runs", "all"): "errors averaged over all test runs",
    ("complement", False): "cells of R only",
    ("complement", True): "with the complement as an event",
}


def describe(field: str, value: object) -> str:
    """Return a choice in words."""
    if field == "tau":
        return f"tau {value:g}"
    if field == "test_runs":
        return f"m {value}"
    return WORDS[field, value]


def difference(reading: Reading, base: Reading, mechanism: str | None = None, none: str = "base") -> str:
    """Return what distinguishes a reading from the base, in words, among the choices that the mechanism depends on.

    `none` is the answer if they are equal.
    """
    fields = Reading._fields if mechanism is None else FIELDS[mechanism]
    changed = [name for name in fields if getattr(reading, name) != getattr(base, name)]
    return ", ".join(describe(name, getattr(reading, name)) for name in changed) or none


def relevant(reading: Reading, mechanism: str) -> Reading:
    """Return the reading with the base value in every field that the mechanism does not depend on."""
    return BASE._replace(**{name: getattr(reading, name) for name in FIELDS[mechanism]})


GIBBS = BASE._replace(law="gibbs", support="growing", tau=1.4e-5, angle="exact")
CANDIDATE = BASE._replace(noise="window", prior="start")  # of the input rows


def all_readings(mechanism: str, quick: bool = False) -> list[Reading]:
    """Return the readings of one mechanism; `quick` keeps the base and the variations that decide the ranking."""
    generate = {"W2-MHE": _w2mhe, "input perturbation": _input, "private EKF": _ekf}[mechanism]
    return list(dict.fromkeys(relevant(reading, mechanism) for reading in generate(quick)))


def _shared_variations(base: Reading) -> Iterator[Reading]:
    """Yield the variations of what the W2-MHE and the input perturbation share."""
    yield base._replace(support="growing")
    yield base._replace(span="open")
    yield base._replace(angle="exact")
    yield base._replace(tau=1.4e-5)
    yield base._replace(tau=1e-3)


def _w2mhe(quick: bool) -> Iterator[Reading]:
    yield BASE
    yield BASE._replace(prior="start")
    if not quick:
        for prior in ("carried", "start"):
            yield from _shared_variations(BASE._replace(prior=prior))
    for prior, runs in product(("carried", "start"), RUNS):
        if prior == "start" or not quick:
            yield BASE._replace(prior=prior, test_runs=runs)
    yield GIBBS
    if not quick:
        yield GIBBS._replace(prior="start")


def _input(quick: bool) -> Iterator[Reading]:
    yield BASE
    yield CANDIDATE
    if quick:
        return
    yield CANDIDATE._replace(test_runs=2000)
    yield BASE._replace(noise="window")
    yield BASE._replace(prior="start")
    yield from _shared_variations(CANDIDATE)
    yield CANDIDATE._replace(test_runs=1000)
    yield CANDIDATE._replace(test_runs=5000)
    for base in (BASE, CANDIDATE):
        for covariance in ("clipped", "shifted", "mean", "identity"):
            yield base._replace(covariance=covariance)


def _ekf(quick: bool) -> Iterator[Reading]:
    yield BASE
    yield BASE._replace(filter="model")
    if not quick:
        yield BASE._replace(filter="data")
        yield BASE._replace(test_runs=2000)
        yield BASE._replace(angle="exact")
        yield BASE._replace(test_runs=1000)
        yield BASE._replace(test_runs=5000)


def shared_fields(first: str, second: str) -> tuple[str, ...]:
    """Return the choices that two mechanisms share: in one experiment they have one value."""
    return tuple(name for name in FIELDS[first] if name in FIELDS[second])


def rank(fits: Sequence[ReadingFit]) -> tuple[ReadingFit, ...]:
    """Return the readings of one mechanism, the best fit first."""
    return tuple(sorted(fits, key=lambda fit: -fit.log_probability))


def best_joint(rankings: dict[str, tuple[ReadingFit, ...]]) -> ReadingFit:
    """Return the best reading of the whole experiment: what two mechanisms share has the same value in both.

    The fit is the sum over all printed rows.
    """
    best: ReadingFit | None = None
    for fits in product(*rankings.values()):
        if not _agree(fits):
            continue
        combined = BASE
        for fit in fits:
            combined = combined._replace(**{name: getattr(fit.reading, name) for name in FIELDS[fit.mechanism]})
        joint = ReadingFit("all", combined, difference(combined, BASE), tuple(row for fit in fits for row in fit.rows))
        if best is None or joint.log_probability > best.log_probability:
            best = joint
    assert best is not None  # the base readings agree
    return best


def _agree(fits: Sequence[ReadingFit]) -> bool:
    """Return whether the readings of several mechanisms have the same value wherever two of them share a choice."""
    return all(
        getattr(a.reading, name) == getattr(b.reading, name)
        for i, a in enumerate(fits)
        for b in fits[:i]
        for name in shared_fields(a.mechanism, b.mechanism)
    )
