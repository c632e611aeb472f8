"""Measures certificates over all events: how tight they are, how often they miss, which wrong densities are noticed.

Part `tight`: upper bounds on delta, and lower bounds, divided by the exact delta. Part `coverage`: how often a bound is
below the truth at one of several epsilons, over many seeds. Part `wrong`: in how many of many seeds a density that is
wrong by some error has no answer, is certified, or neither, for a claim that the truth violates. Part `slack`: a claim
with some slack in epsilon, with the density and without.

Run: python benchmarks/bench_certificate.py [--part NAME] [--runs N] [--seeds N] (all parts: about twenty minutes)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import binom

import dpverify as dpv
from dpverify.estimation import W2MHE, Normal, PrivateKalman, System, adjacent_recordings, oscillator

DELTAS = (1e-2, 1e-4)
EPSILONS = (0.0, 0.5, 1.0, 2.0, 3.0)
LAPLACE_SHIFTS = np.array([0.7, 0.5, 0.3])
CHAIN_STEPS, CHAIN_GAIN = 20, 0.8


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the exact delta of two normal distributions whose means are mu standard deviations apart."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def laplace_delta(epsilon: float, points: int = 200_001) -> float:
    """Return the exact delta of independent Laplace noise, from the distribution of the loss of each coordinate."""
    step = 2 * LAPLACE_SHIFTS.sum() / (points - 1)
    size = 1 << math.ceil(math.log2(points))
    transform = np.ones(size // 2 + 1, complex)
    for shift in LAPLACE_SHIFTS:
        # The loss is the shift with probability 1/2, its negative with e^-shift / 2, and continuous between them.
        loss = np.arange(-round(shift / step), round(shift / step) + 1)
        density = 0.25 * np.exp((loss * step - shift) / 2) * step
        density[[0, -1]] = density[[0, -1]] / 2 + [0.5 * math.exp(-shift), 0.5]
        mass = np.zeros(size)
        np.add.at(mass, loss % size, density)
        transform *= np.fft.rfft(mass)
    mass = np.fft.irfft(transform, size)
    losses = np.where(np.arange(size) < size // 2, np.arange(size), np.arange(size) - size) * step
    return float((mass * np.maximum(-np.expm1(epsilon - losses), 0)).sum())


class Shift:
    """Two numbers with Gaussian noise; the density may state another noise, and leave the correlation out."""

    name = "Gaussian shift"
    first, second = 0.0, 1.0

    def __init__(self, stated: float = 1.0, correlation: float = 0.0, family: str = "gaussian") -> None:
        self.stated, self.family = stated, family
        self.factor = np.linalg.cholesky([[1.0, correlation], [correlation, 1.0]])
        self.mu = math.sqrt(1 / (1 - correlation**2))

    def __call__(self, data: float, runs: int, rng: np.random.Generator) -> np.ndarray:
        return np.array([data, 0.0]) + rng.standard_normal((runs, 2)) @ self.factor.T

    def log_density(self, data: float, samples: np.ndarray) -> np.ndarray:
        x = (samples[:, 0] - np.array([data, 0.0])) / self.stated
        return -np.abs(x).sum(1) * math.sqrt(2) if self.family == "laplace" else -0.5 * (x**2).sum(1)

    def delta(self, epsilon: float) -> float:
        return gaussian_delta(self.mu, epsilon)


class LaplaceVector:
    """Three numbers with Laplace noise."""

    name = "Laplace vector"
    first, second = np.zeros(3), LAPLACE_SHIFTS

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        return data + rng.laplace(size=(runs, 3))

    def log_density(self, data: np.ndarray, samples: np.ndarray) -> np.ndarray:
        return -np.abs(samples[:, 0] - data).sum(1)

    def delta(self, epsilon: float) -> float:
        return laplace_delta(epsilon)


class Chain:
    """A chain of 20 steps: each output is a part of the one before, plus the data, plus noise.

    In step 7 the noise may be smaller than stated.
    """

    name = "chain of 20 steps"

    def __init__(self, bug: float = 1.0) -> None:
        self.first = np.zeros(CHAIN_STEPS)
        self.second = np.where(np.arange(CHAIN_STEPS) % 5 == 2, 0.5, 0.0)
        self.noise = np.where(np.arange(CHAIN_STEPS) == 7, bug, 1.0)

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        x, output = np.zeros(runs), np.empty((runs, CHAIN_STEPS, 1))
        for step, value in enumerate(data):
            x = CHAIN_GAIN * x + value + self.noise[step] * rng.standard_normal(runs)
            output[:, step, 0] = x
        return output

    def log_density(self, data: np.ndarray, samples: np.ndarray) -> np.ndarray:
        x = samples[:, :, 0]
        before = np.concatenate([np.zeros((len(x), 1)), CHAIN_GAIN * x[:, :-1]], axis=1)
        return -0.5 * ((x - before - data) ** 2).sum(1)

    def delta(self, epsilon: float) -> float:
        return gaussian_delta(float(np.linalg.norm((self.second - self.first) / self.noise)), epsilon)


class Uniform:
    """Two numbers with uniform noise; no epsilon removes their delta."""

    name = "uniform noise"
    first, second = np.zeros(2), np.array([0.02, 0.03])

    def __call__(self, data: np.ndarray, runs: int, rng: np.random.Generator) -> np.ndarray:
        return data + rng.uniform(-1.0, 1.0, (runs, 2))

    def log_density(self, data: np.ndarray, samples: np.ndarray) -> np.ndarray:
        return np.where(np.abs(samples[:, 0] - data).max(1) <= 1 + 1e-9, 0.0, -np.inf)

    def delta(self, epsilon: float) -> float:
        return 1 - float(np.prod(1 - np.abs(self.second - self.first) / 2))


class Case(NamedTuple):
    """A mechanism with a pair of datasets and its exact delta."""

    mechanism: Any
    first: Any
    second: Any
    delta: Callable[[float], float]

    @property
    def name(self) -> str:
        return self.mechanism.name


def case(mechanism: Any) -> Case:
    """Return the case of a mechanism of this file."""
    return Case(mechanism, mechanism.first, mechanism.second, mechanism.delta)


def kalman(where: str) -> Case:
    """Return a private Kalman filter."""
    system = System(
        A=[[1.0, 0.1], [0.0, 0.95]], C=[[1.0, 0.0]], start=(0.0, 0.0), noise=Normal(0.5), initial=Normal(1.0)
    )
    mechanism = PrivateKalman(system, {"output": 0.5, "input": 1.0}[where], where=where, name=f"PrivateKalman, {where}")
    first = np.zeros((20, 1))
    second = np.where(np.arange(20)[:, None] == 4, 1.0, first)
    return Case(mechanism, first, second, mechanism.truth(first, second).delta)


def blend(delta: float) -> Case:
    """Return the blend W2-MHE of the paper's system, with data so far apart that delta is this at every epsilon."""
    system = oscillator()
    mechanism = W2MHE(system, 5, 0.8, 1.4e-5, law="blend", name=f"blend W2-MHE, delta {delta:g}")

    def pair(distance: float) -> tuple[np.ndarray, np.ndarray]:
        first, second, _ = adjacent_recordings(system, system.h, 0, distance, np.random.default_rng(0))
        return first, second

    def exact(first: np.ndarray, second: np.ndarray) -> float:
        """Return the probability that a run of the first dataset is impossible with the second."""
        released = list(system.released)
        shift = (mechanism.deterministic(first) - mechanism.deterministic(second))[:, released]
        support = mechanism.sets(len(shift))
        width = 2 * (1 - mechanism.s) * np.asarray(support.radius)[:, None] / math.sqrt(system.states)
        return 1 - float(np.prod(np.maximum(1 - mechanism.s * np.abs(shift) / width, 0.0)))

    first, second = pair(brentq(lambda distance: exact(*pair(distance)) - delta, 1e-6, 10.0, xtol=1e-9))
    truth = exact(first, second)
    return Case(mechanism, first, second, lambda epsilon: truth)


