"""Verification of differential privacy from samples: how private is a state estimator, or any other mechanism?

Pass a mechanism and two neighbouring datasets to `verify`. The report contains a lower bound on epsilon over all
events, upper bounds over a partition of the outputs, and the test of a claim. Start with `help(dpverify.verify)`,
`help(dpverify.Settings)` and `help(dpverify.Report)`.
"""

import importlib
import logging
from typing import TYPE_CHECKING

from dpverify import claims
from dpverify.errors import DPVerifyWarning, FolderError, InputError, MechanismError, Stopped, TooWeak
from dpverify.events.region import Ellipsoid, Region, high_likely_set, minimum_volume_ellipsoid, scenario_size
from dpverify.events.scores.transformed import rounding_score
from dpverify.mechanisms import neighbours
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.outputs import frobenius_error, rmse
from dpverify.mechanisms.protocol import Mechanism
from dpverify.mechanisms.wrappers import factory, jax_key, jax_run, per_run
from dpverify.pipeline import verify
from dpverify.report.report import Report
from dpverify.report.statements import Verdict, Witness
from dpverify.settings import Settings
from dpverify.stats.exact import delta_lower_bound, epsilon_lower_bound, plan_runs
from dpverify.stats.paper import critical_epsilon, p_values, paper_lambda
from dpverify.stats.upper import delta_upper_bound, epsilon_upper_bound
from dpverify.version import __version__ as __version__

if TYPE_CHECKING:
    from dpverify.adapters.program import program
    from dpverify.ci.assertion import assert_private
    from dpverify.ci.check import Check, run_check
    from dpverify.over_time import PrivacyOverTime, PrivacyTable, privacy_over_time
    from dpverify.studies.calibrate import Calibration, calibrate
    from dpverify.studies.comparison import Comparison, compare_reports
    from dpverify.studies.pairs import ManyPairs, verify_pairs
    from dpverify.studies.search import Search, search_pairs
    from dpverify.studies.study import Study, run_study
    from dpverify.studies.tradeoff import Tradeoff, tradeoff

logging.getLogger("dpverify").addHandler(logging.NullHandler())  # an application decides what is shown

__all__ = [
    "Calibration",
    "Check",
    "Comparison",
    "DPVerifyWarning",
    "Diagnostic",
    "Ellipsoid",
    "FolderError",
    "InputError",
    "ManyPairs",
    "Mechanism",
    "MechanismError",
    "PrivacyOverTime",
    "PrivacyTable",
    "Region",
    "Report",
    "Search",
    "Settings",
    "Stopped",
    "Study",
    "TooWeak",
    "Tradeoff",
    "Verdict",
    "Witness",
    "assert_private",
    "calibrate",
    "claims",
    "compare_reports",
    "critical_epsilon",
    "delta_lower_bound",
    "delta_upper_bound",
    "epsilon_lower_bound",
    "epsilon_upper_bound",
    "factory",
    "frobenius_error",
    "high_likely_set",
    "jax_key",
    "jax_run",
    "minimum_volume_ellipsoid",
    "neighbours",
    "p_values",
    "paper_lambda",
    "per_run",
    "plan_runs",
    "privacy_over_time",
    "program",
    "rmse",
    "rounding_score",
    "run_check",
    "run_study",
    "scenario_size",
    "search_pairs",
    "tradeoff",
    "verify",
    "verify_pairs",
]

# These names are imported when they are first used: a single verification needs none of them.
_IMPORTED_LATER = {
    "Calibration": "studies.calibrate",
    "Check": "ci.check",
    "Comparison": "studies.comparison",
    "ManyPairs": "studies.pairs",
    "PrivacyOverTime": "over_time",
    "PrivacyTable": "over_time",
    "Search": "studies.search",
    "Study": "studies.study",
    "Tradeoff": "studies.tradeoff",
    "assert_private": "ci.assertion",
    "calibrate": "studies.calibrate",
    "compare_reports": "studies.comparison",
    "privacy_over_time": "over_time",
    "program": "adapters.program",
    "run_check": "ci.check",
    "run_study": "studies.study",
    "search_pairs": "studies.search",
    "tradeoff": "studies.tradeoff",
    "verify_pairs": "studies.pairs",
}


def __getattr__(name: str) -> object:
    """Return a name of `_IMPORTED_LATER`, or one of the packages that they come from."""
    if name in ("adapters", "over_time", "render", "studies"):
        return importlib.import_module(f"dpverify.{name}")
    if name not in _IMPORTED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"dpverify.{_IMPORTED_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return all names, also those that are not imported yet."""
    return sorted({*globals(), *_IMPORTED_LATER})
