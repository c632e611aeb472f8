"""The command `dpverify`. Exit 0: not refuted, or no claim. 1: refuted, and nothing else. 2: usage, bad input or the
mechanism's own exception, in one line. 3: no answer (interrupted, workers gone, a mechanism or a pair unfit for a
test, too weak for --detects, our own fault with its traceback)."""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import errno
import functools
import logging
import os
import shlex
import stat
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, NoReturn

from dpverify import Report, Settings, __version__, program, run_study, verify
from dpverify.errors import DPVerifyWarning, FolderError, InputError, MechanismError, Stopped
from dpverify.report.report import load_page_renderer
from dpverify.studies.assertion import check_detects, too_weak
from dpverify.studies.loading import load_data, load_object
from dpverify.studies.study import TABLE
from dpverify.util.formatting import one_line

REFUTED, BAD_INPUT, NO_ANSWER = 1, 2, 3


def choose_mechanism(arguments: argparse.Namespace) -> Any:
    """MECHANISM, or the program after --."""
    if (arguments.mechanism is None) == (not arguments.program):
        found = "neither" if arguments.mechanism is None else "both"
        raise InputError(f"mechanism: found {found} of MECHANISM and -- PROGRAM ARG...; expected one of them")
    if arguments.program:
        return program(arguments.program, arguments.shape, arguments.timeout, seeded=not arguments.unseeded)
    return load_object(arguments.mechanism)


def read_changes(pairs: Sequence[str]) -> dict[str, Any]:
    changes = {}
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
    check_places(arguments.json if arguments.json != "-" else None, arguments.html)
    settings = (Settings.paper() if arguments.paper else Settings()).change(**read_changes(arguments.set))
    if arguments.detects is not None:
        check_detects(arguments.detects, arguments.epsilon)
    with talk_aside():
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
            )
    report.run["command"] = arguments.line
    if not arguments.quiet and arguments.json != "-":
        print(report)  # before anything else can go wrong
    if arguments.json == "-":
        report.to_json(sys.stdout)
    elif arguments.json:
        write(report.to_json, arguments.json)
    if arguments.html:
        write(report.to_html, arguments.html)
    if report.doubts:
        return _say(report.doubts[0], NO_ANSWER)
    if report.refuted:
        return REFUTED
    weakness = None if arguments.detects is None else too_weak(report, arguments.detects)
    return _say(weakness, NO_ANSWER) if weakness else 0


@contextlib.contextmanager
def open_executor(arguments: argparse.Namespace) -> Iterator[int | Executor | None]:
    """A number of processes, or a Dask cluster that is already running; its workers get the mechanism's file."""
    if arguments.dask is None:
        yield arguments.workers
        return
    try:
        from distributed import Client
    except ImportError:
        raise InputError("--dask: distributed is not installed; install dpverify[dask]") from None
    for name in [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # we say it ourselves, in one line
    try:
        client = Client(arguments.dask, set_as_default=False)
    except (OSError, ValueError) as problem:
        gone = f"--dask: no scheduler at {arguments.dask} ({problem})"
        raise Stopped(f"{gone}; expected one that runs; start it, and then the same again") from None
    with client:
        place = (arguments.mechanism or "").rpartition(":")[0]
        if place.endswith(".py"):
            client.upload_file(place)
        yield client.get_executor()


@contextlib.contextmanager
def talk_aside() -> Iterator[None]:
    """What a mechanism prints, in Python, in C or in a worker, goes to stderr: stdout carries the report alone."""
    if sys.stdout is None:  # closed: nobody listens
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).fflush(None)  # solvers in C keep their talk until then
        os.dup2(kept, 1)
        os.close(kept)


def check_places(json: str | None, html: str | None) -> None:
    """What is missing for a page or a file is said before a long run, not after."""
    if html:
        load_page_renderer()
    for path in filter(None, (json, html)):
        write(_try_place, path)


