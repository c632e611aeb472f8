"""HTML pages: the report of one verification, and a comparison of many verifications.

A page is one file that loads nothing from a network. The template engine escapes all text that comes from outside. The
only script is `page.js`; the content security policy of the page allows it by its hash, so that no other script runs.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from dpverify.errors import InputError
from dpverify.render.content import BoundTrack, EpsilonBounds, EventShare, PageContent, PageFindings, SliderData
from dpverify.render.curves import delta_figure, error_figure, p_value_figure, wealth_figure
from dpverify.render.figures import ComparisonRow, tradeoff
from dpverify.render.outputs import draw_outputs
from dpverify.render.style import Drawing, svg
from dpverify.render.terms import mark_terms, used_terms
from dpverify.util.formatting import format_count, format_lower, format_number, format_percent, format_upper

TEMPLATE_FOLDER = Path(__file__).parent
SCRIPT = (TEMPLATE_FOLDER / "page.js").read_text(encoding="utf-8")
NUMBER_WIDTH = 15.0  # of a number in a bar, in per cent of the axis
SHARE_TICKS = 4  # about as many numbers below the bars of the witness
AXIS_TICKS = 6  # about as many numbers below the axis of epsilon


@functools.cache
def _templates() -> jinja2.Environment:
    """Return the template engine; an undefined variable is an error."""
    loader = jinja2.FileSystemLoader(TEMPLATE_FOLDER)
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)


def render(template: str, script: str = "", **context: object) -> str:
    """Fill in a template; the page may run `script` and no other script."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return _templates().get_template(template).render(script=Markup(script), allowed=Markup(allowed), **context)


class Shown(NamedTuple):
    """A drawing with its SVG element."""

    drawing: Drawing
    svg: Markup


def shown(drawings: Sequence[Drawing], prefix: str) -> list[Shown]:
    """Convert drawings to SVG; `prefix` makes their identifiers unique in the page."""
    return [Shown(drawing, Markup(svg(drawing, f"{prefix}{number}"))) for number, drawing in enumerate(drawings)]


def drawn(drawing: Drawing, element: Markup) -> Markup:
    """Return the figure of a drawing as HTML, with its title, legend and caption."""
    macro = _templates().get_template("macros.html.j2").module.drawn  # type: ignore[attr-defined]
    return Markup(macro(Shown(drawing, element)))


def report_page(content: PageContent) -> str:
    """Return the page of one report as HTML.

    Parameters
    ----------
    content : PageContent
        What the page shows; `dpverify.report.page` makes it from a report.

    Returns
    -------
    str
        The page. Equal content gives equal text.
    """
    found = content.findings
    return render(
        "page.html.j2",
        SCRIPT,
        title=f"{content.name}: {content.verdict.replace('_', ' ')}",
        content=content,
        summary=[(line.name, mark_terms(_without_breaks(line.text))) for line in content.summary],
        terms=used_terms(found),
        **({} if found is None else _findings(found)),
    )


def _findings(found: PageFindings) -> dict[str, object]:
    """Return what the template needs for a test that has an answer."""
    return {
        "axis": _place_bounds(found.bounds),
        "shares": _scale_shares(found.shares),
        "share_ticks": _share_ticks(found.shares),
        "slider": found.slider._asdict(),
        "start": _first_values(found.slider),
        "curves": shown([figure(found.result, found.curves) for figure in (p_value_figure, delta_figure)], "curve"),
        "wealth": shown([] if found.wealth is None else [wealth_figure(found.wealth)], "wealth"),
        "errors": shown([error_figure(found.errors)], "errors"),
        "outputs": shown(draw_outputs(found.scene), "outputs"),
    }


def _without_breaks(text: str) -> str:
    """Keep "ε = 0.5" and "5e-11" on one line."""
    return text.replace(" = ", "\u00a0=\u00a0").replace("e-", "e\u2011")


