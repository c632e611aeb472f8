"""The commands of `dpverify`, and the exit status that each of their outcomes gives."""

from __future__ import annotations

import argparse
import ast
import contextlib
import logging
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

from dpverify import Mechanism, Report, Settings, program, run_study, verify
from dpverify.cli.arguments import parser
from dpverify.cli.output import (
    BAD_INPUT,
    NO_ANSWER,
    REFUTED,
    check_outputs,
    print_error,
    show_warning,
    stdout_to_stderr,
    write_output,
)
from dpverify.errors import FolderError, InputError, MechanismError, Stopped, StopReason
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.studies.assertion import check_detects, describe_weakness
from dpverify.studies.loading import load_data, load_object
from dpverify.studies.study import TABLE_FILE


def choose_mechanism(arguments: argparse.Namespace) -> Mechanism:
    """Return the mechanism that MECHANISM names, or the program after --."""
    if (arguments.mechanism is None) == (not arguments.program):
        found = "neither" if arguments.mechanism is None else "both"
        raise InputError(f"mechanism: found {found} of MECHANISM and -- PROGRAM ARG...; expected one of them")
    if arguments.program:
        return program(arguments.program, arguments.shape, arguments.timeout, seeded=not arguments.unseeded)
    return load_object(arguments.mechanism)


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


def _verify(arguments: argparse.Namespace) -> int:
    """Run `dpverify verify`."""
    check_outputs(arguments.json if arguments.json != "-" else None, arguments.html)
    settings = Settings.paper() if arguments.paper else Settings()
    settings = settings.change(**read_changes(arguments.set))  # type: ignore[arg-type]
    if arguments.detects is not None:
        check_detects(arguments.detects, arguments.epsilon)
    with stdout_to_stderr():
        mechanism = choose_mechanism(arguments)
        first, second = load_data(arguments.first), load_data(arguments.second)
        with open_executor(arguments) as executor:
            report = verify(
                mechanism,
                first,
                second,
                arguments.epsilon,
                arguments.delta,
                settings=settings,
                executor=executor,
                folder=arguments.folder,
                progress=not arguments.quiet,
                trust_results=arguments.trust_results,
            )
    report.run["command"] = arguments.line
    if not arguments.quiet and arguments.json != "-":
        print(report)  # first, so that a failure to write a file does not lose it
    if arguments.json == "-":
        report.to_json(sys.stdout)
    elif arguments.json:
        write_output(report.to_json, arguments.json)
    if arguments.html:
        write_output(report.to_html, arguments.html)
    if report.voiding:
        return print_error(report.voiding[0].value, NO_ANSWER)
    if report.refuted:
        return REFUTED
    weakness = None if arguments.detects is None else describe_weakness(report, arguments.detects)
    return print_error(weakness, NO_ANSWER) if weakness else 0


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
        raise InputError("--dask: distributed is not installed; install dpverify[dask]") from None
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


def _demo(arguments: argparse.Namespace) -> int:
    """Run `dpverify demo`."""
    from dpverify.demo import main as demo

    demo()
    return 0


def _study(arguments: argparse.Namespace) -> int:
    """Run `dpverify study`."""
    check_outputs(None, arguments.html)
    with stdout_to_stderr():
        study = run_study(
            arguments.file,
            arguments.folder,
            executor=arguments.workers,
            progress=not arguments.quiet,
            trust_results=arguments.trust_results,
        )
    if not arguments.quiet:
        print(f"{study.summary}; table: {study.folder / TABLE_FILE}")
    if arguments.html:
        study.to_html(arguments.html)
    if study.failed:
        return print_error(f"{len(study.failed)} failed, the first with: {study.failed[0]['problem']}", BAD_INPUT)
    if study.unanswered:
        number, diagnostic = len(study.unanswered), Diagnostic[study.unanswered[0]["diagnostic"]]
        return print_error(f"{number} without an answer, the first: {diagnostic.value}", NO_ANSWER)
    return REFUTED if study.refuted else 0


def _reproduce(arguments: argparse.Namespace) -> int:
    """Run `dpverify reproduce`."""
    from dpverify.paper.reproduce import reproduce

    out = arguments.out or ("reproduced-quick" if arguments.quick else "reproduced")
    page = reproduce(out, quick=arguments.quick, workers=arguments.workers, progress=not arguments.quiet)
    if not arguments.quiet:
        print(page)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    """Run `dpverify report`."""
    report = Report.from_json(arguments.file)
    if arguments.html:
        write_output(report.to_html, arguments.html)
    else:
        print(report)
    return 0


def _run_command(arguments: argparse.Namespace) -> int:
    """Run the command that the arguments name, and return its exit status."""
    match arguments.command:
        case "verify":
            return _verify(arguments)
        case "study":
            return _study(arguments)
        case "reproduce":
            return _reproduce(arguments)
        case "report":
            return _report(arguments)
        case _:
            return _demo(arguments)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, and return its exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    end = argv.index("--") if argv[:1] == ["verify"] and "--" in argv else len(argv)
    arguments = parser().parse_args(argv[:end])
    arguments.program, arguments.line = argv[end + 1 :], shlex.join(["dpverify", *argv])
    warnings.showwarning = show_warning
    try:
        return _run_command(arguments)
    except MechanismError as problem:
        folder = getattr(arguments, "folder", None)
        hint = f"; finished runs are kept in {folder}; fix the mechanism and repeat the command" if folder else ""
        return print_error(f"{problem}{hint}", BAD_INPUT)
    except (InputError, FolderError) as problem:
        return print_error(problem, BAD_INPUT)
    except Stopped as problem:
        return print_error(problem, NO_ANSWER)
    except KeyboardInterrupt:
        return print_error(StopReason.KEYBOARD.value, NO_ANSWER)
    except BrokenPipeError:  # nobody reads the output; without this, Python would report the pipe again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_ANSWER
    except Exception:
        traceback.print_exc()
        return print_error("internal error of dpverify, not of the mechanism; please report it", NO_ANSWER)
