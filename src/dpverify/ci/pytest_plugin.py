"""The pytest plugin of dpverify: the fixture `assert_private`, with a ledger for the life of a project.

    pytest                                           a fixed seed, as `dpverify.assert_private`
    pytest --dpverify-ledger FILE                    a new seed; the ledger is read
    pytest --dpverify-ledger FILE --dpverify-write   a new seed; the ledger is written (main branch only)

pytest loads this module in every project of the environment, so everything else is imported when it is used.
"""

from __future__ import annotations

import logging
import os
import shlex
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dpverify.ci.ledger import VersionResult
    from dpverify.report.report import Report

# Variables of CI services that are set in a pull request, and not empty.
PULL_REQUEST_VARIABLES = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_IID", "BITBUCKET_PR_ID", "CHANGE_ID")
SECTION = "dpverify"  # of the report of a test
DEFAULT_ALPHA = 0.05  # of a new ledger
ALARMS = pytest.StashKey[list[str]]()  # the lines about alarms that are not confirmed


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    add = parser.getgroup("dpverify", "privacy claims").addoption
    add("--dpverify-ledger", metavar="FILE", help="Collect the evidence of all versions in this file.")
    add("--dpverify-write", action="store_true", help="Add this version to the ledger. Only the main branch does so.")
    text = f"The probability of a false alarm over the life of a new ledger (default {DEFAULT_ALPHA})."
    add("--dpverify-alpha", type=float, default=DEFAULT_ALPHA, metavar="A", help=text)
    add("--dpverify-version", metavar="NAME", help="The name of this version (default: the commit).")
    add("--dpverify-seed", type=int, metavar="N", help="Repeat a run with this seed; nothing is written.")
    parser.addini("dpverify_ledger", "the ledger, relative to the configuration file")


class CostLines(logging.Handler):
    """Prints the expected time of a long verification at once, although pytest shows what a test prints at its end."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__(logging.WARNING)
        self.plugins = config.pluginmanager

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        terminal, capture = (self.plugins.get_plugin(name) for name in ("terminalreporter", "capturemanager"))
        if terminal is not None and capture is not None:
            with capture.global_and_fixture_disabled():
                terminal.write_line(f"\ndpverify: {record.getMessage()}")


def pytest_configure(config: pytest.Config) -> None:
    """Show the expected time of verifications, and check that a run that writes the ledger is on the main branch."""
    handler = CostLines(config)
    logging.getLogger("dpverify.util.progress").addHandler(handler)
    config.add_cleanup(lambda: logging.getLogger("dpverify.util.progress").removeHandler(handler))
    if not config.getoption("dpverify_write"):
        return
    if ledger_path(config) is None:
        raise pytest.UsageError(
            "--dpverify-write needs a ledger: add --dpverify-ledger FILE, or dpverify_ledger = FILE to the "
            "configuration of pytest"
        )
    found = [name for name in PULL_REQUEST_VARIABLES if os.environ.get(name)]
    if found:
        raise pytest.UsageError(
            f"--dpverify-write: found a pull request ({found[0]} is set); expected the main branch, because only it "
            "writes the ledger; leave --dpverify-write out"
        )


def ledger_path(config: pytest.Config) -> str | None:
    """Return the path of the ledger from the option or the configuration; None without a ledger."""
    option, entry = config.getoption("dpverify_ledger"), config.getini("dpverify_ledger")
    if option:
        return os.path.join(str(config.invocation_params.dir), option)
    return os.path.join(str(config.rootpath), str(entry)) if entry else None


class AssertPrivate:
    """The fixture `assert_private`: it is called like `dpverify.assert_private`."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._config, self._node, self._calls = request.config, request.node, 0

    def __call__(self, mechanism: Any, first: object, second: object, *claim: float, **options: Any) -> Report:
        """Assert that a mechanism does not violate a privacy claim.

        Parameters
        ----------
        mechanism, first, second, *claim, **options
            As in `dpverify.assert_private`. With a ledger, `alpha` and `detects` are not used: the ledger has the
            level, and its evidence grows with every version.
        name : str, optional
            The name of the claim in the ledger. The default is the name of the test, and a number from its second claim
            on.

        Raises
        ------
        AssertionError
            If the claim is refuted, or the test is meaningless or, without a ledger, too weak.
        """
        __tracebackhide__ = True
        self._calls += 1
        config, path, seed = self._config, ledger_path(self._config), self._config.getoption("dpverify_seed")
        name = options.pop("name", None) or f"{self._node.nodeid}{f' #{self._calls}' if self._calls > 1 else ''}"
        if seed is not None:
            options["seed"] = seed
        if path is None:
            from dpverify.ci.assertion import assert_private

            report = assert_private(mechanism, first, second, *claim, **options)
            self._record({"epsilon_lower": report.epsilon_lower, "epsilon_detectable": report.epsilon_detectable})
            self._record({"seed": report.settings.seed})
            return report
        from dpverify.ci.ledger import verify_version
        from dpverify.util.provenance import current_commit

        result = verify_version(
            mechanism,
            first,
            second,
            *claim,
            name=name,
            version=config.getoption("dpverify_version") or current_commit(config.rootpath),
            ledger=path,
            write=bool(config.getoption("dpverify_write")) and seed is None,
            lifetime_alpha=float(config.getoption("dpverify_alpha") or DEFAULT_ALPHA),
            **{key: value for key, value in options.items() if key not in ("alpha", "detects")},
        )
        self._record(result.properties())
        self._node.add_report_section("call", SECTION, f"{result.record.title}: {result.describe()}")
        if result.failed:
            raise AssertionError(failure_text(result, self._node.nodeid, path))
        return result.report

    def _record(self, properties: dict[str, Any]) -> None:
        """Add properties to the record of the test, which JUnit files contain."""
        number = f"_{self._calls}" if self._calls > 1 else ""
        self._node.user_properties += [(f"dpverify_{key}{number}", value) for key, value in properties.items()]


