"""The optional attributes of a mechanism, and its read-only data."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.util.arrays import read_only
from mechanisms import ONE, ZERO


def test_arrays_are_passed_read_only():
    with pytest.raises(ValueError, match="read-only"):
        read_only(np.zeros(3))[0] = 1
    assert read_only({"a": 1}) == {"a": 1}


class Unseeded:
    seeded = False
    block = 128
    name = "hardware noise"

    def __call__(self, data, runs, rng):
        assert runs == 128
        return np.sum(data) + np.random.default_rng().laplace(size=runs)


def test_optional_attributes_are_used():
    with pytest.warns(dpv.DPVerifyWarning, match="cannot be seeded"):
        report = dpv.verify(Unseeded(), ZERO, ONE, select_runs=1000, test_runs=2000)
    assert (report.name, report.seeded, report.settings.block) == ("hardware noise", False, 128)
    assert any("cannot be seeded" in note for note in report.notes)


def test_the_remarks_of_a_mechanism_are_notes_of_the_report():
    def noisy(data, runs, rng):
        return data + rng.laplace(size=runs)

    noisy.remarks = lambda data: ("noise of a laboratory source",)
    report = dpv.verify(noisy, 0.0, 1.0, select_runs=2000, test_runs=2000)
    assert report.notes[:-1] == ("noise of a laboratory source",)
