"""How a verification starts, and how it stops: workers, the folder, a first look at the mechanism."""

from __future__ import annotations

import contextlib
import math
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor
from typing import Any, NamedTuple

import numpy as np

from dpverify.errors import DPVerifyWarning, FolderError, InputError, Stopped
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name, read_only_view
from dpverify.sampling.blocks import (
    PROBE_RUNS,
    SIDES,
    SampleSource,
    behaviour_hash,
    default_block_size,
    draw_block,
    probe_mechanism,
)
from dpverify.sampling.checkpoints import Checkpoint, open_checkpoint
from dpverify.sampling.executors import WorkerPool, check_picklable, open_pool
from dpverify.settings import Settings
from dpverify.util.formatting import format_count, one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.progress import Progress
from dpverify.util.serialization import from_plain, to_plain
from dpverify.util.timing import StageClock, versions


class RunContext(NamedTuple):
    """A verification under way: settled settings, where the samples come from, and who draws them."""

    source: SampleSource
    settings: Settings
    workers: WorkerPool
    number: int  # of workers, at the start
    show: Progress
    clock: StageClock
    known: dict[tuple[int, int], np.ndarray]  # pilot blocks that the first look has drawn already


@contextlib.contextmanager
def open_run(
    mechanism: Mechanism,
    first: Any,
    second: Any,
    settings: Settings,
    executor: int | Executor | None,
    progress: bool,
    folder: str | os.PathLike[str] | None = None,
    call: dict[str, Any] | None = None,
    error: Callable[[Any], Any] | None = None,
) -> Iterator[RunContext]:
    """A first look at the mechanism settles the block and the shape of an output, and whose folder it is."""
    if not callable(mechanism):
        raise InputError(f"mechanism: found {type(mechanism).__name__}; expected a callable (data, runs, rng) -> array")
    clock, show = StageClock(), Progress(progress, folder is not None)
    block = settings.block or getattr(mechanism, "block", None) or default_block_size(settings.test_runs)
    source = SampleSource(
        mechanism, (read_only_view(first), read_only_view(second)), settings.seed, int(block), settings.nonfinite
    )
    with open_checkpoint(folder) as store:
        try:
            with open_pool(executor, store) as workers:
                check_picklable(source, workers)
                source, known = probe_mechanism(source, folder is not None, show)
                settings = settings.change(block=source.block)
                if folder is not None:
                    about = {"name": mechanism_name(mechanism), **versions()}
                    store.claim(run_identity(source, settings, known, call or {}, error), about)
                yield RunContext(source, settings, workers, workers.number, show, clock, known)
        except KeyboardInterrupt:
            raise stopped_error("stopped by the keyboard", store, show) from None
        except BrokenExecutor as problem:
            ours = '; in a script, processes need the call under if __name__ == "__main__":'
            why = f"the workers died ({problem}{ours if isinstance(executor, int) else ''})"
            raise stopped_error(why, store, show) from problem
        except MemoryError as problem:  # here, not in the mechanism, whose own failure names its block
            raise stopped_error("no memory is left", store, show) from problem
        finally:
            show.close()
            getattr(mechanism, "finish", lambda: None)()


FALSE_REPEAT_PROBABILITY = 1e-9  # of taking two independent blocks for one drawn twice


def check_mechanism(run: RunContext, pilot: np.ndarray) -> tuple[Diagnostic, ...]:
    """What a mechanism does that no statistics survive; each is warned of before the long part begins.

    A block asked for twice must be the same and leave the data as they were, and two blocks must differ. `pilot` are
    the runs of the first side; what is not among them is drawn here.
    """
    source, number = run.source, -(-PROBE_RUNS // run.source.block)

    def runs_of(start: int, known: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
        keys = [(0, block) for block in range(start, start + number)]
        return np.concatenate(
            [known[key] if key in known else np.array(draw_block(source, "pilot", *key)) for key in keys]
        )

    once, before = runs_of(0, run.known), fingerprint(source.data[0])
    again, after = runs_of(0, {}), fingerprint(source.data[0])
    diagnostics = [Diagnostic.CHANGED_DATA] if after != before else []
    if not diagnostics and is_seeded(source.mechanism) and not np.array_equal(once, again, equal_nan=True):
        diagnostics.append(Diagnostic.UNREPEATABLE_BLOCK)
    other = pilot[number * source.block :]
    if blocks_repeat(
        once[:PROBE_RUNS], other[:PROBE_RUNS] if len(other) >= PROBE_RUNS else runs_of(number, {})[:PROBE_RUNS]
    ):
        diagnostics.append(Diagnostic.REPEATED_BLOCKS)
    for diagnostic in diagnostics:
        warnings.warn(diagnostic.value, DPVerifyWarning, stacklevel=3)
    return tuple(diagnostics)


def blocks_repeat(one: np.ndarray, two: np.ndarray) -> bool:
    """Whether two sets of runs are the same, and independent ones would not be by chance.

    Two runs agree with a probability of about the sum of the squared shares of the outputs seen; all pairs, with its
    power. Outputs of few values, one of them frequent, may well repeat.
    """
    if not np.array_equal(one, two, equal_nan=True):
        return False
    seen = Counter(output.tobytes() for output in one).values()
    return len(one) * math.log(sum(n * n for n in seen) / len(one) ** 2) < math.log(FALSE_REPEAT_PROBABILITY)


def run_identity(
    source: SampleSource,
    settings: Settings,
    known: dict[tuple[int, int], Any],
    call: dict[str, Any],
    error: Callable[[Any], Any] | None,
) -> Any:
    """What decides whether a folder belongs to a call: settings, data, and what mechanism and error do with them."""
    plain = {name: value for name, value in to_plain(settings).items() if name != "kind"}
    data = {f"{side} data set": fingerprint(one) for side, one in zip(SIDES, source.data, strict=True)}
    seeded = is_seeded(source.mechanism)
    does = {"probe": behaviour_hash(known)} if seeded else {"mechanism": mechanism_name(source.mechanism)}
    # An error is known by what it says of the first look's runs; where these can't be repeated, by its name.
    said: Any = error
    if error is not None and seeded:
        with contextlib.suppress(Exception):  # one that fails is told apart, and reported, when it is needed
            said = [np.asarray(error(known[key])) for key in sorted(known)]
    return {**plain, **call, **data, "seeded": seeded, "error": fingerprint(said), **does}


def read_record(store: Checkpoint, name: str, kinds: tuple[type, ...]) -> Any:
    """What an earlier start has settled under this name, None if nothing."""
    page = store.read(name)
    if page is None:
        return None
    try:
        return from_plain(page.head, kinds)
    except Exception as problem:  # what another version means by it is anyone's guess
        raise FolderError(
            f"{store.folder}: found {name} as another version of dpverify writes it ({one_line(problem)}); "
            "go on with that version, or take another folder"
        ) from None


def stopped_error(why: str, store: Checkpoint, show: Progress) -> Stopped:
    folder = str(store.folder) if store.folder is not None else None
    kept = f"they are kept in {folder}: start the same again and it goes on from there"
    if folder is None:
        kept = "nothing was kept; a folder (folder=, --folder) would keep them"
    elif store.problem:
        kept = store.problem
    return Stopped(f"{why} after {format_count(show.done)} runs; {kept}", folder, show.done)
