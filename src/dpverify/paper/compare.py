"""Each printed number beside ours, and the four claims, from what the studies and the draws came to."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpverify.errors import FolderError

OUTSIDE_TEXT = "an output outside the high-likely region"
from dpverify.paper.claims import Claim, apart, at, compare, logarithm, summary
from dpverify.paper.plan import printed
from dpverify.stats.paper_test import PAPER_EPSILON_SWEEP
from dpverify.studies.tables import parse_row, read_csv
from dpverify.util.serialization import from_plain

Row = dict[str, Any]
OURS = {  # a printed mechanism -> ours, and the column of its parameter
    "W2-MHE": ("gibbs", "mechanism.s"),
    "input perturbation": ("perturbed", "mechanism.s_bar"),
    "private EKF": ("ekf", "mechanism.s_hat"),
}
LAWS = {"gibbs": "Gibbs law", "blend": "blend law"}


def tables(folder: Path) -> dict[str, list[Row]]:
    """The table of every study, by the study's name."""
    return {path.parent.name: [parse_row(row) for row in read_csv(path)] for path in sorted(folder.glob("*/table.csv"))}


def kept_draws(place: Path) -> list[dict[str, Any]]:
    return [kept(path) for path in sorted((place / "draws").glob("*.json"))]


def kept(path: Path) -> dict[str, Any]:
    """A part that an earlier start has finished."""
    try:
        return from_plain(json.loads(path.read_text(encoding="utf-8")), ())
    except (ValueError, RecursionError):
        raise FolderError(f"{path}: damaged; remove this file, and its part is done again") from None


def select(
    rows: Sequence[Mapping[str, Any]], mechanism: str, column: str = "", value: float | None = None
) -> list[Any]:
    return [
        row
        for row in rows
        if row["mechanism"] == mechanism and not row["problem"] and (value is None or row[column] == value)
    ]


def cells(found: Mapping[str, Sequence[Row]]) -> list[Row]:
    """A row for each number of the paper's tables and text, one for each law of the W2-MHE."""
    rows = []
    for cell in printed()["cells"]:
        name, column = OURS[cell["mechanism"]]
        words = cell["parameter"].split()
        value = float(words[1]) if len(words) > 1 else None
        setup = cell["setup"]
        for law in LAWS if name == "gibbs" else [name]:
            ours = select(found.get(f"{'critical' if setup == 'Q1' else 'tables'}-{setup}", ()), law, column, value)
            sure = select(found.get(f"certified-{setup}", ()), law, column, value)
            if ours:
                rows.append({**cell, "law": LAWS.get(law, ""), **_measured(ours), **_certified(sure)})
    return rows


def _measured(rows: Sequence[Row]) -> Row:
    kinds = {"epsilon_c": "epsilon_critical", "error": "error_first", "error_adjacent": "error_second"}
    kinds |= {"eta": "eta", "lambda": "lambda"}
    found: Row = {f"our_{kind}": summary([row[column] for row in rows]) for kind, column in kinds.items()}
    outside = [row["witness"] == OUTSIDE_TEXT for row in rows]
    return {**found, "worst_outside": sum(outside) / len(outside)}  # how often the worst event is the complement of R


def _certified(rows: Sequence[Row]) -> Row:
    if not rows:
        return {"proved": None, "bounded": None}
    return {"proved": rows[0]["epsilon_lower"], "bounded": float(rows[0]["epsilon_upper_on_partition"])}


def finer(found: Mapping[str, Sequence[Row]]) -> list[Row]:
    """T 7, Q2: epsilon_c along r."""
    rows = []
    for line in printed()["finer"]:
        for law, words in LAWS.items():
            ours = select(found.get(f"finer-Q2-r{line['r']}", ()), law)
            if ours:
                cells_a_step = max(int(row["cells"]) for row in ours)
                rows.append({**line, "law": words, "cells": cells_a_step, **_measured(ours)})
    return rows


def on_sweep(value: float, digits: int = 5) -> bool:
    """Whether a printed critical epsilon is a point of the sweep linspace(.001, 1.5, 80), to every printed digit."""
    return any(f"{point:.{digits}f}" == f"{value:.{digits}f}" for point in PAPER_EPSILON_SWEEP)


def points(draw: Mapping[str, Any], name: str, part: str = "rows") -> list[dict[str, float]]:
    own = [row for row in draw[part] if row["mechanism"] == name]
    return [{"epsilon": row["epsilon_estimate"], "error": row["error_first"], "at": row["parameter"]} for row in own]


