"""The commands of `dpverify`, and the exit status that each of their outcomes gives."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import cast

from dpverify import Report, Settings, run_study, verify
from dpverify.claims import resolve_claim
from dpverify.cli.arguments import parser
from dpverify.cli.inputs import COMMANDS_WITH_PROGRAM, absolute, choose_mechanism, open_executor, read_changes
from dpverify.cli.output import (
    BAD_INPUT,
    NO_ANSWER,
    REFUTED,
    check_outputs,
    discard_stdout,
    escape_unencodable_characters,
    print_error,
    print_output,
    show_warning,
    stdout_to_stderr,
    write_output,
    write_results,
    write_stdout,
)
from dpverify.cli.over_time import over_time
from dpverify.cli.supervision import run_in_child
from dpverify.errors import (
    FolderError,
    InputError,
    MechanismError,
    OutputError,
    Stopped,
    StopReason,
    describe_exception,
    is_users,
)
from dpverify.mechanisms.diagnostics import Diagnostic
from dpverify.report.power import check_detects
from dpverify.report.text import describe_weakness, report_text
from dpverify.studies.files.claim_text import load_claim
from dpverify.studies.files.folder_check import check_folder
from dpverify.studies.files.interruptions import describe_end, read_start, set_supervised
from dpverify.studies.files.loading import integer_hint, load_data
from dpverify.studies.files.study import TABLE_FILE, study_folder
from dpverify.util.formatting import one_line


def _verify(arguments: argparse.Namespace) -> int:
    """Run `dpverify verify`."""
    check_outputs(arguments.json if arguments.json != "-" else None, arguments.html)
    json, html, folder = map(absolute, (arguments.json, arguments.html, arguments.folder))
    settings = Settings.paper() if arguments.paper else Settings()
    settings = settings.change(**read_changes(arguments.set))  # type: ignore[arg-type]
    settings = settings.change(stop_early=True) if arguments.stop_early else settings
    claim = None if arguments.claim is None else load_claim(arguments.claim)
    if arguments.detects is not None:
        check_detects(arguments.detects, resolve_claim(arguments.epsilon, arguments.delta, claim)[0])
    with stdout_to_stderr():
        # The data sets are read first, because the module of the mechanism can change the working directory.
        first, second = load_data(arguments.first), load_data(arguments.second)
        mechanism = choose_mechanism(arguments)
        with open_executor(arguments) as executor:
            report = verify(
                mechanism,
                first,
                second,
                arguments.epsilon,
                arguments.delta,
                claim=claim,
                settings=settings,
                executor=executor,
                folder=folder,
                progress=not arguments.quiet,
                trust_results=arguments.trust_results,
            )
    report.provenance["command"] = arguments.line
    weakness = None if arguments.detects is None else describe_weakness(report, arguments.detects)
    write_results(report, json, html, arguments.quiet, report_text(report, with_next=weakness is None))
    if report.voiding:
        return print_error(report.voiding[0].value, NO_ANSWER)
    if report.refuted:
        return REFUTED
    return print_error(weakness, NO_ANSWER) if weakness else 0


def _demo(arguments: argparse.Namespace) -> int:
    """Run `dpverify demo`."""
    from dpverify.demo import main as demo

    demo()
    return 0


def _study(arguments: argparse.Namespace) -> int:
    """Run `dpverify study`."""
    check_outputs(None, arguments.html)
    file, folder, html = map(absolute, (arguments.file, arguments.folder, arguments.html))
    with stdout_to_stderr():
        study = run_study(
            cast("str", file),
            folder,
            executor=arguments.workers,
            progress=not arguments.quiet,
            timeout=arguments.timeout,
            trust_results=arguments.trust_results,
        )
    if not arguments.quiet:
        lines = [f"{study.summary}; table: {study.folder / TABLE_FILE}", *study.table_lines()]
        print_output(arguments.shorten("\n".join(lines)))
    page_status = 0
    if html:
        try:
            study.to_html(html)
        except InputError as problem:  # the answers of the study are complete, so its status counts
            page_status = print_error(problem, BAD_INPUT)
    if study.failed:
        return print_error(f"{len(study.failed)} failed, the first with: {study.failed[0]['problem']}", BAD_INPUT)
    if study.unanswered:
        number, diagnostic = len(study.unanswered), Diagnostic[study.unanswered[0]["diagnostic"]]
        return print_error(f"{number} without an answer, the first: {diagnostic.value}", NO_ANSWER)
    if study.certain:
        return REFUTED
    if study.too_weak:
        return print_error(f"{len(study.too_weak)} too weak, the first: {study.too_weak[0]['too_weak']}", NO_ANSWER)
    return page_status


def _report(arguments: argparse.Namespace) -> int:
    """Run `dpverify report`."""
    report = Report.from_json(arguments.file)
    if arguments.html:
        write_output(report.to_html, arguments.html)
    else:
        print_output(report)
    return 0


def _verify_folder(arguments: argparse.Namespace) -> int:
    """Run `dpverify verify-folder`."""
    check = check_folder(arguments.directory)
    if not arguments.quiet:
        print_output(check)
    problems = list(check.problems)
    if not problems:
        return 0
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return print_error(f"{problems[0]}{more}", BAD_INPUT)


def _run_command(arguments: argparse.Namespace) -> int:
    """Run the command that the arguments name, and return its exit status."""
    if hasattr(arguments, "run"):  # a command with a module of its own
        return arguments.run(arguments)
    match arguments.command:
        case "verify":
            return _verify(arguments)
        case "over-time":
            return over_time(arguments)
        case "study":
            return _study(arguments)
        case "report":
            return _report(arguments)
        case "verify-folder":
            return _verify_folder(arguments)
        case _:
            return _demo(arguments)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command line; wrong usage ends the process with status 2."""
    argv = list(argv)
    end = argv.index("--") if argv[:1] and argv[0] in COMMANDS_WITH_PROGRAM and "--" in argv else len(argv)
    arguments = parser().parse_args(argv[:end])
    arguments.program, arguments.line = argv[end + 1 :], shlex.join(["dpverify", *argv])
    arguments.shorten = relative_paths()
    return arguments


