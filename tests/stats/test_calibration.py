"""The calibration of every statement with a few seeds; `make calibration` runs all of them."""

import sys

import pytest
from known import KNOWN
from pages import PROJECT

sys.path.append(str(PROJECT / "benchmarks"))
import calibration
import calibration_page
from calibration import Setting, SettingResult, all_settings, verify_setting

SMALL_SETTINGS = [Setting("deaf", "tree", 0.2, 40, 80), Setting("gaussian", "paper", 0.05, 40, 80)]


def test_settings_are_distinct_and_every_level_occurs_with_every_number_of_runs():
    settings = all_settings()
    assert len(settings) == len({setting.file_name for setting in settings}) >= 40
    combinations = {(setting.alpha, setting.test_runs) for setting in settings}
    assert combinations >= {(alpha, test_runs) for alpha in calibration.ALPHAS for _, test_runs in calibration.RUNS}
    assert {setting.mechanism for setting in settings} == set(KNOWN)


def test_bounds_that_do_not_cover_are_found():
    """Negative control: reports about half the noise are compared with the truth about the full noise."""
    setting = Setting("laplace", "grid", 0.05, 100, 200)
    result = SettingResult(setting, "")
    for number in range(12):
        result.add(verify_setting(setting, number, KNOWN["laplace"].half_noise))
    too_high = {rate.statement: rate.too_high for rate in calibration_page.all_rates([result])}
    assert too_high["false alarm"]
    assert too_high["epsilon_lower"]
    assert not too_high["delta_upper"]  # with less noise an upper bound only becomes larger


@pytest.mark.parametrize("alpha", calibration.ALPHAS)
def test_the_statements_about_the_partition_share_one_level(alpha):
    level = calibration_page.allowed_level
    report = verify_setting(SMALL_SETTINGS[0]._replace(alpha=alpha), 0, KNOWN["deaf"].mechanism)
    assert report.on_partition.alpha == pytest.approx(level("delta_upper", alpha))
    assert report.certificate.alpha == pytest.approx(level("all events", alpha))
    assert level("delta_upper", alpha) + level("region_mass", alpha) == pytest.approx(alpha)
