"""One draw of sensors and seeds: what each mechanism tells and how far it errs, along its parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpverify.estimation.theory import gibbs_epsilon, sufficient_epsilon
from dpverify.mechanisms.accuracy import rmse
from dpverify.paper import setting
from dpverify.pipeline import verify
from dpverify.settings import Settings
from dpverify.studies.calibrate import tradeoff

PARAMETERS = {"gibbs": "s", "blend": "s", "perturbed": "s_bar", "ekf": "s_hat"}


def made(name: str, setup: str | int, value: float, tau: float) -> Any:
    known = {"setup": setup, PARAMETERS[name]: value} | ({} if name == "ekf" else {"tau": tau})
    return getattr(setting, name)(**known)


def measure(number: int, plan: Mapping[str, Any], amount: Mapping[str, Any], tuned: Mapping[str, float]) -> dict:
    """A row for each mechanism and parameter at the plan's delta, and the paper's procedure at the paper's values.

    Every second draw measures the Gibbs law once more on other data from the same sensors (`again`): how much of a
    difference between set-ups is a difference between seeds.
    """
    tau, delta = tuned["tau"], plan["matched"]["delta"]
    first, second, truth = setting.pair(number, seed=number)
    names = [*amount["laws"], "perturbed", "ekf"]
    settings = Settings(**amount["draw"], seed=number)
    families = {name: (lambda v, name=name: made(name, number, v, tau), amount["families"][name]) for name in names}
    rows = tradeoff(families, first, second, delta, rmse(truth), settings=settings).rows
    paper = []
    for name in names:
        value = plan["values"].get(name, tuned["s_hat"])
        preset = Settings.paper(block=1024, seed=number)
        report = verify(made(name, number, value, tau), first, second, settings=preset, error=rmse(truth))
        assert report.error is not None
        paper.append({"mechanism": name, "epsilon_c": report.epsilon_critical, "error": report.error[0][0]})
    again = []
    if number % 2 == 0:
        one, two, truth_again = setting.pair(number, seed=number + 10**6)
        family = {"gibbs": families["gibbs"]}
        again = tradeoff(family, one, two, delta, rmse(truth_again), settings=settings.spawn(1)).rows
    return {
        "draw": number,
        "distance": float(np.linalg.norm(first - second)),
        "rows": list(rows),
        "paper": paper,
        "again": list(again),
        "theory": theory(number, plan, tau, first, second),
    }


def theory(number: int, plan: Mapping[str, Any], tau: float, first: Any, second: Any) -> list[dict[str, float]]:
    """The paper's sufficient epsilon and our own for this pair, over all events, for the Gibbs law.

    At one s: both grow as s/(1 - s).
    """
    s = plan["values"]["gibbs"]
    mechanism = setting.gibbs(number, s, tau)
    theirs = sufficient_epsilon(mechanism, setting.DISTANCE, len(first) - setting.WINDOW)
    return [{"s": s, "sufficient": theirs, "certified": gibbs_epsilon(mechanism, first, second)}]