class PlacedTrack(NamedTuple):
    """A statement about epsilon with the position of its bar, in per cent of the axis from its left and right end."""

    kind: str
    statement: str
    detail: str
    left: float | None
    right: float
    number: str
    number_style: str


class PlacedBounds(NamedTuple):
    """The axis of epsilon, or of another parameter, with all positions in per cent of its length."""

    delta: str
    claim: float | None
    claim_text: str
    tracks: list[PlacedTrack]
    ticks: list[tuple[float, str]]
    description: str
    name: str


def _place_bounds(bounds: EpsilonBounds) -> PlacedBounds:
    """Compute the positions on the axis."""
    end = bounds.axis_end
    claim = None if bounds.claimed is None else _percent_of_axis(bounds.claimed, end)
    ticks = [tick for tick in MaxNLocator(AXIS_TICKS).tick_values(0, end) if 0 <= tick <= end * (1 + 1e-9)]
    return PlacedBounds(
        format_number(bounds.delta),
        claim,
        "" if bounds.claimed is None else f"{bounds.name} = {format_number(bounds.claimed)}",
        [_place_track(track, end, claim) for track in bounds.tracks],
        [(_percent_of_axis(float(tick), end), f"{tick:g}") for tick in ticks],
        bounds.description,
        bounds.name,
    )


def _place_track(track: BoundTrack, axis_end: float, claim: float | None) -> PlacedTrack:
    """Compute the position of one bar, and put its number where the claim does not cross it."""
    left = right = None
    if track.start is not None and track.start < axis_end:
        left = _percent_of_axis(track.start, axis_end)
    if track.end is not None:  # a lower bound: right of the bar, at the end of the bar, or at its start
        end = _percent_of_axis(track.end, axis_end)
        right, inside = 100 - end, "color: var(--paper); background: none"
        places = [
            (end, f"left: {end}%"),
            (end - NUMBER_WIDTH, f"right: {right}%; {inside}"),
            (0.0, f"left: 0; {inside}"),
        ]
    else:  # an upper bound: left of the bar, at its start, or at its end
        start = left or 0.0
        places = [
            (start - NUMBER_WIDTH, f"right: {100 - start}%"),
            (start, f"left: {start}%"),
            (100 - NUMBER_WIDTH, "right: 0"),
        ]
    if claim is not None:  # beside the claim, if nothing else is free
        places += [(claim - NUMBER_WIDTH - 0.5, f"right: {100.5 - claim}%"), (claim + 0.5, f"left: {claim + 0.5}%")]
    number_style = next((style for at, style in places if _is_free(at, claim)), places[0][1])
    return PlacedTrack(track.kind, track.statement, track.detail, left, right or 0, track.number, number_style)


def _is_free(start: float, claim: float | None) -> bool:
    """Return whether a number that starts here lies on the axis and is not crossed by the claim."""
    stop = start + NUMBER_WIDTH
    return start >= 0 and stop <= 100 and (claim is None or not start - 0.5 < claim < stop)


def _percent_of_axis(epsilon: float, axis_end: float) -> float:
    return round(100 * min(epsilon / axis_end, 1.0), 3)


class ScaledShare(NamedTuple):
    """A bar for the share of the runs in the event; `width`, `low` and `span` in per cent of the longest bar."""

    name: str
    percent: str
    count: str
    width: float
    low: float
    span: float
    description: str


def _largest_share(shares: Sequence[EventShare]) -> float:
    """Return the share at the end of the axis."""
    return max(min(1.0, 1.15 * max(share.high for share in shares)), 1e-12)


def _share_ticks(shares: Sequence[EventShare]) -> list[tuple[float, str]]:
    """Return the positions and texts of the axis below the bars."""
    end = _largest_share(shares)
    ticks = [tick for tick in MaxNLocator(SHARE_TICKS).tick_values(0, end) if 0 <= tick <= end * (1 + 1e-9)]
    return [(round(100 * float(tick) / end, 3), f"{100 * tick:g}%") for tick in ticks]


