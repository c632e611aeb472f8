"""Settings are checked when they are made, and their names are the same wherever they are forwarded."""

import dataclasses
import inspect
import typing

import pytest

from dpverify import InputError, Settings, verify
from dpverify.settings import ARGUMENTS, CHOICES, SettingsChanges, VerifyOptions


def test_the_papers_preset():
    paper = Settings.paper()
    assert (paper.partition, paper.resolution, paper.events, paper.test) == ("grid", 2, "cell", "thinned")
    assert (paper.selection_epsilon, paper.joint, paper.complement) == (1, False, False)
    assert paper.select_runs == 1000
    assert Settings.paper(test_runs=5).test_runs == 5


def test_settings_are_frozen_and_changed_by_name():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().alpha = 0.1
    assert Settings().change(test_runs=1e6).test_runs == 1_000_000
    with pytest.raises(InputError, match="unknown setting 'runs_test'"):
        Settings().change(runs_test=1)
    with pytest.raises(InputError, match=r"unknown setting 'eps'; did you mean the argument 'epsilon'\?"):
        Settings().change(eps=1)


def test_the_arguments_that_are_not_settings_are_those_of_verify():
    parameters = inspect.signature(verify).parameters
    assert {*ARGUMENTS, "mechanism", "first", "second", "settings", "changes"} == set(parameters)


def test_the_forwarded_options_are_the_settings_and_the_keyword_arguments_of_verify():
    assert typing.get_type_hints(SettingsChanges) == typing.get_type_hints(Settings)
    keywords = {"settings", *ARGUMENTS} - {"epsilon", "delta", "claim"}
    assert set(typing.get_type_hints(VerifyOptions)) == set(typing.get_type_hints(Settings)) | keywords


@pytest.mark.parametrize("field", dataclasses.fields(Settings), ids=lambda field: field.name)
def test_every_setting_is_documented(field):
    assert f"\n{field.name} : " in (inspect.getdoc(Settings) or "")


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_named(name):
    with pytest.raises(InputError, match=f"{name} must be one of .*, not 'nonsense'"):
        Settings(**{name: "nonsense"})


def test_only_the_papers_selection_can_leave_the_complement_out():
    with pytest.raises(InputError, match="complement: found False without selection_epsilon"):
        Settings(complement=False)
    with pytest.raises(InputError, match="complement: found 0; expected True or False"):
        Settings(complement=0)


def test_a_coupled_selection_cannot_stop_early():
    with pytest.raises(InputError, match="use coupled_selection or stop_early, not both"):
        Settings(coupled_selection=True, stop_early=True)
    with pytest.raises(InputError, match="coupled_selection: found 1; expected True or False"):
        Settings(coupled_selection=1)


def test_only_a_coupled_selection_changes_the_identity_of_earlier_runs():
    assert "coupled_selection" not in Settings().identity
    assert Settings(coupled_selection=True).identity["coupled_selection"] is True
