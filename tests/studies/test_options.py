"""RunOptions: the keyword arguments that every study forwards to verify."""

from pathlib import Path

import pytest

import dpverify as dpv
from dpverify.settings import type_one_error_factor
from dpverify.studies.options import RunOptions
from mechanisms import laplace


def test_keywords_become_settings_and_options():
    options = RunOptions.from_keywords(settings=dpv.Settings(seed=4), test_runs=100, executor=2, folder="checkpoints")
    assert options == RunOptions(dpv.Settings(seed=4, test_runs=100), 2, Path("checkpoints"))


def test_a_child_has_its_own_seed_and_folder():
    options = RunOptions.from_keywords(seed=4, folder="checkpoints", progress=True)
    child = options.child(3, alpha=0.01)
    assert child.settings == options.settings.spawn(3).change(alpha=0.01)
    assert child.folder == Path("checkpoints/3")
    assert child.progress
    assert RunOptions().child(3).folder is None


def family(scale):
    return laplace


CALLS = {
    "verify_pairs": lambda **options: dpv.verify_pairs(laplace, [(0.0, 1.0)], 1.0, **options),
    "search_pairs": lambda **options: dpv.search_pairs(laplace, [(0.0, 1.0)], runs=100, **options),
    "calibrate": lambda **options: dpv.calibrate(family, (1, 2), 0.0, 1.0, 1.0, 0.0, **options),
    "tradeoff": lambda **options: dpv.tradeoff({"a": (family, [1])}, 0.0, 1.0, 0.0, dpv.rmse([[0.0]]), **options),
    "assert_private": lambda **options: dpv.assert_private(laplace, 0.0, 1.0, 1.0, **options),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(("keyword", "nearest"), [("test_run", "'test_runs'"), ("folders", "the argument 'folder'")])
def test_an_unknown_keyword_is_refused_with_the_nearest_name(name, keyword, nearest):
    with pytest.raises(dpv.InputError, match=f"unknown setting '{keyword}'; the nearest is {nearest}"):
        CALLS[name](**{keyword: 1})


def test_the_type_one_error_of_the_thinned_test_is_twice_its_level():
    assert type_one_error_factor(dpv.Settings()) == 1
    assert type_one_error_factor(dpv.Settings.paper()) == 2
    assert type_one_error_factor(dpv.Settings.paper(test="averaged")) == 4
