"""Measures a verification of the paper's W2-MHE on the device that JAX uses: time, device memory, equality of cells.

A verification with few runs goes first, so that compilation is not measured. The time is compared with drawing the same
number of runs in the same process.

Run: python benchmarks/bench_device.py (10^9 test runs per data set; about a minute on an H200).
Fewer runs: --runs 1e7.
"""

from __future__ import annotations

import argparse
import time

import jax
import numpy as np

import dpverify as dpv
from dpverify.estimation import W2MHE, adjacent_recordings, oscillator
from dpverify.sampling.blocks import SampleSource, call_mechanism
from dpverify.util.arrays import cell_codes, enable_x64

COMPARISON_BLOCK = 1 << 16


def drawing_seconds(mechanism, pair, runs, block):
    """Estimate the time to draw `runs` runs per data set in blocks, from at least eight blocks."""
    blocks = max(8, int(2e7) // block)
    source = SampleSource(mechanism, pair, 0, block)
    jax.block_until_ready(call_mechanism(source, "test", 0, 0))
    start = time.perf_counter()
    for number in range(blocks):
        last = call_mechanism(source, "test", number % 2, number)
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / (blocks * block) * 2 * runs


def share_in_other_cells(mechanism, data, partition, runs=10**6):
    """Return the share of runs, drawn with the same keys on the device and on the CPU, that lie in different cells."""
    blocks = -(-runs // COMPARISON_BLOCK)
    different = 0
    for number in range(blocks):
        codes = []
        for device in (jax.devices()[0], jax.devices("cpu")[0]):
            with jax.default_device(device), enable_x64():
                samples = mechanism(data, COMPARISON_BLOCK, np.random.default_rng(number))
                assert samples.devices() == {device}
                codes.append(cell_codes(partition, samples))
        different += int((codes[0] != codes[1]).sum())
    return different / (COMPARISON_BLOCK * blocks)


def main():
    """Print the times, the memory and the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=float, default=1e9, help="test runs per data set")
    parser.add_argument("--block", type=int, help="block size")
    options = parser.parse_args()
    runs, device = int(options.runs), jax.devices()[0]
    system = oscillator()
    first, second, _ = adjacent_recordings(system, system.h, 0, 10.0, np.random.default_rng(0))
    mechanism = W2MHE(system, 5, 0.8, 1.4e-5)
    settings = dpv.Settings(block=options.block)
    dpv.verify(mechanism, first, second, settings=settings, test_runs=1 << 21)  # compiles
    start = time.perf_counter()
    report = dpv.verify(mechanism, first, second, settings=settings, test_runs=runs)
    seconds = time.perf_counter() - start
    drawing = drawing_seconds(mechanism, (first, second), runs, report.settings.block)
    stages = ", ".join(f"{name} {value:.2f}" for name, value in report.run["seconds"].items())
    print(f"{device.device_kind}: 2 x {runs:.0e} test runs in blocks of {report.settings.block}")
    print(f"{seconds:.1f} s ({stages})")
    print(f"{seconds / drawing:.3f} times the time to draw as many runs ({2 * runs / drawing:.3g} runs/s)")
    memory = device.memory_stats() or {}
    if "peak_bytes_in_use" in memory:
        print(f"peak device memory {memory['peak_bytes_in_use'] / 1e9:.2f} GB")
    print(report)
    if device.platform != "cpu":
        share = share_in_other_cells(mechanism, first, report.witness.event.partition)
        print(f"10^6 runs with the same keys on the device and on the CPU: {share:.2g} of them in different cells")


if __name__ == "__main__":
    main()
