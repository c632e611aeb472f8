"""Lists the kernels that take most of the time on an accelerator: drawing by each estimator, counting, a verification.

Run: python benchmarks/profile_device.py (about two minutes on an H200). Parts: --only w2mhe ekf klmhe count verify.
"""

from __future__ import annotations

import argparse
import collections
import glob
import gzip
import json
import tempfile
import time

import jax
import numpy as np
from bench_device import paper_pair

import dpverify as dpv
from dpverify.estimation import KLMHE, W2MHE, PrivateEKF
from dpverify.sampling.blocks import SampleSource, call_mechanism
from dpverify.sampling.count import Block, CellCounter

CALLS, LISTED_KERNELS = 4, 14
PARTS = ("w2mhe", "ekf", "klmhe", "count", "verify")


def kernel_times(call):
    """Return milliseconds and number of launches of each kernel, per call, from a trace of JAX's profiler."""
    folder = tempfile.mkdtemp()
    with jax.profiler.trace(folder, create_perfetto_trace=True):
        jax.block_until_ready([call(number) for number in range(CALLS)])
    (path,) = glob.glob(f"{folder}/**/perfetto_trace.json.gz", recursive=True)
    with gzip.open(path) as file:
        content = json.load(file)
    events = content["traceEvents"] if isinstance(content, dict) else content
    labels = {(e["name"], e["pid"], e.get("tid")): e["args"].get("name", "") for e in events if e.get("ph") == "M"}
    devices = {pid for (kind, pid, _), label in labels.items() if kind == "process_name" and "GPU" in label}
    times, launches = collections.Counter(), collections.Counter()
    for event in events:
        stream = labels.get(("thread_name", event.get("pid"), event.get("tid")), "")
        if event.get("ph") == "X" and event["pid"] in devices and "Stream" in stream:
            times[event["name"]] += event["dur"] / 1000 / CALLS
            launches[event["name"]] += 1 / CALLS
    return times, launches


def print_profile(name, call):
    """Print the time of a call, the time until it returns, and its kernels."""
    start = time.perf_counter()
    jax.block_until_ready([call(0), call(1)])  # both datasets
    first = time.perf_counter() - start
    start = time.perf_counter()
    outputs = [call(number) for number in range(CALLS)]
    dispatched = (time.perf_counter() - start) / CALLS
    jax.block_until_ready(outputs)
    seconds = (time.perf_counter() - start) / CALLS
    del outputs
    print(f"== {name}: first calls {first:.1f} s, then {1e3 * seconds:.2f} ms, returns after {1e3 * dispatched:.2f} ms")
    try:
        times, launches = kernel_times(call)
    except Exception as problem:  # the profiler needs libraries that are not installed everywhere
        print(f"   no trace: {problem!r}", flush=True)
        return
    print(f"   device busy {sum(times.values()):.2f} ms")
    for kernel, milliseconds in times.most_common(LISTED_KERNELS):
        print(f"   {milliseconds:8.3f} ms {launches[kernel]:6.1f} x {kernel[:70]}", flush=True)


def main():
    """Print the selected profiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    only = parser.parse_args().only
    system, first, second = paper_pair()
    w2mhe = W2MHE(system, 5, 0.8, 1.4e-5)
    for part, mechanism in zip(PARTS, (w2mhe, PrivateEKF(system, 0.99), KLMHE(system, 5, 0.8)), strict=False):
        if part in only:
            source = SampleSource(mechanism, (first, second), 0, mechanism.block)
            name = f"{mechanism.name}, {mechanism.block} runs"
            print_profile(name, lambda number, source=source: call_mechanism(source, "test", number % 2, number))
    if "count" in only:
        report = dpv.verify(w2mhe, first, second, test_runs=1 << 21)
        samples = w2mhe(first, w2mhe.block, np.random.default_rng(0))
        counter = CellCounter(report.witness.event.partition)

        def count(number):
            return counter.measure(Block(samples, number)).counts

        print_profile(f"counting {w2mhe.block} runs in {report.witness.event.partition.size} cells", count)
    if "verify" in only:
        print_profile("2^25 test runs", lambda number: dpv.verify(w2mhe, first, second, test_runs=1 << 25).runs_used)


if __name__ == "__main__":
    main()