def failure_text(result: VersionResult, test: str, ledger: str) -> str:
    """Return what a failed test shows: by which runs the claim is refuted, where it began, and what to do."""
    source = "this run alone; the ledger was only read"
    if result.decided_by_ledger:
        source = f"the evidence of all runs together ({len(result.record.current)})"
    repeat = ["pytest", test, "--dpverify-seed", str(result.run.seed), "--dpverify-ledger", ledger]
    lines = [
        f"{result.record.name}: REFUTED by {source}",
        f"  began     at version {result.start}",
        f"  evidence  {result.describe()}",
        f"  repeat    {shlex.join(repeat)}",
    ]
    if result.record.alarm is not None:
        confirm = shlex.join(["dpverify", "ledger", ledger, "--confirm", result.record.name])
        lines.append(f"  then      fix the fault, and start again with half of the level: {confirm}")
    return "\n".join([*lines, "this version alone:", str(result.report)])


@pytest.fixture
def assert_private(request: pytest.FixtureRequest) -> AssertPrivate:
    """Assert that a mechanism does not violate a privacy claim, with the evidence of all earlier versions."""
    return AssertPrivate(request)


def evidence_lines(terminal: pytest.TerminalReporter) -> list[str]:
    """Return the evidence against each claim; worker processes send it with the reports of their tests."""
    reports = [report for name in ("passed", "failed") for report in terminal.stats.get(name, [])]
    return [text for each in reports for title, text in each.sections if title == f"Captured {SECTION} call"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail if the ledger has an alarm of a claim that no test has verified, for example because a test was renamed."""
    config = session.config
    path, terminal = ledger_path(config), config.pluginmanager.get_plugin("terminalreporter")
    if path is None or not os.path.exists(path) or hasattr(config, "workerinput") or config.option.collectonly:
        return
    from dpverify.ci.ledger import read_ledger
    from dpverify.errors import InputError

    tested = [] if terminal is None else evidence_lines(terminal)
    try:
        alarms = [record for record in read_ledger(path).records if record.alarm is not None]
    except InputError:  # each test of a claim reports it
        return
    config.stash[ALARMS] = found = [f"{record.title}: ALARM at version {record.alarm}" for record in alarms]
    if not all(any(line.startswith(f"{record.title}: ") for line in tested) for record in alarms):
        found.append(
            "a claim with an alarm was not tested; run its test, or dpverify ledger FILE --rename OLD NEW if the test "
            "was renamed, or --confirm NAME if the alarm was looked at"
        )
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the evidence against each claim, and the alarms that are not confirmed."""
    alarms = terminalreporter.config.stash.get(ALARMS, [])
    for title, lines in (("evidence in the ledger", evidence_lines(terminalreporter)), ("unconfirmed alarms", alarms)):
        if lines:
            terminalreporter.write_sep("-", title)
            terminalreporter.write_line("\n".join(lines))