def relative_paths() -> Callable[[object], str]:
    """Return a function that writes the paths in a message relative to the current working directory."""
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        return str
    prefix = os.path.join(folder, "")
    return str if prefix == os.sep else lambda message: str(message).replace(prefix, "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments in this process, and return its exit status."""
    return run(parse(sys.argv[1:] if argv is None else argv))


def main_in_child(argv: Sequence[str]) -> int:
    """Run the command in a child process, and return its exit status; 3 if the child ends without a report.

    A study continues in a new child process after a combination that has ended the process.
    """
    arguments = parse(argv)
    ended: dict[int, str] = {}
    set_supervised(ended)
    while True:
        outcome = run_in_child(lambda: run(arguments))
        if outcome.status is not None:
            return outcome.status
        start = None
        if arguments.command == "study" and not outcome.stopped:
            start = read_start(study_folder(arguments.file, arguments.folder))
        if start is None or start.process != outcome.process or start.number in ended:
            cause = "the mechanism, or a library, ended it"
            if outcome.stopped:
                cause = f"stopped by a signal{_how_to_resume(arguments)}"
            return print_error(f"the process ended without a report ({outcome.end}); {cause}", NO_ANSWER)
        ended[start.number] = describe_end(start, outcome.end)


def _how_to_resume(arguments: argparse.Namespace) -> str:
    """Return what a process that was ended by a signal has left in its folder, and what to do; empty without one."""
    folder = getattr(arguments, "folder", None) or getattr(arguments, "out", None)
    if arguments.command == "study":
        folder = study_folder(arguments.file, folder)
    if folder is None or not os.path.isdir(folder):
        return ""
    return f"; the results up to the last checkpoint are saved in {folder}; repeat the same command to resume"


def run(arguments: argparse.Namespace) -> int:
    """Run the command that the arguments name, and return its exit status; every exception is reported."""
    warnings.showwarning = show_warning
    escape_unencodable_characters()
    try:
        status = _run_command(arguments)
        write_stdout()
        return status
    except MechanismError as problem:
        folder = getattr(arguments, "folder", None)
        hint = integer_hint(problem, (getattr(arguments, name, None) for name in ("first", "second", "data")))
        hint += f"; finished runs are kept in {folder}; fix the mechanism and repeat the command" if folder else ""
        return print_error(arguments.shorten(f"{problem}{hint}"), BAD_INPUT)
    except OutputError as problem:  # a disk that fails during the work, because output paths are checked before
        return print_error(arguments.shorten(problem), NO_ANSWER)
    except (InputError, FolderError) as problem:
        return print_error(arguments.shorten(problem), BAD_INPUT)
    except Stopped as problem:
        return print_error(arguments.shorten(problem), NO_ANSWER)
    except KeyboardInterrupt:
        return print_error(StopReason.KEYBOARD.value, NO_ANSWER)
    except BrokenPipeError:  # nobody reads the output
        discard_stdout()
        return NO_ANSWER
    except MemoryError:
        return print_error(StopReason.OUT_OF_MEMORY.value, NO_ANSWER)
    except OSError as problem:
        where = "" if problem.filename is None else f"{one_line(problem.filename)}: "
        line = f"{where}{problem.strerror or one_line(problem)}; expected files that can be read and written"
        return print_error(arguments.shorten(line), NO_ANSWER)
    except Exception as problem:
        if is_users(problem):  # an attribute of the mechanism that is computed, for example
            return print_error(f"the mechanism failed: {describe_exception(problem, one_line)}", BAD_INPUT)
        traceback.print_exc()
        return print_error("internal error of dpverify, not of the mechanism; please report it", NO_ANSWER)
    except BaseException as problem:  # code of the user outside a block of runs
        return print_error(f"the mechanism failed: {describe_exception(problem, one_line)}", BAD_INPUT)
