"""Measures mechanisms that users write with `jax_run` or PyTorch: verifications beside bare drawing of the same runs.

For each mechanism: the seconds of the second verification (the first compiles), the programs that were compiled for
another pair, another seed and another mechanism with outputs of the same shape, and the seconds of drawing as many runs
with `jit(vmap)` in 64 bits.

Run: python benchmarks/bench_jax.py (some minutes on a GPU). Fewer runs: --scale 0.001.
"""

from __future__ import annotations

import argparse
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

import dpverify as dpv

REPETITIONS = 3
compiled: list[str] = []


def listen(event: str, duration_secs: float, **kwargs: object) -> None:
    """Note each program that XLA compiles."""
    if event.endswith("backend_compile_duration"):
        compiled.append(str(kwargs.get("fun_name", "?")))


def laplace(data, key):
    """One noisy number."""
    return data + jax.random.laplace(key, (1,))


def logistic(data, key):
    """Another mechanism with outputs of the same shape."""
    return data + jax.random.logistic(key, (1,))


def tracker(data, key):
    """A scalar filter of 20 steps with noise at its output."""

    def step(state, reading):
        state = 0.9 * state + 0.1 * reading
        return state, state

    return jax.lax.scan(step, 0.0, data)[1][:, None] + 0.1 * jax.random.normal(key, (20, 1))


def plane(data, key):
    """A filter of 100 steps in two dimensions with noise at its output."""

    def step(state, reading):
        state = 0.9 * state + 0.1 * reading
        return state, state

    return jax.lax.scan(step, jnp.zeros(2), data)[1] + 0.1 * jax.random.normal(key, (100, 2))


def step_change(steps, dimension):
    """Two streams that differ in their third reading."""
    first = np.zeros((steps, dimension) if dimension > 1 else steps)
    second = first.copy()
    second[2] += 0.5
    return first, second


CASES = {
    "Laplace": (laplace, (np.zeros(1), np.ones(1)), 10**9, logistic),
    "20 steps": (tracker, step_change(20, 1), 10**8, None),
    "100 x 2": (plane, step_change(100, 2), 10**7, None),
}


def bare(function, pair, runs, block):
    """Return the seconds of drawing so many runs of both datasets, without counting them."""
    draw = jax.jit(lambda data, key: jax.vmap(lambda one: function(data, one))(jax.random.split(key, block)))
    with jax.enable_x64(True):
        jax.block_until_ready(draw(pair[0], jax.random.key(0)))
        start = time.perf_counter()
        for side in pair:
            for number in range(-(-runs // block)):
                out = draw(side, jax.random.key(number))
        jax.block_until_ready(out)
        return time.perf_counter() - start


def verified(mechanism, pair, runs, **options):
    """Verify; return the report, the seconds and the compiled programs."""
    compiled.clear()
    start = time.perf_counter()
    report = dpv.verify(mechanism, *pair, 1.0, test_runs=runs, **options)
    return report, time.perf_counter() - start, list(compiled)


def measure(name, scale):
    """Print the figures of one mechanism."""
    function, pair, runs, other = CASES[name]
    runs = max(int(runs * scale), 10_000)
    mechanism = dpv.jax_run(function)
    report, first, programs = verified(mechanism, pair, runs)
    print(f"{name}: first {first:.2f} s, {len(programs)} programs, blocks of {report.settings.block}", flush=True)
    again = [verified(mechanism, pair, runs) for _ in range(REPETITIONS)]
    seconds = statistics.median(one[1] for one in again)
    stages = ", ".join(f"{stage} {value:.2f}" for stage, value in again[-1][0].provenance["seconds"].items())
    drawn = statistics.median(bare(function, pair, runs, report.settings.block) for _ in range(REPETITIONS))
    print(f"  again {seconds:.2f} s ({stages}); bare drawing {drawn:.2f} s, ratio {seconds / drawn:.1f}", flush=True)
    moved = pair[0], 0.7 * pair[1]
    changes = {
        "another pair": verified(mechanism, moved, runs)[2],
        "another seed": verified(mechanism, pair, runs, seed=7)[2],
    }
    if other is not None:
        changes["another mechanism"] = verified(dpv.jax_run(other), pair, runs)[2]
    for change, found in changes.items():
        print(f"  {change}: {len(found)} programs compiled {found[:12]}", flush=True)


def measure_torch(scale):
    """Print the figures of a mechanism of PyTorch."""
    import torch

    runs, device = max(int(10**8 * scale), 10_000), torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def noisy(data, number, rng):
        generator = torch.Generator(device).manual_seed(int(rng.integers(1 << 62)))
        uniform = torch.rand(number, 1, generator=generator, device=device, dtype=torch.float64) - 0.5
        return float(data) - uniform.sign() * torch.log1p(-2 * uniform.abs())

    verified(noisy, (0.0, 1.0), runs)
    report, seconds, _ = verified(noisy, (0.0, 1.0), runs)
    block, start = report.settings.block, time.perf_counter()
    for number in range(2 * -(-runs // block)):
        out = noisy(0.0, block, np.random.default_rng(number))
    float(out.sum())
    drawn = time.perf_counter() - start
    ratio = f"bare drawing {drawn:.2f} s, ratio {seconds / drawn:.1f}"
    print(f"PyTorch on {device}: {seconds:.2f} s, {ratio}, blocks of {block}")


def main():
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the numbers of runs")
    parser.add_argument("--torch", action="store_true", help="also measure a mechanism of PyTorch")
    options = parser.parse_args()
    jax.monitoring.register_event_duration_secs_listener(listen)
    print(jax.devices(), flush=True)
    for name in CASES:
        measure(name, options.scale)
    if options.torch:
        measure_torch(options.scale)


if __name__ == "__main__":
    main()
