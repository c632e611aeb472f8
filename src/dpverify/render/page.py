"""Pages: a report as one HTML file that asks nothing of the network, and a comparison of many verifications.

Everything from outside is text to the template, which escapes it; the only script is our own, and the page's content
security policy names it by its hash, so no other would run.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from dpverify.errors import InputError
from dpverify.render.estimates import drawings as draw_estimates
from dpverify.render.figures import delta_profile, p_values, tradeoff
from dpverify.render.numbers import embedded, read
from dpverify.render.sections import again, caution, lead, line, shares, tables, tested, versions
from dpverify.render.style import Drawing, svg
from dpverify.report.report import Report
from dpverify.util.formatting import format_lower, format_number, format_upper

HERE = Path(__file__).parent
SCRIPT = (HERE / "page.js").read_text(encoding="utf-8")


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.FileSystemLoader(HERE)
    return jinja2.Environment(loader=found, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def render(template: str, script: str = "", **context: Any) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return _templates().get_template(template).render(script=Markup(script), allowed=Markup(allowed), **context)


class Shown(NamedTuple):
    """A drawing in a page."""

    drawing: Drawing
    svg: Markup


def shown(drawings: Sequence[Drawing], prefix: str) -> list[Shown]:
    return [Shown(one, Markup(svg(one, f"{prefix}{number}"))) for number, one in enumerate(drawings)]


def page(report: Report) -> str:
    """The whole report as HTML; the same text from a live report and from one read from JSON."""
    upper = report.on_partition.epsilon_upper(report.delta)
    readings = read(report, upper)
    numbers = embedded(report, readings)
    at = numbers["start"]
    start = {name: numbers[name][at] for name in ("epsilon", "lower", "upper")}
    start |= {name: _small(numbers[name][at], readings.floor) for name in ("first", "second")}
    verdict, sentence, opening = report.verdict.name, report.verdict.value, lead(report, upper)
    if report.voiding:
        opening = f"{report.voiding[0].value}. What follows is what the runs would say if that were not so."
        opening = opening[:1].upper() + opening[1:]
    return render(
        "page.html.j2",
        SCRIPT,
        title=f"{report.name}: {verdict.replace('_', ' ')}",
        report=report,
        verdict=verdict,
        sentence=sentence[:1].upper() + sentence[1:] + ".",
        lead=opening.replace(" = ", "\u00a0=\u00a0").replace("e-", "e\u2011"),
        line=line(report, upper, float(readings.epsilon[-1])),
        shares=shares(report),
        tested=tested(report),
        numbers=numbers,
        start=start,
        curves=shown([p_values(report, readings), delta_profile(report, readings)], "curve"),
        estimates=shown(draw_estimates(report), "estimates"),
        tables=tables(report),
        notes=[*report.notes, caution(report)],
        again=again(report),
        versions=versions(report),
    )


def _small(p: float, floor: float) -> str:
    return f"{'≤ ' if p <= floor else ''}{p:g}"


COLUMNS = {
    "mechanism": "mechanism",
    "parameter": "parameter",
    "epsilon_lower": "ε proved, at least",
    "epsilon_upper": "ε bounded (cells only), at most",
    "error": "error",
    "error_se": "standard error",
}


def comparison(
    rows: Sequence[Mapping[str, Any]],
    *,
    title: str = "Privacy against accuracy",
    lead: str = "",
    error_name: str = "error",
    drawings: Sequence[Drawing] = (),
) -> str:
    """Many verifications on one page, as HTML: privacy against accuracy, further drawings, and all numbers.

    A row is a mapping with `mechanism`, `parameter` (a number or a name), `epsilon_lower`, `error` (its mean) and,
    where known, `epsilon_upper` (over unions of cells; None or infinity if there is none) and `error_se`. Other
    keys become columns of the table. `error_name` is the axis's name with its unit, "RMSE (m)". `drawings` come from
    `figures`, the privacy map for instance: `comparison(rows, drawings=[privacy_map(positions, epsilons)])`.
    """
    needed = {"mechanism", "parameter", "epsilon_lower", "error"}
    if not rows or any(missing := needed - set(row) for row in rows):
        found = f"a row without {', '.join(sorted(missing))}" if rows else "no rows"
        raise InputError(f"comparison: found {found}; expected mechanism, parameter, epsilon_lower and error in each")
    other = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    names = [name for name in COLUMNS if any(name in row for row in rows)] + list(other)
    numeric = {name: all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names}
    drawn = [tradeoff(rows, error_name), *drawings]
    return render(
        "comparison.html.j2",
        title=title,
        lead=lead,
        figures=shown(drawn, "figure"),
        columns=[{"text": COLUMNS.get(name, name), "number": numeric[name]} for name in names],
        rows=[[_cell(name, row.get(name)) for name in names] for row in rows],
    )


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        if value == math.inf:
            return "none"
        return {"epsilon_lower": format_lower, "epsilon_upper": format_upper}.get(name, format_number)(value)
    return str(value)
