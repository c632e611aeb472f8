"""Compares the private EKF with filterpy on the paper's data, in runs per second.

filterpy runs in one thread, as in a user's loop. Ours runs in one thread, and in two threads as with
`executor=ThreadPoolExecutor(2)`. The three are measured in turn, seven times.

Run: python benchmarks/bench_ekf.py (about a minute; needs filterpy).
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # with 20 x 20 matrices, threads slow filterpy down

import numpy as np

from dpverify.estimation import PrivateEKF, oscillator, simulate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from filterpy.kalman import ExtendedKalmanFilter

ROUNDS, BLOCKS = 7, 8


def run_filterpy(system, data, places, P, Q, R, noise):
    """Run the same mechanism once with filterpy's filter, adding our noise at each update."""

    def h(x):
        return 100 * np.tanh(0.1 * (x[:2] - places)).reshape(-1)

    def H(x):
        slope = 10 * (1 - np.tanh(0.1 * (x[:2] - places)) ** 2)
        jacobian = np.zeros((20, 4))
        jacobian[0::2, 0], jacobian[1::2, 1] = slope.T
        return jacobian

    kalman = ExtendedKalmanFilter(4, 20)
    kalman.x, kalman.F, kalman.P, kalman.Q, kalman.R = np.array(system.start), system.A, P, Q, R
    estimates = []
    for k, y in enumerate(data):
        if k:
            kalman.predict()
        kalman.update(y, H, h)
        kalman.x = kalman.x + noise[k]
        estimates.append(kalman.x[:2])
    return estimates


def main():
    """Print the rate of each implementation, and its ratio to filterpy."""
    system = oscillator()
    data = simulate(system, np.random.default_rng(0)).data
    P, Q = system.initial.variance * np.eye(4), np.diag(system.disturbance.variance)
    R, places = system.noise.variance * np.eye(20), system.h.places
    mechanism = PrivateEKF(system, 0.99)
    rng = np.random.default_rng(1)

    def with_filterpy(runs=200):
        for noise in rng.random((runs, 9, 4)) / 99:
            run_filterpy(system, data, places, P, Q, R, noise)
        return runs

    def draw_block(seed):
        mechanism(data, mechanism.block, np.random.default_rng(seed)).block_until_ready()
        return mechanism.block

    def with_one_thread():
        return sum(map(draw_block, range(BLOCKS)))

    def with_two_threads():
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(draw_block, range(BLOCKS)))

    implementations = {"filterpy": with_filterpy, "one thread": with_one_thread, "two threads": with_two_threads}
    draw_block(0)  # compiles
    rates = {name: [] for name in implementations}
    for _ in range(ROUNDS):
        for name, implementation in implementations.items():
            start = time.perf_counter()
            runs = implementation()
            rates[name].append(runs / (time.perf_counter() - start))
    for name, own in rates.items():
        ratio = statistics.median(rate / base for rate, base in zip(own, rates["filterpy"], strict=True))
        print(f"{name:12} {statistics.median(own):10.0f} runs/s (best {max(own):.0f}), {ratio:.0f} times filterpy")


if __name__ == "__main__":
    main()
