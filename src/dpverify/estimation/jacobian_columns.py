"""The columns of a Jacobian. Those that are 0 at every state are found before anything is computed.

A sensor usually measures few of the states. The other columns of its Jacobian are 0, and so are all products with them.
A compiler cannot leave them out, because 0 times infinity is not 0. A state that has become infinite is therefore the
one case in which the result differs from that of all columns.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from dpverify.estimation.system import StateMap


def value_and_columns(function: StateMap, x: jax.Array) -> tuple[jax.Array, list[jax.Array | None]]:
    """Return the value of a function at x, and the columns of its Jacobian; None for a column that is always 0.

    Examples
    --------
    >>> value, columns = value_and_columns(lambda x: x[:1] ** 2, jax.numpy.array([3.0, 5.0]))
    >>> columns[0].tolist(), columns[1]
    ([6.0], None)
    """
    value, derivative = jax.linearize(function, x)
    linear = jax.make_jaxpr(derivative)(x)
    directions = np.eye(x.shape[0], dtype=x.dtype)
    return value, [None if _is_always_zero(linear, one) else derivative(one) for one in directions]


def _is_always_zero(linear: ClosedJaxpr, direction: np.ndarray) -> bool:
    """Return whether a linear function of a direction is 0, whatever the constants of the function are.

    What follows from the direction alone is computed. If all inputs of an operation that depend on the direction are 0,
    its results are 0, because the function is linear. The result of any other operation is unknown.
    """
    (argument,), (output,) = linear.jaxpr.invars, linear.jaxpr.outvars
    known: dict[Any, np.ndarray] = {argument: direction}
    dependent: set[Any] = {argument}
    for equation in linear.jaxpr.eqns:
        variables = [one for one in equation.invars if not isinstance(one, Literal)]
        inputs = [one for one in variables if one in dependent]
        if not inputs:
            continue
        dependent.update(equation.outvars)
        if not all(one in known for one in inputs):
            continue
        if not any(known[one].any() for one in inputs):
            results = [np.zeros(one.aval.shape, one.aval.dtype) for one in equation.outvars]
        elif len(inputs) == len(variables):
            results = _evaluate(
                equation, [one.val if isinstance(one, Literal) else known[one] for one in equation.invars]
            )
        else:
            continue
        known.update(zip(equation.outvars, results, strict=False))
    return not isinstance(output, Literal) and output in known and not known[output].any()


def _evaluate(equation: Any, inputs: list[Any]) -> list[np.ndarray]:
    """Return the results of one operation of known inputs; nothing if it cannot be computed by itself."""
    try:
        with jax.ensure_compile_time_eval():
            results = equation.primitive.bind(*inputs, **equation.params)
            return [np.asarray(one) for one in (results if equation.primitive.multiple_results else [results])]
    except Exception:  # the column is then computed like any other
        return []
