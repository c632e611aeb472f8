"""The page of the gallery, from rows: a table of all cases, and a section with a figure for each mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dpverify import Report, claims, render
from gallery.entry import Case, Entry

Row = dict[str, Any]

LARGEST_MULTIPLE = 4.0  # of the claimed mu, in the search for an upper bound; larger bounds count as infinite
RELATIVE_PRECISION = 0.005  # of this search
ROLES = {
    "published": "as published",
    "implemented": "as implemented",
    "corrected": "corrected version",
    "control": "control",
}
SYMBOLS = {"epsilon": "ε", "mu": "μ", "delta": "δ"}
TITLE = "The gallery"
LEAD = (
    "Each mechanism is implemented from its description in the cited source, with the claim and the neighbours of the "
    "source. The verifier sees samples only.",
    "A verdict is about the mechanism as specified here, not about every reading of a source or every implementation.",
)
LEGEND = (
    "Refuted: the samples contradict the claim. Not refuted: these runs do not refute it, which is no proof. "
    "Every single bound holds with confidence 99.9%.",
    "Proved is a lower bound over all events. The upper bound holds over the cells of one partition only, and says "
    "nothing about other events. Exact is the smallest true value for this pair of datasets, at the claimed delta, "
    "where it is known. Runs are test runs per dataset; seconds are wall-clock seconds of one process.",
    "The date is that of the verification. A case whose tools are missing keeps its row.",
)
COMMANDS = """make gallery                          # all of them, about half an hour on two cores
python -m gallery binary triggered    # two of the mechanisms
python -m gallery --quick             # fewer runs, some minutes
python -m gallery --list              # the names"""
HOW_TO_RUN = (
    "The commands work in a clone. The same command resumes an interrupted run; the folder `build/gallery` then has "
    "the report of every case, the table and the page. Each mechanism is one file of `gallery/`.",
    "Two entries run public programs as they are, through `dpverify.program`; nothing of them is part of dpverify. "
    "Location Guard: install Node.js, run `git clone https://github.com/chatziko/location-guard`, and set the "
    "environment variable `LOCATION_GUARD` to the folder of the clone. OpenDP: `pip install opendp`. A driver of some "
    "20 lines reads the requests and calls the program.",
)


def make_row(case: Case, report: Report, date: str) -> Row:
    """Return what the page shows of a verification, as plain data; infinity is None in `bounded` and "inf" in `exact`.

    The quantity is epsilon at the claimed delta, mu, or delta at the claimed epsilon.
    """
    truth, claim = case.truth() if case.truth else None, case.claim
    exact, is_void = truth.parameter if truth else None, bool(report.voiding)
    proved, bounded = 0.0 if is_void else report.claim_lower or 0.0, math.inf
    if isinstance(claim, claims.Approximate) and case.measures_delta:
        quantity, claimed, exact = "delta", claim.delta, truth.delta if truth else None
        if not is_void:
            proved, bounded = report.delta_lower(claim.epsilon), report.on_partition.delta_upper(claim.epsilon)
    elif isinstance(claim, claims.Approximate):
        quantity, claimed = "epsilon", claim.epsilon
        bounded = math.inf if is_void else report.on_partition.epsilon_upper(claim.delta)
    else:
        assert isinstance(claim, claims.Gaussian)
        quantity, claimed = "mu", claim.mu
        bounded = math.inf if is_void else mu_upper(report, claim)
    shares = (None, None) if is_void else [share for share, _, _ in report.witness.probabilities]
    seconds, versions = report.provenance["seconds"], report.provenance["versions"]
    assert isinstance(seconds, Mapping)
    assert isinstance(versions, Mapping)
    return {
        "case": case.name,
        "date": date,
        "version": versions["dpverify"],
        "claim": claim.describe(),
        "verdict": "REFUTED" if report.refuted else "NO_ANSWER" if is_void else "NOT_REFUTED",
        "quantity": quantity,
        "claimed": claimed,
        "proved": proved,
        "bounded": bounded if math.isfinite(bounded) else None,
        "exact": "inf" if exact == math.inf else exact,
        "is_exact": truth.is_exact if truth else None,
        "exact_how": truth.how if truth else None,
        "p_value": report.p_value,
        "alpha": report.alpha,
        "select_runs": report.settings.select_runs,
        "test_runs": report.witness.runs,
        "witness": None if is_void else report.witness.text,
        "share_first": shares[0],
        "share_second": shares[1],
        "digest": report.digest,
        "seconds": round(sum(seconds.values()), 2),
    }


