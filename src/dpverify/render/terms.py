"""The terms that a page explains: a list at its end, and definitions where a term occurs first."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

from dpverify.render.content import PageFindings

TERMS = {
    "ε": "At δ = 0: the logarithm of the ratio of an event's two probabilities, for the event where it is largest. At "
    "a larger δ, δ is subtracted from the larger probability before the ratio is taken. Smaller is more private.",
    "δ": "An allowance: the probability of an event may be e^ε times its probability with the other data set, plus δ.",
    "α": "The probability of error that was accepted for the test and for each bound. The confidence is 1 − α.",
    "p-value": "If the claim is true, counts at least this extreme have at most this probability. A small p-value "
    "refutes the claim.",
    "confidence": "Statements that are made in this way are true with at least this probability.",
    "event": "A set of outputs, for example all outputs above 2.",
    "witness": "The tested event with the strongest result.",
    "cells": "The parts into which all outputs are divided. They do not overlap.",
    "partition": "All cells together.",
    "over the cells": "For events that consist of whole cells. The upper bound is about these events only.",
    "region of likely outputs": "The set that contains most outputs. Pilot runs determine it.",
    "wealth": "The evidence against the claim. It rarely becomes large if the claim is true.",
    "η": "The source paper's number: the largest share of selection runs in an event.",
    "λ": "The source paper's number for δ. It is not a guarantee.",
}
OPTIONAL_TERMS = ("wealth", "η", "λ")  # only some pages have them
MARKED = re.compile(r"\b(over the cells|cells|partition|region of likely outputs|p-value|witness|wealth)\b")


def used_terms(found: PageFindings | None) -> dict[str, str]:
    """Return the terms that a page explains: all, except those of results that the page does not have."""
    names = " ".join(row.name for table in found.tables for row in table.rows) if found else ""
    present = f"{names} wealth" if found and found.wealth is not None else names
    return {term: text for term, text in TERMS.items() if term not in OPTIONAL_TERMS or term in present}


def mark_terms(text: str) -> Markup:
    """Escape a text, and put the definition of a term where the term occurs first; a browser shows it on hover."""
    seen: set[str] = set()

    def mark(match: re.Match[str]) -> str:
        term = match[0]
        if term in seen:
            return term
        seen.add(term)
        return f'<abbr title="{escape(TERMS[term])}">{term}</abbr>'

    return Markup(MARKED.sub(mark, str(escape(text))))
