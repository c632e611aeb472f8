"""Numbers and text for people: one format for each kind of number.

Numbers that are part of a certified statement are rounded to the safe side, so that the printed statement is certified,
too. The others are rounded to the nearest number.

=====================  ==================================  =====================  ==============
function               used for                            digits                 rounded
=====================  ==================================  =====================  ==============
`format_number`        estimates, levels, claims           4 significant, 7 claim  to the nearest
`format_lower`         lower confidence bounds             4, more above a claim  down
`format_upper`         upper confidence bounds             4 significant          up
`format_percent`       shares and confidence levels        3, more near 100%      to the nearest
`format_count`         numbers of runs                     all                    to the nearest
`format_cell_count`    numbers of cells                    all, 2 from 10^9 up    to the nearest
`format_duration`      times                               whole s or min, 0.1 h  to the nearest
`format_bytes`         memory                              2 significant          to the nearest
=====================  ==================================  =====================  ==============
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal

MAX_CELLS_IN_FULL = 10**9  # larger numbers of cells are written with two digits
MAX_CELLS_AS_FLOAT = 10**300  # larger numbers of cells are not written at all
STRONG_EVIDENCE = 100  # times smaller than alpha is a p-value that needs no repetition
MAX_LINE_CHARACTERS = 400  # of a text from outside that becomes part of a message


def format_number(x: float, digits: int = 4) -> str:
    """Return a number with four significant digits, rounded to the nearest; infinity is spelled out.

    Parameters of claims have seven: with fewer a claim could look larger than a bound that refutes it.

    Examples
    --------
    >>> format_number(0.123456), format_number(float("inf"))
    ('0.1235', 'infinity')
    """
    return "infinity" if x == math.inf else f"{x:.{digits}g}"


def format_lower(x: float, claim: float | None = None) -> str:
    """Return a lower confidence bound with four significant digits, rounded down.

    If the bound refutes a claim, it has as many digits as it takes to stay above the claim.

    Examples
    --------
    >>> format_lower(0.98769), format_lower(-1.23456), format_lower(0.600035, claim=0.6)
    ('0.9876', '-1.235', '0.60003')
    """
    claim = -math.inf if claim is None or x <= claim else max(claim, float(format_number(claim, 7)))
    texts = (_format_rounded(x, math.floor, digits) for digits in range(4, 16))
    return next((text for text in texts if claim < float(text) <= x), repr(float(x)))


def format_evidence(p_value: float, alpha: float) -> str:
    """Return how strong the evidence of a p-value against a claim is, for a claim that is refuted at level alpha.

    Examples
    --------
    >>> format_evidence(0.02, 0.05), format_evidence(5e-11, 0.05)
    ('weak evidence', 'strong evidence')
    """
    strength = "strong" if p_value <= alpha / STRONG_EVIDENCE else "moderate" if p_value <= alpha / 10 else "weak"
    return f"{strength} evidence"


def format_upper(x: float) -> str:
    """Return an upper confidence bound with four significant digits, rounded up.

    Examples
    --------
    >>> format_upper(0.98761), format_upper(float("inf"))
    ('0.9877', 'infinity')
    """
    return _format_rounded(x, math.ceil)


def _format_rounded(x: float, rounding: Callable[[float], int], digits: int = 4) -> str:
    """Return a number with four significant digits, or more, the last one rounded by the given function."""
    if x == 0 or math.isinf(x):
        return format_number(x)
    unit = 10.0 ** (math.floor(math.log10(abs(x))) + 1 - digits)
    return f"{rounding(x / unit) * unit:.{digits}g}"


def format_percent(x: float) -> str:
    """Return a share as a percentage with three digits, and with more where three would round it to 100%.

    Examples
    --------
    >>> format_percent(0.1234), format_percent(0.99999), format_percent(1.0)
    ('12.3%', '99.999%', '100%')
    """
    for digits in (3, 5, 7):
        text = f"{100 * x:.{digits}g}%"
        if text != "100%" or x == 1:
            return text
    return f"{100 * x:.15g}%"


def format_count(number: float) -> str:
    """Return a whole number with a space between groups of three digits.

    Examples
    --------
    >>> format_count(500000)
    '500 000'
    """
    return f"{number:,.0f}".replace(",", " ")


def format_confidence(alpha: float) -> str:
    """Return the confidence 1 - alpha as a percentage, rounded down to three significant digits of alpha.

    Examples
    --------
    >>> format_confidence(0.05), format_confidence(0.0125), format_confidence(1e-6), format_confidence(0.05 / 3)
    ('95%', '98.75%', '99.9999%', '98.33%')
    """
    percent = Decimal(f"{alpha:.12g}") * 100  # twelve digits remove the rounding errors of binary fractions
    unit = Decimal(1).scaleb(percent.adjusted() - 2)
    rounded_up = percent.quantize(unit, ROUND_CEILING)
    return f"{(100 - rounded_up).normalize():f}%"


def format_cell_count(number: int) -> str:
    """Return a number of cells; partitions of long trajectories have more cells than can be written in full.

    Examples
    --------
    >>> format_cell_count(65536), format_cell_count(2**64), format_cell_count(2**2000)
    ('65 536', '1.8e+19', 'more than 1e+300')
    """
    if number < MAX_CELLS_IN_FULL:
        return f"{number:,}".replace(",", " ")
    if number < MAX_CELLS_AS_FLOAT:
        return f"{float(number):.1e}"
    return "more than 1e+300"


def format_duration(seconds: float) -> str:
    """Return a time in the unit that suits its length.

    Examples
    --------
    >>> format_duration(42), format_duration(600), format_duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def format_bytes(number: float) -> str:
    """Return an amount of memory with two significant digits, in decimal units.

    Examples
    --------
    >>> format_bytes(268435456), format_bytes(2_500_000_000), format_bytes(900)
    ('270 MB', '2.5 GB', '1 kB')
    """
    value, unit = number / 1e3, "kB"
    for larger in ("MB", "GB", "TB"):
        if value < 995:
            break
        value, unit = value / 1e3, larger
    if value >= 10:
        digits = len(str(int(value))) - 2
        return f"{round(value, -digits):.0f} {unit}"
    return f"{value:.1f} {unit}" if unit != "kB" else f"{max(value, 1):.0f} kB"


def printable(text: str) -> str:
    """Return the text with every non-printable character replaced, so that it contains no terminal control sequences.

    Examples
    --------
    >>> printable("red: \\x1b[31m")
    'red: ?[31m'
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def one_line(text: object, most: int = MAX_LINE_CHARACTERS) -> str:
    """Return text from outside, such as the message of an exception, as one printable line of limited length.

    Examples
    --------
    >>> one_line("first\\n  second", 10)
    'first seco...'
    """
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= most else line[:most] + "..."


def too_little_memory(path: object, problem: MemoryError) -> str:
    """Return the message for a file that cannot be read without more memory; the file itself may be right."""
    reason = one_line(problem) or "MemoryError"
    return (
        f"{path}: found too little memory to read this file ({reason}); expected enough for its content; free memory "
        "and repeat the call"
    )
