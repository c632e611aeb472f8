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
PARAMETER_NAMES = {"gibbs": "s", "blend": "s", "perturbed": "s_bar", "ekf": "s_hat"}  # of each mechanism

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


@dataclass(frozen=True)
class Effort:
    """How much is measured: the quick or the full reproduction, or a smaller one in tests.

    Attributes
    ----------
    seeds : int
        Repetitions of each verification that follows the paper's procedure.
    draws : int
        Random draws of the sensor positions.
    laws : tuple of str
        Output distributions of the W2-MHE that are measured on each draw: "gibbs", "blend".
    draw, certified, map : RunSizes
        Runs of each verification on a draw, in the study `certified` and in the study `map`.
    tuning_runs : int
        Runs that estimate the error during the calibration of tau and s_hat.
    families : dict
        Parameter values that each mechanism takes on each draw, from little noise to much.
    """

    seeds: int
    draws: int
    laws: tuple[str, ...]
    draw: RunSizes
    certified: RunSizes
    map: RunSizes
    tuning_runs: int
    families: dict[str, tuple[float, ...]]

    @property
    def draw_mechanisms(self) -> tuple[str, ...]:
        """The mechanisms that are measured on each draw."""
        return (*self.laws, "perturbed", "ekf")

    def study_settings(self, study: str) -> TomlTable:
        """Return the settings that this effort prescribes for a study; the paper's studies have none."""
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
    resolutions: tuple[int, ...]  # of the grid; empty: that of the settings
    settings: TomlTable
    pair: TomlTable
    mechanisms: dict[str, TomlTable]


class Plan(NamedTuple):
    """The whole plan."""

    matched: MatchedValues
    quick: Effort
    full: Effort
    paper_values: dict[str, float]  # the paper's parameter of each mechanism; s_hat is calibrated
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
        document["values"],
        {name: _planned_study(table) for name, table in document["studies"].items()},
    )


def _effort(table: dict[str, Any]) -> Effort:
    """Build an effort from its TOML table."""
    return Effort(
        seeds=table["seeds"],
        draws=table["draws"],
        laws=tuple(table["laws"]),
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
        tuple(table.get("resolutions", ())),
        table.get("settings", {}),
        table.get("pair", {}),
        table["mechanisms"],
    )


def study_tasks(plan: Plan, effort: Effort, calibrated: CalibratedNumbers) -> Iterator[StudyTask]:
    """Yield every study of the plan with its set-up, seeds, runs and the two calibrated numbers filled in."""
    for kind, study in plan.studies.items():
        for setup in study.setups:
            for resolution in study.resolutions or (None,):
                settings = study.settings | effort.study_settings(kind)
                name = f"{kind}-{setup}"
                if resolution is not None:
                    settings["resolution"] = resolution
                    name += f"-r{resolution}"
                yield StudyTask(name, setup, _study_document(study, setup, settings, effort, calibrated))


def _study_document(
    study: PlannedStudy, setup: str, settings: TomlTable, effort: Effort, calibrated: CalibratedNumbers
) -> TomlTable:
    """Return the study file of one set-up; the paper's procedure is repeated over the seeds, the others run once."""
    mechanisms: TomlTable = {}
    for name, parameters in study.mechanisms.items():
        known = {"s_hat": calibrated.s_hat} if name == "ekf" else {"tau": calibrated.tau}
        mechanisms[name] = _entry(name, setup, parameters | known)
    return {
        "seeds": effort.seeds if "preset" in settings else 1,
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
