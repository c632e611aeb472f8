"""The context of a verification: settings, the source of samples, the workers, the checkpoint and the progress display.

`open_run` draws a first block in this process, which determines the block size and the shape of an output. It checks
that a checkpoint folder belongs to the call, and turns interruptions into `Stopped` errors.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import DPVerifyWarning, FolderError, InputError, Stopped, StopReason
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name, read_only_view
from dpverify.sampling.blocks import SIDES, SampleSource, default_block_size, look_key
from dpverify.sampling.checkpoints import Checkpoint, open_checkpoint
from dpverify.sampling.executors import WorkerPool, check_picklable, open_pool
from dpverify.sampling.probe import (
    PROBE_RUNS,
    PilotBlocks,
    behaviour_hash,
    blocks_repeat,
    pilot_runs,
    probe_mechanism,
)
from dpverify.settings import Settings
from dpverify.util.arrays import Array
from dpverify.util.formatting import format_count, one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress
from dpverify.util.serialization import from_plain, to_plain
from dpverify.util.timing import StageClock, versions


class RunContext(NamedTuple):
    """A verification that is being run.

    Attributes
    ----------
    source : SampleSource
        Draws the blocks of runs.
    settings : Settings
        The settings, with the final block size.
    pool : WorkerPool
        The workers, and the checkpoint.
    worker_count : int
        The number of workers at the start.
    progress : Progress
        The progress display.
    clock : StageClock
        The duration of each stage.
    pilot_blocks : dict
        The pilot blocks that the probe has drawn, by (side, block).
    """

    source: SampleSource
    settings: Settings
    pool: WorkerPool
    worker_count: int
    progress: Progress
    clock: StageClock
    pilot_blocks: PilotBlocks

    @property
    def checkpoint(self) -> Checkpoint:
        return self.pool.checkpoint


@contextlib.contextmanager
def open_run(
    mechanism: Mechanism,
    first: object,
    second: object,
    settings: Settings,
    executor: int | Executor | None,
    progress: bool,
    folder: str | os.PathLike[str] | None = None,
    call: Mapping[str, object] | None = None,
    error: Callable[[Any], Any] | None = None,
) -> Iterator[RunContext]:
    """Open the context of a verification.

    Parameters
    ----------
    mechanism : Mechanism
        The mechanism.
    first, second : object
        The two data sets.
    settings : Settings
        The settings.
    executor : int, concurrent.futures.Executor or None
        A number of processes, an executor, or None for this process.
    progress : bool
        Whether progress is displayed.
    folder : path-like, optional
        The checkpoint folder.
    call : mapping, optional
        Further arguments that a resumed run must repeat.
    error : callable, optional
        The error function of the call.

    Raises
    ------
    Stopped
        If the run is interrupted from the keyboard, loses its workers, or has no memory left.
    """
    if not callable(mechanism):
        raise InputError(f"mechanism: found {type(mechanism).__name__}; expected a callable (data, runs, rng) -> array")
    clock, display = StageClock(), Progress(progress, folder is not None)
    block = settings.block or getattr(mechanism, "block", None) or default_block_size(settings.test_runs)
    data = read_only_view(first), read_only_view(second)
    source = SampleSource(mechanism, data, settings.seed, int(block), settings.nonfinite)
    with open_checkpoint(folder) as checkpoint:
        try:
            with open_pool(executor, checkpoint) as pool:
                check_picklable(source, pool)
                source, pilot_blocks = probe_mechanism(source, folder is not None, display)
                settings = settings.change(block=source.block)
                source = source._replace(look=look_key(settings, call or {}))
                if folder is not None:
                    about = {"name": mechanism_name(mechanism), **versions()}
                    checkpoint.acquire(run_identity(source, settings, pilot_blocks, call or {}, error), about)
                yield RunContext(source, settings, pool, pool.number, display, clock, pilot_blocks)
        except KeyboardInterrupt:
            raise _stopped(StopReason.KEYBOARD, "", checkpoint, display) from None
        except BrokenExecutor as problem:
            advice = '; in a script, processes need the call under if __name__ == "__main__":'
            detail = f" ({problem}{advice if isinstance(executor, int) else ''})"
            raise _stopped(StopReason.WORKERS_LOST, detail, checkpoint, display) from problem
        except MemoryError as problem:  # not in the mechanism: its failures are MechanismErrors
            raise _stopped(StopReason.OUT_OF_MEMORY, "", checkpoint, display) from problem
        finally:
            display.close()
            finish = getattr(mechanism, "finish", None)
            if finish is not None:
                finish()


def _stopped(reason: StopReason, detail: str, checkpoint: Checkpoint, display: Progress) -> Stopped:
    """Return the error for a run that ended early: why, after how many runs, and how it can be resumed."""
    folder = None if checkpoint.folder is None else str(checkpoint.folder)
    if folder is None:
        advice = "nothing was saved; use a checkpoint folder to save finished runs (folder=, --folder)"
    elif checkpoint.problem:
        advice = checkpoint.problem
    else:
        advice = f"they are saved in {folder}; repeat the same call to resume"
    message = f"{reason.value}{detail} after {format_count(display.done)} runs; {advice}"
    return Stopped(message, folder, display.done, reason)


def check_mechanism(context: RunContext, pilot: np.ndarray) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of a mechanism that breaks the assumptions of the statistics, and warn of each.

    A block that is drawn twice must have the same runs and must not change the data set. Two different blocks must have
    different runs.

    Parameters
    ----------
    context : RunContext
        The verification.
    pilot : numpy.ndarray
        The pilot runs of the first data set. Blocks that they do not contain are drawn here.
    """
    source = context.source
    blocks = -(-PROBE_RUNS // source.block)  # as many as contain the probe runs
    first_runs = pilot_runs(source, 0, range(blocks), context.pilot_blocks)
    data_before = fingerprint(source.data[0])
    repeated_runs = pilot_runs(source, 0, range(blocks))
    data_after = fingerprint(source.data[0])
    other_runs = pilot[blocks * source.block :]
    if len(other_runs) < PROBE_RUNS:
        other_runs = pilot_runs(source, 0, range(blocks, 2 * blocks))

    found = []
    if data_after != data_before:
        found.append(Diagnostic.CHANGED_DATA)
    elif is_seeded(source.mechanism) and not np.array_equal(first_runs, repeated_runs, equal_nan=True):
        found.append(Diagnostic.UNREPEATABLE_BLOCK)
    if blocks_repeat(first_runs[:PROBE_RUNS], other_runs[:PROBE_RUNS]):
        found.append(Diagnostic.REPEATED_BLOCKS)
    for diagnostic in found:
        warnings.warn(diagnostic.value, DPVerifyWarning, stacklevel=3)
    return tuple(found)


def run_identity(
    source: SampleSource,
    settings: Settings,
    drawn: PilotBlocks,
    call: Mapping[str, object],
    error: Callable[[Array], Array] | None,
) -> dict[str, Any]:
    """Return what identifies a run: settings, data sets, and what the mechanism and the error function compute."""
    identity = {name: value for name, value in to_plain(settings).items() if name != "kind"}
    identity |= call
    for side, data in zip(SIDES, source.data, strict=True):
        identity[f"{side} data set"] = fingerprint(data)
    seeded = is_seeded(source.mechanism)
    identity["seeded"] = seeded
    # An error function is identified by its values on the probe runs, or by its name if these cannot be reproduced.
    error_values: object = error
    if error is not None and seeded:
        with contextlib.suppress(Exception):  # an error function that fails is reported when it is used
            error_values = [np.asarray(error(drawn[key])) for key in sorted(drawn)]
    identity["error"] = fingerprint(error_values)
    if seeded:
        identity["probe"] = behaviour_hash(drawn)
    else:
        identity["mechanism"] = mechanism_name(source.mechanism)
    return identity


def read_record(checkpoint: Checkpoint, name: str, kinds: tuple[type, ...]) -> dict[str, Any] | None:
    """Return a frozen choice of an earlier start of this run, made of plain data and of these kinds, or None."""
    record = checkpoint.read(name)
    if record is None:
        return None
    try:
        return from_plain(record.head, kinds)
    except Exception as problem:  # another version may have written anything
        raise FolderError(
            f"{checkpoint.folder}: found {name} of another version of dpverify ({one_line(problem)}); expected this "
            "version; resume with that version, or use another folder"
        ) from None
