"""What identifies a run: settings, data, the behaviour of the mechanism, and its source files.

A checkpoint folder belongs to a run with the same identity. Source files are compared separately: a changed source with
unchanged behaviour is a warning, and the runs of a mechanism without a seed cannot be compared at all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpverify.errors import DPVerifyWarning, FolderError
from dpverify.mechanisms.protocol import Mechanism, is_seeded, mechanism_name
from dpverify.sampling.blocks import SIDES, SampleSource
from dpverify.sampling.checkpoints import Checkpoint
from dpverify.sampling.probe import PilotBlocks, behaviour_hash
from dpverify.settings import Settings
from dpverify.util.arrays import Array
from dpverify.util.formatting import one_line
from dpverify.util.hashing import fingerprint
from dpverify.util.sources import SourceHashes, changed_sources, source_hashes


def run_identity(
    source: SampleSource,
    settings: Settings,
    drawn: PilotBlocks,
    call: Mapping[str, object],
    error: Callable[[Array], Array] | None,
) -> dict[str, Any]:
    """Return what identifies a run: settings, data sets, and what the mechanism and the error function compute."""
    identity = {**settings.identity, **call}
    for side, data in zip(SIDES, source.data, strict=True):
        identity[f"{side} data set"] = fingerprint(data)
    seeded = is_seeded(source.mechanism)
    identity["seeded"] = seeded
    # An error function is identified by its values on the probe runs, or by its name if these cannot be reproduced.
    error_values: object = error
    if error is not None and seeded:
        with contextlib.suppress(Exception):  # an error function that fails is reported when it is used
            error_values = [np.asarray(error(drawn[key])) for key in sorted(drawn)]
    identity["error"] = fingerprint(error_values, sources=False)  # the sources are compared by `check_sources`
    if seeded:
        identity["probe"] = behaviour_hash(drawn)
    else:
        identity["mechanism"] = mechanism_name(source.mechanism)
    return identity


def run_sources(
    mechanism: Mechanism, settings: Settings, error: Callable[[Array], Array] | None = None
) -> SourceHashes:
    """Return the hashes of the source files of a run: of the mechanism, its error function and its score function.

    The runs of a mechanism without a seed cannot be compared, so its parameters count as a source too. They are the
    plain fields of a frozen dataclass: other objects may change with each call.
    """
    hashes = source_hashes(mechanism, error, settings.events if callable(settings.events) else None)
    if not is_seeded(mechanism) and dataclasses.is_dataclass(mechanism):
        fields = {field.name: getattr(mechanism, field.name) for field in dataclasses.fields(mechanism)}
        plain = {name: value for name, value in fields.items() if isinstance(value, (int, float, str, tuple))}
        if type(mechanism).__dataclass_params__.frozen:  # type: ignore[attr-defined]
            hashes["the parameters of the mechanism"] = fingerprint(plain, sources=False)
    return hashes


def check_sources(
    checkpoint: Checkpoint, recorded: SourceHashes | None, current: SourceHashes, seeded: bool, trusted: bool
) -> None:
    """Warn of source files that changed since the folder was started; refuse the folder of an unseeded mechanism.

    A seeded mechanism is compared by its first runs, which `run_identity` contains, so that it may be moved to another
    file. Runs of an unseeded mechanism cannot be compared, so the user has to state that the results can be trusted.

    Parameters
    ----------
    checkpoint : Checkpoint
        The folder.
    recorded : dict or None
        The source hashes with which the folder was started; None if the folder has no record of them.
    current : dict
        The source hashes of this run.
    seeded : bool
        Whether the mechanism can be seeded.
    trusted : bool
        Whether the user states that the results can be trusted.
    """
    changed = changed_sources(recorded or {}, current, moved=not seeded)
    if recorded is not None and not changed:
        return
    if seeded or trusted:
        if changed:
            note = f"{checkpoint.folder}: {describe_changes(changed)} since the folder was started; its results are "
            reason = "used, because 64 runs per data set are the same; a rarer change of the mechanism is not noticed"
            checkpoint.source_note = note + (reason if seeded else "trusted")
            if not trusted:
                warnings.warn(checkpoint.source_note, DPVerifyWarning, stacklevel=5)
        return
    found = "no record of the source files" if recorded is None else f"that {describe_changes(changed)}"
    raise FolderError(
        f"{checkpoint.folder}: found {found}; expected the sources that the folder was started with, because runs "
        "without a seed cannot be compared; use another folder, or confirm that the results can be trusted "
        "(--trust-results, trust_results=True)"
    )


def describe_changes(names: tuple[str, ...]) -> str:
    """Return which files changed, in words; after three names the others are counted.

    Examples
    --------
    >>> describe_changes(("a.py", "b.py"))
    'a.py and b.py changed'
    """
    shown = list(names[:3]) + ([f"{len(names) - 3} more"] if len(names) > 3 else [])
    text = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"{one_line(text)} changed"
