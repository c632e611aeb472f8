"""Measures a verification on a local Dask cluster with 1, 2 and 4 worker processes.

The figures are the runs per second, the efficiency (the speed-up over one worker divided by the number of workers, or
by the number of cores where there are fewer of them), and the bytes that a task and its result have.

Run: python benchmarks/bench_dask.py (about two minutes; needs distributed).
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from concurrent.futures import Executor

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import dpverify as dpv


def slow_gaussian(data, runs, rng):
    """Draw ten times as many random numbers as needed, so that drawing takes most of the time."""
    return data + np.mean(rng.standard_normal((10, runs, *data.shape)), axis=0)


class MeasuringExecutor(Executor):
    """Passes tasks on, and adds up the bytes of their pickled form and of their results."""

    def __init__(self, executor):
        self.executor, self.tasks, self.sent, self.received = executor, 0, 0, 0

    def submit(self, fn, /, *args, **kwargs):
        """Submit a task."""
        self.tasks += 1
        self.sent += len(pickle.dumps((fn, args, kwargs)))
        future = self.executor.submit(fn, *args, **kwargs)
        future.add_done_callback(self._measure)
        return future

    def _measure(self, future):
        self.received += len(pickle.dumps(future.result()))


def main():
    """Print the figures for each number of workers."""
    import dask
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=float, default=4e6, help="test runs per dataset")
    runs = int(parser.parse_args().runs)
    data = np.zeros((4, 2)), np.full((4, 2), 0.1)
    one_worker = None
    # Dask makes its workers return freed memory to the system, which takes a third of the time (docs/scale.md).
    dask.config.set({"distributed.nanny.pre-spawn-environ": {"OPENBLAS_NUM_THREADS": 1}})
    for workers in (1, 2, 4):
        cluster = LocalCluster(
            n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
        )
        with cluster, Client(cluster) as client:
            executor = MeasuringExecutor(client.get_executor())
            dpv.verify(slow_gaussian, *data, test_runs=10**5, executor=executor)  # the workers import dpverify
            executor.tasks = executor.sent = executor.received = 0
            start = time.perf_counter()
            report = dpv.verify(slow_gaussian, *data, test_runs=runs, executor=executor)
            seconds = time.perf_counter() - start
        one_worker = one_worker or seconds
        efficiency = one_worker / seconds / min(workers, os.cpu_count() or 1)
        rate = 2 * (runs + report.settings.select_runs) / seconds
        sent, received = executor.sent / executor.tasks, executor.received / executor.tasks
        print(f"{workers} workers: {rate:.3g} runs/s, efficiency {efficiency:.2f}, {executor.tasks} tasks, ", end="")
        print(f"{sent:.0f} bytes per task and {received:.0f} per result; digest {report.digest[:12]}", flush=True)


if __name__ == "__main__":
    main()
