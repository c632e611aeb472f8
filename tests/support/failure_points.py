"""Lets one operation of a call fail and resumes the call, for one operation after the other."""

import errno
import random
import shutil
import warnings
from functools import partial
from typing import NamedTuple

from disk_faults import FaultyDisk, PowerLoss
from memory_faults import LimitedMemory

import dpverify as dpv

CLEAN = (dpv.InputError, dpv.FolderError, dpv.Stopped, dpv.MechanismError)
KINDS = {  # the error, which operations fail if the n-th is chosen, and whether the power fails
    "one operation": (errno.EIO, lambda number: lambda count: count == number, False),
    "all later ones": (errno.ENOSPC, lambda number: lambda count: count >= number, False),
    "power": (errno.EIO, lambda number: lambda count: count == number, True),
    "memory": None,  # the n-th array gets no memory
}


class Refusal(NamedTuple):
    """A call ended with an error of the library in one line."""

    message: str


def save_after_every_task(monkeypatch):
    """Without this, a short run is saved at the end of each stage only."""
    monkeypatch.setattr("dpverify.sampling.checkpoint.MIN_SECONDS_BETWEEN_SAVES", -1.0)
    monkeypatch.setattr("dpverify.sampling.checkpoint.MIN_SAVE_INTERVAL_RATIO", 0)


def fail_at(call, kind, number, tmp_path, monkeypatch):
    """Let operation `number` fail; return whether it was reached, and the outcomes of the disturbed and resumed calls.

    The first outcome is that of the disturbed call. After a power failure there are three resumed calls: with all that
    was written, with a random part of what was not synchronised, and without it.
    """
    folder = tmp_path / f"{number}"
    if kind == "memory":
        faults = LimitedMemory(number)
        attached, losses = faults.attached(), [None]
    else:
        problem, fails, power = KINDS[kind]
        faults = FaultyDisk(folder, fails(number), problem, power)
        attached = faults.attached(monkeypatch)
        losses = [None, partial(faults.lose, random.Random(f"power {number}")), faults.lose] if power else [None]
    with attached, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a save that failed
        outcomes = [outcome_of(call, folder)]
    for index, lose in enumerate(losses):
        if lose is not None:
            lose()
        copy = shutil.copytree(folder, tmp_path / f"{number}-{index}") if folder.exists() else folder
        outcomes.append(outcome_of(call, copy))
        shutil.rmtree(copy, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    return faults.count >= number, outcomes


def outcome_of(call, folder):
    """Return the result of a call, or the error with which it was refused in one line."""
    try:
        return call(folder)
    except PowerLoss:
        return Refusal("the power failed")
    except CLEAN as problem:
        message = str(problem)
    assert "\n" not in message, message
    return Refusal(message)


class Sweep(NamedTuple):
    """What the calls of a sweep did: failures that were tried, resumed calls, and resumed calls that were refused."""

    points: int
    resumed: int
    refusals: tuple[Refusal, ...]


def sweep(call, kind, step, tmp_path, monkeypatch):
    """Let operation 1 fail, then 1 + step, and so on until a call does not reach its operation.

    Every call has the result of an undisturbed one, or it is refused.
    """
    expected = call(tmp_path / "undisturbed")
    shutil.rmtree(tmp_path / "undisturbed")
    number, points, resumed, refusals, is_reached = 1, 0, 0, [], True
    while is_reached:
        is_reached, (disturbed, *others) = fail_at(call, kind, number, tmp_path, monkeypatch)
        for outcome in (disturbed, *others):
            assert isinstance(outcome, Refusal) or outcome == expected, (kind, number)
        points, resumed = points + 1, resumed + len(others)
        refusals += [outcome for outcome in others if isinstance(outcome, Refusal)]
        number += step
    return Sweep(points, resumed, tuple(refusals))
