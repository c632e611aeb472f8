"""Blocks of runs: every block has its own random generator, so it can be drawn anywhere, in any order, or again.

Block b of a stage and of dataset `side` is drawn with `SeedSequence(seed, spawn_key=(stage, side, b))`. The key of a
test block also contains a hash of all settings except the seed. A second verification with other settings,
for example with more test runs, therefore tests with new runs, although its seed is the same. The block size
is a fixed function of the settings and of the size of one output. It never depends on time, workers or load: the
measured speed only decides how many blocks are drawn in one task.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpverify.errors import MechanismError
from dpverify.mechanisms.diagnostics import describe_failure
from dpverify.mechanisms.outputs import validate_output
from dpverify.mechanisms.protocol import Mechanism
from dpverify.settings import Settings
from dpverify.util.arrays import Array, from_tensor, on_accelerator
from dpverify.util.checks import check_whole_number
from dpverify.util.hashing import fingerprint

# The position is part of every seed: append, never reorder.
STAGES = ("pilot", "train", "propose", "decide", "test", "probe", "encode")
STAGE_WORDS = {
    "pilot": "pilot runs",
    "train": "training runs",
    "propose": "proposal runs",
    "decide": "decision runs",
    "test": "test runs",
    "probe": "probe runs",
    "encode": "first runs",
}
SIDES = ("first", "second")
MIN_LOG2_BLOCK, MAX_LOG2_BLOCK = 6, 16  # of the default block size
FIRST_RUNS, FIRST_BLOCK, FIRST_COMPILED_BLOCK = 16, 4, 64  # of a verification that may stop early
MAX_STOPPING_BLOCK = 1 << 18  # of a verification that may stop early, where a batch has at least one block
BLOCKS_PER_TEST = 64  # at least, with the default block size
MAX_BLOCK_BYTES, MAX_DEVICE_BLOCK_BYTES = 64 << 20, 1 << 30  # bytes of the output of one block


# NumPy's error handling of the caller, which holds in the mechanism; the computations of a verification ignore it.
CALLERS_ERRSTATE: ContextVar[dict[str, Any] | None] = ContextVar("errstate of the caller", default=None)


class SampleSource(NamedTuple):
    """Everything that a worker needs to draw any block.

    Attributes
    ----------
    mechanism : Mechanism
        The mechanism.
    data : tuple
        The two datasets.
    seed : int
        The seed of the verification.
    block : int
        The number of runs per block.
    nonfinite : str
        "error" if outputs that are not finite are refused, "event" if they are counted.
    shape : tuple of int, optional
        The shape (K, d) of one output; None before the first block.
    test_key : tuple of int
        A part of the key of every test block, see the function `test_key`.
    is_coupled : bool
        Whether both datasets use the same random numbers, except in test runs.
    device : str
        Where JAX computes the outputs, for example "cpu:0" or "gpu:0"; "cpu" for NumPy.
    """

    mechanism: Mechanism
    data: tuple[Any, Any]
    seed: int
    block: int
    nonfinite: str = "error"
    shape: tuple[int, int] | None = None
    device: str = "cpu"
    test_key: tuple[int, ...] = ()
    is_coupled: bool = False


def block_size(mechanism: object, block: int | None, test_runs: int) -> int:
    """Return the block size of the settings, else that of the mechanism, else a power of two from 64 to 65 536.

    With the last one there are about 64 to 128 blocks in a test.

    Examples
    --------
    >>> block_size(abs, None, 200_000)
    2048
    """
    stated = getattr(mechanism, "block", None) if block is None else block
    if stated is not None:
        return check_whole_number("the mechanism's attribute block", stated, 1)
    exponent = int(math.log2(test_runs / BLOCKS_PER_TEST)) if test_runs >= BLOCKS_PER_TEST else 0
    return 1 << min(max(exponent, MIN_LOG2_BLOCK), MAX_LOG2_BLOCK)


def fitting_block_size(block: int, run_bytes: int, on_device: bool = False) -> int:
    """Return the block size, halved until the output of a block has at most 64 MB, or 1 GB on an accelerator.

    Examples
    --------
    >>> fitting_block_size(2048, 80_000)
    512
    """
    most = MAX_DEVICE_BLOCK_BYTES if on_device else MAX_BLOCK_BYTES
    while block > 1 and block * run_bytes > most:
        block //= 2
    return block


def test_key(settings: Settings, call: Mapping[str, object]) -> tuple[int, ...]:
    """Return a hash of what makes two tests of a mechanism different: all settings except the seed.

    The selection of the second verification may depend on the result of the first. Its test runs must therefore be new.
    A claim is part of the call, because the selection depends on it; `Report.against` asks for another claim on the
    same runs.
    """
    plain = {"kind": "Settings", **{name: value for name, value in settings.identity.items() if name != "seed"}}
    digest = fingerprint((plain, dict(call)))
    return int(digest[:8], 16), int(digest[8:16], 16)


def call_mechanism(source: SampleSource, stage: str, side: int, block: int) -> ArrayLike:
    """Return the unchecked output of the mechanism for one block; JAX may still be computing it."""
    process = os.getpid()
    try:
        stream = 0 if source.is_coupled and stage != "test" else side  # the test needs independent datasets
        key = (STAGES.index(stage), stream, block, *(source.test_key if stage == "test" else ()))
        rng = np.random.default_rng(np.random.SeedSequence(source.seed, spawn_key=key))
        with np.errstate(**(CALLERS_ERRSTATE.get() or {})):
            return from_tensor(source.mechanism(source.data[side], source.block, rng))
    except (MechanismError, KeyboardInterrupt):
        raise
    except BaseException as problem:  # also SystemExit and CancelledError, which must not end this process
        raise mechanism_error(source, stage, side, block, problem) from problem
    finally:
        if os.getpid() != process:  # a child that the mechanism has forked returns here too; only the parent continues
            os._exit(0)


def validate_block(
    source: SampleSource, stage: str, side: int, block: int, output: object, check_finite_later: bool = False
) -> Array:
    """Return the output of a block as an array of shape (source.block, K, d).

    With `check_finite_later`, the values of an array on a device are not checked here, because the check would wait for
    the device. `draw_blocks` checks them at the end of a task.
    """
    require_finite = source.nonfinite == "error" and not (check_finite_later and on_accelerator(output))
    try:
        return validate_output(output, source.block, source.shape, require_finite)
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # the conversion to an array can run code of the mechanism
        raise mechanism_error(source, stage, side, block, problem) from problem


def draw_block(source: SampleSource, stage: str, side: int, block: int) -> Array:
    """Draw and validate one block."""
    return validate_block(source, stage, side, block, call_mechanism(source, stage, side, block))


def mechanism_error(source: SampleSource, stage: str, side: int, block: int, problem: BaseException) -> MechanismError:
    """Return the error that names the block and the cause of a failure, with advice for frequent mistakes."""
    where = f"in the {STAGE_WORDS[stage]} of the {SIDES[side]} dataset, block {block}"
    cause = describe_failure(source.mechanism, source.data[side], problem)
    return MechanismError(f"the mechanism failed {where}: {cause}", stage, side, block)


def copy_runs(samples: Array, runs: int) -> np.ndarray:
    """Return the first runs on the host. A device copies its whole block, so that no program is compiled."""
    return np.asarray(samples)[:runs]