def _try_place(path: str) -> None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        tempfile.TemporaryFile(dir=os.path.dirname(path) or os.curdir).close()
    except ValueError as problem:  # no file can have this name
        raise OSError(str(problem)) from None
    else:  # it may be a pipe, which nobody opens twice
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def write(writer: Callable[[str], None], path: str) -> None:
    try:
        writer(path)
    except OSError as problem:
        raise InputError(f"{path}: {problem.strerror or problem}; expected a place that can be written") from None


def _demo(arguments: argparse.Namespace) -> int:
    from dpverify.demo import main as demo

    demo()
    return 0


def _study(arguments: argparse.Namespace) -> int:
    check_places(None, arguments.html)
    with talk_aside():
        done = run_study(arguments.file, arguments.folder, executor=arguments.workers, progress=not arguments.quiet)
    if not arguments.quiet:
        refuted = f"{len(done.refuted)} refuted (each by itself)"
        found = (
            f"{len(done.rows)} verification{'' if len(done.rows) == 1 else 's'}, {refuted}, {len(done.failed)} failed"
        )
        found += f", {len(done.doubtful)} without an answer" if done.doubtful else ""
        print(f"{found}; table: {done.folder / TABLE}")
    if arguments.html:
        done.to_html(arguments.html)
    if done.failed:
        _say(f"{len(done.failed)} failed, the first with: {done.failed[0]['problem']}", BAD_INPUT)
        return BAD_INPUT
    if done.doubtful:
        return _say(f"{len(done.doubtful)} without an answer, the first: {done.doubtful[0]['doubt']}", NO_ANSWER)
    return REFUTED if done.refuted else 0


def _reproduce(arguments: argparse.Namespace) -> int:
    from dpverify.paper.reproduce import reproduce

    out = arguments.out or ("reproduced-quick" if arguments.quick else "reproduced")
    page = reproduce(out, quick=arguments.quick, workers=arguments.workers, progress=not arguments.quiet)
    if not arguments.quiet:
        print(page)
    return 0


def _report(arguments: argparse.Namespace) -> int:
    report = Report.from_json(arguments.file)
    if arguments.html:
        write(report.to_html, arguments.html)
    else:
        print(report)
    return 0


class Parser(argparse.ArgumentParser):
    """A mistake in the words of a command is one line too."""

    def error(self, message: str) -> NoReturn:
        self.exit(_say(f"{message}; {self.prog} --help tells more", BAD_INPUT))


