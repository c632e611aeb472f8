"""Missing readings of a masked array stay missing: they are never measured, and masks that differ are a difference."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.adapters import perturbed
from dpverify.mechanisms.neighbours import are_equal, describe_difference
from dpverify.util.hashing import fingerprint

MISSING = np.ma.array([1.0, 100.0, 3.0], mask=[False, True, False])
COMPLETE = np.ma.array([1.0, 100.0, 3.0])


def test_data_that_differ_in_the_mask_differ():
    assert not are_equal(MISSING, COMPLETE)
    assert not are_equal({"y": MISSING}, {"y": COMPLETE})
    assert are_equal(MISSING, np.ma.array([1.0, 5.0, 3.0], mask=[False, True, False]))
    assert describe_difference(MISSING, COMPLETE).text == "1 of 3 numbers: data[1] from missing to 100"
    assert fingerprint(MISSING) != fingerprint(COMPLETE)


def mean_of_readings(data):
    return np.atleast_1d(np.ma.mean(data))


def test_noise_on_the_data_does_not_measure_missing_readings():
    outputs = perturbed(mean_of_readings, 0.01, where="input")(MISSING, 5, np.random.default_rng(0))
    assert np.allclose(outputs, 2.0, atol=0.1)


def test_masks_of_data_and_outputs_are_kept_in_a_verification():
    mechanism = perturbed(mean_of_readings, 1.0, where="input")
    report = dpv.verify(mechanism, MISSING, COMPLETE, 1.0, select_runs=200, test_runs=500)
    assert report.refuted
    for where in ("input", "output"):
        with pytest.raises(dpv.MechanismError, match="masked"):
            dpv.verify(perturbed(np.ma.cumsum, 1.0, where), MISSING, COMPLETE, 1.0, select_runs=200, test_runs=500)


@pytest.mark.parametrize(
    "pairs",
    [
        dpv.neighbours.one_reading(MISSING, 1.0),
        dpv.neighbours.window(MISSING, 2, 1.0),
        dpv.neighbours.whole_stream(MISSING, 1.0),
        dpv.neighbours.replace_one(MISSING, [7.0], records=[0, 2]),
        dpv.neighbours.add_or_remove_one(MISSING, [7.0], records=[0, 2]),
    ],
)
def test_neighbours_keep_the_mask(pairs):
    for first, second in pairs.values():
        assert first.mask.sum() == second.mask.sum() == 1
        assert not are_equal(first, second)


def test_a_missing_reading_has_no_neighbour():
    assert list(dpv.neighbours.one_reading(MISSING, 1.0)) == ["reading 0", "reading 2"]
    with pytest.raises(dpv.InputError, match="missing"):
        dpv.neighbours.one_reading(MISSING, 1.0, steps=[1])


def test_a_missing_record_can_be_replaced():
    first, second = dpv.neighbours.replace_one(MISSING, [7.0], records=[1])["record 1 becomes value 0"]
    assert first.mask[1]
    assert second.tolist() == [1.0, 7.0, 3.0]
