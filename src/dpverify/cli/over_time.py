"""The command `dpverify over-time`."""

from __future__ import annotations

import argparse

import numpy as np

import dpverify as dpv
from dpverify.cli.inputs import absolute, choose_mechanism, open_executor, read_changes
from dpverify.cli.output import (
    NO_ANSWER,
    REFUTED,
    check_outputs,
    print_error,
    print_output,
    stdout_to_stderr,
    write_results,
)
from dpverify.errors import InputError
from dpverify.studies.files.claim_text import load_claim
from dpverify.studies.files.loading import load_data
from dpverify.util.checks import check_epsilon


def over_time(arguments: argparse.Namespace) -> int:
    """Run `dpverify over-time`, and return its exit status."""
    check_outputs(arguments.json if arguments.json != "-" else None, arguments.html)
    json, html, folder = map(absolute, (arguments.json, arguments.html, arguments.folder))
    settings = dpv.Settings().change(**read_changes(arguments.set))  # type: ignore[arg-type]
    settings = settings.change(stop_early=True) if arguments.stop_early else settings
    claim = None if arguments.claim is None else load_claim(arguments.claim)
    if arguments.until is not None:
        check_epsilon(arguments.until, "--until")
    with stdout_to_stderr():
        first, second, pairs = read_records(arguments)
        mechanism = choose_mechanism(arguments)
        with open_executor(arguments) as executor:
            result: dpv.PrivacyOverTime | dpv.PrivacyTable = dpv.privacy_over_time(
                mechanism,
                first,
                second,
                arguments.delta,
                epsilon=arguments.epsilon,
                claim=claim,
                pairs=pairs,  # type: ignore[arg-type]
                jointly=arguments.jointly,
                settings=settings,
                executor=executor,
                folder=folder,
                progress=not arguments.quiet,
                trust_results=arguments.trust_results,
            )
    write_results(result, json, html, arguments.quiet)
    curves = result.curves if isinstance(result, dpv.PrivacyTable) else (result,)
    if arguments.until is not None and not arguments.quiet and json != "-":
        for curve in curves:
            print_output(f"{curve.record}{': ' if curve.record else ''}{curve.until(arguments.until)}")
    voiding = [diagnostic for curve in curves for diagnostic in curve.voiding]
    if voiding:
        return print_error(voiding[0].value, NO_ANSWER)
    return REFUTED if result.refuted else 0


def read_records(arguments: argparse.Namespace) -> tuple[object, object, dict[str, tuple[object, object]] | None]:
    """Return the two data sets, or the pairs of data sets that the arguments describe."""
    if arguments.data is None:
        if arguments.first is None or arguments.second is None:
            raise InputError("data sets: found neither --first and --second nor --data; expected one of them")
        return load_data(arguments.first), load_data(arguments.second), None
    if arguments.first is not None or arguments.second is not None:
        raise InputError("--data: found it with --first or --second; expected one of them")
    if arguments.change is None:
        raise InputError("--change: found none; expected the number that is added to the hidden readings")
    return None, None, make_records(load_data(arguments.data), arguments)


def check_changes(change: float | tuple[float, ...], data: object) -> None:
    """Raise InputError if several changes are not one per sensor; an array of one per step would broadcast too."""
    if not isinstance(change, tuple):
        return
    try:
        shape = np.shape(data)  # type: ignore[arg-type]
    except ValueError:  # rows of different lengths; `dpverify.neighbours` says so
        return
    sensors = shape[1] if len(shape) > 1 else 1
    if len(change) != sensors:
        columns = "1 column" if sensors == 1 else f"{sensors} columns"
        expected = "one number" if sensors == 1 else f"one number, or {sensors} numbers"
        raise InputError(f"--change: found {len(change)} numbers for data of {columns}; expected {expected}")


def make_records(data: object, arguments: argparse.Namespace) -> dict[str, tuple[object, object]]:
    """Return the pairs of data sets of the kind that --hide names."""
    kind, colon, width = arguments.hide.partition(":")
    change, steps, sensors = arguments.change, arguments.steps, arguments.sensors
    check_changes(change, data)
    if colon and not (kind == "window" and width.isdigit()):
        kind = ""
    match kind:
        case "reading":
            pairs = dpv.neighbours.one_reading(data, change, steps, sensors)  # type: ignore[arg-type]
        case "sensor":
            pairs = dpv.neighbours.one_sensor(data, change, sensors)  # type: ignore[arg-type]
        case "window" if colon:
            pairs = dpv.neighbours.window(data, int(width), change, steps)  # type: ignore[arg-type]
        case "stream":
            pairs = dpv.neighbours.whole_stream(data, change)  # type: ignore[arg-type]
        case _:
            raise InputError(f"--hide: found {arguments.hide!r}; expected reading, sensor, stream or window:W")
    return dict(pairs)
