"""The message of a mechanism that fails: the line of the user, and advice for frequent mistakes."""

import contextlib
import inspect
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv
from dpverify.errors import PACKAGE_FOLDER, is_users
from dpverify.mechanisms.diagnostics import has_other_order

ZERO, ONE = np.zeros(1), np.ones(1)


def other_order(runs, data, rng):
    return data + rng.laplace(size=(runs, 1))  # NumPy raises in numpy/random/_common.pyx


def failure(mechanism, first=ZERO, second=ONE):
    with pytest.raises(dpv.MechanismError) as caught:
        dpv.verify(mechanism, first, second, 1.0)
    return str(caught.value)


def test_a_wrong_order_of_parameters_is_named_with_the_line_of_the_user():
    line = inspect.getsourcelines(other_order)[1] + 1
    message = failure(other_order, np.zeros(3), np.ones(3))
    assert ".pyx" not in message
    assert message.endswith(
        f"(at test_failures.py, line {line}); a mechanism is called as (data, runs, rng); "
        "compare the order of its parameters, (runs, data, rng)"
    )


def test_compiled_code_of_a_library_is_not_code_of_the_user():
    own_code = compile("rng.laplace(size=(1.5, 1))", f"{PACKAGE_FOLDER}/example.py", "exec")
    with pytest.raises(TypeError) as caught:
        exec(own_code, {"rng": np.random.default_rng(0)})
    assert not is_users(caught.value)


class Method:
    def __call__(self, data, rng, runs):
        raise ValueError("fails")


@pytest.mark.parametrize(
    ("mechanism", "other"),
    [
        (other_order, True),
        (Method(), True),
        (lambda x, n, runs: x, True),
        (lambda data, n, generator: data, False),
        (lambda data, runs, rng: data, False),
        (lambda *arguments: arguments, False),
        (dict.fromkeys, False),
    ],
)
def test_the_order_is_read_from_the_names(mechanism, other):
    assert has_other_order(mechanism) == other


def test_a_right_order_gets_no_advice():
    def fails(data, runs, rng):
        raise ValueError("fails")

    assert "is called as" not in failure(fails)
    assert "compare the order of its parameters, (data, rng, runs)" in failure(Method())


def mean(data, runs, rng):
    return np.mean(data) + rng.laplace(size=runs)


def letters(data, runs, rng):
    return len(data) + rng.laplace(size=runs)


def test_the_name_of_a_file_as_a_data_set_is_named_if_the_mechanism_fails(tmp_path):
    advice = "; the dataset is the text {}; read the file first, for example with numpy.loadtxt"
    assert failure(mean, "a.csv", "b.csv").endswith(advice.format("'a.csv'"))
    assert failure(mean, Path("a.npy"), Path("b.npy")).endswith(advice.format("'a.npy'"))
    (tmp_path / "a").touch()
    with contextlib.chdir(tmp_path):
        assert failure(mean, "a", "b").endswith(advice.format("'a'"))
    assert "read the file" not in failure(mean, "one", "two")
    assert dpv.verify(letters, "a.csv", "bb.csv", 1.0, select_runs=500, test_runs=1000).epsilon == 1.0
