"""Proved bounds of functions and their derivatives over a box, by interval arithmetic with outward rounding.

The exactness of the Gibbs sampler rests on bounds over a whole set (docs/method.md, section 7.3), which no number of
samples can give. The jaxpr of a function is evaluated with intervals in place of numbers. Only f and h are
differentiated and enclosed; the chain rule combines their derivatives in interval arithmetic, one step of the window
after the other, so that neither the work per step nor the compiled program grows with the window.

Two cases have no bound. A primitive without a rule raises `NoBound`, and so do primitives whose derivative in JAX need
not be the true derivative. Where the box may contain a jump or a pole, the value becomes NaN, and so does everything
computed from it. This is necessary because the derivative of a step function is 0 in JAX, so that only the value can
show the jump. Neither case ever produces a wrong bound.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.estimation.system import System
from dpverify.util.arrays import enable_x64

HOW_TO_WRITE = "write it with + - * /, powers, tanh, exp, log, sin, cos, atan2, sqrt, in 64 bits"
ROUNDING = 2.0**-44  # relative widening after every operation: many times the rounding error of any of them


class NoBound(Exception):
    """A primitive has no interval rule."""


class Interval(NamedTuple):
    """All arrays between `lo` and `hi`, entry by entry; both are NumPy arrays, or both are JAX arrays."""

    lo: Any
    hi: Any

    @property
    def magnitude(self) -> Any:
        """The largest absolute value of each entry.

        The result of NumPy arrays is a NumPy array, because JAX would round it to 32 bits outside its 64-bit mode.
        """
        maximum = np.maximum if isinstance(self.lo, np.ndarray) else jnp.maximum
        return maximum(abs(self.lo), abs(self.hi))


# An operand is an Interval, or an ordinary array where the value does not depend on the box.
Operand = Interval | jax.Array | float


def enclose(function: Callable[..., Any], lo: jax.Array, hi: jax.Array, *others: jax.Array) -> Any:
    """Return the outputs of `function`, each replaced by an Interval that contains its values over the box.

    The function may be jitted; its other arguments are ordinary arrays.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(lo, *others)
    outputs = [as_interval(v) for v in _evaluate(closed.jaxpr, closed.consts, [Interval(lo, hi), *others])]
    return jax.tree.unflatten(jax.tree.structure(shape), outputs)


def as_interval(value: Operand) -> Interval:
    """Return an Interval; an array becomes the interval that contains only this array."""
    return value if isinstance(value, Interval) else Interval(value, value)


