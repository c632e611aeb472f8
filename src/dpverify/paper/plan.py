"""The plan of the reproduction, read from `paper.toml`: what is verified, and with how many runs.

Each study of the plan becomes one TOML document that `dpverify study` can run by itself.
"""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from dpverify.paper.measurements import CalibratedNumbers
from dpverify.settings import Settings

FOLDER = Path(__file__).parent
SETUPS = ("Q1", "Q2", "Q3")
PARAMETER_NAMES = {"gibbs": "s", "blend": "s", "perturbed": "s_bar", "ekf": "s_hat"}  # of each mechanism of a study

TomlValue: TypeAlias = "str | int | float | list[TomlValue] | dict[str, TomlValue]"
TomlTable: TypeAlias = dict[str, TomlValue]


class RunSizes(NamedTuple):
    """Numbers of runs per data set, and the block size, of one verification."""

    select_runs: int
    test_runs: int
    block: int

    def settings(self, seed: int) -> Settings:
        """Return the default settings with these numbers of runs."""
        return Settings(select_runs=self.select_runs, test_runs=self.test_runs, block=self.block, seed=seed)


class ReadingSeeds(NamedTuple):
    """Seeds of the paper's procedure under each reading; `quick` measures fewer readings.

    Attributes
    ----------
    quick : bool
        Whether only the readings that decide the ranking are measured.
    blend, gibbs, input, ekf : int
        Seeds of each row in the ranking, by mechanism and distribution.
    best : int
        Seeds of each W2-MHE and EKF row of the best reading, which is measured again with other seeds.
    best_input : int
        Seeds of each input row of the best reading.
    repetitions : int
        Repetitions of the model of disjoint distributions.
    """

    quick: bool
    blend: int
    gibbs: int
    input: int
    ekf: int
    best: int
    best_input: int
    repetitions: int


@dataclass(frozen=True)
class Effort:
    """How much is measured: the quick or the full reproduction, or a smaller one in tests.

    Attributes
    ----------
    readings : ReadingSeeds
        Seeds of the paper's procedure under each reading.
    draws : int
        Random draws of the sensor positions.
    draw_families : tuple of str
        The families of `sensor_draws.py` that are measured on each draw.
    pairs : int
        Adjacent pairs whose share that passes is measured.
    draw, certified, map : RunSizes
        Runs of each verification on a draw, in the study `certified` and in the study `map`.
    tuning_runs : int
        Runs that estimate the error during the calibration of tau and s_hat.
    families : dict
        Parameter values that each family takes on each draw, from little noise to much; "perturbed" stands for
        "perturbed-clipped" too, unless that has values of its own.
    """

    readings: ReadingSeeds
    draws: int
    draw_families: tuple[str, ...]
    pairs: int
    draw: RunSizes
    certified: RunSizes
    map: RunSizes
    tuning_runs: int
    families: dict[str, tuple[float, ...]]

    @property
    def laws(self) -> tuple[str, ...]:
        """The families of the W2-MHE."""
        return tuple(name for name in self.draw_families if name.startswith(("gibbs", "blend")))

    @property
    def draw_mechanisms(self) -> tuple[str, ...]:
        """The families of the base readings, one for each mechanism or distribution."""
        return tuple(name for name in self.draw_families if "-" not in name)

    def values(self, family: str) -> tuple[float, ...]:
        """Return the parameter values of a family."""
        return self.families.get(family) or self.families[family.split("-")[0]]

    def study_settings(self, study: str) -> TomlTable:
        """Return the settings that this effort prescribes for a study."""
        sizes = {"certified": self.certified, "map": self.map}.get(study)
        return {} if sizes is None else dict(sizes._asdict())


class MatchedValues(NamedTuple):
    """Where mechanisms are compared: at equal privacy (`epsilon`) and at equal accuracy (`error`), both at `delta`."""

    delta: float
    epsilon: float
    error: float


class PlannedStudy(NamedTuple):
    """A study before the set-up, the seeds and the calibrated numbers are filled in."""

    setups: tuple[str, ...]
    settings: TomlTable
    pair: TomlTable
    mechanisms: dict[str, TomlTable]


class Plan(NamedTuple):
    """The whole plan."""

    matched: MatchedValues
    quick: Effort
    full: Effort
    theorem_s: float  # s at which the theorem is compared with what is measured
    yardstick: dict[str, float]  # a parameter of each family with an error near 0.005
    studies: dict[str, PlannedStudy]


class StudyTask(NamedTuple):
    """A study of one set-up: its name, and the document that `dpverify study` reads."""

    name: str
    setup: str
    document: TomlTable


@functools.cache
def read_plan() -> Plan:
    """Return the plan of `paper.toml`."""
    document = tomllib.loads((FOLDER / "paper.toml").read_text(encoding="utf-8"))
    return Plan(
        MatchedValues(**document["matched"]),
        _effort(document["quick"]),
        _effort(document["full"]),
        document["theorem_s"],
        document["yardstick"],
        {name: _planned_study(table) for name, table in document["studies"].items()},
    )


def _effort(table: dict[str, Any]) -> Effort:
    """Build an effort from its TOML table."""
    return Effort(
        readings=ReadingSeeds(**table["readings"]),
        draws=table["draws"],
        draw_families=tuple(table["draw_families"]),
        pairs=table["pairs"],
        draw=RunSizes(**table["draw"]),
        certified=RunSizes(**table["certified"]),
        map=RunSizes(**table["map"]),
        tuning_runs=table["tuning_runs"],
        families={name: tuple(values) for name, values in table["families"].items()},
    )


def _planned_study(table: dict[str, Any]) -> PlannedStudy:
    """Build a planned study from its TOML table; what the table leaves out is empty."""
    return PlannedStudy(
        tuple(table["setups"]),
        table.get("settings", {}),
        table.get("pair", {}),
        table["mechanisms"],
    )


def study_tasks(plan: Plan, effort: Effort, calibrated: CalibratedNumbers) -> Iterator[StudyTask]:
    """Yield every study of the plan with its set-up, seeds, runs and the two calibrated numbers filled in."""
    for kind, study in plan.studies.items():
        for setup in study.setups:
            settings = study.settings | effort.study_settings(kind)
            yield StudyTask(f"{kind}-{setup}", setup, _study_document(study, setup, settings, calibrated))


def _study_document(study: PlannedStudy, setup: str, settings: TomlTable, calibrated: CalibratedNumbers) -> TomlTable:
    """Return the study file of one set-up."""
    mechanisms: TomlTable = {}
    for name, parameters in study.mechanisms.items():
        known = {"s_hat": calibrated.s_hat} if name == "ekf" else {"tau": calibrated.tau}
        mechanisms[name] = _entry(name, setup, parameters | known)
    return {
        "seeds": 1,
        "pairs": {setup: _entry("pair", setup, study.pair)},
        "mechanisms": mechanisms,
        "settings": settings,
    }


def _entry(function: str, setup: str, parameters: TomlTable) -> TomlTable:
    """Return the entry of a study file that names a function of `experiment.py` and its arguments."""
    return {"use": f"dpverify.paper.experiment:{function}", "setup": setup, **parameters}


def to_toml(document: Mapping[str, TomlValue], prefix: str = "") -> str:
    """Return plain data as TOML. Numbers, texts and lists of them have the same form in JSON and in TOML."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in document.items() if not isinstance(value, dict)]
    for key, value in document.items():
        if isinstance(value, dict):
            lines += ["", f"[{prefix}{key}]", to_toml(value, f"{prefix}{key}.")]
    return "\n".join(lines)
