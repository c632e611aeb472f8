"""Measures the estimators and a long verification on the device that JAX uses, as rates and ratios.

The parts are: draws of the paper's W2-MHE compared with a bare skeleton (the same random numbers, affine maps and
squeeze test, but no second draws), of the EKF and of the KL-MHE; a verification with 10^9 test runs per dataset from a
cold process, with its compilations, and after compilation; runs that lie in another cell than on the CPU; and the tests
of the samplers. With --variants: only the rates and the first calls for other sizes of blocks and batches.

Run: python benchmarks/bench_device.py (some minutes on an H200).
Fewer runs: --runs 1e7. Without the tests of the samplers: --no-tests. On a CPU use both.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dpverify as dpv
from dpverify.estimation import KLMHE, W2MHE, PrivateEKF, adjacent_recordings, oscillator, particles
from dpverify.mechanisms.wrappers import jax_key
from dpverify.sampling.blocks import SampleSource, call_mechanism
from dpverify.util.arrays import cell_codes, enable_x64

COMPARISON_BLOCK = 1 << 16
MEASURED_SECONDS = 2.0
SLOWEST_SHOWN = 10  # compilations of a cold process
SAMPLER_TESTS = ("test_gibbs_sampler.py", "test_particle.py")  # test_kalman.py needs filterpy, which it compares
FOLDER = Path(__file__).resolve().parent


def paper_pair():
    """Return the paper's system and a pair of datasets."""
    system = oscillator()
    first, second, _ = adjacent_recordings(system, system.h, 0, 10.0, np.random.default_rng(0))
    return system, first, second


def runs_per_second(draw, block):
    """Return the rate of `draw(number)`, which draws a block.

    The first two calls are not measured: they compile, and compute the sampler's plan for each of the two datasets.
    """
    jax.block_until_ready([draw(0), draw(1)])
    number, start = 0, time.perf_counter()
    while time.perf_counter() - start < MEASURED_SECONDS:
        outputs = [draw(number + i) for i in range(4)]
        jax.block_until_ready(outputs)
        number += 4
    return number * block / (time.perf_counter() - start)


def mechanism_rate(mechanism, pair, block=None):
    """Return the rate at which the library draws the test blocks of both datasets."""
    block = block or mechanism.block
    source = SampleSource(mechanism, pair, 0, block)
    return runs_per_second(lambda number: call_mechanism(source, "test", number % 2, number), block)


def print_variants(system, pair):
    """Print the first call and the rate of the moving-horizon estimators for other sizes of blocks and batches."""
    w2mhe, klmhe = W2MHE(system, 5, 0.8, 1.4e-5), KLMHE(system, 5, 0.8)
    for data in pair:
        w2mhe(data, 1 << 10, np.random.default_rng(0))  # computes the plan
    batch = particles.PARTICLES_PER_DEVICE_BATCH
    variants = [(w2mhe, w2mhe.block >> 1, batch), (w2mhe, w2mhe.block, batch), (w2mhe, w2mhe.block << 1, batch)]
    variants += [(klmhe, klmhe.block, number) for number in (batch >> 1, batch << 1)]
    for mechanism, block, number in variants:
        particles.PARTICLES_PER_DEVICE_BATCH = number
        jax.clear_caches()
        start = time.perf_counter()
        jax.block_until_ready(mechanism(pair[0], block, np.random.default_rng(0)))
        first = time.perf_counter() - start
        rate = mechanism_rate(mechanism, pair, block)
        batches = f", batches of {number} particles" if mechanism is klmhe else ""
        print(f"{mechanism.name}, blocks of {block}{batches}: first call {first:.1f} s, {rate:.3g} runs/s", flush=True)
    particles.PARTICLES_PER_DEVICE_BATCH = batch


def skeleton_rate(block, steps=4, states=4):
    """Return the rate of the skeleton: normals, uniforms, affine maps and a squeeze test at each step."""
    rng = np.random.default_rng(0)
    gains, roots, step_maps = (rng.standard_normal((3, states, states)) / 10).tolist()

    def affine(matrix, rows):
        return [sum(a * x for a, x in zip(row, rows, strict=True)) for row in matrix]

    @jax.jit
    def draw(key):
        rows = [jnp.full(block, 0.1 * i) for i in range(states)]
        released = []
        for step_key in jax.random.split(key, steps):
            noise_key, uniform_key = jax.random.split(step_key)
            noise = list(jax.random.normal(noise_key, (states, block)))
            d = [a + b for a, b in zip(affine(gains, rows), affine(roots, noise), strict=True)]
            square = sum(x * x for x in d)
            accepted = jax.random.uniform(uniform_key, (block,)) < 1 - 1e-3 * square * (1 + jnp.sqrt(square))
            released.append(jnp.stack([jnp.where(accepted, x, jnp.nan) for x in d[:2]]))
            rows = affine(step_maps, d)
        return jnp.transpose(jnp.stack(released), (2, 0, 1))

    with enable_x64():
        return runs_per_second(lambda number: draw(jax_key(np.random.default_rng(number))), block)


