"""Functions of the user may read samples and not change them, because the samples are used again."""

import numpy as np
import pytest

import dpverify as dpv
from dpverify.util.arrays import call_read_only, read_only

SMALL = {"select_runs": 1000, "test_runs": 2000}


def shifted(data, runs, rng):
    return data + rng.laplace(size=(runs, 2))


def clip_in_place(samples):
    np.clip(samples, -1, 1, out=samples)
    return samples[:, 0, 0]


def test_a_view_is_read_only_and_the_array_is_not():
    array = np.zeros(3)
    assert np.shares_memory(read_only(array), array)
    assert not read_only(array).flags.writeable
    assert array.flags.writeable
    assert read_only("text") == "text"


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("events", {"events": clip_in_place}),
        ("learn", {"learn": lambda first, second: clip_in_place}),
        ("learn", {"learn": lambda first, second: first.sort()}),
        ("error", {"error": clip_in_place}),
        ("error", {"error": clip_in_place, "epsilon": 0.5, "stop_early": True}),
    ],
)
def test_a_function_that_changes_the_samples_is_refused(argument, options):
    with pytest.raises(dpv.InputError, match=f"^{argument}: found a function that changes its argument") as refusal:
        dpv.verify(shifted, 0.0, 1.0, **options, **SMALL)
    assert "\n" not in str(refusal.value)


def test_other_errors_of_a_function_are_not_changed():
    def fail(samples):
        raise ValueError("no such value")

    with pytest.raises(ValueError, match=r"^no such value$"):
        call_read_only(fail, np.zeros(3), "events")
