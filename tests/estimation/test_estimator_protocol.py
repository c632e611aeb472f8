"""The protocol that every public mechanism of the package follows, and the errors for invalid input."""

import pickle
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dpverify as dpv
from dpverify import estimation
from dpverify.estimation import (
    KLMHE,
    W2MHE,
    EqualisedKalman,
    InputPerturbed,
    IntermittentKalman,
    Normal,
    ParticleFilter,
    PosteriorKalman,
    PrivateEKF,
    PrivateKalman,
    PrivateSmoother,
    System,
    TwoStageKalman,
    adjacent_recordings,
    oscillator,
)

RUNS = 64  # the same block size everywhere, so that each mechanism compiles once
SYSTEM = oscillator()
LINEAR = System(
    A=SYSTEM.A,
    C=np.eye(2, 4),
    start=SYSTEM.start,
    released=(0, 1),
    disturbance=Normal(0.001),
    noise=Normal(0.02),
    initial=Normal(0.01),
)
FIRST, SECOND, RECORDING = adjacent_recordings(SYSTEM, SYSTEM.h, 2, 5.0, np.random.default_rng(4))
LINEAR_DATA = RECORDING.states[:, :2]
W2 = W2MHE(SYSTEM, 5, 0.8, 1.4e-5)
MECHANISMS = {
    "W2-MHE": (W2, FIRST, 4),
    "W2-MHE, blend": (W2MHE(SYSTEM, 5, 0.8, 1.4e-5, law="blend"), FIRST, 4),
    "KL-MHE": (KLMHE(SYSTEM, 5, 0.8, particles=32), FIRST, 4),
    "private EKF": (PrivateEKF(SYSTEM, 0.98, window=5), FIRST, 4),
    "private Kalman, output": (PrivateKalman(LINEAR, 0.1), LINEAR_DATA, 9),
    "private Kalman, input": (PrivateKalman(LINEAR, 0.1, "input", window=5), LINEAR_DATA, 4),
    "perturbed W2-MHE": (InputPerturbed(W2MHE(SYSTEM, 5, 1.0, 1.4e-5), 0.944), FIRST, 4),
    "perturbed Kalman": (InputPerturbed(PrivateKalman(LINEAR, 0.0), 0.944), LINEAR_DATA, 9),
    "missing readings": (IntermittentKalman(LINEAR, 0.1), LINEAR_DATA, 9),
    "smoother": (PrivateSmoother(LINEAR, 0.1, "input"), LINEAR_DATA, 9),
    "two-stage": (TwoStageKalman(LINEAR, [[1.0, 1.0]], 0.1), LINEAR_DATA, 9),
    "equalised": (EqualisedKalman(LINEAR, (1.0, 0.5), 0.1), LINEAR_DATA, 9),
    "posterior": (PosteriorKalman(LINEAR), LINEAR_DATA, 9),
    "particle filter": (ParticleFilter(SYSTEM, 16), FIRST, 9),
}
WITH_MISSING_DATA = ("missing readings", "smoother")  # NaN is a missing reading


def test_every_public_mechanism_is_tested():
    public = {name for name in estimation.__all__ if hasattr(getattr(estimation, name), "block")}
    assert public == {type(mechanism).__name__ for mechanism, _, _ in MECHANISMS.values()}


