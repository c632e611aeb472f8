import pickle

import numpy as np
import pytest

import dpverify as dpv
from dpverify.mechanisms.protocol import is_seeded, mechanism_name, read_only_view, validate_output
from mechanisms import ONE, ZERO, laplace


@pytest.mark.parametrize(("shape", "expected"), [((5,), (5, 1, 1)), ((5, 3), (5, 1, 3)), ((5, 2, 3), (5, 2, 3))])
def test_shapes_become_runs_steps_dimensions(shape, expected):
    assert validate_output(np.zeros(shape), 5).shape == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int64, np.uint16, bool])
def test_real_numbers_of_any_kind_are_admitted(dtype):
    samples = validate_output(np.ones((4, 2), dtype), 4)
    assert samples.dtype == np.float64
    assert (samples == 1).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (np.zeros(4), "found an array of shape 4: 4 runs, expected the 5"),
        (np.zeros((2, 3, 5)), "found an array of shape 2 x 3 x 5: 2 runs, expected the 5"),
        (np.zeros((5, 2, 2, 2)), "found shape"),
        (np.float64(3), "found shape"),
        (np.zeros((5, 0)), "at least one number"),
        (np.zeros(5, complex), "found dtype complex128"),
        (np.array([{}] * 5), "found dtype object"),
        (np.array(["a"] * 5), "found dtype"),
        ([[1], [1, 2], [1], [1], [1]], "rows of different lengths"),
        (None, "found dtype object"),
        (np.array([1, 2, np.nan, np.inf, 0]), "NaN or infinity in 2 of 5 runs"),
    ],
)
def test_the_door_refuses_in_one_line(answer, message):
    with pytest.raises(ValueError, match=message) as problem:
        validate_output(answer, 5)
    assert "\n" not in str(problem.value)


def test_the_shape_must_not_change():
    with pytest.raises(ValueError, match="expected 1 x 2 as before"):
        validate_output(np.zeros((5, 3)), 5, (1, 2))


def test_non_finite_runs_pass_where_they_are_an_event():
    assert np.isnan(validate_output(np.array([1.0, np.nan]), 2, nonfinite="event")[1]).all()


def test_arrays_arrive_read_only():
    with pytest.raises(ValueError, match="read-only"):
        read_only_view(np.zeros(3))[0] = 1
    assert read_only_view({"a": 1}) == {"a": 1}


def one_estimate(data, rng):
    return data + rng.normal(size=2)


def test_per_run():
    mechanism = dpv.per_run(one_estimate)
    assert mechanism(np.zeros(2), 7, np.random.default_rng(0)).shape == (7, 2)
    assert mechanism_name(mechanism) == "one_estimate"
    pickle.loads(pickle.dumps(mechanism))


def jax_estimate(data, key):
    import jax

    return data.sum() + jax.random.laplace(key, (1,))


def test_jax_run_is_64_bit_and_seeded_by_the_block():
    mechanism = dpv.jax_run(jax_estimate)
    one, two, other = (np.asarray(mechanism(ZERO, 100, np.random.default_rng(seed))) for seed in (0, 0, 1))
    assert one.dtype == np.float64
    np.testing.assert_array_equal(one, two)
    assert (one != other).all()


def test_jax_run_is_verified():
    report = dpv.verify(dpv.jax_run(jax_estimate), ZERO, ONE, 0.5, select_runs=4000, test_runs=20_000)
    assert report.refuted
    assert report.epsilon_lower < 1
    assert "cpu" in report.run["device"].lower()


made = []


def make_laplace():
    made.append(1)
    return laplace


def test_factory_builds_once_a_process():
    mechanism = dpv.factory(make_laplace)
    for _ in range(3):
        mechanism(ZERO, 2, np.random.default_rng(0))
    assert len(made) == 1
    assert is_seeded(mechanism)
    assert not hasattr(mechanism, "block")


class Unseeded:
    seeded = False
    block = 128
    name = "hardware noise"

    def __call__(self, data, runs, rng):
        assert runs == 128
        return np.sum(data) + np.random.default_rng().laplace(size=runs)


def test_optional_attributes():
    with pytest.warns(dpv.Warning, match="can't be seeded"):
        report = dpv.verify(Unseeded(), ZERO, ONE, select_runs=1000, test_runs=2000)
    assert (report.name, report.seeded, report.settings.block) == ("hardware noise", False, 128)
    assert any("can't be seeded" in note for note in report.notes)


@pytest.mark.parametrize("wrap", [dpv.per_run, dpv.jax_run, lambda f: dpv.factory(lambda: f)])
def test_wrappers_pass_on_what_a_function_says_of_itself(wrap):
    def function(*arguments):
        return 0.0

    function.block, function.seeded, function.log_lipschitz = 128, False, lambda data: 2.0
    wrapped = wrap(function)
    function.remarks, function.finish = lambda data: ("of a laboratory",), lambda: "finished"
    assert (wrapped.block, wrapped.seeded, wrapped.log_lipschitz(0)) == (128, False, 2.0)
    assert (wrapped.remarks(0), wrapped.finish()) == (("of a laboratory",), "finished")
    assert not hasattr(wrap(lambda *arguments: 0.0), "remarks")


def test_remarks_of_a_mechanism_stand_in_the_notes():
    def noisy(data, runs, rng):
        return data + rng.laplace(size=runs)

    noisy.remarks = lambda data: ("noise of a laboratory source",)
    report = dpv.verify(noisy, 0.0, 1.0, select_runs=2000, test_runs=2000)
    assert report.notes[:-1] == ("noise of a laboratory source",)
