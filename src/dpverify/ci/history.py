"""The history of a project's claims: the answers of every release, and what changed between two of them.

{"format": 1, "content": [{"release": "1.2", "claims": {"sum": {"state": "REFUTED", ...}}}], "checksum": "..."}
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dpverify.report.statements import Verdict
from dpverify.studies.comparison import EpsilonBounds, compare_bounds
from dpverify.studies.tables import GOOD_STATES
from dpverify.util.files import read_document, write_document
from dpverify.util.formatting import one_line
from dpverify.util.serialization import to_plain

MAX_CHANGE_LENGTH = 1000  # characters of the text of a change; texts of a history come from a file
KEPT_COLUMNS = ("state", "claim", "delta", "epsilon_lower", "epsilon_upper_on_partition", "alpha", "digest")

Answer = dict[str, Any]  # the kept columns of one claim


class Release(NamedTuple):
    """The answers of one release.

    Attributes
    ----------
    release : str
        Its name, for example a version or a commit.
    claims : dict
        For each claim its kept columns; infinities are texts, as in JSON.
    """

    release: str
    claims: dict[str, Answer]


class Change(NamedTuple):
    """What changed for one claim between two releases, in words.

    Attributes
    ----------
    name : str
        The claim.
    text : str
        What changed.
    is_worse : bool
        Whether the newer answer is worse: refuted, no answer, or a larger proved privacy loss.
    """

    name: str
    text: str
    is_worse: bool


def make_release(name: str, rows: Sequence[Mapping[str, Any]]) -> Release:
    """Return the answers that the history keeps; each row has a name and the kept columns."""
    return Release(name, {row["name"]: to_plain({key: row.get(key) for key in KEPT_COLUMNS}) for row in rows})


def read_history(path: str | os.PathLike[str]) -> tuple[Release, ...]:
    """Read a history; a file that does not exist has no release. A damaged file is an InputError."""
    return read_document(path, "history", _make_releases) or ()


def _make_releases(content: Any) -> tuple[Release, ...]:
    """Return the releases; raise any exception if they cannot be compared."""
    releases = tuple(Release(entry["release"], entry["claims"]) for entry in content)
    for release in releases:
        compare_releases(release, release)
        compare_releases(Release("", {}), release)
        if not isinstance(release.release, str):
            raise TypeError("a release without a name")
    return releases


def write_history(path: str | os.PathLike[str], releases: Sequence[Release]) -> None:
    """Write a history; an existing file is replaced as a whole."""
    write_document(path, [release._asdict() for release in releases])


def with_release(releases: Sequence[Release], latest: Release) -> tuple[Release, ...]:
    """Return the history with the latest release; an earlier check of the same release is replaced."""
    return *(release for release in releases if release.release != latest.release), latest


def compare_releases(before: Release, after: Release) -> tuple[Change, ...]:
    """Return what changed, the worse changes first. Bounds at the same delta are compared by `compare_bounds`.

    Examples
    --------
    >>> old = Release("1.0", {"sum": {"state": "NOT_REFUTED", "epsilon_lower": 0.9, "epsilon_upper_on_partition": 1.1}})
    >>> new = Release("1.1", {"sum": {"state": "REFUTED", "epsilon_lower": 1.5, "epsilon_upper_on_partition": 1.6}})
    >>> [change.text for change in compare_releases(old, new)]
    ['NOT REFUTED before, REFUTED now; a larger privacy loss is proved: epsilon >= 1.5, and >= 0.9 before, ...']
    """
    changes = []
    for name, answer in after.claims.items():
        old = before.claims.get(name)
        if old is None:
            changes.append(Change(name, f"new: {_words(answer['state'])}", answer["state"] not in GOOD_STATES))
            continue
        parts, is_worse = [], False
        if old["state"] != answer["state"]:
            parts.append(f"{_words(old['state'])} before, {_words(answer['state'])} now")
            is_worse = answer["state"] not in GOOD_STATES
        if old.get("claim") != answer.get("claim"):
            parts.append(f"the claim was {old.get('claim')}, and is {answer.get('claim')}")
        found = compare_bounds(_bounds(old), _bounds(answer)) if old.get("delta") == answer.get("delta") else None
        if found is not None:
            parts.append(found.text)
            is_worse = is_worse or found.is_larger
        if parts:
            changes.append(Change(one_line(name), one_line("; ".join(parts), MAX_CHANGE_LENGTH), is_worse))
    changes += [
        Change(one_line(name), "no longer claimed", False) for name in before.claims if name not in after.claims
    ]
    return tuple(sorted(changes, key=lambda change: not change.is_worse))


def _bounds(answer: Answer) -> EpsilonBounds:
    """Return the bounds on epsilon; 0 and infinity without an answer, and for a claim that is a curve."""
    is_curve = not (answer.get("claim") or "epsilon").startswith("epsilon")  # its bounds are about other events
    if is_curve or answer["state"] == Verdict.NO_ANSWER.name:
        return EpsilonBounds(0.0, math.inf)
    low, high = answer.get("epsilon_lower"), answer.get("epsilon_upper_on_partition")
    return EpsilonBounds(float(0.0 if low is None else low), float("inf" if high is None else high))


def _words(state: str) -> str:
    return state.replace("_", " ")
