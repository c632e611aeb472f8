"""The page's sentences and tables: what a report says, put into words and rows for the template."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from matplotlib.ticker import MaxNLocator

from dpverify.events.region import exact_scenario_size, scenario_size
from dpverify.report.report import Report
from dpverify.report.statements import Verdict
from dpverify.report.text import p_value_text
from dpverify.sampling.blocks import default_block_size
from dpverify.settings import Settings
from dpverify.util.formatting import (
    format_cell_count,
    format_count,
    format_lower,
    format_number,
    format_percent,
    format_upper,
)
from dpverify.util.serialization import to_plain


def lead(report: Report, upper: float) -> str:
    """What the verdict rests on, in numbers."""
    sure, at = f"confidence {format_percent(1 - report.alpha)}", f"at δ = {format_number(report.delta)}"
    proved = f"On this pair of data sets ε is at least {format_lower(report.epsilon_lower)} {at} ({sure})."
    if report.epsilon_lower == 0:
        proved = f"These runs prove nothing about ε {at}."
    if report.verdict is Verdict.MEASURED:
        return proved
    claim = f"Claimed: ε = {format_number(report.epsilon or 0.0)}, δ = {format_number(report.delta)}."
    if report.verdict is Verdict.BOUNDED:
        cells = format_cell_count(report.on_partition.cells)
        return f"{claim} Over unions of {cells} cells ε is at most {format_upper(upper)} ({sure}). {proved}"
    return f"{claim} Its p-value is {p_value_text(report.p_value or 0.0, report.settings, 'at most ')}. {proved}"


class Track(NamedTuple):
    """One statement about epsilon on the common ruler; `left` and `right` in per cent, None where nothing is drawn."""

    kind: str
    head: str
    more: str
    left: float | None
    right: float
    mark: str = ""
    place: str = ""


def line(report: Report, upper: float, top: float) -> dict[str, Any]:
    """Left of the lower bound, right of the upper one, and what neither says: three tracks, no interval."""

    def share(epsilon: float) -> float:
        return round(100 * min(epsilon / top, 1.0), 3)

    sure, cells = f"confidence {format_percent(1 - report.alpha)}", format_cell_count(report.on_partition.cells)
    lower = report.epsilon_lower
    low = format_lower(lower)
    where = share(lower)
    beside = f"left: {where}%" if where < 75 else f"right: {100 - where}%; color: var(--paper); background: none"
    tracks = [Track("proved", "nothing is proved against", f"too few runs, or nothing to tell; {sure}", None, 0)]
    if lower > 0:
        head = f"proved against: every ε below {low}"
        tracks = [Track("proved", head, f"over all events, for this pair; {sure}", 0, 100 - where, low, beside)]
    if upper < math.inf:
        high, end = format_upper(upper), share(upper)
        beyond = f"no union of these {cells} cells goes beyond {high}"
        beside = f"right: {100 - end}%" if end > 25 else f"left: {end}%"
        tracks.append(Track("bounded", beyond, f"unions of cells only; {sure}", end, 0, high, beside))
    else:
        beyond = f"unions of these {cells} cells: no finite bound"
        why = "a cell that one side never hit; a δ above 0 may help" if report.delta == 0 else "too few runs for this δ"
        tracks.append(Track("bounded", beyond, f"{why}; {sure}", None, 0))
    rest = "events outside this partition: not bounded"
    if report.on_all_events is not None:
        whole = report.on_all_events.epsilon_upper(report.delta)
        rest += " by these cells"
        if whole < math.inf:
            end = share(whole)
            head = f"certified: no event goes beyond {format_upper(whole)}"
            more = f"all events, if the stated Lipschitz constant holds; {sure}"
            tracks.append(Track("certified", head, more, end if whole < top else None, 0))
            beyond += f"; {head}, {more}"
    tracks.append(Track("unknown", rest, "", 0, 0))
    ticks = [t for t in MaxNLocator(6).tick_values(0, top) if 0 <= t <= top * (1 + 1e-9)]
    said = tracks[0].head
    claimed = "" if report.epsilon is None else f"Claimed: epsilon {format_number(report.epsilon)}. "
    return {
        "delta": format_number(report.delta),
        "claim": None if report.epsilon is None else share(report.epsilon),
        "claim_text": None if report.epsilon is None else f"ε = {format_number(report.epsilon)}",
        "tracks": tracks,
        "ticks": [(share(float(t)), f"{t:g}") for t in ticks],
        "aria": f"A line for epsilon. {claimed}{said}. {beyond}. {rest}.",
    }


def shares(report: Report) -> list[dict[str, Any]]:
    """How often each side fell into the witness, on a common scale."""
    found = report.witness.probabilities
    most = max(high for _, _, high in found)
    scale = 100 / max(min(1.0, 1.15 * most), 1e-12)
    rows = []
    for name, (share, low, high), count in zip(("first", "second"), found, report.witness.counts, strict=True):
        said = f"{format_percent(share)} of runs with the {name} data set, limits {format_percent(low)} and {format_percent(high)}"
        rows.append(
            {
                "name": name,
                "percent": format_percent(share),
                "count": format_count(count),
                "width": round(scale * share, 3),
                "low": round(scale * low, 3),
                "span": round(scale * (high - low), 3),
                "aria": said,
            }
        )
    return rows


def tested(report: Report) -> str:
    names = ("first", "second")
    more, less = (names[i - 1] for i in report.witness.direction)
    runs, (one, two) = format_count(report.witness.runs), report.witness.ordered
    if not one or not two:
        often = "never seen in the test runs" if not one else f"never seen with the {less} data set"
    else:
        ratio = f"{one / two:.3g}"
        often = "as often" if ratio == "1" else f"{ratio} times as often"
        often = f"{often} with the {more} data set as with the {less}"
    shares = f"{often[:1].upper()}{often[1:]}. Shares of {runs} test runs of each, with limits at"
    frozen = f"The event, and that the {more} data set is to exceed the {less}, were frozen"
    if report.settings.test == "thinned":
        frozen = "The paper's test looks both ways and refutes a true claim in up to 2 alpha. The event was frozen"
    return f"{shares} {format_percent(1 - report.alpha)}. {frozen} before the first of these runs was drawn."


Row = tuple[str, str] | tuple[str, str, str]


def tables(report: Report) -> list[dict[str, Any]]:
    settings, part, (steps, dimension) = report.settings, report.on_partition, report.witness.shape
    size = exact_scenario_size if settings.joint else scenario_size
    pilot = size(dimension, settings.beta, settings.gamma, steps if settings.joint else 1)
    sides = "a side" if settings.joint else "first side only"
    sure = format_percent(1 - report.alpha)
    detectable = report.epsilon_detectable
    runs: list[Row] = [
        ("test runs", format_count(settings.test_runs), "a side; every number above comes from these"),
        ("selection runs", format_count(settings.select_runs), "a side; they chose the event"),
        ("pilot runs", format_count(pilot), f"{sides}; they found where estimates fall"),
        ("confidence", f"{sure} and {sure}", "of what is proved, and of what is bounded on the partition"),
        (
            "both together",
            format_percent(max(0.0, 1 - 2 * report.alpha)),
            f"two budgets, α = {format_number(report.alpha)} each",
        ),
    ]
    able = "the smallest true ε on this event that these runs refute with probability about 80%"
    seen: list[Row] = [
        ("detectable ε", format_number(detectable), able),
        ("cells", format_cell_count(part.cells), "of the partition, which cover all outputs"),
        ("mass of the region", f"≥ {100 * math.floor(part.region_mass * 1e4) / 1e4:.4g}%", "of either side"),
    ]
    if report.error is not None:
        for name, (mean, spread) in zip(("first", "second"), report.error, strict=True):
            seen.append(
                (
                    f"error, {name} data set",
                    f"{format_number(mean)} ± {format_number(2 * spread)}",
                    "two standard errors",
                )
            )
    paper = report.paper
    seen.append(("critical ε", format_number(report.epsilon_critical), "the paper's name: the smallest ε not rejected"))
    seen.append(("the paper's η", f"≤ {format_upper(paper.eta)}", "the likeliest cell's probability"))
    seen.append(("the paper's λ", format_number(paper.lambda_), "shown as the paper's, not a certificate"))
    if paper.p_values is not None:
        text = ", ".join(f"{p:.3g}" for p in paper.p_values)
        seen.append(("the paper's p-values", text, "thinned at random, in both orders, at the claim"))
    return [{"name": "Runs and confidence", "rows": runs}, {"name": "What they could see", "rows": seen}]


def caution(report: Report) -> str:
    """What the verdict does not mean."""
    if report.verdict is Verdict.REFUTED:
        return "a refutation speaks of this pair of data sets, and one pair is enough"
    return (
        "a claim that is not refuted is not proved: the runs may be too few, another pair of data sets may tell more, "
        "and an event outside the partition may leak"
    )


def again(report: Report) -> str:
    """The command that was given, or the call in Python with every setting that is not the default."""
    command = report.run.get("command")
    if isinstance(command, str):
        return command
    settings = to_plain(report.settings)

    def changed(base: Settings) -> dict[str, Any]:
        plain = to_plain(base)
        names = [name for name in plain if settings[name] != plain[name] and name not in ("kind", "block")]
        own = settings["block"] not in (None, default_block_size(report.settings.test_runs))
        return {name: settings[name] for name in [*names, *(["block"] if own else [])]}

    base, preset = changed(Settings()), changed(Settings.paper())
    papers = len(preset) < len(base)
    given = ["mechanism", "first", "second"]
    if report.epsilon is not None:
        given.append(f"epsilon={report.epsilon!r}")
    if report.delta:
        given.append(f"delta={report.delta!r}")
    given += ["settings=dpv.Settings.paper()"] if papers else []
    given += [f"{name}={value!r}" for name, value in (preset if papers else base).items()]
    if report.error is not None:
        given.append("error=...")
    if report.on_all_events is not None:
        given.append("log_lipschitz=...")
    return f"import dpverify as dpv\n\ndpv.verify({', '.join(given)})  # mechanism: {' '.join(report.name.split())}"


def versions(report: Report) -> list[dict[str, Any]]:
    run = report.run
    settings = [(name, str(value)) for name, value in to_plain(report.settings).items() if name != "kind"]
    about = [(name, str(version)) for name, version in _sorted(run, "versions")]
    about += [(name, str(run[name])) for name in ("device", "workers", "resumed") if name in run]
    about += [("can be repeated", "yes, by its seed" if report.seeded else "no: the mechanism can't be seeded")]
    about += [(f"seconds, {stage}", f"{float(seconds):.3g}") for stage, seconds in _sorted(run, "seconds")]
    return [{"name": "Settings", "rows": settings}, {"name": "Versions and the run", "rows": about}]


def _sorted(run: dict[str, Any], name: str) -> list[tuple[str, Any]]:
    """In one order, whether the report is live or read from JSON."""
    return sorted(run.get(name, {}).items())
