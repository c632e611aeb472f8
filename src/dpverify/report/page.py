"""The page of a report: collects what `dpverify.render` draws.

This module needs matplotlib and Jinja2, so `Report.to_html` imports it only when a page is made.
"""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from dpverify.errors import InputError
from dpverify.render.bounds import complete_figure
from dpverify.render.content import ClaimResult, PageContent
from dpverify.render.curves import delta_figure, error_figure, p_value_figure
from dpverify.render.outputs import draw_outputs
from dpverify.render.page import report_page
from dpverify.render.scene import make_scene
from dpverify.report import sections
from dpverify.report.curves import compute_curves, error_tradeoff, slider_data, wealth_course
from dpverify.report.document import report_digest
from dpverify.report.fields import ReportFields
from dpverify.report.reproduction import reproduction_command
from dpverify.report.summary import headline, summary

PLOT_KINDS = ("outputs", "delta", "p-value", "errors")


def page(report: ReportFields) -> str:
    """Return the report as one HTML page.

    Parameters
    ----------
    report : ReportFields
        The report; one that was read from JSON gives the same page.

    Returns
    -------
    str
        The page; it loads nothing from a network.
    """
    return report_page(page_content(report))


def plot(report: ReportFields, kind: str) -> Figure:
    """Return one figure of the page with its title and legend inside; `Report.plot` documents the kinds."""
    if kind not in PLOT_KINDS:
        raise InputError(f"plot: found kind {kind!r}; expected {', '.join(PLOT_KINDS)}")
    content = page_content(report)
    if kind == "outputs":
        return complete_figure(draw_outputs(content.scene)[0])
    if kind == "errors":
        return complete_figure(error_figure(content.errors))
    figure = delta_figure if kind == "delta" else p_value_figure
    return complete_figure(figure(content.result, content.curves))


def page_content(report: ReportFields) -> PageContent:
    """Return everything that the page of a report shows."""
    witness = report.witness
    epsilon_upper = report.on_partition.epsilon_upper(report.delta)
    curves = compute_curves(report, epsilon_upper)
    versions = report.run.get("versions", {})
    return PageContent(
        name=report.name,
        verdict=report.verdict.name,
        headline=headline(report, epsilon_upper),
        summary=summary(report, epsilon_upper),
        dimmed=bool(report.voiding),
        bounds=sections.epsilon_bounds(report, epsilon_upper, float(curves.epsilon[-1])),
        event=witness.text,
        shares=sections.event_shares(report),
        event_note=sections.event_note(report),
        result=ClaimResult(report.epsilon, report.delta, report.alpha, report.epsilon_critical, witness.direction[0]),
        curves=curves,
        slider=slider_data(report, curves),
        errors=error_tradeoff(report),
        scene=make_scene(report.picture, witness.event, witness.text, witness.shape, report.on_partition.cells),
        tables=sections.result_tables(report),
        notes=sections.notes(report),
        command=reproduction_command(report),
        run_tables=sections.run_tables(report),
        version=str(versions.get("dpverify", "")) if isinstance(versions, Mapping) else "",
        digest=report_digest(report),
        wealth=wealth_course(report),
    )