def mu_upper(report: Report, claim: claims.Gaussian) -> float:
    """Return an upper bound on mu over the cells; infinite if there is none."""
    part, low, high = report.cell_counts, report.claim_lower or 0.0, LARGEST_MULTIPLE * claim.mu
    if not part.meets_claim(claim.with_parameter(high)):
        return math.inf
    while high - low > RELATIVE_PRECISION * high:
        middle = (low + high) / 2
        low, high = (low, middle) if part.meets_claim(claim.with_parameter(middle)) else (middle, high)
    return high


def claim_text(case: Case) -> str:
    """Return the claim in a few characters."""
    claim, number = case.claim, render.format_number
    if isinstance(claim, claims.Gaussian):
        return f"mu {number(claim.mu)}"
    assert isinstance(claim, claims.Approximate)
    if claim.delta == 0 and not case.measures_delta:
        return f"epsilon {number(claim.epsilon)}"
    return f"({number(claim.epsilon)}, {number(claim.delta)})"


def proved_text(row: Row) -> str:
    """Return the lower bound, rounded down."""
    return render.format_lower(row["proved"]) if row["proved"] > 0 else "none"


def bounded_text(row: Row) -> str:
    """Return the upper bound over the cells, rounded up."""
    return "none" if row["bounded"] is None else render.format_upper(row["bounded"])


def exact_cell(row: Row) -> render.Cell:
    """Return the exact value, or the upper bound that is known, and how it was computed."""
    if row["exact"] is None:
        return render.Cell("not known")
    number = "infinite" if row["exact"] == "inf" else render.format_number(row["exact"])
    return render.Cell(number if row["is_exact"] else f"at most {number}", row["exact_how"])


def verdict_words(row: Row) -> str:
    """Return the verdict in words."""
    return row["verdict"].replace("_", " ").lower()


class Column(NamedTuple):
    """A column of the table: its heading, its cell, and whether it holds numbers."""

    header: str
    cell: Callable[[Case, Row], render.Cell]
    is_number: bool = False


COLUMNS = (
    Column("case", lambda case, row: render.Cell(case.title, ROLES[case.role])),
    Column("claim", lambda case, row: render.Cell(claim_text(case))),
    Column("verdict", lambda case, row: render.Cell(verdict_words(row), style=row["verdict"])),
    Column(
        "proved", lambda case, row: render.Cell(proved_text(row), row["quantity"] if row["proved"] > 0 else ""), True
    ),
    Column("over the cells", lambda case, row: render.Cell(bounded_text(row)), True),
    Column("exact", lambda case, row: exact_cell(row)),
    Column("runs", lambda case, row: render.Cell(render.format_count(row["test_runs"])), True),
    Column("seconds", lambda case, row: render.Cell(f"{row['seconds']:.0f}"), True),
    Column("date", lambda case, row: render.Cell(row["date"]), True),
)


def make_page(
    entries: Sequence[Entry], rows: Mapping[str, Row], missing: Mapping[str, str], quick: bool = False
) -> render.Page:
    """Return the page.

    Parameters
    ----------
    entries : sequence of Entry
        The mechanisms.
    rows : mapping
        The row of each case, by its name; a case without a row has no result yet.
    missing : mapping
        What is missing to run an entry, by the name of the entry.
    quick : bool
        Whether the rows have few runs.
    """
    cells: list[list[render.Cell]] = []
    for entry in entries:
        cells.append([render.Cell(entry.title, link=f"#{entry.name}")])
        cells += [[column.cell(case, rows[case.name]) for column in COLUMNS] for case in known_cases(entry, rows)]
    table = render.Table([render.Column(column.header, column.is_number) for column in COLUMNS], cells)
    blocks = [
        *(render.Sentence(text, style="lead") for text in LEAD),
        *([render.Sentence("This page has the quick form with few runs.")] if quick else []),
        render.Code(COMMANDS),
        *(render.Sentence(text) for text in HOW_TO_RUN),
        render.Section("All mechanisms", (*(render.Sentence(text, style="small") for text in LEGEND), table)),
        *(entry_section(entry, rows, missing.get(entry.name)) for entry in entries),
    ]
    return render.Page(TITLE, blocks, f"{len(entries)} published mechanisms, verified at their own claims")


def known_cases(entry: Entry, rows: Mapping[str, Row]) -> list[Case]:
    """Return the cases of an entry that have a row."""
    return [case for case in entry.cases if case.name in rows]


