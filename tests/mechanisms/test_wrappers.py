"""Wrappers that make mechanisms from other callables."""

import pickle

import numpy as np
import pytest

import dpverify as dpv
from dpverify.mechanisms.protocol import is_seeded, mechanism_name
from mechanisms import ZERO, laplace


def one_estimate(data, rng):
    return data + rng.normal(size=2)


def test_per_run_calls_the_function_once_per_run():
    mechanism = dpv.per_run(one_estimate)
    assert mechanism(np.zeros(2), 7, np.random.default_rng(0)).shape == (7, 2)
    assert mechanism_name(mechanism) == "one_estimate"
    pickle.loads(pickle.dumps(mechanism))


def jax_estimate(data, key):
    import jax

    return data.sum() + jax.random.laplace(key, (1,))


def test_jax_run_is_64_bit_and_seeded_by_the_block():
    mechanism = dpv.jax_run(jax_estimate)
    first, repeated, other = (np.asarray(mechanism(ZERO, 100, np.random.default_rng(seed))) for seed in (0, 0, 1))
    assert first.dtype == np.float64
    np.testing.assert_array_equal(first, repeated)
    assert (first != other).all()


made = []


def make_laplace():
    made.append(1)
    return laplace


def test_a_factory_makes_one_mechanism_per_process():
    mechanism = dpv.factory(make_laplace)
    for _ in range(3):
        mechanism(ZERO, 2, np.random.default_rng(0))
    assert len(made) == 1
    assert is_seeded(mechanism)
    assert not hasattr(mechanism, "block")


@pytest.mark.parametrize("wrap", [dpv.per_run, dpv.jax_run, lambda f: dpv.factory(lambda: f)])
def test_a_wrapper_has_the_optional_attributes_of_its_function(wrap):
    def function(*arguments):
        return 0.0

    function.block, function.seeded, function.log_lipschitz = 128, False, lambda data: 2.0
    wrapped = wrap(function)
    function.remarks, function.finish = lambda data: ("of a laboratory",), lambda: "finished"
    assert (wrapped.block, wrapped.seeded, wrapped.log_lipschitz(0)) == (128, False, 2.0)
    assert (wrapped.remarks(0), wrapped.finish()) == (("of a laboratory",), "finished")
    assert not hasattr(wrap(lambda *arguments: 0.0), "remarks")


# Seeds and shapes of wrapped functions.


@pytest.mark.parametrize("wrap", [dpv.per_run, dpv.jax_run], ids=["per_run", "jax_run"])
def test_a_wrapper_can_state_that_its_function_cannot_be_seeded(wrap):
    assert is_seeded(wrap(lambda data, rng: data))
    assert not is_seeded(wrap(lambda data, rng: data, seeded=False))

    def function(data, rng):
        return data

    function.seeded = False
    assert not is_seeded(wrap(function))


def test_the_advice_for_noise_that_cannot_be_seeded_works():
    own = np.random.default_rng(0)

    def noisy(data, rng):
        return data + own.laplace()

    with pytest.warns(dpv.DPVerifyWarning, match=r"dpverify.per_run\(f, seeded=False\)"):
        report = dpv.verify(dpv.per_run(noisy), 0.0, 1.0, select_runs=400, test_runs=400)
    assert report.voiding
    with pytest.warns(dpv.DPVerifyWarning, match="cannot be seeded"):
        report = dpv.verify(dpv.per_run(noisy, seeded=False), 0.0, 1.0, select_runs=400, test_runs=400)
    assert not report.voiding


def test_the_advice_for_the_global_generator_of_numpy_works():
    def unseeded(data, runs, rng):
        return data + np.random.laplace(size=runs)  # noqa: NPY002

    def seeded(data, runs, rng):
        np.random.seed(rng.integers(2**32))  # noqa: NPY002
        return unseeded(data, runs, rng)

    with pytest.warns(dpv.DPVerifyWarning, match=r"np.random.seed\(rng.integers\(2\*\*32\)\)"):
        assert dpv.verify(unseeded, 0.0, 1.0, select_runs=400, test_runs=400).voiding
    assert not dpv.verify(seeded, 0.0, 1.0, select_runs=400, test_runs=400).voiding


def test_outputs_of_different_shapes_are_a_list():
    lengths = iter([3, 3, 2])
    outputs = dpv.per_run(lambda data, rng: np.zeros(next(lengths)))(0.0, 3, np.random.default_rng(0))
    assert [len(output) for output in outputs] == [3, 3, 2]
    assert dpv.per_run(lambda data, rng: {"a": data})(1.0, 2, np.random.default_rng(0)) == [{"a": 1.0}, {"a": 1.0}]


def test_a_function_of_many_runs_needs_no_per_run():
    with pytest.raises(dpv.InputError, match="is a mechanism already, without per_run"):
        dpv.per_run(lambda data, runs, rng: data + rng.laplace(size=runs))
    assert dpv.per_run(lambda *arguments: arguments[0])(1.0, 2, np.random.default_rng(0)).tolist() == [1.0, 1.0]


def test_a_function_inside_a_factory_has_both_names():
    def tracker():
        def estimate(data, rng):
            return data

        return dpv.per_run(estimate)

    assert tracker().name.endswith(".tracker.estimate")
    assert "<locals>" not in tracker().name
    assert dpv.per_run(top_level).name == "top_level"


def top_level(data, rng):
    return data


def makes_with_defaults(scale=1.0, steps=4, seed=0):
    return lambda data, runs, rng: data + rng.normal(size=runs)


def makes():
    return makes_with_defaults()


@pytest.mark.parametrize("make", [makes, makes_with_defaults])
def test_a_factory_that_is_passed_as_a_mechanism_is_named(make):
    with pytest.raises(dpv.MechanismError) as caught:
        dpv.verify(make, 0.0, 1.0)
    name = make.__name__
    assert f"if {name} makes a mechanism, call it first: {name}(), or on the command line FILE.py:{name}()" in str(
        caught.value
    )
    if make is makes_with_defaults:
        assert "found a function instead of outputs" in str(caught.value)
    report = dpv.verify(make(), 0.0, 1.0, select_runs=200, test_runs=200)  # the advice is right
    assert not report.voiding


def test_a_function_of_the_data_alone_has_no_noise():
    with pytest.raises(dpv.InputError, match="has no noise"):
        dpv.per_run(lambda data: data)
