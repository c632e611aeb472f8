"""The faithful W2-MHE beside the plain one and, at s = 1, beside CasADi: the paper's set-up, one run, ratios.

T 8, window 5, ten sensors, s .8, tau 1.4e-5. `--gpu` times large blocks on whatever device JAX finds, without CasADi.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import numpy as np
from plain_mhe import casadi_sqp, plain

from dpverify.estimation import W2MHE, oscillator, simulate
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64

WINDOW, S, TAU = 5, 0.8, 1.4e-5


def rate(draw, runs, seconds):
    """Runs a second; the first call, which compiles, is left out."""
    jax.block_until_ready(draw())
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(4):
            last = draw()
        jax.block_until_ready(last)
        calls += 4
    return calls * runs / (time.perf_counter() - start)


def faithful(system, data, runs, seconds):
    mechanism, rng = W2MHE(system, WINDOW, S, TAU), np.random.default_rng(0)
    return rate(lambda: mechanism(data, runs, rng), runs, seconds)


def simple(system, data, runs, seconds):
    with enable_x64():
        rows, rng = np.stack([data[k : k + WINDOW + 1] for k in range(len(data) - WINDOW)]), np.random.default_rng(0)
        block = plain(system, WINDOW, S, TAU)
        return rate(lambda: block(jax_key(rng), runs, rows), runs, seconds)


def by_casadi(system, data, seconds):
    trajectory = casadi_sqp(system, WINDOW, TAU)
    ours = W2MHE(system, WINDOW, 1.0, TAU).deterministic(data)
    assert np.abs(trajectory(data) - ours).max() < 1e-6, "CasADi solves another problem"
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        trajectory(data)
        calls += 1
    return calls / (time.perf_counter() - start)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--gpu", action="store_true")
    options.add_argument("--rounds", type=int, default=3)
    options = options.parse_args()
    system = oscillator()
    data = simulate(system, np.random.default_rng(0)).data
    known = W2MHE(system, WINDOW, S, TAU).faithfulness(data)
    print(f"{jax.devices()[0].device_kind}: {known.method}, certified {known.certified}, M <= {max(known.M):.5f}")
    if options.gpu:
        for bits in (18, 20, 22):
            rates = [faithful(system, data, 1 << bits, 1.5) for _ in range(options.rounds)]
            print(f"faithful, blocks of 2^{bits}: {statistics.median(rates):.3g} runs/s, at least {min(rates):.3g}")
        rates = [simple(system, data, 1 << 18, 1.5) for _ in range(options.rounds)]
        print(f"plain, blocks of 2^18: {statistics.median(rates):.3g} runs/s")
        return
    against_plain, against_casadi = [], []
    for _ in range(options.rounds):
        ours, simplest = faithful(system, data, 1 << 13, 2.0), simple(system, data, 1 << 13, 4.0)
        sqp = by_casadi(system, data, 2.0)
        print(f"faithful {ours:.3g}, plain {simplest:.3g}, CasADi's SQP at s = 1 {sqp:.3g} runs/s")
        against_plain.append(ours / simplest)
        against_casadi.append(ours / sqp)
    print(f"faithful / plain: {statistics.median(against_plain):.1f}")
    print(f"faithful / CasADi's SQP: {statistics.median(against_casadi):.1f}")


if __name__ == "__main__":
    main()
