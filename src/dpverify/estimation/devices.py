"""The device on which JAX computes: which one it is, how many runs fill it, and its start."""

from __future__ import annotations

import functools
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

LOG2_CPU_BLOCK, LOG2_ACCELERATOR_BLOCK, LOG2_LARGE_BLOCK = 13, 22, 23
LARGE_JAX_MEMORY = 60e9  # bytes that JAX may use on a device that draws large blocks; by default 75% of its memory


def current_device() -> Any:
    """Return the device on which JAX computes in the current context (`jax.default_device`)."""
    device = jax.config.jax_default_device  # type: ignore[attr-defined]
    return device if isinstance(device, jax.Device) else jax.local_devices(backend=device)[0]


def compiles_for_cpu() -> bool:
    """Return whether JAX computes on a CPU in the current context."""
    return current_device().platform == "cpu"


def default_block() -> int:
    """Return the number of runs per block: what fits into the caches of a CPU, or what fills an accelerator.

    It depends on the platform and on the memory that JAX may use there, so that results are reproducible on one kind of
    device with the same settings of JAX.
    """
    if compiles_for_cpu():
        return 1 << LOG2_CPU_BLOCK
    statistics = current_device().memory_stats() or {}
    is_large = statistics.get("bytes_limit", 0) >= LARGE_JAX_MEMORY
    return 1 << (LOG2_LARGE_BLOCK if is_large else LOG2_ACCELERATOR_BLOCK)


def start_accelerator() -> None:
    """Start the accelerator of the current context in a thread, if there is one; nothing waits for it.

    The first array on an accelerator starts it, which takes a second or two. A new system calls this function, because
    data are simulated and programs are traced before the first estimator draws.
    """
    device = current_device()
    if device.platform != "cpu":
        started(device)


@functools.cache
def started(device: Any) -> Future[Any]:
    """Return the start of a device, which begins with the first call. If it fails, the next use of the device fails."""
    thread = ThreadPoolExecutor(1, "dpverify-device")
    start = thread.submit(lambda: jax.block_until_ready(jax.device_put(np.zeros(()), device)))
    thread.shutdown(wait=False)
    return start