def _evaluate(jaxpr: Any, consts: Sequence[Operand], arguments: Sequence[Operand]) -> list[Operand]:
    """Evaluate a jaxpr. Operations on ordinary arrays alone are executed as they are."""
    values: dict[object, Operand] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(variable: Any) -> Operand:
        return variable.val if hasattr(variable, "val") else values[variable]

    for equation in jaxpr.eqns:
        operands, name, params = [read(v) for v in equation.invars], equation.primitive.name, equation.params
        inner = params.get("jaxpr") or params.get("call_jaxpr")
        if name in CALLS and inner is not None:
            closed = hasattr(inner, "consts")
            result = _evaluate(inner.jaxpr if closed else inner, inner.consts if closed else (), operands)
        elif not any(isinstance(x, Interval) for x in operands):
            result = equation.primitive.bind(*operands, **params)
        elif any(jnp.issubdtype(v.aval.dtype, jnp.floating) and v.aval.dtype != jnp.float64 for v in equation.outvars):
            raise NoBound(f"{name} in {equation.outvars[0].aval.dtype}")  # its rounding error exceeds ROUNDING
        elif name == "mul" and equation.invars[0] is equation.invars[1]:
            result = _even(as_interval(operands[0]), jnp.square)  # tighter than the product of two intervals
        elif name in RULES:
            result = RULES[name](*operands, **params)
        elif name in INCREASING:
            result = _increasing(equation.primitive, operands, params)
        else:
            raise NoBound(name)
        if not equation.primitive.multiple_results:
            result = [result]
        values.update(zip(equation.outvars, result, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _round_outwards(lo: jax.Array, hi: jax.Array, size: jax.Array | float | None = None) -> Interval:
    """Widen an interval; `size` is the quantity that the rounding is relative to, if larger than the result."""
    return Interval(
        lo - ROUNDING * jnp.abs(lo if size is None else size), hi + ROUNDING * jnp.abs(hi if size is None else size)
    )


def _increasing(primitive: Any, operands: list[Any], params: dict[str, Any]) -> Interval | list[Interval]:
    """Bound a primitive that is nondecreasing in every operand: lower ends give the lower end.

    Primitives that only move numbers within an array belong here.
    """
    if primitive.name == "convert_element_type" and not jnp.issubdtype(params["new_dtype"], jnp.floating):
        raise NoBound("convert_element_type to integers")
    if primitive.name in ("gather", "dynamic_slice") and any(isinstance(x, Interval) for x in operands[1:]):
        raise NoBound(primitive.name)
    lo = primitive.bind(*(x.lo if isinstance(x, Interval) else x for x in operands), **params)
    hi = primitive.bind(*(x.hi if isinstance(x, Interval) else x for x in operands), **params)
    if primitive.name == "convert_element_type" and operands[0].lo.dtype == bool:
        return _nan_where(lo != hi, Interval(lo, hi))  # an undecided comparison is a jump
    if primitive.name in REARRANGING:
        return (
            [Interval(*ends) for ends in zip(lo, hi, strict=True)] if primitive.multiple_results else Interval(lo, hi)
        )
    if primitive.name == "reduce_sum":
        negative = primitive.bind(jnp.where(operands[0].lo >= 0, 0.0, 1.0), **params)
        return _sum(lo, hi, primitive.bind(operands[0].magnitude, **params), negative == 0)
    if primitive.name in ("add", "add_any"):
        x, y = map(as_interval, operands)
        return _sum(lo, hi, x.magnitude + y.magnitude, (x.lo >= 0) & (y.lo >= 0))
    return _round_outwards(lo, hi)


def _sum(lo: jax.Array, hi: jax.Array, size: jax.Array, nonnegative: jax.Array) -> Interval:
    """Round a sum outwards. A sum of nonnegative terms stays nonnegative, so that a norm can take its square root."""
    rounded = _round_outwards(lo, hi, size)
    return Interval(jnp.where(nonnegative, jnp.maximum(rounded.lo, 0.0), rounded.lo), rounded.hi)


def _negative(x: Interval, **_: object) -> Interval:
    return Interval(-x.hi, -x.lo)


def _difference(x: Operand, y: Operand, **_: object) -> Interval:
    x, y = as_interval(x), as_interval(y)
    return _round_outwards(x.lo - y.hi, x.hi - y.lo, x.magnitude + y.magnitude)


def _corners(function: Callable[[jax.Array, jax.Array], jax.Array], x: Operand, y: Operand) -> Interval:
    """Bound a function whose extremes over a rectangle lie at its corners."""
    x, y = as_interval(x), as_interval(y)
    ends = jnp.stack([function(a, b) for a in x for b in y])
    return _round_outwards(ends.min(0), ends.max(0))


def _nan_where(broken: jax.Array, x: Interval) -> Interval:
    """Replace entries by NaN. Infinity would not do, because tanh makes it finite again."""
    return Interval(jnp.where(broken, jnp.nan, x.lo), jnp.where(broken, jnp.nan, x.hi))


def _product(x: Operand, y: Operand, **_: object) -> Interval:
    return _corners(jnp.multiply, x, y)


def _quotient(x: Operand, y: Operand, **_: object) -> Interval:
    y = as_interval(y)
    return _nan_where((y.lo <= 0) & (y.hi >= 0), _corners(jnp.divide, x, y))


def _power(x: Operand, y: Operand, **_: object) -> Interval:
    x = as_interval(x)
    return _nan_where(x.lo <= 0, _corners(jnp.power, x, y))


def _angle(y: Operand, x: Operand, **_: object) -> Interval:
    """Bound atan2: over a rectangle that misses the branch cut, its extremes lie at the corners."""
    x, y = as_interval(x), as_interval(y)
    return _nan_where((x.lo <= 0) & (y.lo <= 0) & (y.hi >= 0), _corners(jnp.arctan2, y, x))


def _even(x: Interval, function: Callable[[jax.Array], jax.Array]) -> Interval:
    """Bound a function that is even, and increasing in |x|."""
    nearest = jnp.where((x.lo <= 0) & (x.hi >= 0), 0.0, jnp.minimum(jnp.abs(x.lo), jnp.abs(x.hi)))
    return _round_outwards(function(nearest), function(x.magnitude))


def _integer_power(x: Interval, y: int, **_: object) -> Interval:
    if y < 0:
        return _quotient(1.0, _integer_power(x, -y))
    if y % 2 == 0:
        return _even(x, lambda v: v**y)
    return _round_outwards(x.lo**y, x.hi**y)


def _cosine(x: Interval, **_: object) -> Interval:
    def contains(phase: float) -> jax.Array:
        """Return whether a point phase + 2 pi k lies in the interval, up to rounding."""
        return jnp.ceil((x.lo - phase) / (2 * math.pi) - 1e-9) <= jnp.floor((x.hi - phase) / (2 * math.pi) + 1e-9)

    low, high = jnp.minimum(jnp.cos(x.lo), jnp.cos(x.hi)), jnp.maximum(jnp.cos(x.lo), jnp.cos(x.hi))
    return _round_outwards(jnp.where(contains(math.pi), -1.0, low), jnp.where(contains(0.0), 1.0, high), 1.0)


def _sine(x: Interval, **_: object) -> Interval:
    return _cosine(_difference(x, math.pi / 2))


def _sign(x: Interval, **_: object) -> Interval:
    """Bound the sign. There is no bound where 0 lies in the box, because the function has a kink there."""
    return _nan_where((x.lo <= 0) & (x.hi >= 0), Interval(jnp.sign(x.lo), jnp.sign(x.hi)))


def _less(x: Operand, y: Operand, strict: bool) -> Interval:
    """Return (certainly less, possibly less): the pair (False, True) is undecided, and so is a comparison with NaN."""
    x, y = as_interval(x), as_interval(y)
    unknown = jnp.isnan(x.lo + x.hi + y.lo + y.hi)
    certainly, possibly = (x.hi < y.lo, x.lo < y.hi) if strict else (x.hi <= y.lo, x.lo <= y.hi)
    return Interval(certainly & ~unknown, possibly | unknown)


def _select(which: Operand, *cases: Operand, **_: object) -> Interval:
    selector = as_interval(which)
    lo, hi = (jax.lax.select_n(selector.lo, *ends) for ends in zip(*map(as_interval, cases), strict=True))
    return _nan_where(selector.lo != selector.hi, Interval(lo, hi))  # undecided: a kink or jump, as in _sign


def _contraction(x: Operand, y: Operand, **params: Any) -> Interval:
    """Bound dot_general by midpoint and radius: |x y - x' y'| <= |x'| ry + rx |y'| + rx ry."""
    x, y = as_interval(x), as_interval(y)
    dot = jax.lax.dot_general_p.bind
    middle_x, middle_y = (x.lo + x.hi) / 2, (y.lo + y.hi) / 2
    radius_x, radius_y = ((v.hi - v.lo) / 2 + ROUNDING * v.magnitude for v in (x, y))
    middle = dot(middle_x, middle_y, **params)
    radius = dot(jnp.abs(middle_x), radius_y, **params) + dot(radius_x, jnp.abs(middle_y) + radius_y, **params)
    return _round_outwards(middle - radius, middle + radius, jnp.abs(middle) + radius)


CALLS = {"jit", "pjit", "closed_call", "checkpoint", "remat2"}  # no custom_jvp_call: its derivative is arbitrary
REARRANGING = {"broadcast_in_dim", "concatenate", "convert_element_type", "copy", "copy_p", "dynamic_slice"}
REARRANGING |= {"expand_dims", "gather", "pad", "reshape", "rev", "slice", "split", "stack", "squeeze", "tile"}
REARRANGING |= {"transpose", "unstack"}
INCREASING = REARRANGING | {"add", "add_any", "asinh", "atan", "cbrt", "erf", "exp", "exp2", "expm1", "log", "log1p"}
INCREASING |= {"log2", "logistic", "reduce_sum", "sinh", "sqrt", "tanh"}
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
    "one_minus_square": lambda x, **_: _difference(1.0, _even(x, jnp.square)),  # in newer JAX, part of tanh'
    "pow": _power,
    "rsqrt": lambda x, **_: _nan_where(x.lo <= 0, _round_outwards(jax.lax.rsqrt(x.hi), jax.lax.rsqrt(x.lo))),
    "select_n": _select,
    "sign": _sign,
    "sin": _sine,
    "square": lambda x, **_: _even(x, jnp.square),
    "sub": _difference,
}


class Jet(NamedTuple):
    """Bounds of a map of z and of its derivatives, over each of B boxes."""

    value: Interval  # (B, p)
    first: Interval  # (B, p, n)
    second: Interval  # (B, p, n, n)
    third: Interval  # (B, p, n, n, n); only the values D^3 [u, u, u] are used


@functools.partial(jax.jit, static_argnums=(0, 1))
def _enclosed_derivatives(
    template: System, name: str, numbers: Any, k: jax.Array, lo: jax.Array, hi: jax.Array
) -> tuple[Interval, ...]:
    """Return the bounds of the step or the measurement at k, and of its derivatives up to the third, over boxes."""
    maps: list[Callable[..., Any]] = [getattr(template.bind(numbers), name)]
    for _ in range(3):
        maps.append(jax.jacfwd(maps[-1]))
    return enclose(jax.vmap(lambda x, k: tuple(map_(x, k) for map_ in maps)), lo, hi, k)


def _jet(system: System, name: str, k: np.ndarray, box: Interval) -> Jet:
    """Return the jet of "step" or "measure" over each box, of which each has its own k."""
    with enable_x64():
        enclosed = _enclosed_derivatives(system.template, name, system.numbers, k, *box)
    bounds = [Interval(*(np.asarray(end) for end in v)) for v in enclosed]
    # Where one order has no bound there is a jump or a kink, and the bounds of the higher orders are meaningless.
    broken = np.zeros(len(box.lo), bool)
    for k, (lo, hi) in enumerate(bounds):
        mask = broken.reshape(-1, *(1,) * (lo.ndim - 1))
        bounds[k] = Interval(np.where(mask, -np.inf, lo), np.where(mask, np.inf, hi))
        broken = broken | ~np.isfinite(lo + hi).all(tuple(range(1, lo.ndim)))
    return Jet(*bounds)


def interval_einsum(subscripts: str, x: Interval, y: Interval) -> Interval:
    """Return the einsum of two intervals, computed from midpoints and radii."""
    with np.errstate(invalid="ignore", over="ignore"):
        mx, my = (x.lo + x.hi) / 2, (y.lo + y.hi) / 2
        rx, ry = (x.hi - x.lo) / 2 + ROUNDING * np.abs(mx), (y.hi - y.lo) / 2 + ROUNDING * np.abs(my)
        middle = np.einsum(subscripts, mx, my)
        radius = np.einsum(subscripts, np.abs(mx), ry) + np.einsum(subscripts, rx, np.abs(my) + ry)
        radius = radius * (1 + ROUNDING) + ROUNDING * np.abs(middle)
        return Interval(middle - radius, middle + radius)


def interval_add(x: Interval, y: Interval, factor: float = 1.0) -> Interval:
    """Return x + factor y."""
    ends = factor * y.lo, factor * y.hi
    lo, hi = x.lo + np.minimum(*ends), x.hi + np.maximum(*ends)
    size = ROUNDING * (np.abs(lo) + np.abs(hi) + np.abs(ends[0]) + np.abs(ends[1]))
    return Interval(lo - size, hi + size)


def compose(outer: Jet, inner: Jet) -> Jet:
    """Return the jet of outer(inner(z)); `outer` must be bounded over a set that contains the values of `inner`."""
    first = interval_einsum("bpi,biu->bpu", outer.first, inner.first)
    second_times_first = interval_einsum("bpij,biu->bpuj", outer.second, inner.first)
    second = interval_add(
        interval_einsum("bpuj,bjv->bpuv", second_times_first, inner.first),
        interval_einsum("bpi,biuv->bpuv", outer.first, inner.second),
    )
    third = interval_einsum("bpijk,biu->bpujk", outer.third, inner.first)
    third = interval_einsum("bpujk,bjv->bpuvk", third, inner.first)
    third = interval_einsum("bpuvk,bkw->bpuvw", third, inner.first)
    third = interval_add(third, interval_einsum("bpuj,bjvw->bpuvw", second_times_first, inner.second), 3.0)
    third = interval_add(third, interval_einsum("bpi,biuvw->bpuvw", outer.first, inner.third))
    return Jet(outer.value, first, second, third)


def measurement_jets(system: System, window: int, box: Interval) -> list[Jet]:
    """Return the jets of h(f0^j(z)) for j = 0, ..., window over the boxes of steps 0, 1, ..."""
    (count, n), k = box.lo.shape, np.arange(len(box.lo))
    identity = [np.zeros((count,) + (n,) * (k + 1)) for k in (1, 2, 3)]
    identity[0][:] = np.eye(n)
    state = Jet(box, *(Interval(v, v) for v in identity))
    jets = []
    for j in range(window + 1):
        if j:
            state = compose(_jet(system, "step", k + j - 1, state.value), state)
        jets.append(compose(_jet(system, "measure", k + j, state.value), state))
    return jets


def cost_bounds(
    system: System, y: np.ndarray, weights: np.ndarray, lo: np.ndarray, hi: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bound J(z) = 1/2 sum_j w |y_j - h(f0^j(z))|^2 over boxes: a lower bound, and two of the third derivative.

    The boxes lo, hi of steps 0, ..., B - 1 have shape (B, n), y has shape (B, window + 1, p), and the weights broadcast
    to it. A weight of 0 leaves a term out. The second result is the largest |D^3 J [u, u, u]| for |u| = 1, and the
    third is a tensor T (B, n, n, n) with |D^3 J [u, u, u]| <= T [|u|, |u|, |u|]. Where there is no bound, the results
    are 0 and infinite. Raises NoBound where f or h contains an operation without an interval rule.
    """
    count, n = lo.shape
    lower, third = np.zeros(count), Interval(np.zeros((count, n, n, n)), np.zeros((count, n, n, n)))
    weights = np.broadcast_to(weights, y.shape)
    for j, jet in enumerate(measurement_jets(system, y.shape[1] - 1, Interval(lo, hi))):
        w, measured = weights[:, j], Interval(y[:, j], y[:, j])
        residual = interval_add(jet.value, measured, -1.0)  # h - y
        weighted_residual = Interval(w * residual.lo, w * residual.hi)
        weighted_first = Interval(w[..., None] * jet.first.lo, w[..., None] * jet.first.hi)
        third = interval_add(third, interval_einsum("bpu,bpvw->buvw", weighted_first, jet.second), 3.0)
        third = interval_add(third, interval_einsum("bp,bpuvw->buvw", weighted_residual, jet.third))
        nearest = np.maximum(np.maximum(residual.lo, -residual.hi), 0.0)  # the least |h - y|
        lower += (w * np.square(nearest)).sum(1) / 2 * (1 - ROUNDING)
    tensor = np.nan_to_num(third.magnitude * (1 + ROUNDING), nan=np.inf)
    tensor = sum(np.transpose(tensor, (0, *order)) for order in itertools.permutations((1, 2, 3))) / 6
    size = np.sqrt(np.square(third.magnitude).sum((1, 2, 3))) * (1 + ROUNDING)
    return np.nan_to_num(lower, nan=0.0), np.where(np.isnan(size), np.inf, size), tensor
