"""All commands of `dpverify`: their options, what each of them does, and the table of both.

A command is a function from the parsed arguments to an `Answer`. The first line of its docstring is its help text, and
the second one an example. `OPTIONS` has every option once; `COMMANDS` names the options of each command. A new option
of a command needs an entry in `OPTIONS`, its name in `COMMANDS`, and its use in the function.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dpverify as dpv
from dpverify.ci.check import run_check
from dpverify.ci.ledger import read_ledger, write_ledger
from dpverify.claims import resolve_claim
from dpverify.errors import InputError, Stopped, StopReason, how_to_install
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.mechanisms.protocol import accepts_arguments
from dpverify.report.power import check_detects
from dpverify.report.report import load_pages
from dpverify.report.text import describe_weakness, report_text, terminal_width
from dpverify.studies.calibrate import SEARCH_RUNS
from dpverify.studies.engine import TABLE_FILE
from dpverify.studies.loading import (
    call_user_code,
    how_to_pass_arguments,
    is_file,
    load_claim,
    load_data,
    load_object,
)
from dpverify.studies.study import check_folder, run_study
from dpverify.studies.tables import FAILED, TOO_WEAK, ResultTable
from dpverify.util.checks import check_epsilon, shorten
from dpverify.util.files import locked
from dpverify.util.formatting import format_count, format_number

BATCHES = logging.getLogger("dpverify.early")  # says after every batch how far a verification is
TIMEOUT = 60.0  # seconds for a block of a program; one that takes longer has most likely stopped


class Answer(NamedTuple):
    """What a command has found. The exit status is that of the first of `failed`, `refuted` and `no_answer` that holds.

    Attributes
    ----------
    result : object
        What is printed; it has methods such as `to_json` for the files that the command line names.
    text : str
        What is printed instead of the result.
    failed : str
        Why something could not be verified: exit status 2.
    refuted : bool
        Whether a claim is refuted: exit status 1.
    no_answer : str
        Why there is no answer: exit status 3.
    """

    result: Any
    text: str = ""
    failed: str = ""
    refuted: bool = False
    no_answer: str = ""


def verify(arguments: argparse.Namespace) -> Answer:
    """Verify one mechanism on one pair of datasets.

    dpverify verify mine.py:mechanism --first a.csv --second b.csv --epsilon 1 --delta 1e-6
    """
    claim = read_claim(arguments)
    if arguments.detects is not None:
        check_detects(arguments.detects, resolve_claim(arguments.epsilon, arguments.delta, claim)[0])
    first, second = read_pair(arguments)  # before the module of the mechanism can change the working directory
    report = dpv.verify(
        load_mechanism(arguments),
        first,
        second,
        arguments.epsilon,
        arguments.delta,
        claim=claim,
        **run_options(arguments),
    )
    report.provenance["command"] = arguments.line
    weakness = None if arguments.detects is None else describe_weakness(report, arguments.detects)
    text = report_text(report, with_next=weakness is None, width=terminal_width())
    return Answer(report, text, refuted=report.refuted, no_answer=void_reason(report) or weakness or "")


def watch(arguments: argparse.Namespace) -> Answer:
    """Verify with --stop-early, and show the evidence meanwhile. With --folder, more test runs continue.

    dpverify watch mine.py:mechanism --first a.csv --second b.csv --epsilon 1
    """
    arguments.stop_early = True
    if arguments.quiet:
        return verify(arguments)
    handler, level = logging.StreamHandler(sys.stderr), BATCHES.level
    handler.setFormatter(logging.Formatter("dpverify: %(message)s"))
    seconds: set[int] = set()  # a line is shown in each of them

    def is_due(record: logging.LogRecord) -> bool:
        return not (int(record.created) in seconds or seconds.add(int(record.created)))

    handler.addFilter(is_due)
    BATCHES.addHandler(handler)
    BATCHES.setLevel(logging.INFO)
    try:
        return verify(arguments)
    finally:
        BATCHES.removeHandler(handler)
        BATCHES.setLevel(level)


def over_time(arguments: argparse.Namespace) -> Answer:
    """Measure how much every prefix of an output reveals: when a record leaks, and how much.

    dpverify over-time mine.py:filter --data readings.csv --hide reading --change 1 --delta 1e-3
    """
    if arguments.until is not None:
        check_epsilon(arguments.until, "--until")
    claim, records = read_claim(arguments), read_records(arguments)
    result = dpv.privacy_over_time(
        load_mechanism(arguments),
        delta=arguments.delta,
        epsilon=arguments.epsilon,
        claim=claim,
        jointly=arguments.jointly,
        **records,
        **run_options(arguments),
    )
    curves = result.curves if isinstance(result, dpv.PrivacyTable) else (result,)
    lines = [str(result)]
    if arguments.until is not None:
        lines += [f"{curve.record}{': ' if curve.record else ''}{curve.until(arguments.until)}" for curve in curves]
    return Answer(result, "\n".join(lines), refuted=result.refuted, no_answer=void_reason(*curves))


def study(arguments: argparse.Namespace) -> Answer:
    """Verify every combination of a study file.

    dpverify study noise.toml --workers 4 --html noise.html
    """
    executor = arguments.executor
    found = run_study(
        arguments.file,
        arguments.folder,
        workers=executor if isinstance(executor, int) else None,
        executor=executor,
        progress=not arguments.quiet,
        timeout=arguments.timeout,
        trust_results=arguments.trust_results,
    )
    return table_answer(found, f"{found}\ntable: {found.folder / TABLE_FILE}", bool(found.certain))


def check(arguments: argparse.Namespace) -> Answer:
    """Verify all claims of a project, and compare them with the last release.

    dpverify check claims.toml --workers 2 --release 1.4
    """
    if not arguments.no_pages:
        load_pages()
    found = run_check(
        arguments.file,
        arguments.folder,
        workers=arguments.executor or 1,
        release=arguments.release,
        history=arguments.history,
        pages=not arguments.no_pages,
        trust_results=arguments.trust_results,
        notify=(lambda line: None)
        if arguments.quiet
        else lambda line: print(f"dpverify: {line}", file=sys.stderr, flush=True),
    )
    page = found.folder / ("results.csv" if arguments.no_pages else "page.html")
    return table_answer(found, f"{found}\nresults: {page}", bool(found.in_state("REFUTED")))


def ledger(arguments: argparse.Namespace) -> Answer:
    """Show the evidence that the tests of a project have collected, or confirm an alarm.

    dpverify ledger ledger.json --confirm tests/test_privacy.py::test_sum
    """
    confirm, rename, merged = arguments.confirm, arguments.rename, arguments.merge or []
    for file in (arguments.file, *merged):
        if not Path(file).exists():
            raise InputError(f"{file}: found no file; expected a ledger, which pytest --dpverify-write makes")
    with locked(arguments.file) if confirm or rename or merged else contextlib.nullcontext():
        changed = before = read_ledger(arguments.file)
        for file in merged:
            changed = changed.merge(read_ledger(file))
        if rename is not None:
            changed = changed.rename(*rename)
        if confirm is not None:
            changed = changed.confirm(confirm)
        if changed is not before:
            write_ledger(arguments.file, changed)
    done = "" if confirm is None else f"{confirm}: confirmed; its evidence starts again, with half of its level\n"
    return Answer(changed, f"{done}{changed}", refuted=any(record.alarm is not None for record in changed.records))


def calibrate(arguments: argparse.Namespace) -> Answer:
    """Find the parameter, for example the noise, at which a family of mechanisms has a required privacy.

    dpverify calibrate mine.py:NoisySum --range 0.2 10 --first a.csv --second b.csv --epsilon 1
    """
    first, second = read_pair(arguments)
    found = dpv.calibrate(
        load_object(arguments.family, what="family"),
        tuple(arguments.range),
        first,
        second,
        arguments.epsilon,
        arguments.delta,
        pairs=None if arguments.pairs is None else load_object(arguments.pairs, what="pairs"),
        box=arguments.box,
        runs=arguments.runs,
        **run_options(arguments),
    )
    return Answer(found, no_answer=found.headline if found.sufficient is None else "")


def search(arguments: argparse.Namespace) -> Answer:
    """Find the pair of datasets with the largest privacy loss, and verify it.

    dpverify search mine.py:mechanism mine.py:pairs --runs 80000 --epsilon 1
    """
    named: Any = load_object(arguments.pairs, what="pairs")
    is_list = callable(named) and arguments.box is None and not hasattr(named, "bounds")
    if is_list and not accepts_arguments(named, 0):
        raise InputError("--box must have an interval for each coordinate, because PAIRS is a function")
    pairs: Any = call_user_code("pairs: calling the function", named) if is_list else named
    found = dpv.search_pairs(
        load_mechanism(arguments),
        pairs,
        arguments.epsilon,
        arguments.delta,
        claim=read_claim(arguments),
        runs=arguments.runs,
        bounds=arguments.box,
        **run_options(arguments),
    )
    return Answer(found, refuted=found.report.refuted, no_answer=void_reason(found.report))


def tradeoff(arguments: argparse.Namespace) -> Answer:
    """Compare the privacy and the accuracy of families of mechanisms at several parameters.

    dpverify tradeoff mine.py:NoisySum --values 0.5 1 2 --truth truth.csv --first a.csv --second b.csv
    """
    (first, second), error = read_pair(arguments), dpv.rmse(load_data(arguments.truth))
    families = {
        name.rpartition(":")[2]: (load_object(name, what="family"), arguments.values) for name in arguments.families
    }
    table = dpv.tradeoff(families, first, second, arguments.delta, error, **run_options(arguments))
    return Answer(table, no_answer=void_reason(*table.reports))


def plan(arguments: argparse.Namespace) -> Answer:
    """Compute how many runs refute a false claim.

    dpverify plan --epsilon 1 --margin 1.25 --event-mass 0.3
    """
    if not arguments.margin > 1:
        raise InputError(f"--margin: found {arguments.margin:g}; expected a number above 1, a multiple of the claim")
    epsilon, mass, power = arguments.epsilon, arguments.event_mass, arguments.power
    runs = dpv.plan_runs(epsilon, arguments.margin * epsilon, mass, arguments.delta, arguments.alpha, power)
    favourable = "this is a favourable event; " if mass >= 0.5 else ""
    return Answer(
        f"{format_count(runs)} test runs per dataset refute epsilon {format_number(epsilon)} with probability "
        f"{format_number(power)}, if the true epsilon is {format_number(arguments.margin * epsilon)} on an event of "
        f"probability {format_number(mass)}; --set test_runs={runs}\n{favourable}a rarer event needs more runs, in "
        "proportion to one over its probability: --event-mass sets its probability"
    )


def compare(arguments: argparse.Namespace) -> Answer:
    """Compare two reports, for example before and after a change of the mechanism.

    dpverify compare before.json after.json --html change.html
    """
    return Answer(dpv.compare_reports(*map(dpv.Report.from_json, (arguments.before, arguments.after))))


def report(arguments: argparse.Namespace) -> Answer:
    """Print a report that was written as JSON, or write its page. Nothing is verified, so the exit status is 0.

    dpverify report report.json --html report.html
    """
    return Answer(dpv.Report.from_json(arguments.file))


def verify_folder(arguments: argparse.Namespace) -> Answer:
    """Check that everything in the folder of a verification or a study is undamaged and belongs together.

    dpverify verify-folder noise
    """
    found = check_folder(arguments.directory)
    more = f" (and {len(found.problems) - 1} more)" if len(found.problems) > 1 else ""
    return Answer(found, failed=f"{found.problems[0]}{more}" if found.problems else "")


def demo(arguments: argparse.Namespace) -> Answer:
    """Show a false claim that is refuted and a true one that is not.

    dpverify demo
    """
    from dpverify.demo import demonstrate

    return Answer(demonstrate())


# What the commands make of their options.


def run_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keyword arguments of `verify` that all functions which verify have."""
    changes: dict[str, Any] = {}
    for pair in arguments.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set: found {pair!r}; expected NAME=VALUE")
        try:
            changes[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            changes[name] = value  # a value that is no Python literal is text
    settings = dpv.Settings.paper() if getattr(arguments, "paper", False) else dpv.Settings()
    settings = settings.change(**changes)
    return {
        "settings": settings.change(stop_early=True) if getattr(arguments, "stop_early", False) else settings,
        "executor": arguments.executor,
        "folder": arguments.folder,
        "progress": not arguments.quiet,
        "trust_results": arguments.trust_results,
    }


def read_claim(arguments: argparse.Namespace) -> Any:
    """Return the claim of --claim, or None."""
    return None if arguments.claim is None else load_claim(arguments.claim)


def read_pair(arguments: argparse.Namespace) -> tuple[Any, Any]:
    """Return the two datasets; None for a file that is not named."""
    first, second = (None if file is None else load_data(file) for file in (arguments.first, arguments.second))
    return first, second


def read_records(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the two datasets, or the pairs of datasets of the kind that --hide names."""
    change, steps, sensors = arguments.change, arguments.steps, arguments.sensors
    if arguments.data is None:
        if arguments.first is None or arguments.second is None:
            raise InputError("there are no datasets; use --first and --second, or --data")
        return dict(zip(("first", "second"), read_pair(arguments), strict=True))
    if arguments.first is not None or arguments.second is not None:
        raise InputError("use --data, or --first and --second, not both")
    if change is None:
        raise InputError("--change is missing: the number that is added to the hidden readings")
    data: Any = load_data(arguments.data)
    if isinstance(change, tuple):  # one per sensor; an array of one per step would broadcast too
        columns = len(change)
        with contextlib.suppress(ValueError):  # rows of different lengths; `dpverify.neighbours` says so
            columns = (*np.shape(data), 1)[1]
        if len(change) != columns:
            found = f"--change: found {len(change)} numbers; expected 1"
            raise InputError(f"{found}, or one for each of {columns} columns of the data")
    kind, _, width = arguments.hide.partition(":")
    if arguments.hide == "reading":
        pairs = dpv.neighbours.one_reading(data, change, steps, sensors)
    elif arguments.hide == "sensor":
        pairs = dpv.neighbours.one_sensor(data, change, sensors)
    elif arguments.hide == "stream":
        pairs = dpv.neighbours.whole_stream(data, change)
    elif kind == "window" and width.isdigit():
        pairs = dpv.neighbours.window(data, int(width), change, steps)
    else:
        raise InputError(f"--hide: found {arguments.hide!r}; expected reading, sensor, stream or window:W")
    return {"pairs": dict(pairs)}


def void_reason(*results: Any) -> str:
    """Return why the first result without an answer has none; empty if all have one."""
    return next((result.voiding[0].value for result in results if result.voiding), "")


def table_answer(table: ResultTable, text: str, refuted: bool) -> Answer:
    """Return the answer of a table: the first reason of those that failed, and of those without an answer."""
    reasons = []
    for states, words in (((FAILED,), "failed"), (("NO_ANSWER",), "without an answer"), ((TOO_WEAK,), "too weak")):
        rows = table.in_state(*states)
        first = rows[0] if rows else {}
        cause = first.get("problem") or first.get("too_weak") or (rows and Diagnostic[first["diagnostic"]].value)
        reasons.append(f"{len(rows)} {words}, the first: {cause}" if rows else "")
    return Answer(table, text, reasons[0], refuted, reasons[1] or reasons[2])


def load_mechanism(arguments: argparse.Namespace) -> dpv.Mechanism:
    """Return the mechanism that MECHANISM names, or the program after --."""
    text = arguments.mechanism
    if (text is None) == (not arguments.program):
        found = "neither" if text is None else "both"
        raise InputError(f"mechanism: found {found} of MECHANISM and -- PROGRAM ARG...; use one of them")
    if arguments.program:
        timeout = TIMEOUT if arguments.timeout is None else arguments.timeout
        return dpv.program(arguments.program, arguments.shape, timeout, seeded=not arguments.unseeded)
    if is_file(Path(text)) and not text.endswith(".py"):
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


@contextlib.contextmanager
def open_executor(arguments: argparse.Namespace) -> Iterator[int | Executor | None]:
    """Yield a number of processes, or the executor of a running Dask cluster, whose workers get the user's files."""
    if getattr(arguments, "dask", None) is None:
        yield getattr(arguments, "workers", None)
        return
    if arguments.workers is not None:
        raise InputError("use --workers or --dask, not both")
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
    named = [getattr(arguments, name, None) for name in ("mechanism", "family")] + getattr(arguments, "families", [])
    with client:
        for file in {name.rpartition(":")[0] for name in named if name is not None}:
            if file.endswith(".py"):
                client.upload_file(file)
        yield client.get_executor()


# The options, each once.


class Option(NamedTuple):
    """An argument of commands: its name, the keywords of `ArgumentParser.add_argument`, and its group in the help."""

    name: str
    keywords: dict[str, Any]
    group: str = ""


def option(name: str, metavar: Any, text: str, group: str = "", **keywords: Any) -> Option:
    """Return an option with a value."""
    return Option(name, {"metavar": metavar, "help": text, **keywords}, group)


def flag(name: str, text: str, group: str = "") -> Option:
    """Return an option without a value."""
    return Option(name, {"action": "store_true", "help": text}, group)


def absolute(path: str) -> str:
    """Return the absolute form of a path, because a mechanism can change the working directory; "-" stays."""
    try:
        return path if path == "-" else os.path.abspath(path)
    except OSError:  # the working directory was removed
        return path


def interval(text: str) -> tuple[float, float]:
    """Return the interval in a text such as 0,3."""
    low, high = text.split(",")
    return float(low), float(high)


def integers(text: str) -> tuple[int, ...]:
    """Return the whole numbers in a text such as 0,3,5 or 4x1."""
    return tuple(int(part) for part in text.replace("x", ",").split(","))


def output_shape(text: str) -> tuple[int, ...] | str:
    """Return the shape in a text such as 4x1, or the word json."""
    return text if text == "json" else integers(text)


def changes(text: str) -> float | tuple[float, ...]:
    """Return the number in a text such as 3, or the numbers in a text such as 3,1."""
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        message = f"found {text!r}; expected a number, or one number per sensor, for example 3,1"
        raise argparse.ArgumentTypeError(message) from None
    return found[0] if len(found) == 1 else found


CLAIMS = (
    "Test another claim instead of --epsilon: gaussian(mu=1), zcdp(rho=0.5), renyi(order=8, epsilon=1), pure(1), "
    "approximate(1, 1e-5), points([(1, 1e-3), (2, 1e-6)]), each also with .group(K) behind it; or path/file.py:name of "
    "a claim (profile and tradeoff take a function) or of an accountant's privacy profile."
)
PAIRS = (
    "A list of pairs (first, second), a mapping from names to pairs, or a function that returns one of them; with "
    "--box, a function from a point to a pair. It is named like a mechanism."
)
EVENT_MASS = (
    "The probability of the event under the dataset for which it is more likely (default 0.5, which is favourable: "
    "rarer events need more runs)."
)
CHANGE = (
    "Add X to the readings that must stay hidden: one number, or one per sensor, for example 3,1. If the first of "
    "several is negative, write --change=-3,1."
)
MECHANISM = (
    "The mechanism, module:name or path/file.py:name. Add () to call a function that makes it. A program is named at "
    "the end of the command instead: -- PROGRAM ARG..."
)
PROGRAMS, RECORDS = "arguments for -- PROGRAM ARG...", "many records, instead of --first and --second"
OPTIONS = (
    option("file", "FILE", "The file.", type=absolute),
    option("mechanism", "MECHANISM", MECHANISM, nargs="?"),
    option("family", "FAMILY", "A function from a parameter to a mechanism, named like a mechanism."),
    option("families", "FAMILY", "Functions from a parameter to a mechanism, named like mechanisms.", nargs="+"),
    option("pairs", "PAIRS", PAIRS),
    option("before", "BEFORE.json", "The first report."),
    option("after", "AFTER.json", "The second report."),
    option("directory", "DIR", "The folder."),
    option("--first", "F", "Read the first dataset from this file (.npy, .csv, .txt, .json)."),
    option("--second", "F", "Read the neighbouring dataset from this file."),
    option("--pairs", "PAIRS", f"{PAIRS} They replace --first and --second."),
    option("--box", "LOW,HIGH", "The intervals of a box that is searched.", type=interval, nargs="+"),
    option("--range", ("LOW", "HIGH"), "Search between these parameters.", type=float, nargs=2, required=True),
    option("--values", "X", "The parameters.", type=float, nargs="+", required=True),
    option("--truth", "F", "The true values that the outputs are compared with, in a file.", required=True),
    option("--epsilon", "E", "Test the claim that epsilon is at most E. Without a claim, measure.", type=float),
    option(
        "--delta", "D", "The delta of the claim, or at which epsilon is bounded (default 0).", type=float, default=0.0
    ),
    option("--claim", "CLAIM", CLAIMS),
    option("--detects", "X", "Exit with 3 if the runs would not notice a violation by this factor: 1.25.", type=float),
    option(
        "--set", "NAME=VALUE", "Change a setting: test_runs=1000000. It can be repeated.", action="append", default=[]
    ),
    flag("--stop-early", "Stop as soon as the claim is refuted, or certified over all events."),
    flag("--paper", "Start from the settings of the source paper."),
    option("--runs", "N", "Selection runs of the search for the worst pair.", type=int, default=SEARCH_RUNS),
    option("--until", "E", "Print for how many steps the output stays within the budget E.", type=float),
    option("--margin", "X", "The true epsilon is X times E (default 1.25).", type=float, default=1.25),
    option("--event-mass", "P", EVENT_MASS, type=float, default=0.5),
    option("--alpha", "A", "The significance level of the test (default 0.05).", type=float, default=0.05),
    option("--power", "P", "Refute with this probability (default 0.8).", type=float, default=0.8),
    option("--release", "NAME", "The name of this release in the history (default: the current commit)."),
    option("--history", "FILE", "Keep the answers of all releases here (default: in the folder).", type=absolute),
    flag("--no-pages", "Write no HTML pages."),
    option("--confirm", "NAME", "State that the alarm of this claim was looked at; its evidence starts again."),
    option("--rename", ("OLD", "NEW"), "State that a test was renamed. Its evidence and its alarm stay.", nargs=2),
    option("--merge", ("OTHER.json",), "Add the versions that only another copy of this ledger has.", nargs=1),
    option("--json", "FILE", "Write the result as JSON to this file; - writes it to standard output.", type=absolute),
    option("--csv", "FILE", "Write the table to this file.", type=absolute),
    option("--html", "FILE", "Write the result as a page to this file.", type=absolute),
    option("--folder", "DIR", "Keep what is finished here; the same command resumes.", type=absolute),
    flag(
        "--trust-results",
        "Reuse stored results even if source files have changed, provided that the runs are the same.",
    ),
    option("--workers", "N", "Use N processes (default: this one).", type=int),
    option("--dask", "ADDRESS", "Draw runs on the Dask cluster of this scheduler."),
    option("--timeout", "S", "A combination, or a block of a program, fails after S seconds.", type=float),
    flag("--quiet", "Print nothing except problems; the exit status and the files are the result."),
    option("--shape", "K,D", "Steps and coordinates of one output, or json.", PROGRAMS, type=output_shape),
    flag("--unseeded", "State that the program ignores the seed, so runs cannot be repeated.", PROGRAMS),
    option("--data", "F", "Read a stream from this file: one row (or, in a single row, one number) per step.", RECORDS),
    option("--hide", "WHAT", "reading (default), sensor, stream, or window:W: W rows.", RECORDS, default="reading"),
    option("--change", "X,...", CHANGE, RECORDS, type=changes),
    option("--steps", "K,...", "Hide the readings, or the windows that start, at these steps.", RECORDS, type=integers),
    option("--sensors", "J,...", "Hide these sensors (default: all).", RECORDS, type=integers),
    flag("--jointly", "Make the bounds hold jointly for all records.", RECORDS),
)


class Command(NamedTuple):
    """A command, and the names of its options; one that must be given ends in an exclamation mark."""

    run: Callable[[argparse.Namespace], Answer]
    options: str

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return self.run.__name__.replace("_", "-")

    @property
    def takes_program(self) -> bool:
        """Whether -- PROGRAM ARG... can follow its options."""
        return "--unseeded" in self.options


CLAIM = "--epsilon --delta --claim"
RUNS = "--set --folder --trust-results --workers --dask --quiet"
PROGRAM = f"{RUNS} --timeout --shape --unseeded"
COMMANDS = (
    Command(verify, f"mechanism --first! --second! {CLAIM} --detects --stop-early --paper --json --html {PROGRAM}"),
    Command(watch, f"mechanism --first! --second! {CLAIM} --detects --paper --json --html {PROGRAM}"),
    Command(
        over_time,
        "mechanism --first --second --data --hide --change --steps --sensors --jointly "
        f"{CLAIM} --until --stop-early --json --html {PROGRAM}",
    ),
    Command(study, "file --folder --trust-results --workers --dask --timeout --html --quiet"),
    Command(check, "file --folder --trust-results --workers --release --history --no-pages --quiet"),
    Command(ledger, "file --confirm --rename --merge --quiet"),
    Command(calibrate, f"family --range --first --second --pairs --box --runs --epsilon! --delta {RUNS}"),
    Command(search, f"mechanism pairs --box --runs {CLAIM} {PROGRAM}"),
    Command(tradeoff, f"families --values --truth --first! --second! --delta --csv --html {RUNS}"),
    Command(plan, "--epsilon! --delta --margin --event-mass --alpha --power --quiet"),
    Command(compare, "before after --html --quiet"),
    Command(report, "file --html --quiet"),
    Command(verify_folder, "directory --quiet"),
    Command(demo, "--quiet"),
)
