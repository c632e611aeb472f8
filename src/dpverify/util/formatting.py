"""TODO."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal


def format_number(x: float) -> str:
    """Four significant digits; infinity spelled out."""
    return "infinity" if x == math.inf else f"{x:.4g}"


def format_lower(x: float) -> str:
    """A lower bound for print: rounded down, so that what is printed is proved too."""
    return _rounded(x, math.floor)


def format_upper(x: float) -> str:
    """An upper bound for print: rounded up."""
    return _rounded(x, math.ceil)


def _rounded(x: float, whole: Callable[[float], int]) -> str:
    if x == 0 or math.isinf(x):
        return format_number(x)
    unit = 10.0 ** (math.floor(math.log10(abs(x))) - 3)
    return f"{whole(x / unit) * unit:.4g}"


def format_percent(x: float) -> str:
    """Three digits, more where fewer would turn nearly all into all."""
    return next((text for d in (3, 5, 7) if (text := f"{100 * x:.{d}g}%") != "100%" or x == 1), f"{100 * x:.15g}%")


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
    return (
        f"{number:,}".replace(",", " ")
        if number < 10**9
        else f"{float(number):.1e}"
        if number < 10**300
        else "countless"
    )


def printable(text: str) -> str:
    """Without what a terminal would obey."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def one_line(text: object, most: int = 400) -> str:
    """Text from outside as part of a message: one line, and not a long one."""
    line = printable(" ".join(str(text).split()))
    return line if len(line) <= most else line[:most] + "..."


def format_duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def format_count(number: float) -> str:
    """A whole number with its thousands set apart: 500 000."""
    return f"{number:,.0f}".replace(",", " ")
