"""Bounds of a JAX function over a box: its jaxpr evaluated in interval arithmetic, rounding included.

What a faithful sampler rests on (docs/method.md, section 7.3) is a bound of a derivative over a whole set, and that
no number of samples gives. A primitive without a rule here raises `NoBound`; so do those whose derivative, as JAX has
it, need not be the derivative. Where a jump or a pole may lie in the box the value comes out NaN, and everything
computed from it: JAX takes the derivative of a step for 0, so that the value alone can tell. Neither is ever wrong,
only of no use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

SLACK = 2.0**-44  # relative, after every operation: many times what any of them rounds


class NoBound(Exception):
    """This primitive has no interval rule."""


class Interval(NamedTuple):
    """All arrays between `lo` and `hi`, entry by entry."""

    lo: Any
    hi: Any

    @property
    def magnitude(self) -> Any:
        """The most that |entry| is. NumPy stays NumPy, so that nothing is rounded to 32 bits outside JAX."""
        maximum = np.maximum if isinstance(self.lo, np.ndarray) else jnp.maximum
        return maximum(abs(self.lo), abs(self.hi))


def enclose(function: Callable[[Any], Any], lo: Any, hi: Any) -> Any:
    """The values of `function` over the box, each output as an Interval that holds all of them. May be jitted."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(lo)
    outputs = [as_interval(v) for v in _evaluate(closed.jaxpr, closed.consts, [Interval(lo, hi)])]
    return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def as_interval(value: Any) -> Interval:
    return value if isinstance(value, Interval) else Interval(value, value)


