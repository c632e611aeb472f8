"""Settings of the caller: NumPy's error handling, warnings as errors; and integers that no double holds exactly."""

import warnings

import numpy as np
import pytest
from limits import most

import dpverify as dpv
from mechanisms import ONE, ZERO, laplace

FEW = {"select_runs": 1000, "test_runs": 2000}


def trajectory(data, runs, rng):
    return data + rng.laplace(size=(runs, 3, 2))


CALLS = {
    "laplace": lambda: dpv.verify(laplace, ZERO, ONE, 0.5, **FEW),
    "every event": lambda: dpv.verify(laplace, ZERO, ONE, 0.5, 0.01, log_lipschitz=1.0, **FEW),
    "trajectory": lambda: dpv.verify(trajectory, np.zeros((3, 2)), np.full((3, 2), 0.2), 0.5, **FEW),
    "stopping": lambda: dpv.verify(laplace, ZERO, ONE, 0.5, stop_early=True, **FEW),
    "paper": lambda: dpv.verify(laplace, ZERO, ONE, 0.5, settings=dpv.Settings.paper(beta=0.2)),
    "zcdp": lambda: dpv.verify(laplace, ZERO, ONE, claim=dpv.claims.zcdp(0.1), **FEW),
    "far": lambda: dpv.verify(lambda data, runs, rng: 50 * data[0] + rng.normal(size=(runs, 4)), ZERO, ONE, 0.5, **FEW),
    "over time": lambda: dpv.privacy_over_time(trajectory, np.zeros((3, 2)), np.full((3, 2), 0.2), **FEW),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_callers_error_handling_changes_nothing(name):
    expected = str(CALLS[name]())
    before = np.geterr()
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(CALLS[name]()) == expected
    assert np.geterr() == before


def test_the_callers_error_handling_holds_in_the_mechanism():
    def divides(data, runs, rng):
        return data / np.zeros(1) + rng.laplace(size=runs)

    with np.errstate(all="raise"), pytest.raises(dpv.MechanismError, match="FloatingPointError"):
        dpv.verify(divides, ONE, ZERO, **FEW)


def test_bounds_from_counts_do_not_depend_on_the_callers_error_handling():
    pairs = [(c, d) for c in (0, 1, 10**5, 10**6) for d in (0, 3, 10**4, 10**6)]
    expected = [dpv.epsilon_lower_bound(c, d, 10**6) for c, d in pairs]
    with np.errstate(all="raise"):
        assert [dpv.epsilon_lower_bound(c, d, 10**6) for c, d in pairs] == expected


@pytest.mark.parametrize("alpha", [5e-324, 1e-310])
def test_a_level_that_is_a_rounding_error_is_refused(alpha):
    with pytest.raises(dpv.InputError, match=r"alpha must be a number between 0 and 1, not "):
        dpv.verify(laplace, ZERO, ONE, alpha=alpha)


LARGEST = {"int64": 2**63 - 100, "negative": -(2**63) + 8, "uint64": 2**64 - 100, "beyond doubles": 2**53}


def large_integers(base, kind):
    """Return a mechanism of integers of this size whose last bit is the dataset."""

    def mechanism(data, runs, rng):
        noise = 2 * rng.integers(0, 10, runs)
        return np.array([base + int(x) + int(data) for x in noise], np.uint64 if kind == "uint64" else np.int64)

    return mechanism


@pytest.mark.parametrize("kind", LARGEST)
def test_the_last_bit_of_large_integers_is_found(kind):
    assert dpv.verify(large_integers(LARGEST[kind], kind), 0, 1, 1.0, **FEW).refuted


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.int64, bool])
def test_the_last_bit_of_small_integers_is_found(kind):
    def mechanism(data, runs, rng):
        return (data if kind is bool else 2 * rng.integers(0, 10, runs) + data) * np.ones(runs, kind)

    assert dpv.verify(mechanism, kind(0), kind(1), 1.0, **FEW).refuted


@pytest.mark.parametrize("seeds", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_large_integers_of_equal_laws_are_rarely_refuted(seeds):
    def mechanism(data, runs, rng):
        return 2**60 + rng.integers(0, 1000, runs)

    refuted = sum(dpv.verify(mechanism, 0, 1, 0.0, seed=seed, **FEW).refuted for seed in range(seeds))
    assert refuted <= most(seeds, 0.05)