def test_integers_of_numpy_are_accepted():
    five = np.int64(5)
    same = W2MHE(SYSTEM, five, 0.8, 1.4e-5), KLMHE(SYSTEM, five, 0.8, particles=32), PrivateEKF(SYSTEM, 0.98, five)
    assert same == tuple(MECHANISMS[name][0] for name in ("W2-MHE", "KL-MHE", "private EKF"))
    assert all(type(mechanism.window) is int for mechanism in (*same, PrivateKalman(LINEAR, 0.1, window=five)))


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_follows_the_protocol(name):
    mechanism, data, steps = MECHANISMS[name]
    runs = RUNS
    samples, repeated, other = (mechanism(data, runs, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert isinstance(samples, jax.Array)
    assert samples.shape == (runs, steps, 2)
    assert samples.dtype == jnp.float64
    assert np.isfinite(np.asarray(samples)).all()
    assert np.array_equal(samples, repeated)
    assert not np.array_equal(samples, other)
    assert len(np.unique(np.asarray(samples)[:, 0, 0])) == runs  # all runs differ
    copy = pickle.loads(pickle.dumps(mechanism))
    assert copy == mechanism
    assert np.array_equal(copy(data, runs, np.random.default_rng(0)), samples)
    assert isinstance(mechanism.block, int)
    assert mechanism.block & (mechanism.block - 1) == 0
    assert jnp.zeros(1).dtype == jnp.float32  # the global settings of JAX are unchanged
    unusable = np.inf if name in WITH_MISSING_DATA else np.nan
    broken = np.where(np.arange(len(data))[:, None] == 1, unusable, data)
    for wrong in (data[:, :-1], data[0], data[:0], broken, "data"):
        with pytest.raises(dpv.InputError, match=r"^data: found .*; expected .*") as error:
            mechanism(wrong, runs, np.random.default_rng(0))
        assert "\n" not in str(error.value)


def test_without_noise_a_perturbed_estimator_is_deterministic():
    mhe = MECHANISMS["perturbed W2-MHE"][0].estimator
    runs = np.asarray(InputPerturbed(mhe, 1.0)(FIRST, RUNS, np.random.default_rng(0)))
    assert np.abs(runs - mhe.deterministic(FIRST)[:, :2]).max() < 1e-9
    assert np.array_equal(mhe(FIRST, 1, np.random.default_rng(0))[0], mhe.deterministic(FIRST)[:, :2])


@pytest.mark.slow
def test_blocks_may_be_drawn_in_two_threads():
    """Batched LAPACK calls from two threads can deadlock; a separate process has a timeout."""
    code = """
import numpy as np, test_protocol
from concurrent.futures import ThreadPoolExecutor
for name, (mechanism, data, _) in test_protocol.MECHANISMS.items():
    draw = lambda seed: np.asarray(mechanism(data, 2048, np.random.default_rng(seed)))
    with ThreadPoolExecutor(2) as pool:
        drawn = list(pool.map(draw, range(6)))
    assert np.array_equal(drawn[5], draw(5)), name
    print(name, flush=True)
"""
    folder = str(Path(__file__).parent)
    process = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=1800)
    assert process.stdout.split("\n")[:-1] == list(MECHANISMS), process.stderr


ERROR = dpv.rmse(RECORDING.released(SYSTEM, 4))


@pytest.mark.parametrize("name", ["W2-MHE", "W2-MHE, blend", "KL-MHE", "private EKF", "perturbed W2-MHE"])
def test_accuracy_under_both_data_sets(name):
    mechanism, _, _ = MECHANISMS[name]
    correct, adjacent = (ERROR(np.asarray(mechanism(y, RUNS, np.random.default_rng(0)))) for y in (FIRST, SECOND))
    assert correct.shape == adjacent.shape == (RUNS,)
    assert 0 < correct.mean() < 0.05
    if name != "KL-MHE":  # its noise is large compared with the effect of one moved sensor
        assert correct.mean() < adjacent.mean()


def test_the_report_contains_the_accuracy():
    runs = {"select_runs": 512, "test_runs": 512, "block": RUNS}
    report = dpv.verify(
        MECHANISMS["private EKF"][0], FIRST, SECOND, error=ERROR, partition="grid", events="cell", **runs
    )
    (correct, spread), (adjacent, _) = report.error
    assert 0 < spread < correct < adjacent


def nan_at_three(x):
    """Finite at the start, and NaN from the fourth state on."""
    return jnp.where(x > 2.5, jnp.nan, x)


def increasing(x):
    return x + 1.0


INCREASING = System(f=increasing, h=nan_at_three, start=(0.0,), noise=Normal(0.1), initial=Normal(0.1), lipschitz=1.0)

INVALID_INPUT = {
    "s_hat above 1": (lambda: PrivateEKF(SYSTEM, 1.2), "s_hat: found 1.2"),
    "s_hat 0": (lambda: PrivateEKF(SYSTEM, 0.0), "s_hat: found 0.0; expected a number above 0"),
    "s_bar below 0": (lambda: InputPerturbed(W2, -0.1), "s_bar: found -0.1"),
    "s NaN": (lambda: KLMHE(SYSTEM, 5, float("nan")), "s: found nan"),
    "no noise parameter": (lambda: InputPerturbed(W2), "use s_bar or covariance"),
    "no estimator": (lambda: InputPerturbed(MECHANISMS["KL-MHE"][0], 0.9), "without estimate"),
    "indefinite covariance": (
        lambda: InputPerturbed(W2, covariance=np.eye(20) - 0.2),
        "covariance: found an eigenvalue -3",
    ),
    "one large block": (
        lambda: InputPerturbed(W2, 0.9, coordinates=20)(FIRST, 4, np.random.default_rng(0)),
        "covariance: found an eigenvalue -",
    ),
    "wrong number of coordinates": (lambda: InputPerturbed(W2, 0.9, coordinates=3), "found 20 measurements"),
    "no noise in the data": (
        lambda: PrivateEKF(System(A=[[1.0]], C=[[1.0]], start=(0.0,), initial=Normal(1.0)), 0.9),
        "measurement: found an eigenvalue 0",
    ),
    "no uncertainty": (
        lambda: PrivateEKF(System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(1.0)), 0.9),
        "initial and process covariance 0",
    ),
    "wrong size": (lambda: PrivateEKF(SYSTEM, 0.9, process=np.eye(3)), r"process: found shape \(3, 3\)"),
    "no matrices": (lambda: PrivateKalman(SYSTEM, 0.1), "without A or C"),
    "where": (lambda: PrivateKalman(LINEAR, 0.1, "inside"), "where must be"),
    "scale": (lambda: PrivateKalman(LINEAR, -1.0), "scale: found -1.0"),
    "singular step": (
        lambda: KLMHE(System(A=[[0.0]], C=[[1.0]], start=(0.0,)), 0, 0.5),
        "singular A",
    ),
    "window": (lambda: PrivateEKF(SYSTEM, 0.9, window=9)(FIRST, 4, np.random.default_rng(0)), "found 9 steps"),
    "distribution of another size": (
        lambda: System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal((1.0, 2.0))),
        "noise: found a distribution for",
    ),
    "NaN along the trajectory, EKF": (
        lambda: PrivateEKF(INCREASING, 0.9)(np.arange(6.0)[:, None], 4, np.random.default_rng(0)),
        "noise-free estimate at step 3",
    ),
    "NaN along the trajectory, perturbed": (
        lambda: InputPerturbed(PrivateEKF(INCREASING, 1.0), covariance=0.1)(
            np.arange(6.0)[:, None], 4, np.random.default_rng(0)
        ),
        "noise-free estimate at step 3",
    ),
    "NaN along the trajectory, KL-MHE": (
        lambda: KLMHE(INCREASING, 0, 0.9)(np.arange(6.0)[:, None], 4, np.random.default_rng(0)),
        "found NaN or infinity in f or h along the trajectory",
    ),
}


@pytest.mark.parametrize("name", INVALID_INPUT)
def test_invalid_input_raises_a_one_line_error(name):
    build, words = INVALID_INPUT[name]
    with pytest.raises(dpv.InputError, match=words) as error:
        build()
    assert "\n" not in str(error.value)