def _scale_shares(shares: Sequence[EventShare]) -> list[ScaledShare]:
    """Scale the bars so that the largest upper limit is nearly as long as the row."""
    scale = 100 / _largest_share(shares)
    return [
        ScaledShare(
            share.name,
            format_percent(share.share),
            format_count(share.count),
            round(scale * share.share, 3),
            round(scale * share.low, 3),
            round(scale * (share.high - share.low), 3),
            f"{format_percent(share.share)} of the runs with the {share.name} data set, confidence limits "
            f"{format_percent(share.low)} and {format_percent(share.high)}",
        )
        for share in shares
    ]


def _first_values(slider: SliderData) -> dict[str, str | bool]:
    """Return the numbers at the first position of the slider, for browsers without JavaScript."""
    i = slider.start
    return {
        "epsilon": str(slider.epsilon[i]),
        "p_first": _p_value_text(slider.p_first[i], slider.p_floor),
        "p_second": _p_value_text(slider.p_second[i], slider.p_floor),
        "decisive": slider.events[slider.decisive[i]] if slider.decisive else "",
        "delta_lower": str(slider.delta_lower[i]),
        "delta_upper": str(slider.delta_upper[i]),
        "crossed": slider.delta_lower[i] > slider.delta_upper[i],
    }


def _p_value_text(p: float, floor: float) -> str:
    return f"{'≤ ' if p <= floor else ''}{p:g}"


COLUMN_TITLES = {
    "mechanism": "mechanism",
    "parameter": "parameter",
    "epsilon_lower": "ε, lower bound (all events)",
    "epsilon_upper": "ε, upper bound (over the cells)",
    "error": "error",
    "error_se": "standard error",
}
REQUIRED_COLUMNS = frozenset({"mechanism", "parameter", "epsilon_lower", "error"})


def comparison(
    rows: Sequence[ComparisonRow],
    *,
    title: str = "Privacy against accuracy",
    lead: str = "",
    error_name: str = "error",
    drawings: Sequence[Drawing] = (),
) -> str:
    """Return many verifications on one page as HTML: privacy against accuracy, further drawings, and all numbers.

    Parameters
    ----------
    rows : sequence of mappings
        Each row has `mechanism`, `parameter` (a number or a name), `epsilon_lower`, `error` (its mean) and, where
        known, `epsilon_upper` (over unions of cells; None or infinity if there is none) and `error_se`. Other keys
        become columns of the table.
    title, lead : str
        The heading, and a paragraph below it.
    error_name : str
        The name of the error with its unit, for example "RMSE (m)".
    drawings : sequence of Drawing
        Further figures, for example `[privacy_map(positions, epsilons)]`.

    Returns
    -------
    str
        The page.

    Raises
    ------
    InputError
        If there are no rows, or a row lacks a column that is needed.
    """
    if not rows:
        raise InputError("comparison: found no rows; expected at least one verification")
    for row in rows:
        missing = REQUIRED_COLUMNS - set(row)
        if missing:
            raise InputError(
                f"comparison: found a row without {', '.join(sorted(missing))}; expected mechanism, parameter, "
                "epsilon_lower and error in every row"
            )
    other = dict.fromkeys(name for row in rows for name in row if name not in COLUMN_TITLES)
    names = [name for name in COLUMN_TITLES if any(name in row for row in rows)] + list(other)
    numeric = {name: all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names}
    return render(
        "comparison.html.j2",
        title=title,
        lead=lead,
        figures=shown([tradeoff(rows, error_name), *drawings], "figure"),
        columns=[{"text": COLUMN_TITLES.get(name, name), "number": numeric[name]} for name in names],
        rows=[[_cell_text(name, row.get(name)) for name in names] for row in rows],
    )


def _cell_text(name: str, value: object) -> str:
    """Return the text of one cell; bounds are rounded so that the text still is a bound."""
    if value is None:
        return ""
    if isinstance(value, float):
        if value == math.inf:
            return "none"
        return {"epsilon_lower": format_lower, "epsilon_upper": format_upper}.get(name, format_number)(value)
    return str(value)
