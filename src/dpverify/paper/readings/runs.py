"""The paper's procedure under a reading: mechanisms, data sets, and one verification for each seed.

A seed draws everything that is random in the paper and not printed: the sensors of Q1 and Q3 (those of Q2 are evenly
spaced), the sensor that moves, the trajectory, the noise, and all runs. A verification has the stages of `verify` with
`Settings.paper()` and the same random numbers; only the bounds that the paper does not have are left out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpverify.errors import InputError, MechanismError
from dpverify.estimation import W2MHE, InputPerturbed, PrivateEKF, adjacent_recordings, oscillator, sensor_circle
from dpverify.estimation.input_perturbation import sensor_blocks
from dpverify.estimation.system import STEPS, System
from dpverify.mechanisms.accuracy import rmse
from dpverify.paper.experiment import DISTANCE, SENSORS, WINDOW
from dpverify.paper.printed import PrintedCell, read_printed
from dpverify.paper.readings.results import Reading
from dpverify.pipeline import count_test_runs, find_region, freeze_events
from dpverify.report.assemble import Findings
from dpverify.report.evaluate import sweep_epsilon
from dpverify.sampling.context import open_run
from dpverify.settings import Settings
from dpverify.stats.paper_test import paper_lambda
from dpverify.util.arrays import Array
from dpverify.util.hashing import fingerprint

DIAMETER = 0.1  # of K_0
BLOCK = 512
COVARIANCE_SEED = 0
SINGLE_RUN_KEY = 7
SEEDS_PER_ROW = 1_000_000
SETUP_KEYS = {"Q1": 1, "Q2": 2, "Q3": 3}
FILTERS = {  # process, measurement and initial covariance of the EKF; None: those of the simulation
    "true": (None, None, None),
    "model": (1e-8, 1.0, 1e-6),
    "data": (1e-2, 1e-4, 1.0),
}
PaperMechanism = W2MHE | InputPerturbed | PrivateEKF


class SetUp(NamedTuple):
    """A system, two adjacent data sets and the true positions."""

    system: System
    first: np.ndarray
    second: np.ndarray
    truth: np.ndarray


class SeedResult(NamedTuple):
    """The paper's numbers of one verification, its ceiling, and the counts of the tested event.

    The errors are means over the test runs; `error_one` and `error_adjacent_one` are those of a single run.
    """

    seed: int
    epsilon_c: float
    eta: float
    lambda_: float
    error: float
    error_adjacent: float
    ceiling: float
    counts: tuple[int, int]
    error_one: float
    error_adjacent_one: float


@functools.lru_cache(maxsize=512)
def draw_setup(setup: str, angle: str, seed: int, steps: int = STEPS) -> SetUp:
    """Return the sensors, the data sets and the true positions of one seed."""
    rng = np.random.default_rng((SETUP_KEYS[setup], seed))
    angles = rng.uniform(0, 2 * np.pi, SENSORS)
    system = oscillator(sensor_circle(SENSORS if setup == "Q2" else angles.tolist()))
    moved = int(rng.integers(SENSORS))
    first, second, recording = adjacent_recordings(system, system.h, moved, DISTANCE, rng, steps=steps, angle=angle)
    return SetUp(system, first, second, recording.released(system, steps + 1 - WINDOW))


def input_covariance(kind: str, measurements: int = 2 * SENSORS, seed: int = COVARIANCE_SEED) -> np.ndarray:
    """Return the covariance of the input noise for s_bar 0 under a reading (`Reading.covariance`)."""
    identity = np.eye(measurements)
    if kind == "identity":
        return identity
    if kind == "mean":
        return identity + 0.5
    if kind == "blocks":
        return sensor_blocks(measurements, 2, seed)
    values, vectors = np.linalg.eigh(sensor_blocks(measurements, measurements, seed))
    if kind == "clipped":
        return (vectors * np.maximum(values, 0.0)) @ vectors.T
    return (vectors * (values - min(values[0], 0.0))) @ vectors.T


def build(mechanism: str, reading: Reading, system: System, value: float) -> PaperMechanism:
    """Return a mechanism by its name in the paper, with its parameter at `value`; s_bar below 0 is allowed."""
    if mechanism == "private EKF":
        process, measurement, initial = FILTERS[reading.filter]
        return PrivateEKF(system, value, WINDOW, process, measurement, initial)
    constant = reading.support == "constant"
    s = value if mechanism == "W2-MHE" else 1.0
    estimator = W2MHE(
        system,
        WINDOW,
        s,
        reading.tau,
        law=reading.law,
        span=reading.span,
        prior=reading.prior,
        support="wide" if constant else "theorem",
        diameter=DIAMETER,
        radius=DIAMETER / 2 if constant else None,
    )
    if mechanism == "W2-MHE":
        return estimator
    covariance = (1 - value) * input_covariance(reading.covariance)
    return InputPerturbed(estimator, covariance=covariance, noise_per=reading.noise)


def paper_settings(reading: Reading, seed: int, resolution: int = 2) -> Settings:
    """Return the settings of the paper's procedure; a run that the Gibbs sampler abandons counts as outside R."""
    return Settings.paper(
        test_runs=reading.test_runs,
        complement=reading.complement,
        resolution=resolution,
        nonfinite="event" if reading.law == "gibbs" else "error",
        block=BLOCK,
        seed=seed,
    )


def error_of_finite_runs(truth: np.ndarray) -> Callable[[Array], np.ndarray]:
    """Return the error of each run; an abandoned run has the mean error of its block."""
    error = rmse(truth)

    def errors(samples: Array) -> np.ndarray:
        values = np.asarray(error(samples))
        return np.where(np.isfinite(values), values, np.nanmean(values))

    return errors


