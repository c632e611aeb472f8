"""The figures of the page, in groups: which data go into which figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dpverify.estimation.system import STEPS
from dpverify.paper import experiment, figures
from dpverify.paper.comparison import CellComparison
from dpverify.paper.measurements import SensorDraw, StudyTables, select_rows
from dpverify.paper.plan import SETUPS, Effort, MatchedValues
from dpverify.paper.printed import read_printed
from dpverify.render.figures import privacy_map
from dpverify.render.style import Drawing

SCENE_TAU = 1.4e-5  # at s = 1 the estimate does not depend on the calibrated digits
THINNING_CAPTION = f"Medians and 5 to 95% of {figures.THINNINGS} thinnings."


class FigureGroup(NamedTuple):
    """Figures under one heading: the key names the files, `text` introduces the figures."""

    key: str
    heading: str
    text: str
    drawings: list[Drawing]


def figure_groups(
    tables: StudyTables,
    cells: Sequence[CellComparison],
    draws: Sequence[SensorDraw],
    matched: MatchedValues,
    effort: Effort,
) -> Iterator[FigureGroup]:
    """Yield the groups in the order of the page."""
    beside = [
        figures.compare_numbers(figures.critical_epsilon_pairs(cells), "ε_c", "Critical epsilons"),
        figures.compare_numbers(figures.error_pairs(cells), "E_correct", "Errors"),
    ]
    yield FigureGroup("beside", "Printed numbers and ours", "", beside)
    exchange = figures.accuracy_against_privacy(draws, matched, effort.draw_mechanisms)
    yield FigureGroup("exchange", "Accuracy against privacy", "", [exchange])
    yield FigureGroup(
        "map",
        "Privacy map: which sensors are exposed",
        "W2-MHE, Gibbs distribution, s 0.8: the proved lower bound of ε at δ = 0 when this sensor moves until the data "
        "are 10 apart.",
        privacy_maps(tables),
    )
    if tables.get("critical-Q1"):
        yield FigureGroup("p-values", "p-values of the worst event", "", p_value_figures(tables))
    yield FigureGroup("events", "The choice of the event", "", event_figures())
    yield FigureGroup("scene", "The set-up", "", scene_figures())


def privacy_maps(tables: StudyTables) -> list[Drawing]:
    """Return the proved epsilon of each sensor on a map, for each set-up."""
    maps = []
    path = experiment.noiseless_states()[: STEPS + 1 - experiment.WINDOW, :2]
    for setup in SETUPS:
        rows = sorted(tables.get(f"map-{setup}", ()), key=lambda row: row.moved_sensor or 0)
        if rows:
            positions = experiment.sensor_positions(setup)
            lower = [row.epsilon_lower for row in rows]
            maps.append(privacy_map(positions, lower, target=path, title=f"Proved ε of each sensor: {setup}"))
    return maps


def p_value_figures(tables: StudyTables) -> list[Drawing]:
    """Return p-values of the worst event along epsilon, for each mechanism on Q1."""
    drawings = []
    for mechanism, symbol, values, title in (
        ("gibbs", "s", (1.0, 0.8, 0.7), "W2-MHE, Gibbs distribution, Q1"),
        ("blend", "s", (0.8, 0.7), "W2-MHE, blend distribution, Q1"),
        ("perturbed", "s̄", (0.944, 0.894), "Input perturbation, Q1"),
    ):
        series = [(f"{symbol} {value:g}", select_rows(tables, "critical-Q1", mechanism, value)) for value in values]
        drawings.append(figures.p_values_of_studies(series, title))
    return drawings


def event_figures() -> list[Drawing]:
    """Return the paper's two figures about the choice of the event."""
    counts = read_printed().counts
    return [
        figures.p_values_of_counts(
            counts.different,
            counts.runs,
            "Different ratios",
            f"{THINNING_CAPTION} The order holds for these two; it does not hold in general.",
        ),
        figures.p_values_of_counts(
            counts.proportional,
            counts.runs,
            "The same ratio",
            f"{THINNING_CAPTION} The larger the counts, the smaller the p-value: the p-values are not similar.",
        ),
    ]


def scene_figures() -> list[Drawing]:
    """Return the paper's Figure 1 for Q1, and the accuracy at s = 1."""
    sensors = experiment.system("Q1").h
    first, second, truth = experiment.pair("Q1")
    states = experiment.noiseless_states()

    def readings(position: np.ndarray) -> np.ndarray:
        return 100 * np.tanh(0.1 * (states[:, :2] - position))

    recorded = readings(sensors.places[0])
    candidates = [sensors.moved(0, float(angle)).places[0] for angle in np.linspace(-0.4, 0.4, 4001)]
    reach = [
        position for position in candidates if np.linalg.norm(readings(position) - recorded) <= experiment.DISTANCE
    ]
    change = (second - first)[:, :2]
    moved = min(candidates, key=lambda position: float(np.linalg.norm(readings(position) - recorded - change)))
    estimator = experiment.gibbs("Q1", 1.0, SCENE_TAU)
    estimates = [estimator.deterministic(data)[:, :2] for data in (first, second)]
    return [
        figures.sensor_scene(sensors.places, moved, np.array(reach), states[:, :2]),
        figures.accuracy(truth, *estimates),
    ]
