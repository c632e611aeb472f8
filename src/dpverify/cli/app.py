"""The command line: the table of the commands, the parser, files and exit statuses, the same for every command."""

from __future__ import annotations

import argparse
import functools
import inspect
import os
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from dpverify import Settings, __version__
from dpverify.cli.commands import COMMANDS, OPTIONS, Answer, open_executor
from dpverify.cli.process import (
    check_writable,
    discard_stdout,
    escape_unencodable_characters,
    print_error,
    run_in_child,
    show_warning,
    stdout_to_stderr,
    write_output,
    write_stdout,
)
from dpverify.errors import (
    FolderError,
    InputError,
    MechanismError,
    NoAnswer,
    OutputError,
    Stopped,
    StopReason,
    describe_exception,
    is_users,
)
from dpverify.report.report import load_pages
from dpverify.studies.loading import integer_hint
from dpverify.util.checks import nearest_name, shorten
from dpverify.util.formatting import one_line

REFUTED, BAD_INPUT, NO_ANSWER = 1, 2, 3  # exit statuses; 0 means not refuted
FORMS = {"json": "to_json", "csv": "to_csv", "html": "to_html"}  # options of files, and the methods that write them


class Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong usage in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(print_error(f"{message}; see {self.prog} --help", BAD_INPUT))

    def describe_unknown(self, unknown: Sequence[str], args: Sequence[str]) -> str:
        """Return the message for the first argument of `args` that is unknown; the name of a setting is recognised."""
        option, equals, value = unknown[0].partition("=")
        if not option.startswith("-"):
            return f"found the argument {shorten(unknown[0])}; expected no more arguments"
        message = f"unknown option {one_line(option)}"
        setting = option.lstrip("-").replace("-", "_")
        if "--set" in self._option_string_actions and setting in Settings.__dataclass_fields__:
            if not equals:
                value = args[args.index(unknown[0]) + 1 :][:1]
                value = value[0] if value and not value[0].startswith("--") else "VALUE"
            return f"{message}; did you mean --set {setting}={one_line(value)}?"
        near = nearest_name(option, self._option_string_actions)
        return message if near is None else f"{message}; did you mean {near}?"