def judged(draws: Sequence[Mapping[str, Any]], matched: Mapping[str, float], laws: Sequence[str]) -> list[Claim]:
    """The four claims, at matched privacy and matched accuracy; what was seen at the paper's values decides nothing."""
    epsilon, error, delta = matched["epsilon"], matched["error"], matched["delta"]
    privacy = f"ε {epsilon:g} at δ {delta:g}"

    def versus(law: str, other: str) -> list[Any]:
        words, decides = LAWS[law], law == "gibbs"
        error_ratio = [
            math.log(at(points(d, other), "epsilon", epsilon, "error"))
            - math.log(at(points(d, law), "epsilon", epsilon, "error"))
            for d in draws
        ]
        epsilon_ratio = [
            apart(
                logarithm(at(points(d, other), "error", error, "epsilon")),
                logarithm(at(points(d, law), "error", error, "epsilon")),
            )
            for d in draws
        ]
        at_paper = {
            key: [math.log(_of(d, other)[key]) - math.log(_of(d, law)[key]) for d in draws]
            for key in ("epsilon_c", "error")
        }
        return [
            compare(f"{words}: the other's error over the W2-MHE's, at {privacy}", error_ratio, decides=decides),
            compare(
                f"{words}: the other's ε over the W2-MHE's, at error {error:g}, δ {delta:g}",
                epsilon_ratio,
                decides=decides,
            ),
            compare(f"{words}, the paper's values: ratio of ε_c", at_paper["epsilon_c"], decides=False),
            compare(f"{words}, the paper's values: ratio of errors", at_paper["error"], decides=False),
        ]

    proof = [math.log(one["sufficient"] / one["certified"]) for d in draws for one in d["theory"][:1]]
    far = []
    for d in draws:
        # Straight in log-odds, so that a line drawn on beyond the measured s does not leave (0, 1).
        odds = [{"odds": p["at"] / (1 - p["at"]), "epsilon": p["epsilon"]} for p in points(d, "gibbs")]
        one = d["theory"][0]
        # The theorem's epsilon grows with the odds.
        grown = at(odds, "epsilon", epsilon, "odds") * (1 - one["s"]) / one["s"]
        far.append(math.log(one["sufficient"] * grown / epsilon))
    by_setup, by_setup_error = [], []
    for one, two in zip(draws[::2], draws[1::2], strict=False):
        a, b = (logarithm(at(points(d, "gibbs"), "error", error, "epsilon")) for d in (one, two))
        repeat = logarithm(at(points(one, "gibbs", "again"), "error", error, "epsilon"))
        by_setup.append(abs(apart(a, b)) - abs(apart(a, repeat)))
        a, b = (math.log(at(points(d, "gibbs"), "epsilon", epsilon, "error")) for d in (one, two))
        repeat = math.log(at(points(one, "gibbs", "again"), "epsilon", epsilon, "error"))
        by_setup_error.append(abs(a - b) - abs(a - repeat))
    texts = (
        "The sufficient condition of the theorem holds, and is very conservative.",
        "At equal privacy, perturbing the output (W2-MHE) is more accurate than perturbing the input.",
        "Privacy depends on where the sensors are.",
        "The W2-MHE beats the private EKF, in privacy and in accuracy.",
    )
    return [
        Claim(
            "theory",
            texts[0],
            (
                compare("holds: the theorem's ε over the one that we can prove (all draws)", proof, always=True),
                compare(f"ten times and more: the theorem's ε over the {privacy} seen", far, least=math.log(10)),
            ),
        ),
        Claim("output or input", texts[1], tuple(c for law in laws for c in versus(law, "perturbed"))),
        Claim(
            "sensors",
            texts[2],
            (
                compare(
                    f"ln ε between set-ups less ln ε between seeds, at error {error:g}, δ {delta:g}",
                    by_setup,
                    unit="difference",
                    draws_each=2,
                ),
                compare(
                    f"ln error between set-ups less ln error between seeds, at {privacy}",
                    by_setup_error,
                    unit="difference",
                    draws_each=2,
                ),
            ),
        ),
        Claim("EKF", texts[3], tuple(c for law in laws for c in versus(law, "ekf"))),
    ]


def _of(draw: Mapping[str, Any], name: str) -> Mapping[str, float]:
    return next(row for row in draw["paper"] if row["mechanism"] == name)