def run_seed(mechanism: PaperMechanism, data: SetUp, settings: Settings) -> SeedResult:
    """Run the paper's procedure once: the numbers are those of `verify` with these settings."""
    truth = data.truth
    error = rmse(truth) if settings.nonfinite == "error" else error_of_finite_runs(truth)
    call = {"delta": 0.0, "log_lipschitz": fingerprint(None)}  # as in `verify`: the random numbers depend on it
    with open_run(mechanism, data.first, data.second, settings, None, False, None, call, error) as run:
        region, points, pilot = find_region(run)
        selected = freeze_events(run, region, points, 0.0)
        counts = count_test_runs(run, Findings(region, points, pilot, selected, None, ()), error)
        settings = run.settings
    event, eta = selected.event, selected.eta
    c1, c2 = (int(side.of(event.codes).sum()) for side in counts.events[0])
    critical, ceiling = sweep_with_ceiling((c1, c2), settings)
    assert eta is not None
    assert counts.error is not None
    (first, _), (second, _) = counts.error
    lambda_ = paper_lambda(settings.beta, eta, critical)
    other_runs = np.asarray(mechanism(data.second, BLOCK, _single_run(settings)))
    single = [np.asarray(error(side))[0] for side in (points, other_runs)]
    return SeedResult(
        settings.seed, critical, eta, lambda_, first, second, ceiling, (c1, c2), float(single[0]), float(single[1])
    )


def _single_run(settings: Settings) -> np.random.Generator:
    """Return the generator of the single run under the second data set, which has no pilot runs."""
    return np.random.default_rng((SINGLE_RUN_KEY, settings.seed))


def sweep_with_ceiling(counts: tuple[int, int], settings: Settings) -> tuple[float, float]:
    """Return the critical epsilon, and its ceiling: the value if the rarer data set never produced the event.

    The ceiling is what the procedure reports for disjoint distributions with the same count under the data set in
    which the event is more frequent, from the same random numbers. Where the other count is 0, both are equal.
    """
    c1, c2 = counts
    disjoint = (c1, 0) if c1 >= c2 else (0, c2)
    return tuple(sweep_epsilon(pair, settings.test_runs, settings) for pair in (counts, disjoint))  # type: ignore[return-value]


def measure_row(
    cell: PrintedCell, reading: Reading, value: float, seeds: range, resolution: int = 2, steps: int = STEPS
) -> tuple[SeedResult, ...]:
    """Return one result for each seed; seeds whose distribution cannot be sampled are left out."""
    results = []
    for seed in seeds:
        data = draw_setup(cell.setup, reading.angle, seed, steps)
        mechanism = build(cell.mechanism, reading, data.system, value)
        try:
            results.append(run_seed(mechanism, data, paper_settings(reading, run_number(cell, seed), resolution)))
        except (MechanismError, InputError):
            if reading.law != "gibbs":
                raise
    return tuple(results)


def run_number(cell: PrintedCell, seed: int) -> int:
    """Return the seed of a row's runs: rows share the data of a set-up and must not share the runs."""
    row = next(number for number, other in enumerate(read_printed().cells) if other.key == cell.key)
    return seed + SEEDS_PER_ROW * row


class FittedParameter(NamedTuple):
    """A parameter that the paper does not print: the value at which the error is the printed one.

    `log_density` is the logarithm of d value / d ln(error) there: under a uniform parameter the probability of an
    error in a small interval of logarithms is this density times its length. It is -inf where no value in [0, 1] has
    the printed error; the value is then the nearest one.
    """

    value: float
    log_density: float


def fit_parameter(cell: PrintedCell, reading: Reading, seeds: range, runs: int = BLOCK) -> FittedParameter:
    """Find the parameter of a printed row from its printed error, with the same random numbers for every value."""
    assert cell.error is not None
    noises = np.geomspace(1e-3, 1.0, 8)  # 1 - s, 1 - s_bar, or (1 - s_hat)/s_hat
    is_ekf = cell.mechanism == "private EKF"
    values = 1 / (1 + noises) if is_ekf else 1 - noises
    errors = np.array([mean_error(cell, reading, float(value), seeds, runs) for value in values])
    log_errors = np.maximum.accumulate(np.log(errors))  # rounding must not break the order
    log_target = math.log(cell.error)
    if not log_errors[0] <= log_target <= log_errors[-1]:
        return FittedParameter(float(values[0] if log_target < log_errors[0] else values[-1]), -math.inf)
    i = int(np.clip(np.searchsorted(log_errors, log_target), 1, len(noises) - 1))
    rise = max(log_errors[i] - log_errors[i - 1], 1e-6)
    step = math.log(noises[i] / noises[i - 1])
    noise = noises[i - 1] * math.exp(step * (log_target - log_errors[i - 1]) / rise)
    value = 1 / (1 + noise) if is_ekf else 1 - noise
    density = noise * step / rise * (value**2 if is_ekf else 1.0)
    return FittedParameter(float(value), math.log(density))


def mean_error(cell: PrintedCell, reading: Reading, value: float, seeds: range, runs: int) -> float:
    """Return the mean error under the first data set, over seeds."""
    errors = []
    for seed in seeds:
        data = draw_setup(cell.setup, reading.angle, seed)
        mechanism = build(cell.mechanism, reading, data.system, value)
        samples = np.asarray(mechanism(data.first, runs, np.random.default_rng(seed)))
        errors.append(float(np.nanmean(rmse(data.truth)(samples))))
    return float(np.mean(errors))
