"""The calibration of every statement with a few seeds; `make calibration` runs all of them."""

import dataclasses
import sys

import pytest
from known import KNOWN
from pages import PROJECT

sys.path.append(str(PROJECT / "benchmarks"))
import calibration
import calibration_page
from calibration import Setting, SettingResult, all_settings, measure_setting, verify_setting

SMALL_SETTINGS = [Setting("deaf", "tree", 0.2, 40, 80), Setting("gaussian", "paper", 0.05, 40, 80)]


def test_settings_are_distinct_and_every_level_occurs_with_every_number_of_runs():
    settings = all_settings()
    assert len(settings) == len({setting.file_name for setting in settings}) >= 40
    combinations = {(setting.alpha, setting.test_runs) for setting in settings}
    assert combinations >= {(alpha, test_runs) for alpha in calibration.ALPHAS for _, test_runs in calibration.RUNS}
    assert {setting.mechanism for setting in settings} == set(KNOWN)


def test_a_resumed_run_gives_the_same_results_and_a_page(tmp_path, monkeypatch):
    monkeypatch.setattr(calibration_page, "DOCS", tmp_path)
    for folder in ("figures", "whole", "resumed"):
        (tmp_path / folder).mkdir()
    settings = [*SMALL_SETTINGS, Setting("laplace", "grid", 0.01, 40, 80)]
    for setting in settings:
        measure_setting(setting, 1, 0, tmp_path / "resumed")
    whole, resumed = (
        [measure_setting(setting, 3, 2, tmp_path / name) for setting in settings] for name in ("whole", "resumed")
    )
    assert [dataclasses.replace(result, seconds=0) for result in whole] == [
        dataclasses.replace(result, seconds=0) for result in resumed
    ]
    assert [result.controls for result in whole] == [0, 0, 2]  # equal distributions have no less noisy variant
    assert "false alarm" not in whole[1].false_counts
    assert all(set(result.false_counts) <= set(calibration.SHARES_OF_ALPHA) for result in whole)
    assert "all events" in whole[0].false_counts
    (tmp_path / "calibration.md").write_text(f"Introduction.\n\n{calibration_page.MARK}\n\nold results")
    calibration_page.write_page(whole)
    page = (tmp_path / "calibration.md").read_text()
    assert page.startswith("Introduction.")
    assert "old results" not in page
    assert "**None of them exceeds its limit.**" in page
    assert (tmp_path / "figures" / "calibration.png").stat().st_size > 10_000


def test_results_of_other_sources_are_measured_again(tmp_path, monkeypatch):
    setting = Setting("laplace", "grid", 0.01, 40, 80)
    measure_setting(setting, 1, 0, tmp_path)
    assert measure_setting(setting, 2, 0, tmp_path).seeds == 2
    monkeypatch.setattr(calibration, "source_hash", lambda: "another")
    assert measure_setting(setting, 1, 0, tmp_path).seeds == 1


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