@functools.cache
def parser() -> Parser:
    top = Parser(
        prog="dpverify",
        description="Finds out, from samples alone, how private a randomised mapping really is.",
        epilog="exit: 0 not refuted or no claim; 1 refuted; 2 bad input or the mechanism failed; 3 no answer",
    )
    top.add_argument("--version", action="version", version=f"dpverify {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("verify", help="verify one mechanism on one pair of data sets")
    one.add_argument(
        "mechanism",
        metavar="MECHANISM",
        nargs="?",
        help="module:name or path/file.py:name; () behind it calls it first. Or, at the end: -- PROGRAM ARG...",
    )
    one.add_argument("--first", required=True, metavar="F", help="data set (.npy, .csv, .txt, .json)")
    one.add_argument("--second", required=True, metavar="F", help="the neighbouring data set")
    one.add_argument("--epsilon", type=float, metavar="E", help="the claim; without it, measure")
    one.add_argument("--delta", type=float, default=0.0, metavar="D", help="the claim's delta (default 0)")
    one.add_argument(
        "--detects", type=float, metavar="X", help="exit 3 where X times the claim would have gone unseen, say 1.25"
    )
    one.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting, say test_runs=1000000"
    )
    one.add_argument("--paper", action="store_true", help="start from the paper's own settings")
    one.add_argument("--json", metavar="FILE", help="write the report as JSON; - prints it, and nothing else")
    one.add_argument("--html", metavar="FILE", help="write the report as a page")
    one.add_argument("--folder", metavar="DIR", help="keep what is finished here; the same command goes on from there")
    who = one.add_mutually_exclusive_group()
    who.add_argument("--workers", type=int, metavar="N", help="draw in so many processes")
    who.add_argument("--dask", metavar="ADDRESS", help="draw on the Dask cluster of this scheduler")
    one.add_argument("--quiet", action="store_true", help="print nothing; the exit status tells")
    other = one.add_argument_group("with -- PROGRAM ARG...")
    other.add_argument("--shape", type=_shape, metavar="K,D", help="of one estimate (default: the numbers of a line)")
    other.add_argument("--timeout", type=float, default=60.0, metavar="S", help="seconds a block (default 60)")
    other.add_argument("--unseeded", action="store_true", help="the program takes no notice of its seed")
    one.set_defaults(run=_verify)
    many = commands.add_parser("study", help="verify every combination of a study file")
    many.add_argument("file", metavar="FILE.toml")
    many.add_argument("--folder", metavar="DIR", help="reports and table.csv go here (default: beside the file)")
    many.add_argument("--workers", type=int, metavar="N", help="draw in so many processes")
    many.add_argument("--html", metavar="FILE", help="draw privacy against accuracy as one page")
    many.add_argument("--quiet", action="store_true", help="print nothing but what failed")
    many.set_defaults(run=_study)
    paper = commands.add_parser("reproduce", help="the source paper's experiments again, its numbers beside ours")
    paper.add_argument("--quick", action="store_true", help="fewer seeds, draws and runs: minutes instead of an hour")
    paper.add_argument("--out", metavar="DIR", help="everything goes here; the same command goes on from there")
    paper.add_argument("--workers", type=int, default=2, metavar="N", help="processes (default 2)")
    paper.add_argument("--quiet", action="store_true", help="print nothing")
    paper.set_defaults(run=_reproduce)
    again = commands.add_parser("report", help="print a report that was written as JSON, or draw its page")
    again.add_argument("file", metavar="FILE.json")
    again.add_argument("--html", metavar="FILE", help="write the page instead")
    again.set_defaults(run=_report)
    demo = commands.add_parser("demo", help="a false claim refuted, a true one left standing; seconds")
    demo.set_defaults(run=_demo)
    return top


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.replace("x", ",").split(","))


def main(argv: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    end = argv.index("--") if argv[:1] == ["verify"] and "--" in argv else len(argv)
    arguments = parser().parse_args(argv[:end])
    arguments.program, arguments.line = argv[end + 1 :], shlex.join(["dpverify", *argv])
    warnings.showwarning = _show_warning
    try:
        return arguments.run(arguments)
    except MechanismError as problem:
        place = getattr(arguments, "folder", None)
        kept = (
            f"; what was finished is kept in {place}: mend it, and the same again goes on from there" if place else ""
        )
        return _say(f"{problem}{kept}", BAD_INPUT)
    except (InputError, FolderError) as problem:
        return _say(problem, BAD_INPUT)
    except Stopped as problem:
        return _say(problem, NO_ANSWER)
    except KeyboardInterrupt:
        return _say("stopped by the keyboard", NO_ANSWER)
    except BrokenPipeError:  # the reader has gone; a second complaint at exit would be noise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NO_ANSWER
    except Exception:
        traceback.print_exc()
        return _say("this is a fault of dpverify itself, not of what was verified; please report it", NO_ANSWER)


def _say(problem: object, status: int) -> int:
    print("dpverify: " + one_line(problem, 2000), file=sys.stderr)
    return status


def _show_warning(message: Any, category: type, filename: str, lineno: int, *rest: Any) -> None:
    ours = "dpverify: " if issubclass(category, DPVerifyWarning) else f"{category.__name__}: "
    print(f"{ours}{message}", file=sys.stderr)


def entry() -> NoReturn:
    sys.exit(main())
