"""The paper's W2-MHE verified where JAX draws it: seconds for very many runs, device memory, the same cells as here.

    python benchmarks/bench_device.py                  10^9 test runs a side, on whatever device JAX finds
    python benchmarks/bench_device.py --runs 1e7       fewer

One verification of few runs goes first, so that all is compiled. Bare drawing of the same number of runs is timed in
the same process.
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


def bare_seconds(mechanism, pair, runs, block):
    """Drawing so many runs a side in such blocks, from a second's worth."""
    blocks = max(8, int(2e7) // block)
    source = SampleSource(mechanism, pair, 0, block)
    jax.block_until_ready(call_mechanism(source, "test", 0, 0))
    start = time.perf_counter()
    for b in range(blocks):
        last = call_mechanism(source, "test", b % 2, b)
    jax.block_until_ready(last)
    return (time.perf_counter() - start) / (blocks * block) * 2 * runs


def other_cells(mechanism, data, partition, runs=10**6):
    """Of runs drawn with the same keys on this device and on the processor, how many lie in another cell."""
    block = 1 << 16
    moved = 0
    for b in range(-(-runs // block)):
        codes = []
        for device in (jax.devices()[0], jax.devices("cpu")[0]):
            with jax.default_device(device), enable_x64():
                answer = mechanism(data, block, np.random.default_rng(b))
                assert answer.devices() == {device}
                codes.append(cell_codes(partition, answer))
        moved += int((codes[0] != codes[1]).sum())
    return moved / (block * -(-runs // block))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=float, default=1e9)
    options.add_argument("--block", type=int)
    options = options.parse_args()
    runs, device = int(options.runs), jax.devices()[0]
    system = oscillator()
    first, second, _ = adjacent_recordings(system, system.h, 0, 10.0, np.random.default_rng(0))
    mechanism = W2MHE(system, 5, 0.8, 1.4e-5)
    settings = dpv.Settings(block=options.block)
    dpv.verify(mechanism, first, second, settings=settings, test_runs=1 << 21)
    start = time.perf_counter()
    report = dpv.verify(mechanism, first, second, settings=settings, test_runs=runs)
    seconds = time.perf_counter() - start
    bare = bare_seconds(mechanism, (first, second), runs, report.settings.block)
    stages = ", ".join(f"{name} {value:.2f}" for name, value in report.run["seconds"].items())
    print(f"{device.device_kind}: 2 x {runs:.0e} test runs in blocks of {report.settings.block}")
    print(f"{seconds:.1f} s ({stages})")
    print(f"{seconds / bare:.3f} times drawing as many runs ({2 * runs / bare:.3g} runs/s)")
    memory = device.memory_stats() or {}
    if "peak_bytes_in_use" in memory:
        print(f"peak device memory {memory['peak_bytes_in_use'] / 1e9:.2f} GB")
    print(report)
    if device.platform != "cpu":
        share = other_cells(mechanism, first, report.witness.event.partition)
        print(f"10^6 runs with the same keys here and on the processor: {share:.2g} of them in another cell")


if __name__ == "__main__":
    main()
