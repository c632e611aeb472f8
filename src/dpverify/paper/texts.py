"""What was measured as tables: for the page, for CSV, and as a page of Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpverify.paper.claims import CONFIRMED, CONTRADICTED, Claim, Comparison
from dpverify.paper.plan import printed
from dpverify.paper.remarks import used_up
from dpverify.util.formatting import format_lower, format_upper

BADGE = {CONFIRMED: "BOUNDED", CONTRADICTED: "REFUTED"}
LEGEND = (
    "ε_c, errors and λ: median (5% to 95%) over seeds, by the paper's own procedure, preset `paper`. “Proved” and "
    "“cells” come from our own test at δ = 0: ε is at least this, proved over all events; and at most this over unions "
    "of our cells, which says nothing of other events. * not printed, assumed by us; † used to calibrate, so no "
    "prediction."
)
FIGURES = {
    "figures/beside-0.png": "The printed critical epsilons beside ours",
    "figures/map-1.png": "What each of ten sensors tells when it moves",
}


def page_of_tables(
    made: str, rule: str, rows: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]], claims: Sequence[Claim]
) -> str:
    """The main tables and two of the figures, as Markdown that stands by itself."""
    parts = ["# The paper's numbers beside ours", made, LEGEND]
    parts += [f"## {table['caption']}\n\n{markdown(table)}" for table in (numbers_table(rows), finer_table(lines))]
    parts += ["## The four claims", rule]
    parts += [f"**{one['text']}** {one['answer']}.\n\n{markdown(one)}" for one in map(shown_claim, claims)]
    parts += [f"![{name}]({path})" for path, name in FIGURES.items()]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _range(found: Mapping[str, float], digits: int = 3) -> str:
    low, middle, high = (f"{found[key]:.{digits}g}".removeprefix("0") or "0" for key in ("low", "median", "high"))
    return middle if low == high else f"{middle} ({low}–{high})"


def _printed(row: Mapping[str, Any], key: str) -> str:
    if key not in row:
        return "–"
    return "all rejected" if row[key] == math.inf else f"{row[key]:.6g}".removeprefix("0")


def numbers_table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    columns = ["set-up", "mechanism", "ε_c printed", "ε_c ours", "proved ≥", "cells ≤", "error printed", "error ours"]
    columns += ["λ printed", "λ ours"]
    body = []
    for row in rows:
        star = "*" if "assumed" in row else ""
        law = f", {row['law']}" if row["law"] else ""
        dagger = "†" if used_up(row) else ""
        body.append(
            [
                row["setup"],
                f"{row['mechanism']}{law}, {row['parameter']}{star}",
                _printed(row, "epsilon_c"),
                _range(row["our_epsilon_c"]),
                "–" if row["proved"] is None else format_lower(row["proved"]),
                "–"
                if row["bounded"] is None
                else ("∞" if math.isinf(row["bounded"]) else format_upper(row["bounded"])),
                _printed(row, "error"),
                _range(row["our_error"]) + dagger,
                _printed(row, "lambda"),
                _range(row["our_lambda"]),
            ]
        )
        if "error_adjacent" in row:
            adjacent = ["", "error under the adjacent data", "", "", "", "", _printed(row, "error_adjacent")]
            body.append([*adjacent, _range(row["our_error_adjacent"]), "", ""])
    return {"caption": "Text and tables of section V", "columns": columns, "rows": body}


def finer_table(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    promise = printed()["theory"]["epsilon"]
    body = [
        [
            f"{row['r']}",
            row["law"],
            _printed(row, "epsilon_c"),
            _range(row["our_epsilon_c"]),
            f"{row['worst_outside']:.0%}",
            f"{promise:g}",
        ]
        for row in lines
    ]
    columns = ["r", "law", "ε_c printed", "ε_c ours", "worst event is R̄", "sufficient, by the theorem"]
    return {"caption": "Finer grids: Q2, s 0.8, T 7", "columns": columns, "rows": body}


def markdown(table: Mapping[str, Any]) -> str:
    """A table for a page of Markdown."""
    lines = [table["columns"], ["---"] * len(table["columns"]), *table["rows"]]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines) + "\n"


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        flat |= {f"{key}.{name}": part for name, part in value.items()} if isinstance(value, dict) else {key: value}
    return flat


def _size(one: Comparison, value: float) -> str:
    if one.unit == "difference":
        return f"{value:.3g}"
    return "infinity" if value > 700 else f"{float(f'{math.exp(value):.3g}'):g}"  # 1350, not 1.35e+03


def shown_claim(claim: Claim) -> dict[str, Any]:
    rows = [
        [
            one.what,
            _size(one, one.median),
            f"{_size(one, one.interval[0])} to {_size(one, one.interval[1])}",
            one.draws,
            one.answer if one.decides else f"{one.answer} (does not decide)",
        ]
        for one in claim.comparisons
    ]
    columns = ["what is compared", "median", "95% interval", "draws", "answer"]
    style = BADGE.get(claim.answer, "MEASURED")
    return {"text": claim.text, "answer": claim.answer, "style": style, "caption": "", "columns": columns, "rows": rows}


def plain_claim(claim: Claim) -> dict[str, Any]:
    lines = [
        {
            "claim": claim.name,
            "what": one.what,
            "median": one.median,
            "low": one.interval[0],
            "high": one.interval[1],
            "unit": "logarithm of a ratio" if one.unit == "ratio" else one.unit,
            "draws": one.draws,
            "answer": one.answer,
            "decides": one.decides,
        }
        for one in claim.comparisons
    ]
    return {"claim": claim.name, "text": claim.text, "answer": claim.answer, "comparisons": lines}
