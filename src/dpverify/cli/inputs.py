"""What the commands of `dpverify` read from their arguments: mechanisms, settings, paths and executors."""

from __future__ import annotations

import argparse
import ast
import contextlib
import logging
import os
import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

from dpverify import Mechanism, Settings, program
from dpverify.errors import InputError, Stopped, StopReason, how_to_install
from dpverify.mechanisms.protocol import accepts_arguments
from dpverify.studies.files.loading import how_to_pass_arguments, is_file, load_object
from dpverify.util.checks import shorten

COMMANDS_WITH_PROGRAM = ("verify", "over-time")  # -- PROGRAM ARG... can follow their options


def choose_mechanism(arguments: argparse.Namespace) -> Mechanism:
    """Return the mechanism that MECHANISM names, or the program after --."""
    if (arguments.mechanism is None) == (not arguments.program):
        found = "neither" if arguments.mechanism is None else "both"
        raise InputError(f"mechanism: found {found} of MECHANISM and -- PROGRAM ARG...; expected one of them")
    if arguments.program:
        return program(arguments.program, arguments.shape, arguments.timeout, seeded=not arguments.unseeded)
    text = arguments.mechanism
    if arguments.command in COMMANDS_WITH_PROGRAM and is_file(Path(text)) and not text.endswith(".py"):
        raise InputError(
            f"mechanism: found {shorten(text)}, a file; expected module:name or path/file.py:name; a program follows "
            f"after --, at the end of the command: -- {shlex.quote(text)}"
        )
    mechanism = load_object(text)
    if isinstance(mechanism, type):
        advice = f"add () to create an object: {text}()"
        if not accepts_arguments(mechanism, 0):
            advice = how_to_pass_arguments(text.rpartition(":")[0], f"{mechanism.__name__}(...)")
        raise InputError(f"mechanism: found the class {mechanism.__name__}; expected a function or an object; {advice}")
    return mechanism


def read_changes(pairs: Sequence[str]) -> dict[str, object]:
    """Return the settings of all --set NAME=VALUE; a value that is no Python literal is text."""
    changes: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set: found {pair!r}; expected NAME=VALUE")
        try:
            changes[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            changes[name] = value
    return changes


def read_settings(arguments: argparse.Namespace) -> Settings:
    """Return the default settings with the changes of all --set."""
    return Settings().change(**read_changes(arguments.set))  # type: ignore[arg-type]


def absolute(path: str | None) -> str | None:
    """Return the absolute form of a path, because a mechanism can change the working directory; "-" stays."""
    return path if path is None or path == "-" else os.path.abspath(path)


@contextlib.contextmanager
def open_executor(arguments: argparse.Namespace) -> Iterator[int | Executor | None]:
    """Yield a number of processes, or the executor of a running Dask cluster.

    The file of the mechanism is sent to the workers of the cluster.
    """
    if arguments.dask is None:
        yield arguments.workers
        return
    try:
        from distributed import Client
    except ImportError:
        raise InputError(f"--dask: distributed is not installed; {how_to_install('dask')}") from None
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # a failure is reported below, in one line
    try:
        client = Client(arguments.dask, set_as_default=False)
    except (OSError, ValueError) as problem:
        raise Stopped(
            f"--dask: found no scheduler at {arguments.dask} ({problem}); expected a running one; start it and repeat "
            "the command",
            reason=StopReason.NO_SCHEDULER,
        ) from None
    with client:
        source = (arguments.mechanism or "").rpartition(":")[0]
        if source.endswith(".py"):
            client.upload_file(source)
        yield client.get_executor()
