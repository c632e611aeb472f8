"""The figures of the page, in groups: which data go into which figure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpverify.estimation.system import STEPS
from dpverify.paper import experiment
from dpverify.paper.measurements import Results, StudyTables
from dpverify.paper.page import figures, reading_figures
from dpverify.paper.plan import SETUPS, MatchedValues
from dpverify.paper.printed import read_printed
from dpverify.paper.readings.results import ReadingResults
from dpverify.render.figures import privacy_map
from dpverify.render.style import Drawing

SCENE_TAU = 1.4e-5  # at s = 1 the estimate does not depend on the calibrated digits
THINNING_CAPTION = f"Medians and 5 to 95% of {figures.THINNINGS} thinnings."


class FigureGroup(NamedTuple):
    """Figures that stand together; the key names the files and the place on the page."""

    key: str
    drawings: list[Drawing]


def figure_groups(results: Results, readings: ReadingResults, matched: MatchedValues) -> list[FigureGroup]:
    """Return the groups in the order of the page."""
    return [
        FigureGroup(
            "runs",
            [
                reading_figures.epsilon_against_runs(readings.ceiling_by_runs, readings.by_runs),
                reading_figures.log_probability_against_runs(readings.ceiling_by_runs),
            ],
        ),
        FigureGroup("scene", scene_figures()),
        FigureGroup("events", event_figures()),
        FigureGroup(
            "beside",
            [reading_figures.compare_critical_epsilons(readings), reading_figures.compare_errors(readings)],
        ),
        FigureGroup("p-values", sorted([*reading_figures.p_value_figures(readings), *accuracy_figures()], key=_title)),
        FigureGroup("exchange", [figures.accuracy_against_privacy(results.draws, matched)]),
        FigureGroup("map", privacy_maps(results.tables)),
    ]


def _title(drawing: Drawing) -> str:
    """Return the title, by which "Fig. 4 left" comes before "Fig. 4 right"."""
    return drawing.title


def privacy_maps(tables: StudyTables) -> list[Drawing]:
    """Return the proved epsilon of each sensor on a map, for each set-up."""
    maps = []
    path = experiment.noiseless_states()[: STEPS + 1 - experiment.WINDOW, :2]
    for setup in SETUPS:
        rows = sorted(tables.get(f"map-{setup}", ()), key=lambda row: row.moved_sensor or 0)
        if rows:
            positions = experiment.sensor_positions(setup)
            lower = [row.epsilon_lower for row in rows]
            maps.append(
                privacy_map(
                    positions,
                    lower,
                    target=path,
                    title=f"Proved ε when one sensor moves: {setup}, W2-MHE, Gibbs distribution, s 0.8",
                )
            )
    return maps


def event_figures() -> list[Drawing]:
    """Return the paper's Figures 2 and 3, about the choice of the event."""
    counts = read_printed().counts
    return [
        figures.p_values_of_counts(
            counts.different,
            counts.runs,
            "Fig. 2: different ratios, (12, 27) and (14, 27)",
            f"{THINNING_CAPTION} The order holds for these two; it does not hold in general.",
        ),
        figures.p_values_of_counts(
            counts.proportional,
            counts.runs,
            "Fig. 3: the same ratio, (10, 20), (15, 30) and (20, 40)",
            f"{THINNING_CAPTION} The larger the counts, the smaller the p-value: the p-values are not similar.",
        ),
    ]


def scene_figures() -> list[Drawing]:
    """Return the paper's Figure 1 for Q1."""
    sensors = experiment.system("Q1").h
    first, second, _ = experiment.pair("Q1")
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
    return [figures.sensor_scene(sensors.places, moved, np.array(reach), states[:, :2])]


def accuracy_figures() -> list[Drawing]:
    """Return the right half of the paper's Figure 4: estimates at s = 1 from the right and from the adjacent data."""
    first, second, truth = experiment.pair("Q1", angle="paper")
    estimator = experiment.gibbs("Q1", 1.0, SCENE_TAU)
    estimates = [estimator.deterministic(data)[:, :2] for data in (first, second)]
    return [figures.accuracy(truth, *estimates)]
