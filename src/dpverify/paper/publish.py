"""From what was measured to what is read: numbers as JSON and CSV, figures, and the page."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpverify.estimation import theory
from dpverify.estimation.system import STEPS
from dpverify.paper import figures, setting
from dpverify.paper.claims import LEAST, Claim
from dpverify.paper.compare import cells, finer, judged, kept_draws, select, tables
from dpverify.paper.plan import SETUPS, printed
from dpverify.paper.remarks import cannot_be, where_ours_differ
from dpverify.paper.texts import LEGEND, finer_table, flat, numbers_table, page_of_tables, plain_claim, shown_claim
from dpverify.render.figures import privacy_map
from dpverify.render.page import render, shown
from dpverify.render.style import Drawing
from dpverify.studies.tables import write_csv
from dpverify.util.files import write_text
from dpverify.util.formatting import format_number
from dpverify.util.serialization import to_plain
from dpverify.util.timing import versions

RULE = (
    "The rule: over draws of sensors and seeds, at least {least} of them, the median difference gets a 95% interval "
    "(that of the sign test, exact for any law; each interval by itself). If it excludes no difference the comparison "
    "is confirmed or contradicted, else undecided; a claim is answered if all comparisons at matched privacy and at "
    "matched accuracy agree. That the theorem holds must show on every draw; “very” conservative is ten times. One "
    "delta throughout, {delta:g}. The comparisons at the paper's own values are shown and decide nothing: there, "
    "neither privacy nor accuracy is equal. The Gibbs law decides; it is the one with a theorem. The matched values "
    "were fixed before the first draw, the number of draws was raised after a shorter run. What is matched is read off "
    "between neighbouring parameters, or on from the last two; epsilon is an estimate there, up to a tenth too large "
    "with few runs."
)
FORMATS = ("png", "svg", "pdf")


def publish(place: Path, plan: Mapping[str, Any], amount: Mapping[str, Any], tuned: Mapping[str, Any]) -> Path:
    """Every file that a person looks at."""
    found, draws = tables(place / "studies"), kept_draws(place)
    rows, lines = cells(found), finer(found)
    claims = judged(draws, plan["matched"], amount["laws"])
    facts = constants()
    answered = [plain_claim(claim) for claim in claims]
    document = {"calibration": tuned, "cells": rows, "finer": lines, "claims": answered, **facts}
    write_text(place / "numbers.json", json.dumps(to_plain(document), indent=1, allow_nan=False) + "\n")
    write_csv(place / "numbers.csv", [flat(row) for row in [*rows, *lines]])
    write_csv(place / "claims.csv", [line for claim in answered for line in claim["comparisons"]])
    command = "dpverify reproduce" + (" --quick" if amount == plan["quick"] else "")
    over = f"{amount['seeds']} seeds a cell, {len(draws)} draws of sensors"
    rule = RULE.format(least=LEAST, delta=plan["matched"]["delta"]) + ("" if len(draws) >= LEAST else few(draws))
    made = f"Made by `{command}`, version {versions()['dpverify']}: {over}."
    write_text(place / "table.md", page_of_tables(made, rule, rows, lines, claims))
    groups = list(drawings(found, rows, draws, plan, amount))
    folder = place / "figures"
    folder.mkdir(exist_ok=True)
    for key, _, _, drawn in groups:
        for number, one in enumerate(drawn):
            for kind in FORMATS:
                one.figure.savefig(folder / f"{key}-{number}.{kind}", dpi=180)
    page = place / "index.html"
    text = render(
        "paper.html.j2",
        over=over,
        title="A numerical verification framework for differential privacy in estimation, run again",
        lead=lead(claims),
        rule=rule,
        claims=[shown_claim(claim) for claim in claims],
        numbers_say=LEGEND,
        numbers=numbers_table(rows),
        finer=finer_table(lines),
        groups=[
            {"key": key, "name": name, "say": say, "figures": shown(drawn, key)} for key, name, say, drawn in groups
        ],
        cannot=cannot_be(),
        differ=where_ours_differ(rows, draws, tuned),
        again=command,
        how=how(tuned, facts, amount),
        versions=", ".join(f"{name} {value}" for name, value in versions().items()),
    )
    write_text(page, text)
    return page


def few(draws: Sequence[Any]) -> str:
    return f" This run has {len(draws)} draws and so answers none of them; the run without --quick has enough."


def constants() -> dict[str, Any]:
    """The printed constants that can be computed, beside what comes out."""
    from dpverify import scenario_size

    said, promise = printed()["constants"], printed()["theory"]
    c_f = setting.system("Q2").lipschitz or math.nan
    l = theory.w2mhe_lipschitz(c_f, promise["window"])
    steps = promise["steps"] - promise["window"] + 1
    ours = {
        "Gamma": scenario_size(2, said["beta"], said["gamma"]),
        "events": (2**2) ** (9 - promise["window"]),
        "c_f": c_f,
        "l": l,
        "theory": theory.w2mhe_epsilon(promise["s"], l, c_f, promise["diameter"], promise["distance"], steps),
    }
    paper = {**{name: said[name] for name in ("Gamma", "events", "c_f", "l")}, "theory": promise["epsilon"]}
    return {"constants": {name: {"printed": paper[name], "ours": ours[name]} for name in paper}}


def lead(claims: Sequence[Claim]) -> str:
    words = [f"{claim.text[:-1]}: {claim.answer}" for claim in claims]
    return (
        "; ".join(words[:1] + [word[:1].lower() + word[1:] if word[:2] != "W2" else word for word in words[1:]]) + "."
    )


def how(tuned: Mapping[str, Any], facts: Mapping[str, Any], amount: Mapping[str, Any]) -> list[str]:
    same = ", ".join(
        f"{name} {format_number(float(pair['printed']))} (ours {pair['ours']:.6g})"
        for name, pair in facts["constants"].items()
    )
    return [
        f"tau {tuned['tau']:.4g}, ŝ {tuned['s_hat']:.5g}. {tuned['says']}",
        "Q2 has the sensors evenly spread, Q1 and Q3 are drawn once; sensor 0 moves. n 1000 and m 2000 are our guess. "
        "On Table I s 0.8 and s̄ 0.894 are assumed.",
        f"Constants of the paper that come out: {same}.",
        f"Each draw: {amount['draw']['select_runs']} selection and {amount['draw']['test_runs']} test runs a side and "
        "parameter; epsilon there is an estimate on the partition, interpolated along the parameter.",
    ]


# Figures, in the order of the page.


def drawings(
    found: Mapping[str, Sequence[Mapping[str, Any]]],
    rows: Sequence[Mapping[str, Any]],
    draws: Sequence[Mapping[str, Any]],
    plan: Mapping[str, Any],
    amount: Mapping[str, Any],
) -> Iterator[tuple[str, str, str, list[Drawing]]]:
    yield (
        "beside",
        "Printed and ours",
        "",
        [
            figures.beside(rows, "epsilon_c", "ε_c", "Critical epsilons"),
            figures.beside(rows, "error", "E_correct", "Errors"),
        ],
    )
    yield "exchange", "Accuracy against privacy", "", [figures.exchange(draws, plan["matched"], amount["laws"])]
    maps = []
    for setup in SETUPS:
        own = sorted(found.get(f"map-{setup}", ()), key=lambda row: row["pair.move"])
        if own:
            path = undisturbed()[: STEPS + 1 - setting.WINDOW, :2]
            lower = [row["epsilon_lower"] for row in own]
            maps.append(
                privacy_map(setting.places(setup), lower, target=path, title=f"What each sensor tells: {setup}")
            )
    say = "W2-MHE, Gibbs law, s 0.8: ε that is proved, at δ = 0, when this sensor moves until the data are 10 apart."
    yield "map", "Privacy map: who is exposed", say, maps
    critical = found.get("critical-Q1", ())
    if critical:
        s = [(f"s {v:g}", select(critical, "gibbs", "mechanism.s", v)) for v in (1.0, 0.8, 0.7)]
        blend = [(f"s {v:g}", select(critical, "blend", "mechanism.s", v)) for v in (0.8, 0.7)]
        inputs = [(f"s̄ {v:g}", select(critical, "perturbed", "mechanism.s_bar", v)) for v in (0.944, 0.894)]
        studied = [
            figures.of_studies(s, "W2-MHE, Gibbs law, Q1"),
            figures.of_studies(blend, "W2-MHE, blend law, Q1"),
            figures.of_studies(inputs, "Input perturbation, Q1"),
        ]
        yield "p-values", "p-values of the worst event", "", studied
    counts = printed()["counts"]
    yield (
        "events",
        "The choice of the event",
        "",
        [
            figures.of_counts(
                counts["different"],
                counts["runs"],
                "Different ratios",
                "Medians and 5 to 95% of 400 thinnings. The order holds for these two; it does not hold in general.",
            ),
            figures.of_counts(
                counts["proportional"],
                counts["runs"],
                "The same ratio",
                "Medians and 5 to 95% of 400 thinnings. The larger the counts, the smaller the p-value: not similar.",
            ),
        ],
    )
    yield "scene", "The set-up", "", scenes()


def undisturbed() -> np.ndarray:
    """The target's way without noise: (9, 4)."""
    system = setting.system("Q2")
    return np.array([np.linalg.matrix_power(np.asarray(system.A), k) @ system.start for k in range(STEPS + 1)])


def scenes() -> list[Drawing]:
    """Figure 1 for Q1, and the accuracy at s = 1; drawn from the set-up itself."""
    system = setting.system("Q1")
    first, second, truth = setting.pair("Q1")
    sensors = system.h
    turns = np.linspace(-0.4, 0.4, 4001)
    states = undisturbed()

    def seen(place: np.ndarray) -> np.ndarray:
        return 100 * np.tanh(0.1 * (states[:, :2] - place))

    here = seen(sensors.places[0])
    stood = [sensors.moved(0, float(turn)).places[0] for turn in turns]
    reach = np.array([place for place in stood if np.linalg.norm(seen(place) - here) <= setting.DISTANCE])
    moved = min(stood, key=lambda place: np.linalg.norm(seen(place) - here - (second - first)[:, :2]))
    estimates = [setting.gibbs("Q1", 1.0, 1.4e-5).deterministic(data)[:, :2] for data in (first, second)]
    return [figures.scene(sensors.places, moved, reach, states[:, :2]), figures.accuracy(truth, *estimates)]
