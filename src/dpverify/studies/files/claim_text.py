"""Claims as text, for the command line and for study files.

A text such as `gaussian(mu=1)` or `approximate(1, 1e-5).group(2)` names a function of `dpverify.claims` with numbers as
arguments. It is parsed and never executed. A text such as `accountant.py:profile` names an object in a Python file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import dpverify.claims as claims
from dpverify.claims import Claim
from dpverify.errors import InputError
from dpverify.studies.files.loading import load_object
from dpverify.util.checks import shorten

FUNCTIONS: dict[str, Callable[..., Claim]] = {
    "pure": claims.pure,
    "approximate": claims.approximate,
    "points": claims.points,
    "gaussian": claims.gaussian,
    "zcdp": claims.zcdp,
    "renyi": claims.renyi,
}


def load_claim(text: object, base: Path | None = None) -> Claim:
    """Return the claim that a text describes.

    Parameters
    ----------
    text : str
        A call of a function of `dpverify.claims`, or `path/file.py:name` of a claim, of an accountant's privacy profile
        or of a function from epsilon to delta. `()` behind the name calls it first.
    base : Path, optional
        The folder to which a path is relative.

    Raises
    ------
    InputError
        If the text is neither, or the arguments are out of their ranges.

    Examples
    --------
    >>> load_claim("gaussian(mu=0.5).group(2)")
    Gaussian(mu=1.0)
    """
    if not isinstance(text, str):
        raise InputError(f"claim: found {shorten(text)}; expected a text such as 'gaussian(mu=1)'")
    if ":" in text and "{" not in text:
        return claims.as_claim(load_object(text, base, "claim"))
    try:
        return _read_call(ast.parse(text.strip(), mode="eval").body)
    except InputError:
        raise
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise InputError(
            f"claim: found {shorten(text)}; expected one of {', '.join(FUNCTIONS)} with numbers, such as "
            "gaussian(mu=1); for profile and tradeoff, which take a function, path/file.py:name of the claim"
        ) from None


def _read_call(node: ast.expr) -> Claim:
    """Return the claim of one call, or of a call of `.group` on a claim; raise TypeError for anything else."""
    if not isinstance(node, ast.Call) or any(keyword.arg is None for keyword in node.keywords):
        raise TypeError
    positional = [ast.literal_eval(argument) for argument in node.args]
    named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    if isinstance(node.func, ast.Attribute) and node.func.attr == "group":
        return _read_call(node.func.value).group(*positional, **named)
    if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
        raise TypeError
    return FUNCTIONS[node.func.id](*positional, **named)
