"""A mechanism whose true epsilon is at least twice the claim never passes: it is refuted, or the test is too weak."""

import math
from typing import NamedTuple

import numpy as np
import pytest

import dpverify as dpv

SIZES = {"small": (1000, 4000), "middle": (10_000, 40_000), "default": (50_000, 200_000)}
SEEDS = 10


class Leaky(NamedTuple):
    """A mechanism with its claim; the true epsilon, at the claimed delta, is at least twice the claimed one."""

    mechanism: object
    claim: dict
    data: tuple = (0, 1)
    settings: dict = {}  # noqa: RUF012 (never changed)


def laplace(data, runs, rng):
    return data + rng.laplace(size=runs)  # epsilon 1


def gaussian(data, runs, rng):
    return data + rng.standard_normal(runs)  # epsilon 1.7 at delta .05, and 3.2 at delta .001


def geometric(data, runs, rng):
    return data + rng.geometric(0.5, runs) - rng.geometric(0.5, runs)  # epsilon log 2


def response(data, runs, rng):
    return rng.random(runs) < (0.75 if data else 0.25)  # epsilon log 3


def steps(data, runs, rng):
    return 0.2 * data + rng.laplace(size=(runs, 8, 1))  # epsilon 1.6


def gaussian_steps(data, runs, rng):
    return 0.4 * data + rng.standard_normal((runs, 8, 2))  # mu 1.6


def random_walk(data, runs, rng):
    return (0.5 * data * np.arange(1, 7) + rng.laplace(size=(runs, 6)).cumsum(1))[:, :, None]  # epsilon 3


def correlated(data, runs, rng):
    x = rng.standard_normal((runs, 2))
    x[:, 1] += (1.0 if data else -1.0) * x[:, 0]
    return x  # unbounded


def louder(data, runs, rng):
    return rng.standard_normal((runs, 3)) * (1.5 if data else 1.0)  # unbounded


def key(data, runs, rng):
    """Release a noisy count of one if it exceeds a threshold; 0 stands for no release."""
    count = 1 + rng.laplace(size=runs) if data else np.zeros(runs)
    return np.where(count > 1 + math.log(1 / 0.026), count, 0.0)  # P(release) = .013, against a claimed delta of .0049


def padded(data, runs, rng):
    """A list whose length is public, padded with NaN; each entry has Laplace noise."""
    x = np.full((runs, 4), np.nan)
    length = rng.integers(1, 5, runs)
    noisy = data + rng.laplace(scale=0.5, size=(runs, 4))
    shown = np.arange(4) < length[:, None]
    x[shown] = noisy[shown]
    return x  # epsilon 2 from the first entry alone


def histogram(data, runs, rng):
    counts = np.zeros(10)
    counts[3] += data
    return counts + rng.laplace(size=(runs, 10))  # epsilon 1


def noisy_maximum(data, runs, rng):
    scores = np.array([1.0, 1.0, 1.0 + 2 * data, 0.0])
    return np.argmax(scores + rng.laplace(size=(runs, 4)), axis=1)  # epsilon about 1.6 (from P(2), P(0))


def bounded_noise(data, runs, rng):
    return 0.2 * data + rng.uniform(-1, 1, runs)  # unbounded


def lattice(data, runs, rng):
    return 0.25 * data + rng.integers(-20, 21, runs)  # unbounded: the values differ


def angle(data, runs, rng):
    return np.mod(0.8 * data + rng.vonmises(0, 2.0, runs), 2 * np.pi)  # 2 kappa sin(.4) = 1.56


def outlier(data, runs, rng):
    x = rng.standard_normal((runs, 2))
    far = rng.random(runs) < 0.02
    x[far, 0] = 30.0 if data else -30.0
    return x  # unbounded


def sparse_vector(data, runs, rng):
    """The sparse vector technique without noise on the answers: the index of the first query above the threshold."""
    threshold = rng.laplace(scale=0.5, size=(runs, 1))
    queries = np.array([0.0, 0.0, 0.0, 1.0]) - data * np.array([1, 1, 1, 1.0])
    above = queries + rng.laplace(scale=0.2, size=(runs, 4)) > threshold
    return np.where(above.any(1), above.argmax(1), 4)


