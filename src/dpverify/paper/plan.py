"""The paper's numbers and our study of them, read from the two files beside this one; each study as a file."""

from __future__ import annotations

import functools
import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
SETUPS = ("Q1", "Q2", "Q3")


@functools.cache
def printed() -> dict[str, Any]:
    """The paper's numbers, digit by digit."""
    return tomllib.loads((HERE / "printed.toml").read_text(encoding="utf-8"))


@functools.cache
def planned() -> dict[str, Any]:
    """What is verified, and how much of it, quick and full."""
    return tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


class Task(NamedTuple):
    """A study of one set-up: its name, and the document that `dpverify study` reads."""

    name: str
    setup: str
    document: dict[str, Any]


def studies(plan: Mapping[str, Any], amount: Mapping[str, Any], tuned: Mapping[str, float]) -> Iterator[Task]:
    """Every study of the plan, filled in: set-up, seeds, runs, and the two calibrated numbers."""
    for kind, study in plan["studies"].items():
        for setup in study["setups"]:
            for r in study.get("resolutions", [None]):
                settings = study.get("settings", {}) | amount.get(kind, {}) | ({"resolution": r} if r else {})
                document = {
                    "seeds": amount["seeds"] if "preset" in settings else 1,
                    "pairs": {setup: _entry("pair", setup, study.get("pair", {}))},
                    "mechanisms": {
                        name: _entry(name, setup, parameters | _tuned(name, tuned))
                        for name, parameters in study["mechanisms"].items()
                    },
                    "settings": settings,
                }
                yield Task("-".join([kind, setup, *([f"r{r}"] if r else [])]), setup, document)


def _entry(name: str, setup: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {"use": f"dpverify.paper.setting:{name}", "setup": setup, **parameters}


def _tuned(name: str, tuned: Mapping[str, float]) -> dict[str, float]:
    return {"s_hat": tuned["s_hat"]} if name == "ekf" else {"tau": tuned["tau"]}


def to_toml(document: Mapping[str, Any], above: str = "") -> str:
    """Plain data as TOML: numbers, texts and lists of them are written alike in JSON."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in document.items() if not isinstance(value, dict)]
    for key, value in document.items():
        if isinstance(value, dict):
            lines += ["", f"[{above}{key}]", to_toml(value, f"{above}{key}.")]
    return "\n".join(lines)