def _evaluate(jaxpr: Any, consts: Any, arguments: Any) -> list[Any]:
    """Values are Intervals, or plain arrays where nothing of the box has come in: those are computed as they are."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(v: Any) -> Any:
        return v.val if hasattr(v, "val") else values[v]

    for eqn in jaxpr.eqns:
        operands, name, params = [read(v) for v in eqn.invars], eqn.primitive.name, eqn.params
        inner = params.get("jaxpr") or params.get("call_jaxpr")
        if name in CALLS and inner is not None:
            closed = hasattr(inner, "consts")
            answer = _evaluate(inner.jaxpr if closed else inner, inner.consts if closed else (), operands)
        elif not any(isinstance(x, Interval) for x in operands):
            answer = eqn.primitive.bind(*operands, **params)
        elif any(jnp.issubdtype(v.aval.dtype, jnp.floating) and v.aval.dtype != jnp.float64 for v in eqn.outvars):
            raise NoBound(f"{name} in {eqn.outvars[0].aval.dtype}")  # rounds more than SLACK
        elif name == "mul" and eqn.invars[0] is eqn.invars[1]:  # a square knows that its two factors agree
            answer = _even(operands[0], jnp.square)
        elif name in RULES:
            answer = RULES[name](*operands, **params)
        elif name in RISING:
            answer = _rising(eqn.primitive, operands, params)
        else:
            raise NoBound(name)
        if not eqn.primitive.multiple_results:
            answer = [answer]
        values.update(zip(eqn.outvars, answer, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _padded(lo: Any, hi: Any, size: Any = None) -> Interval:
    """Rounded outwards; `size` is what the rounding is relative to, if larger than the result."""
    return Interval(
        lo - SLACK * jnp.abs(lo if size is None else size), hi + SLACK * jnp.abs(hi if size is None else size)
    )


def _rising(primitive: Any, operands: list[Any], params: Any) -> Any:
    """Nondecreasing in every operand, as all that only moves numbers about: lower ends give the lower end."""
    if primitive.name == "convert_element_type" and not jnp.issubdtype(params["new_dtype"], jnp.floating):
        raise NoBound("convert_element_type to integers")
    if primitive.name in ("gather", "dynamic_slice") and any(isinstance(x, Interval) for x in operands[1:]):
        raise NoBound(primitive.name)
    lo = primitive.bind(*(x.lo if isinstance(x, Interval) else x for x in operands), **params)
    hi = primitive.bind(*(x.hi if isinstance(x, Interval) else x for x in operands), **params)
    if primitive.name == "convert_element_type" and operands[0].lo.dtype == bool:
        return _unless(lo != hi, Interval(lo, hi))  # a comparison that is undecided: a jump
    if primitive.name in MOVING:
        return (
            [Interval(*ends) for ends in zip(lo, hi, strict=True)] if primitive.multiple_results else Interval(lo, hi)
        )
    if primitive.name == "reduce_sum":
        negative = primitive.bind(jnp.where(operands[0].lo >= 0, 0.0, 1.0), **params)
        return _sum(lo, hi, primitive.bind(operands[0].magnitude, **params), negative == 0)
    if primitive.name in ("add", "add_any"):
        x, y = map(as_interval, operands)
        return _sum(lo, hi, x.magnitude + y.magnitude, (x.lo >= 0) & (y.lo >= 0))
    return _padded(lo, hi)


def _sum(lo: Any, hi: Any, size: Any, nonnegative: Any) -> Interval:
    """Without terms below 0 there is no sum below 0, whatever is rounded: what a norm takes its root of."""
    padded = _padded(lo, hi, size)
    return Interval(jnp.where(nonnegative, jnp.maximum(padded.lo, 0.0), padded.lo), padded.hi)


def _negative(x: Any, **_: Any) -> Interval:
    return Interval(-x.hi, -x.lo)


def _difference(x: Any, y: Any, **_: Any) -> Interval:
    x, y = as_interval(x), as_interval(y)
    return _padded(x.lo - y.hi, x.hi - y.lo, x.magnitude + y.magnitude)


def _corners(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Interval:
    """For functions whose extremes over a rectangle lie at its corners."""
    x, y = as_interval(x), as_interval(y)
    ends = jnp.stack([function(a, b) for a in x for b in y])
    return _padded(ends.min(0), ends.max(0))


def _unless(broken: Any, x: Interval) -> Interval:
    """NaN, not infinity, which tanh would make finite again."""
    return Interval(jnp.where(broken, jnp.nan, x.lo), jnp.where(broken, jnp.nan, x.hi))


def _product(x: Any, y: Any, **_: Any) -> Interval:
    return _corners(jnp.multiply, x, y)


def _quotient(x: Any, y: Any, **_: Any) -> Interval:
    y = as_interval(y)
    return _unless((y.lo <= 0) & (y.hi >= 0), _corners(jnp.divide, x, y))


def _power(x: Any, y: Any, **_: Any) -> Interval:
    x = as_interval(x)
    return _unless(x.lo <= 0, _corners(jnp.power, x, y))


def _angle(y: Any, x: Any, **_: Any) -> Interval:
    """A convex set that misses the cut is seen under an angle whose ends are corners."""
    x, y = as_interval(x), as_interval(y)
    return _unless((x.lo <= 0) & (y.lo <= 0) & (y.hi >= 0), _corners(jnp.arctan2, y, x))


def _even(x: Interval, function: Callable[[Any], Any]) -> Interval:
    """Even, and rising in |x|."""
    nearest = jnp.where((x.lo <= 0) & (x.hi >= 0), 0.0, jnp.minimum(jnp.abs(x.lo), jnp.abs(x.hi)))
    return _padded(function(nearest), function(x.magnitude))


def _integer_power(x: Interval, y: int, **_: Any) -> Interval:
    if y < 0:
        return _quotient(1.0, _integer_power(x, -y))
    if y % 2 == 0:
        return _even(x, lambda v: v**y)
    return _padded(x.lo**y, x.hi**y)


def _cosine(x: Interval, **_: Any) -> Interval:
    def holds(phase: float) -> Any:  # a point phase + 2 pi k lies in the interval, or as good as
        return jnp.ceil((x.lo - phase) / (2 * math.pi) - 1e-9) <= jnp.floor((x.hi - phase) / (2 * math.pi) + 1e-9)

    low, high = jnp.minimum(jnp.cos(x.lo), jnp.cos(x.hi)), jnp.maximum(jnp.cos(x.lo), jnp.cos(x.hi))
    return _padded(jnp.where(holds(math.pi), -1.0, low), jnp.where(holds(0.0), 1.0, high), 1.0)


def _sine(x: Interval, **_: Any) -> Interval:
    return _cosine(_difference(x, math.pi / 2))


def _sign(x: Interval, **_: Any) -> Interval:
    """A kink inside the box: no bound, for what is differentiated there is not smooth."""
    return _unless((x.lo <= 0) & (x.hi >= 0), Interval(jnp.sign(x.lo), jnp.sign(x.hi)))


def _less(x: Any, y: Any, strict: bool) -> Interval:
    """(certainly, possibly): an interval of False and True is undecided, as it is where an end is NaN."""
    x, y = as_interval(x), as_interval(y)
    unknown = jnp.isnan(x.lo + x.hi + y.lo + y.hi)
    certainly, possibly = (x.hi < y.lo, x.lo < y.hi) if strict else (x.hi <= y.lo, x.lo <= y.hi)
    return Interval(certainly & ~unknown, possibly | unknown)


def _select(which: Any, *cases: Any, **_: Any) -> Interval:
    chosen = as_interval(which)
    lo, hi = (jax.lax.select_n(chosen.lo, *ends) for ends in zip(*map(as_interval, cases), strict=True))
    return _unless(chosen.lo != chosen.hi, Interval(lo, hi))  # undecided: a kink, as in _sign


def _contraction(x: Any, y: Any, **params: Any) -> Interval:
    """By midpoint and radius: |x y - x' y'| <= |x'| ry + rx |y'| + rx ry."""
    x, y = as_interval(x), as_interval(y)
    dot = jax.lax.dot_general_p.bind
    middle_x, middle_y = (x.lo + x.hi) / 2, (y.lo + y.hi) / 2
    radius_x, radius_y = ((v.hi - v.lo) / 2 + SLACK * v.magnitude for v in (x, y))
    middle = dot(middle_x, middle_y, **params)
    radius = dot(jnp.abs(middle_x), radius_y, **params) + dot(radius_x, jnp.abs(middle_y) + radius_y, **params)
    return _padded(middle - radius, middle + radius, jnp.abs(middle) + radius)


CALLS = {"jit", "pjit", "closed_call", "checkpoint", "remat2"}  # no custom_jvp_call: it may answer any derivative
MOVING = {
    "broadcast_in_dim",
    "concatenate",
    "convert_element_type",
    "copy",
    "copy_p",
    "dynamic_slice",
    "expand_dims",
    "gather",
    "pad",
    "reshape",
    "rev",
    "slice",
    "split",
    "stack",
    "squeeze",
    "tile",
    "transpose",
    "unstack",
}
RISING = MOVING | {"add", "add_any", "asinh", "atan", "cbrt", "erf", "exp", "exp2", "expm1", "log", "log1p"}
RISING |= {"log2", "logistic", "reduce_sum", "sinh", "sqrt", "tanh"}
RULES: dict[str, Callable[..., Interval]] = {
    "abs": lambda x, **_: _even(x, lambda v: v),
    "atan2": _angle,
    "cos": _cosine,
    "cosh": lambda x, **_: _even(x, jnp.cosh),
    "div": _quotient,
    "dot_general": _contraction,
    "ge": lambda x, y, **_: _less(y, x, strict=False),
    "gt": lambda x, y, **_: _less(y, x, strict=True),
    "integer_pow": _integer_power,
    "le": lambda x, y, **_: _less(x, y, strict=False),
    "lt": lambda x, y, **_: _less(x, y, strict=True),
    "mul": _product,
    "neg": _negative,
    "one_minus_square": lambda x, **_: _difference(1.0, _even(x, jnp.square)),  # what newer JAX makes of tanh'
    "pow": _power,
    "rsqrt": lambda x, **_: _unless(x.lo <= 0, _padded(jax.lax.rsqrt(x.hi), jax.lax.rsqrt(x.lo))),
    "select_n": _select,
    "sign": _sign,
    "sin": _sine,
    "square": lambda x, **_: _even(x, jnp.square),
    "sub": _difference,
}