def shuffled(data, runs, rng):
    x = np.array([0.0, 3.0, 6.0 + 1.0 * data]) + rng.laplace(scale=0.5, size=(runs, 3))
    return rng.permuted(x, axis=1)  # epsilon 2 without the shuffling, and about as much with it


def frequent(data, runs, rng):
    """Two outputs; one of them has probability .9 and .99."""
    return rng.random(runs) < (0.99 if data else 0.9)  # epsilon log 10


LEAKY = {
    "Laplace": Leaky(laplace, {"epsilon": 0.5}),
    "Gaussian, delta .05": Leaky(gaussian, {"epsilon": 0.4, "delta": 0.05}),
    "Gaussian, curve": Leaky(gaussian, {"claim": dpv.claims.gaussian(0.5)}),
    "geometric": Leaky(geometric, {"epsilon": 0.3}),
    "randomised response": Leaky(response, {"epsilon": 0.5}),
    "Laplace steps": Leaky(steps, {"epsilon": 0.8}),
    "Gaussian steps": Leaky(gaussian_steps, {"epsilon": 0.8, "delta": 1e-3}),
    "random walk": Leaky(random_walk, {"epsilon": 1.5}),
    "correlation": Leaky(correlated, {"epsilon": 1.0}),
    "variance": Leaky(louder, {"epsilon": 1.0}),
    "a key that appears": Leaky(key, {"epsilon": 1.0, "delta": 0.0049}),
    "padded with NaN": Leaky(padded, {"epsilon": 1.0}, settings={"nonfinite": "event"}),
    "histogram": Leaky(histogram, {"epsilon": 0.5}),
    "noisy maximum": Leaky(noisy_maximum, {"epsilon": 0.7}),
    "bounded noise": Leaky(bounded_noise, {"epsilon": 1.0}),
    "lattice": Leaky(lattice, {"epsilon": 1.0}),
    "angle": Leaky(angle, {"epsilon": 0.7}),
    "outlier": Leaky(outlier, {"epsilon": 1.0}),
    "sparse vector": Leaky(sparse_vector, {"epsilon": 0.5}),
    "shuffled records": Leaky(shuffled, {"epsilon": 0.8}),
    "frequent output": Leaky(frequent, {"epsilon": 1.0}),
    "stop early": Leaky(laplace, {"epsilon": 0.5}, settings={"stop_early": True}),
}


def outcome(leaky: Leaky, size: str, seed: int) -> str:
    """Return "passed", "too weak" or "refuted"."""
    select_runs, test_runs = SIZES[size]
    options = {"select_runs": select_runs, "test_runs": test_runs, "seed": seed, **leaky.settings}
    try:
        dpv.assert_private(leaky.mechanism, *leaky.data, **leaky.claim, **options)
    except dpv.TooWeak:
        return "too weak"
    except AssertionError:
        return "refuted"
    return "passed"


@pytest.mark.parametrize("name", LEAKY)
def test_a_false_claim_never_passes_with_few_runs(name):
    assert {outcome(LEAKY[name], "small", seed) for seed in (0, 1)} <= {"refuted", "too weak"}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", LEAKY)
def test_a_false_claim_never_passes(name, size):
    assert {outcome(LEAKY[name], size, seed) for seed in range(SEEDS)} <= {"refuted", "too weak"}


def test_a_small_p_value_above_alpha_does_not_pass():
    """The p-value is 5e-6: it refutes the claim at any ordinary level, but not at one in a million."""
    assert outcome(LEAKY["Laplace steps"], "middle", 9) == "too weak"


def test_a_true_claim_passes_with_enough_runs():
    """A test that never passes would not have failed above."""
    leaky = Leaky(laplace, {"epsilon": 1.2})
    assert outcome(leaky, "default", 0) == "passed"


if __name__ == "__main__":
    for name, leaky in LEAKY.items():
        found = {size: [outcome(leaky, size, seed) for seed in range(SEEDS)] for size in SIZES}
        counts = {size: {what: list_.count(what) for what in dict.fromkeys(list_)} for size, list_ in found.items()}
        print(f"{name:22} {counts}", flush=True)
