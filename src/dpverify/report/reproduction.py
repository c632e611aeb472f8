"""The call that repeats a verification, for the page of a report."""

from __future__ import annotations

import dataclasses

from dpverify.report.fields import ReportFields
from dpverify.sampling.blocks import FIRST_BLOCK, FIRST_COMPILED_BLOCK, default_block_size
from dpverify.settings import Settings
from dpverify.stats.claim_kinds import Claim, Profile
from dpverify.util.serialization import to_plain


def reproduction_command(report: ReportFields) -> str:
    """Return the command that was given, or a call in Python with every setting that is not the default."""
    command = report.run.get("command")
    if isinstance(command, str):
        return command
    from_default = _changed_settings(report, Settings())
    from_paper = _changed_settings(report, Settings.paper())
    arguments = ["mechanism", "first", "second"]
    if report.epsilon is not None:
        arguments.append(f"epsilon={report.epsilon!r}")
    elif report.claim is not None:
        arguments.append(f"claim={claim_call(report.claim)}")
    if report.delta:
        arguments.append(f"delta={report.delta!r}")
    changes = from_default
    if len(from_paper) < len(from_default):
        arguments.append("settings=dpv.Settings.paper()")
        changes = from_paper
    arguments += [f"{name}={value!r}" for name, value in changes.items()]
    if report.error is not None:
        arguments.append("error=...")
    if report.on_all_events is not None:
        arguments.append("log_lipschitz=...")
    name = " ".join(report.name.split())
    return f"import dpverify as dpv\n\ndpv.verify({', '.join(arguments)})  # mechanism: {name}"


def claim_call(claim: Claim) -> str:
    """Return the call that makes a claim; "..." for a curve, whose function is not stored."""
    if isinstance(claim, Profile):
        return "..."
    size = getattr(claim, "group_size", 1)
    fields = [field.name for field in dataclasses.fields(claim) if field.name != "group_size"]
    numbers = ", ".join(f"{name}={getattr(claim, name)!r}" for name in fields)
    return f"dpv.claims.{type(claim).__name__.lower()}({numbers}){f'.group({size})' if size > 1 else ''}"


def _changed_settings(report: ReportFields, base: Settings) -> dict[str, object]:
    """Return the settings of the report that differ from `base`; the block size only where it was given."""
    settings, base_settings = to_plain(report.settings), to_plain(base)
    changed = {name: value for name, value in settings.items() if value != base_settings[name] and name != "block"}
    chosen = (FIRST_BLOCK, FIRST_COMPILED_BLOCK) if report.settings.stop_early else ()
    if settings["block"] not in (None, default_block_size(report.settings.test_runs), *chosen):
        changed["block"] = settings["block"]
    return changed