def epsilon_at(delta_of: Callable[[float], float], delta: float) -> float:
    """Return the exact epsilon at a delta."""
    return float(brentq(lambda epsilon: delta_of(epsilon) - delta, 0.0, 60.0))


def part_tight(runs: int, seeds: int) -> None:
    """Print bounds on delta divided by the exact delta, at five epsilons: the mean, and the largest upper bound."""
    cases = [case(Shift()), case(LaplaceVector()), case(Chain()), kalman("output"), kalman("input")]
    deltas = (0.05, 1e-2, 1e-3, 1e-4, 1e-5) if runs > 10**6 else (0.1, 0.05, 1e-2, 1e-3, 1e-4)
    flat = [blend(delta) for delta in (deltas[-1], deltas[-2], 1e-2)]
    for one in [*cases, *flat]:
        epsilons = EPSILONS if one in flat else [epsilon_at(one.delta, delta) for delta in deltas]
        ratios = np.zeros((seeds, len(epsilons), 2))
        for seed in range(seeds):
            report = dpv.verify(one.mechanism, one.first, one.second, delta=deltas[-2], test_runs=runs, seed=seed)
            assert report.certificate is not None
            for number, epsilon in enumerate(epsilons):
                bounds = report.delta_lower(epsilon) or 0.0, report.certificate.delta_upper(epsilon)
                ratios[seed, number] = np.array(bounds) / one.delta(epsilon)
        for epsilon, (low, high), worst in zip(epsilons, ratios.mean(0), ratios[:, :, 1].max(0), strict=True):
            print(
                f"{one.name}: epsilon {epsilon:.4f}, delta {one.delta(epsilon):.3g}: delta_lower {low:.3f}, "
                f"delta_upper {high:.3f} of the truth (largest {worst:.3f})",
                flush=True,
            )