def entry_section(entry: Entry, rows: Mapping[str, Row], missing: str | None) -> render.Section:
    """Return the section of a mechanism."""
    cases = known_cases(entry, rows)
    blocks: list[Any] = [
        render.Sentence(entry.source, style="emphasis"),
        render.Sentence(entry.what),
        render.Sentence(entry.neighbours, label="Neighbours:"),
    ]
    if missing is not None:
        dates = sorted({rows[case.name]["date"] for case in cases})
        kept = f"The result is that of {' and '.join(dates)}" if dates else "There is no result"
        blocks.append(render.Sentence(f"{kept}, because the program is not installed here: {missing}."))
    if cases:
        blocks.append(render.Figures((draw_cases(cases, rows),), entry.name))
        blocks.append(render.Items([verdict_sentence(case, rows[case.name]) for case in cases]))
    return render.Section(entry.title, (*blocks, render.Sentence(entry.why, label="Why:")), entry.name)


def verdict_sentence(case: Case, row: Row) -> render.Sentence:
    """Return what the samples say about the claim of the mechanism as specified here."""
    claim, place = case.claim, ""
    if isinstance(claim, claims.Approximate):
        place = f" at delta {render.format_number(claim.delta)}" if claim.delta else ""
        place = f" at epsilon {render.format_number(claim.epsilon)}" if case.measures_delta else place
    proved = "no positive lower bound"
    if row["proved"] > 0:
        proved = f"{row['quantity']} is at least {proved_text(row)}{place}"
    says = {"REFUTED": "is refuted", "NOT_REFUTED": "is not refuted", "NO_ANSWER": "has no answer"}[row["verdict"]]
    text = f"{case.title}: the claim ({row['claim']}) {says} for the mechanism as specified here. Proved: {proved}"
    if row["verdict"] == "REFUTED":
        shares = [render.format_percent(row[f"share_{side}"]) for side in ("first", "second")]
        text += f". Witness: {row['witness']}. {shares[0]} of runs with the first dataset, {shares[1]} with the second"
    else:
        text += f"; over the cells: {bounded_text(row) if row['bounded'] is None else f'at most {bounded_text(row)}'}"
    return render.Sentence(f"{text}.", badge=ROLES[case.role], verdict=row["verdict"])


def draw_cases(cases: Sequence[Case], rows: Mapping[str, Row]) -> render.Drawing:
    """Draw claim, bounds and exact value of each case, the first on top."""
    found = [rows[case.name] for case in cases]
    symbol, title = SYMBOLS[found[0]["quantity"]], "Claim, bounds and exact value of each case"
    exact = [math.inf if row["exact"] == "inf" else row["exact"] for row in found]
    numbers = [row[name] for row in found for name in ("claimed", "proved")]
    end = 1.15 * max(*numbers, *(x for x in exact if x is not None and math.isfinite(x)), 0.1)
    with render.styled():
        figure = render.canvas(0.55 + 0.56 * len(cases))
        axes = figure.add_subplot()
        for height, (case, row, truth) in enumerate(zip(cases, found, exact, strict=True)):
            axes.text(0, height - 0.2, case.title, ha="left", va="bottom", fontsize=8.5, color=render.INK)
            axes.plot([0, end], [height, height], color=render.RULE, linewidth=0.5, zorder=0)
            if row["proved"] > 0:
                axes.barh(height, row["proved"], height=0.26, color=render.PROVED, alpha=0.8)
            if row["bounded"] is not None and row["bounded"] <= end:
                axes.plot(row["bounded"], height, "|", color=render.CELLS, markersize=11, markeredgewidth=2)
            axes.plot([row["claimed"]] * 2, [height - 0.17, height + 0.2], color=render.INK, linewidth=1.6)
            if truth is not None:
                marker, place = ("D", truth) if math.isfinite(truth) else (">", 0.985 * end)
                fill = render.WITNESS if row["is_exact"] else "none"
                style = {"color": render.WITNESS, "markersize": 5.5, "markeredgewidth": 1.3, "zorder": 3}
                axes.plot(place, height, marker, markerfacecolor=fill, **style)
        axes.set(xlim=(0, end), ylim=(len(cases) - 0.35, -0.65), yticks=[])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(symbol, loc="right")
    keys = [
        render.Key("proved", "bar", f"proved: {symbol} is at least this, over all events"),
        render.Key("cells", "tick", "at most this over the cells"),
        render.Key("ink", "line", "claimed"),
    ]
    if any(x is not None for x in exact):
        keys.append(render.Key("witness", "diamond", "exact value (hollow: upper bound; arrow: infinite)"))
    described = "; ".join(
        f"{case.title}: claimed {row['claimed']:.4g}, proved {proved_text(row)}"
        for case, row in zip(cases, found, strict=True)
    )
    return render.Drawing(figure, title, f"{title}. {described}.", tuple(keys))
