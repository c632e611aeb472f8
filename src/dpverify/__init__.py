"""How private is your estimator, really? Verification of differential privacy from samples alone."""

from dpverify.adapters.program import program
from dpverify.assertion import assert_private
from dpverify.boxes import Search
from dpverify.buehler import delta_lower_bound, epsilon_lower_bound
from dpverify.ellipsoid import Ellipsoid, minimum_volume_ellipsoid
from dpverify.errors import FolderError, InputError, MechanismError, Stopped, TooWeak, Warning
from dpverify.exact import critical_epsilon, p_values, paper_lambda
from dpverify.mechanism import Mechanism, factory, jax_key, jax_run, per_run
from dpverify.pairs import ManyPairs, search_pairs, verify_pairs
from dpverify.power import plan_runs
from dpverify.region import Region, high_likely_set, scenario_size
from dpverify.report import Report
from dpverify.sampling import rmse
from dpverify.settings import Settings
from dpverify.statements import Verdict, Witness
from dpverify.study import Study, run_study
from dpverify.tune import Calibration, Tradeoff, calibrate, tradeoff
from dpverify.unions import delta_upper_bound, epsilon_upper_bound
from dpverify.verify import verify

__version__ = "0.1.0"

__all__ = [
    "Calibration",
    "Ellipsoid",
    "FolderError",
    "InputError",
    "ManyPairs",
    "Mechanism",
    "MechanismError",
    "Region",
    "Report",
    "Search",
    "Settings",
    "Stopped",
    "Study",
    "TooWeak",
    "Tradeoff",
    "Verdict",
    "Warning",
    "Witness",
    "assert_private",
    "calibrate",
    "critical_epsilon",
    "delta_lower_bound",
    "delta_upper_bound",
    "epsilon_lower_bound",
    "epsilon_upper_bound",
    "factory",
    "high_likely_set",
    "jax_key",
    "jax_run",
    "minimum_volume_ellipsoid",
    "p_values",
    "paper_lambda",
    "per_run",
    "plan_runs",
    "program",
    "rmse",
    "run_study",
    "scenario_size",
    "search_pairs",
    "tradeoff",
    "verify",
    "verify_pairs",
]