def part_coverage(seeds: int) -> None:
    """Print in how many seeds the certificate, or one of the two bounds, is wrong at one of the epsilons."""
    small = {"select_runs": 400, "test_runs": 2000, "block": 500, "partition": "grid"}
    for mechanism in (Shift(), LaplaceVector(), Chain(), Uniform()):
        truth = [mechanism.delta(epsilon) for epsilon in EPSILONS]
        upper = joint = 0
        for seed in range(seeds):
            report = dpv.verify(mechanism, mechanism.first, mechanism.second, delta=0.01, seed=seed, **small)
            if report.certificate is None:
                continue
            is_low = any(report.certificate.delta_upper(e) < d for e, d in zip(EPSILONS, truth, strict=True))
            is_high = (report.delta_lower(0.5) or 0.0) > mechanism.delta(0.5)
            upper, joint = upper + is_low, joint + (is_low or is_high)
        limits = [int(binom.ppf(0.999, seeds, level)) for level in (0.05, 0.1)]
        print(
            f"{mechanism.name}: certificate below the truth in {upper} of {seeds} (limit {limits[0]}), one of both "
            f"bounds wrong in {joint} (limit {limits[1]})",
            flush=True,
        )


def part_wrong(runs: int, seeds: int) -> None:
    """Print what becomes of claims that are 5% below the true delta, under wrong densities."""
    cases: dict[str, Any] = {f"noise stated {100 * (s - 1):+.0f}%": Shift(s) for s in (1.02, 1.05, 1.1, 1.2)}
    cases |= {"Laplace stated, Gaussian drawn": Shift(family="laplace"), "correlation 0.9 left out": Shift(1.0, 0.9)}
    cases |= {"correlation 0.5 left out": Shift(1.0, 0.5), "step 7 of the chain has 0.8 of the noise": Chain(0.8)}
    cases |= {"step 7 of the chain has 0.5 of the noise": Chain(0.5), "no error": Shift()}
    for name, mechanism in cases.items():
        epsilon = 1.0
        claimed = 0.95 * mechanism.delta(epsilon)
        verdicts: dict[str, int] = {}
        for seed in range(seeds):
            report = dpv.verify(
                mechanism,
                mechanism.first,
                mechanism.second,
                epsilon,
                claimed,
                test_runs=runs,
                select_runs=20_000,
                seed=seed,
            )
            verdicts[report.verdict.name] = verdicts.get(report.verdict.name, 0) + 1
        print(f"{name}, {runs} runs: {verdicts}", flush=True)


def part_slack(seeds: int) -> None:
    """Print how many runs certify a claim with 10% slack in epsilon, and what the verdict is without the density."""
    for mechanism in (Shift(), LaplaceVector(), Chain()):
        for delta in DELTAS:
            claim = 1.1 * epsilon_at(mechanism.delta, delta), delta
            pair = mechanism.first, mechanism.second
            reports = [
                dpv.verify(mechanism, *pair, *claim, stop_early=True, test_runs=4_000_000, seed=seed)
                for seed in range(seeds)
            ]
            without = dpv.verify(lambda d, r, g, m=mechanism: m(d, r, g), *pair, *claim, test_runs=10**6)
            runs = sorted(report.runs_used or 0 for report in reports)
            print(
                f"{mechanism.name}, delta {delta:g}: {sorted({r.verdict.name for r in reports})} after {runs[0]} to "
                f"{runs[-1]} runs; without the density, 10^6 runs: {without.verdict.name}",
                flush=True,
            )


def main() -> None:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("tight", "coverage", "wrong", "slack"))
    parser.add_argument("--runs", type=float, default=1e6)
    parser.add_argument("--seeds", type=int)
    chosen = parser.parse_args()
    runs = int(chosen.runs)
    if chosen.part in (None, "tight"):
        part_tight(runs, chosen.seeds or 5)
    if chosen.part in (None, "coverage"):
        part_coverage(chosen.seeds or 2000)
    if chosen.part in (None, "wrong"):
        part_wrong(runs, chosen.seeds or 20)
    if chosen.part in (None, "slack"):
        part_slack(chosen.seeds or 5)


if __name__ == "__main__":
    main()
