"""The private EKF beside filterpy's, on the paper's data: runs a second, in one run, by turns.

filterpy runs in one thread, as a user's loop would; ours in one thread, and in two as `executor=ThreadPoolExecutor(2)`
would draw it.
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # 20 x 20 matrices: threads only slow filterpy down

import numpy as np

from dpverify.estimation import PrivateEKF, oscillator, simulate

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from filterpy.kalman import ExtendedKalmanFilter


def filterpy_run(system, data, places, P, Q, R, shocks):
    """One run of the same mechanism with filterpy: its filter, our noise at each update."""

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
        kalman.x = kalman.x + shocks[k]
        estimates.append(kalman.x[:2])
    return estimates


def main():
    system = oscillator()
    data = simulate(system, np.random.default_rng(0)).data
    P, Q = system.initial.variance * np.eye(4), np.diag(system.disturbance.variance)
    R, places = system.noise.variance * np.eye(20), system.h.places
    mechanism = PrivateEKF(system, 0.99)
    rng = np.random.default_rng(1)

    def theirs(runs=200):
        for shocks in rng.random((runs, 9, 4)) / 99:
            filterpy_run(system, data, places, P, Q, R, shocks)
        return runs

    def draw(seed):
        mechanism(data, mechanism.block, np.random.default_rng(seed)).block_until_ready()
        return mechanism.block

    def one():
        return sum(map(draw, range(8)))

    def two():
        with ThreadPoolExecutor(2) as pool:
            return sum(pool.map(draw, range(8)))

    ways = {"filterpy": theirs, "one thread": one, "two threads": two}
    draw(0)  # compile
    rates = {name: [] for name in ways}
    for _ in range(7):
        for name, way in ways.items():
            start = time.perf_counter()
            runs = way()
            rates[name].append(runs / (time.perf_counter() - start))
    for name, found in rates.items():
        ratio = statistics.median(r / f for r, f in zip(found, rates["filterpy"], strict=True))
        print(f"{name:12} {statistics.median(found):10.0f} runs/s (best {max(found):.0f}), {ratio:.0f} times filterpy")


if __name__ == "__main__":
    main()