def long_verification(runs):
    """Verify the W2-MHE with the default settings; return the report and the seconds."""
    system, first, second = paper_pair()
    mechanism = W2MHE(system, 5, 0.8, 1.4e-5)
    start = time.perf_counter()
    report = dpv.verify(mechanism, first, second, test_runs=runs)
    return report, time.perf_counter() - start


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


def print_rates(system, pair):
    """Print the rates of the skeleton and of the estimators."""
    w2mhe = W2MHE(system, 5, 0.8, 1.4e-5)
    skeleton, rate = skeleton_rate(w2mhe.block), mechanism_rate(w2mhe, pair)
    print(f"skeleton {skeleton:.3g} runs/s", flush=True)
    print(f"W2-MHE {rate:.3g} runs/s in blocks of {w2mhe.block}, {rate / skeleton:.0%} of the skeleton", flush=True)
    for mechanism in (PrivateEKF(system, 0.99), KLMHE(system, 5, 0.8)):
        rate = mechanism_rate(mechanism, pair)
        print(f"{mechanism.name} {rate:.3g} runs/s in blocks of {mechanism.block}", flush=True)


def print_cold_verification(runs):
    """Print the time of a verification in a new process. It runs first, because two processes share one memory."""
    command = [sys.executable, str(FOLDER / "bench_device.py"), "--cold", "--runs", str(runs)]
    with tempfile.TemporaryDirectory() as cache:
        settings = {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        for name in ("empty compilation cache", "with its compilation cache"):
            start = time.perf_counter()
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, **settings}
            )
            cold = done.stdout.strip()
            seconds = time.perf_counter() - start
            print(f"2 x {runs:.0e} test runs, new process, {name}: {seconds:.1f} s ({cold})", flush=True)


def verify_cold(runs):
    """Verify once; print the seconds of each stage, and those of the slowest compilations."""
    compilations = []

    def listen(event, duration_secs, **kwargs):
        if event.endswith("backend_compile_duration"):
            compilations.append((duration_secs, str(kwargs.get("fun_name", "?"))))

    jax.monitoring.register_event_duration_secs_listener(listen)
    start = time.perf_counter()
    jax.devices()
    device = time.perf_counter() - start
    paper_pair()
    data = time.perf_counter() - start - device
    report, seconds = long_verification(runs)
    stages = ", ".join(f"{name} {value:.2f}" for name, value in report.provenance["seconds"].items())
    slowest = ", ".join(f"{name} {value:.1f}" for value, name in sorted(compilations, reverse=True)[:SLOWEST_SHOWN])
    total = sum(value for value, _ in compilations)
    print(f"device {device:.1f}, data {data:.1f}, verify {seconds:.1f}: {stages}; ", end="")
    print(f"{len(compilations)} compilations {total:.1f}: {slowest}")


def print_verification(runs):
    """Print the time of a verification after compilation; return the report."""
    long_verification(min(runs, 1 << 21))  # compiles
    report, seconds = long_verification(runs)
    stages = ", ".join(f"{name} {value:.2f}" for name, value in report.provenance["seconds"].items())
    print(f"2 x {runs:.0e} test runs, compiled: {seconds:.1f} s ({stages}), blocks of {report.settings.block}")
    memory = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in memory:
        print(f"peak device memory {memory['peak_bytes_in_use'] / 1e9:.2f} GB")
    print(report, flush=True)
    return report


def main():
    """Print all parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=float, default=1e9, help="test runs per dataset")
    parser.add_argument("--no-tests", action="store_true", help="leave out the tests of the samplers")
    parser.add_argument("--cold", action="store_true", help="only verify, and print the stages")
    parser.add_argument("--variants", action="store_true", help="only compare sizes of blocks and batches")
    options = parser.parse_args()
    runs = int(options.runs)
    if options.cold:
        verify_cold(runs)
        return
    if options.variants:
        system, *pair = paper_pair()
        print_variants(system, pair)
        return
    print_cold_verification(runs)
    system, first, second = paper_pair()
    print(f"{jax.devices()[0].device_kind}, {jax.local_device_count()} device(s), JAX {jax.__version__}")
    print_rates(system, (first, second))
    report = print_verification(runs)
    if jax.devices()[0].platform != "cpu":
        mechanism = W2MHE(system, 5, 0.8, 1.4e-5)
        share = share_in_other_cells(mechanism, first, report.witness.event.partition)
        print(f"10^6 runs with the same keys on the device and on the CPU: {share:.2g} of them in different cells")
    if not options.no_tests:
        tests = [str(FOLDER.parent / "tests" / "estimation" / name) for name in SAMPLER_TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-m", "not slow", *tests]
        print(f"tests of the samplers: exit status {subprocess.run(command, env=os.environ).returncode}")


if __name__ == "__main__":
    main()