@functools.cache
def make_parser() -> Parser:
    """Return the parser of the command line."""
    top = Parser(
        prog="dpverify",
        description="Audits differential privacy from samples: how private is a randomised mechanism?",
        epilog="Exit status: 0 not refuted, or no claim; 1 refuted; 2 bad input, or the mechanism failed; 3 no "
        "answer, or too few runs. Of several results the first of 2, 1, 3 counts.",
    )
    top.add_argument("--version", action="version", version=f"dpverify {__version__}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    known = {option.name: option for option in OPTIONS}
    for command in COMMANDS:
        summary, _, example = inspect.cleandoc(command.run.__doc__ or "").partition("\n\n")
        parser = subparsers.add_parser(
            command.name,
            help=summary,
            description=summary,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(parser=parser, chosen=command)
        groups: dict[str, argparse._ActionsContainer] = {"": parser}
        for name in command.options.split():
            option = known[name.removesuffix("!")]
            keywords = {**option.keywords, "required": True} if name.endswith("!") else option.keywords
            if option.group not in groups:
                groups[option.group] = parser.add_argument_group(option.group)
            groups[option.group].add_argument(option.name, **keywords)
    return top


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command line; wrong usage ends the process with status 2."""
    argv = list(argv)
    takes_program = argv[:1] in [[command.name] for command in COMMANDS if command.takes_program]
    end = argv.index("--") if takes_program and "--" in argv else len(argv)
    arguments, unknown = make_parser().parse_known_args(argv[:end])
    if unknown:
        arguments.parser.error(arguments.parser.describe_unknown(unknown, argv))
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


def entry() -> NoReturn:
    """Run the command, and exit with its status. On systems with `os.fork` a child process does the work."""
    if not hasattr(os, "fork"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
    os._exit(main_in_child(sys.argv[1:]))  # the child has written everything, and an orderly exit takes time


def main_in_child(argv: Sequence[str]) -> int:
    """Run the command in a child process, and return its exit status; 3 if the child ends without a report.

    If a combination of a study ends the process, the study continues with a process of its own for each combination.
    """
    arguments = parse(argv)
    outcome = run_in_child(lambda: run(arguments))
    if outcome.status is None and arguments.command == "study" and not outcome.stopped and not arguments.workers:
        arguments.workers = 1
        outcome = run_in_child(lambda: run(arguments))
    if outcome.status is not None:
        return outcome.status
    cause = "the mechanism, or a library, ended it"
    if outcome.stopped:
        cause = f"stopped by a signal{how_to_resume(arguments)}"
    return print_error(f"the process ended without a report ({outcome.end}); {cause}", NO_ANSWER)


def kept_folder(arguments: argparse.Namespace) -> str | None:
    """Return the folder in which a command keeps what is finished: the given one, or that beside its TOML file."""
    folder, file = getattr(arguments, "folder", None), getattr(arguments, "file", "")
    return folder or (os.path.splitext(file)[0] if file.endswith(".toml") else None)


def how_to_resume(arguments: argparse.Namespace) -> str:
    """Return what a process that was ended by a signal has left in its folder, and what to do; empty without one."""
    folder = kept_folder(arguments)
    if folder is None or not os.path.isdir(folder):
        return ""
    kept = arguments.shorten(folder)
    return f"; the results up to the last checkpoint are saved in {kept}; repeat the same command to resume"


def execute(arguments: argparse.Namespace) -> int:
    """Run the command that the arguments name, write its answer in all forms, and return the exit status."""
    files = {name: path for name in FORMS if (path := getattr(arguments, name, None)) is not None}
    if "html" in files:
        load_pages()
    for path in files.values():  # before a long run
        if path != "-":
            write_output(check_writable, path)
    with stdout_to_stderr(), open_executor(arguments) as arguments.executor:
        answer = arguments.chosen.run(arguments)
    write_answer(answer, files, arguments)
    for reason, status in ((answer.failed, BAD_INPUT), (answer.no_answer, NO_ANSWER)):
        if reason:
            print_error(arguments.shorten(reason), status)
    return BAD_INPUT if answer.failed else REFUTED if answer.refuted else NO_ANSWER if answer.no_answer else 0


def write_answer(answer: Answer, files: dict[str, str], arguments: argparse.Namespace) -> None:
    """Write an answer in all forms, JSON first. A form that cannot be written does not prevent the others."""
    steps: list[Callable[[], None]] = []
    for name, path in files.items():
        writer = getattr(answer.result, FORMS[name])
        steps.append(partial(write_stdout, writer) if path == "-" else partial(write_output, writer, path))
    if not arguments.quiet and "-" not in files.values():
        text = arguments.shorten(answer.text or answer.result)
        steps.insert(int("json" in files), partial(write_stdout, lambda stream: print(text, file=stream)))
    problems: list[InputError | BrokenPipeError] = []
    for step in steps:
        try:
            step()
        except (InputError, BrokenPipeError) as problem:
            problems.append(problem)
    if problems:
        raise problems[0]


def run(arguments: argparse.Namespace) -> int:
    """Run the command that the arguments name, and return its exit status; every exception is reported."""
    warnings.showwarning = show_warning
    escape_unencodable_characters()
    try:
        return execute(arguments)
    except MechanismError as problem:
        folder = kept_folder(arguments)
        hint = integer_hint(problem, (getattr(arguments, name, None) for name in ("first", "second", "data")))
        hint += f"; finished runs are kept in {folder}; fix the mechanism and repeat the command" if folder else ""
        return print_error(arguments.shorten(f"{problem}{hint}"), BAD_INPUT)
    except OutputError as problem:  # a disk that fails during the work, because output paths are checked before
        return print_error(arguments.shorten(problem), NO_ANSWER)
    except (Stopped, NoAnswer) as problem:
        return print_error(arguments.shorten(problem), NO_ANSWER)
    except (InputError, FolderError) as problem:
        return print_error(arguments.shorten(problem), BAD_INPUT)
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
    except BaseException as problem:
        if isinstance(problem, Exception) and not is_users(problem):
            traceback.print_exc()
            return print_error("internal error of dpverify, not of the mechanism; please report it", NO_ANSWER)
        # Code of the user outside a block of runs, an attribute of the mechanism that is computed, for example.
        return print_error(f"the mechanism failed: {describe_exception(problem, one_line)}", BAD_INPUT)
