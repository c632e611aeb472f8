"""Compares the faithful sampler of the W2-MHE with a plain one and, at s = 1, with CasADi: rates and their ratios.

The set-up is the paper's: T = 8, window 5, ten sensors, s 0.8, tau 1.4e-5.

Run: python benchmarks/bench_mhe.py (about a minute; needs casadi).
On a GPU, with large blocks and without CasADi: --gpu.
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
CALLS_PER_MEASUREMENT = 4


def runs_per_second(draw, runs, seconds):
    """Return the rate of `draw`, which draws `runs` runs; the first call, which compiles, is not measured."""
    jax.block_until_ready(draw())
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(CALLS_PER_MEASUREMENT):
            last = draw()
        jax.block_until_ready(last)
        calls += CALLS_PER_MEASUREMENT
    return calls * runs / (time.perf_counter() - start)


def faithful_rate(system, data, runs, seconds):
    """Return the rate of the library's sampler."""
    mechanism, rng = W2MHE(system, WINDOW, S, TAU), np.random.default_rng(0)
    return runs_per_second(lambda: mechanism(data, runs, rng), runs, seconds)


def plain_rate(system, data, runs, seconds):
    """Return the rate of the plain sampler."""
    with enable_x64():
        windows = np.stack([data[k : k + WINDOW + 1] for k in range(len(data) - WINDOW)])
        rng = np.random.default_rng(0)
        block = plain(system, WINDOW, S, TAU)
        return runs_per_second(lambda: block(jax_key(rng), runs, windows), runs, seconds)


def casadi_rate(system, data, seconds):
    """Return the rate of CasADi's SQP method, after a check that it solves the same problem."""
    trajectory = casadi_sqp(system, WINDOW, TAU)
    ours = W2MHE(system, WINDOW, 1.0, TAU).deterministic(data)
    assert np.abs(trajectory(data) - ours).max() < 1e-6, "CasADi solves another problem"
    calls, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        trajectory(data)
        calls += 1
    return calls / (time.perf_counter() - start)


def print_gpu_rates(system, data, rounds):
    """Print rates for large blocks."""
    for exponent in (18, 20, 22):
        rates = [faithful_rate(system, data, 1 << exponent, 1.5) for _ in range(rounds)]
        print(f"faithful, blocks of 2^{exponent}: {statistics.median(rates):.3g} runs/s, at least {min(rates):.3g}")
    rates = [plain_rate(system, data, 1 << 18, 1.5) for _ in range(rounds)]
    print(f"plain, blocks of 2^18: {statistics.median(rates):.3g} runs/s")


def main():
    """Print the rates of each round, and the median ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="large blocks, without CasADi")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    system = oscillator()
    data = simulate(system, np.random.default_rng(0)).data
    faithfulness = W2MHE(system, WINDOW, S, TAU).faithfulness(data)
    print(
        f"{jax.devices()[0].device_kind}: {faithfulness.method}, certified {faithfulness.certified}, "
        f"M <= {max(faithfulness.M):.5f}"
    )
    if options.gpu:
        print_gpu_rates(system, data, options.rounds)
        return
    plain_ratios, casadi_ratios = [], []
    for _ in range(options.rounds):
        faithful = faithful_rate(system, data, 1 << 13, 2.0)
        simple = plain_rate(system, data, 1 << 13, 4.0)
        sqp = casadi_rate(system, data, 2.0)
        print(f"faithful {faithful:.3g}, plain {simple:.3g}, CasADi's SQP at s = 1 {sqp:.3g} runs/s")
        plain_ratios.append(faithful / simple)
        casadi_ratios.append(faithful / sqp)
    print(f"faithful / plain: {statistics.median(plain_ratios):.1f}")
    print(f"faithful / CasADi's SQP: {statistics.median(casadi_ratios):.1f}")


if __name__ == "__main__":
    main()
