"""The history of a project's claims: the answers of every release, and what changed between two of them.

{"format": 1, "releases": [{"release": "1.2", "claims": {"sum": {"verdict": "BOUNDED", ...}}}], "checksum": "..."}
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from dpverify.errors import InputError
from dpverify.report.statements import Verdict
from dpverify.studies.bound_changes import EpsilonBounds, compare_bounds
from dpverify.util.files import check_regular, write_text
from dpverify.util.formatting import one_line
from dpverify.util.hashing import content_checksum, fingerprint
from dpverify.util.serialization import to_plain

FORMAT = 1
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
    path = Path(path)
    check_regular(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        releases, checksum, file_format = document["releases"], document["checksum"], document["format"]
    except FileNotFoundError:
        return ()
    except OSError as problem:
        raise InputError(f"{path}: found {problem.strerror or problem}; expected a history that can be read") from None
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise InputError(
            f"{path}: found no history ({type(problem).__name__}); expected one; choose another file"
        ) from None
    if file_format != FORMAT:
        raise InputError(
            f"{path}: found format {one_line(repr(file_format))}; expected {FORMAT}; a newer version of dpverify wrote "
            "it; update dpverify"
        )
    if content_checksum(releases) != checksum:
        raise InputError(f"{path}: found another checksum; expected the history as dpverify wrote it; restore it")
    if not (isinstance(releases, list) and all(map(_is_release, releases))):
        raise InputError(f"{path}: found no releases; expected the history as dpverify wrote it; restore it")
    return tuple(Release(entry["release"], entry["claims"]) for entry in releases)


def _is_release(entry: object) -> bool:
    """Return whether this is a release as `make_release` makes it."""
    if not (isinstance(entry, dict) and isinstance(entry.get("release"), str)):
        return False
    claims = entry.get("claims")
    return isinstance(claims, dict) and all(map(_is_answer, claims.values()))


def _is_answer(answer: object) -> bool:
    """Return whether these are the kept columns of a claim."""
    if not (isinstance(answer, dict) and isinstance(answer.get("state"), str)):
        return False
    bounds = [answer.get(name) for name in ("epsilon_lower", "epsilon_upper_on_partition")]
    return isinstance(answer.get("claim"), (str, NoneType)) and all(
        bound in (None, "inf") or (isinstance(bound, (int, float)) and 0 <= bound < math.inf) for bound in bounds
    )


def write_history(path: str | os.PathLike[str], releases: Sequence[Release]) -> None:
    """Write a history; an existing file is replaced as a whole."""
    plain = [release._asdict() for release in releases]
    document = {"format": FORMAT, "releases": plain, "checksum": fingerprint(plain)}
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def with_release(releases: Sequence[Release], latest: Release) -> tuple[Release, ...]:
    """Return the history with the latest release; an earlier check of the same release is replaced."""
    return *(release for release in releases if release.release != latest.release), latest


def compare_releases(before: Release, after: Release) -> tuple[Change, ...]:
    """Return what changed, the worse changes first. Bounds at the same delta are compared by `compare_bounds`.

    Examples
    --------
    >>> old = Release("1.0", {"sum": {"state": "BOUNDED", "epsilon_lower": 0.9, "epsilon_upper_on_partition": 1.1}})
    >>> new = Release("1.1", {"sum": {"state": "REFUTED", "epsilon_lower": 1.5, "epsilon_upper_on_partition": 1.6}})
    >>> [change.text for change in compare_releases(old, new)]
    ['BOUNDED before, REFUTED now; a larger privacy loss is proved: epsilon >= 1.5, and >= 0.9 before, ...']
    """
    changes = []
    for name, answer in after.claims.items():
        old = before.claims.get(name)
        if old is None:
            changes.append(
                Change(name, f"new: {_words(answer['state'])}", answer["state"] not in ("BOUNDED", "NOT_REFUTED"))
            )
            continue
        parts, is_worse = [], False
        if old["state"] != answer["state"]:
            parts.append(f"{_words(old['state'])} before, {_words(answer['state'])} now")
            is_worse = answer["state"] not in ("BOUNDED", "NOT_REFUTED")
        if old.get("claim") != answer.get("claim"):
            parts.append(f"the claim was {old.get('claim')}, and is {answer.get('claim')}")
        found = compare_bounds(_bounds(old), _bounds(answer)) if _have_one_delta(old, answer) else None
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


def _have_one_delta(old: Answer, answer: Answer) -> bool:
    """Return whether the bounds are at the same delta. Older histories have no delta; equal claims have equal ones."""
    if "delta" in old and "delta" in answer:
        return old["delta"] == answer["delta"]
    return old.get("claim") == answer.get("claim")


def _words(state: str) -> str:
    return state.replace("_", " ")
