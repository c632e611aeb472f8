"""The results of a check as JUnit XML, which CI services read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from dpverify.report.statements import Verdict
from dpverify.studies.tables import FAILED, TOO_WEAK, Row, is_curve, lower_text, verdict_text

NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
PROPERTIES = ("claim", "epsilon_lower", "epsilon_upper_on_partition", "epsilon_detectable", "p_value", "alpha", "seed")
CURVE_PROPERTIES = ("claim", "claim_parameter", "claim_lower", "p_value", "alpha", "seed")


def junit_xml(title: str, rows: Sequence[Row]) -> str:
    """Return the results as JUnit XML: refuted and weak claims are failures, missing answers are errors."""
    failures = [row for row in rows if row["state"] in (Verdict.REFUTED.name, TOO_WEAK)]
    errors = [row for row in rows if row["state"] in (FAILED, Verdict.NO_ANSWER.name)]
    counts = {"tests": str(len(rows)), "failures": str(len(failures)), "errors": str(len(errors))}
    suite = ElementTree.Element("testsuite", {"name": _xml_text(title), **counts})
    for row in rows:
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": _xml_text(title), "name": _xml_text(row["name"])}
        )
        properties = ElementTree.SubElement(case, "properties")
        for name in CURVE_PROPERTIES if is_curve(row) else PROPERTIES:
            if row.get(name) is not None:
                ElementTree.SubElement(properties, "property", {"name": name, "value": _xml_text(row[name])})
        if row in failures or row in errors:
            text = row.get("problem") or f"{row.get('claim')}: {verdict_text(row)}: {lower_text(row)}"
            message = _xml_text(text)
            kind = "failure" if row in failures else "error"
            ElementTree.SubElement(case, kind, {"type": row["state"], "message": message})
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _xml_text(value: object) -> str:
    """Return a value as text without the characters that XML cannot contain."""
    return NOT_IN_XML.sub("?", str(value))
