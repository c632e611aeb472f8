"""Proved bounds of functions and of their derivatives up to the third over a box: interval arithmetic on Taylor jets.

The exactness of the Gibbs sampler rests on bounds over a whole set (docs/method.md, section 7.3), which no number of
samples can give. The jaxpr of a function is evaluated in NumPy with jets in place of numbers: intervals of the value
and of all derivatives with respect to the coordinates of the box, each rounded outwards. Nothing is compiled.

Two cases have no bound. A primitive without a rule raises `NoBound`, and so do functions with a derivative of their own
in JAX, which need not be the true one. Where the box may contain a jump or a pole, value and derivatives become NaN,
and so does everything computed from them; at a kink the derivatives alone become NaN. Neither case ever produces a
wrong bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import erf

from dpverify.estimation.system import System
from dpverify.util.arrays import enable_x64, host_device

HOW_TO_WRITE = "write it with + - * /, powers, tanh, exp, log, sin, cos, tan, atan2, sqrt, max, in 64 bits"
ROUNDING = 2.0**-44  # relative widening after every operation: many times the rounding error of any of them


class NoBound(Exception):
    """A primitive has no rule."""


@dataclass(frozen=True)
class Interval:
    """All arrays between `lo` and `hi`, entry by entry. The operations round outwards; NaN means no bound."""

    lo: np.ndarray
    hi: np.ndarray
    __array_ufunc__ = None  # so that an array times an interval is an interval

    @property
    def magnitude(self) -> np.ndarray:
        """The largest absolute value of each entry."""
        return np.maximum(abs(self.lo), abs(self.hi))

    def widened(self, size: Any = None) -> Interval:
        """Return a wider interval; `size` is what the rounding is relative to, if larger than the result."""
        size = (abs(self.lo), abs(self.hi)) if size is None else (size, size)
        return Interval(self.lo - ROUNDING * size[0], self.hi + ROUNDING * size[1])

    def __add__(self, other: Any) -> Interval:
        other = as_interval(other)
        total = Interval(self.lo + other.lo, self.hi + other.hi).widened(self.magnitude + other.magnitude)
        # A sum of nonnegative terms stays nonnegative, so that a norm can take its square root.
        nonnegative = (self.lo >= 0) & (other.lo >= 0)
        return Interval(np.where(nonnegative, np.maximum(total.lo, 0.0), total.lo), total.hi)

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __sub__(self, other: Any) -> Interval:
        return self + -as_interval(other)

    def __rsub__(self, other: Any) -> Interval:
        return -self + other

    def __mul__(self, other: Any) -> Interval:
        other = as_interval(other)
        ends = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        low, high = np.minimum(*ends[:2]), np.maximum(*ends[:2])
        return Interval(np.minimum(np.minimum(*ends[2:]), low), np.maximum(np.maximum(*ends[2:]), high)).widened()

    __radd__, __rmul__ = __add__, __mul__

    def where(self, condition: Any, other: Any = math.nan) -> Interval:
        """Return this interval where the condition holds, and the other one elsewhere."""
        other = as_interval(other)
        return Interval(np.where(condition, self.lo, other.lo), np.where(condition, self.hi, other.hi))

    @property
    def contains_zero(self) -> Any:
        """Whether 0, or anything (NaN), may be in the interval."""
        return ~((self.lo > 0) | (self.hi < 0))

    def increasing(self, function: Callable[[np.ndarray], np.ndarray]) -> Interval:
        """Return the values of an increasing function."""
        return Interval(function(self.lo), function(self.hi)).widened()

    def power(self, p: float) -> Interval:
        """Return the values of x^p; NaN where x may be negative and p is no whole number, or where x may be a pole."""
        if p < 0:
            return Interval(self.hi, self.lo).increasing(np.reciprocal).where(~self.contains_zero).power(-p)
        if p == 0:
            return Interval(np.ones_like(self.lo), np.ones_like(self.hi))
        if p % 2 == 0:  # increasing in |x|
            nearest = np.where(self.contains_zero, 0.0, np.minimum(abs(self.lo), abs(self.hi)))
            return Interval(nearest**p, self.magnitude**p).widened()
        return self.increasing(lambda v: v**p)

    def cosine(self) -> Interval:
        """Return the values of the cosine, which are 1 or -1 where a multiple of pi may lie in the interval."""

        def contains(phase: float) -> Any:
            first = np.ceil((self.lo - phase) / (2 * math.pi) - 1e-9)
            return first <= np.floor((self.hi - phase) / (2 * math.pi) + 1e-9)

        ends = np.cos(self.lo), np.cos(self.hi)
        low, high = (
            np.where(contains(math.pi), -1.0, np.minimum(*ends)),
            np.where(contains(0.0), 1.0, np.maximum(*ends)),
        )
        return Interval(low, high).widened(1.0)


def as_interval(value: Any) -> Interval:
    """Return an Interval; an array becomes the interval that contains only this array."""
    return value if isinstance(value, Interval) else Interval(np.asarray(value), np.asarray(value))


class Jet(NamedTuple):
    """Bounds of an array and of its derivatives with respect to n coordinates, whose axes come first.

    Only the values of the derivatives on equal arguments, such as D^3 [u, u, u], are used. So they need not be
    symmetric.
    """

    value: Interval  # (...)
    first: Interval  # (n, ...)
    second: Interval  # (n, n, ...)
    third: Interval  # (n, n, n, ...)

    def where(self, condition: Any, other: Jet | None = None) -> Jet:
        """Return this jet where the condition holds, and another one, or NaN, elsewhere."""
        others = (math.nan,) * 4 if other is None else other
        return Jet(*(own.where(condition, another) for own, another in zip(self, others, strict=True)))


Operand = Jet | np.ndarray  # an ordinary array where the value does not depend on the box


def outer(x: Interval, y: Interval, axes: int) -> Interval:
    """Return the products of all derivatives in x with all in y, of which `y` has this number of axes."""
    split = x.lo.ndim - (y.lo.ndim - axes)
    index = (slice(None),) * split + (None,) * axes
    return Interval(x.lo[index], x.hi[index]) * y


def chain(u: Jet, g: Sequence[Interval]) -> Jet:
    """Return the jet of g(u) from the values of g and of its three derivatives."""
    squared = outer(u.first, u.first, 1)
    third = g[3] * outer(squared, u.first, 1) + 3.0 * g[2] * outer(u.second, u.first, 1) + g[1] * u.third
    return Jet(g[0], g[1] * u.first, g[2] * squared + g[1] * u.second, third)


def add(x: Operand, y: Operand) -> Jet:
    if not isinstance(x, Jet):
        x, y = y, x
    assert isinstance(x, Jet)
    return Jet(*map(Interval.__add__, x, y)) if isinstance(y, Jet) else x._replace(value=x.value + y)


def multiply(x: Operand, y: Operand) -> Jet:
    if not isinstance(x, Jet):
        x, y = y, x
    assert isinstance(x, Jet)
    if not isinstance(y, Jet):
        return Jet(*(channel * y for channel in x))
    if x is y:
        return power(x, 2)  # tighter than the product of two intervals
    crossed = outer(x.first, y.second, 2) + outer(x.second, y.first, 1)
    return Jet(
        x.value * y.value,
        x.value * y.first + y.value * x.first,
        x.value * y.second + 2.0 * outer(x.first, y.first, 1) + y.value * x.second,
        x.value * y.third + 3.0 * crossed + y.value * x.third,
    )


def negative(x: Operand) -> Operand:
    return multiply(x, -1.0) if isinstance(x, Jet) else -x


def power(x: Jet, p: float) -> Jet:
    factors = [math.prod(p - i for i in range(k)) for k in range(4)]
    zero = Interval(np.zeros_like(x.value.lo), np.zeros_like(x.value.lo))
    return chain(x, [factor * x.value.power(p - k) if factor else zero for k, factor in enumerate(factors)])


def _exp(x: Jet) -> Jet:
    return chain(x, [x.value.increasing(np.exp)] * 4)


def _log(x: Jet) -> Jet:
    inverse = x.value.power(-1).where(x.value.lo > 0)
    return chain(x, [x.value.increasing(np.log), inverse, -inverse.power(2), 2.0 * inverse.power(3)])


def _sine(x: Jet, quarters: int = 0) -> Jet:
    """Return the sine of x + quarters pi / 2; every derivative is a quarter further."""
    return chain(x, [(x.value + (quarters + k - 1) * (math.pi / 2)).cosine() for k in range(4)])


def _cosine(x: Jet) -> Jet:
    return _sine(x, 1)


def _tanh(x: Jet) -> Jet:
    t = x.value.increasing(np.tanh)
    slope = 1.0 - t.power(2)
    return chain(x, [t, slope, -2.0 * t * slope, slope * (6.0 * t.power(2) - 2.0)])


def _arctan(x: Jet) -> Jet:
    square = x.value.power(2)
    r = (1.0 + square).power(-1)
    return chain(x, [x.value.increasing(np.arctan), r, -2.0 * x.value * r.power(2), (6.0 * square - 2.0) * r.power(3)])


def _arcsinh(x: Jet) -> Jet:
    square = x.value.power(2)
    r = (1.0 + square).power(-0.5)
    return chain(x, [x.value.increasing(np.arcsinh), r, -x.value * r.power(3), (2.0 * square - 1.0) * r.power(5)])


def _erf(x: Jet) -> Jet:
    square = x.value.power(2)
    slope = 2 / math.sqrt(math.pi) * (-square).increasing(np.exp)
    return chain(x, [x.value.increasing(erf), slope, -2.0 * x.value * slope, (4.0 * square - 2.0) * slope])


def _absolute(x: Jet) -> Jet:
    signed = multiply(x, np.sign(x.value.lo)).where(~x.value.contains_zero)
    return signed._replace(value=Interval(x.value.power(2).lo ** 0.5, x.value.magnitude).widened())


def _sign(x: Jet) -> Jet:
    return constant(np.sign(x.value.lo), len(x.first.lo)).where(~x.value.contains_zero)


def _divide(x: Operand, y: Operand) -> Jet:
    return multiply(x, power(y, -1) if isinstance(y, Jet) else 1 / y)


def _power(x: Operand, y: Operand) -> Jet:
    if isinstance(x, Jet) and not isinstance(y, Jet) and np.ndim(y) == 0:
        return power(x, float(y))
    return _exp(multiply(y, _log(x) if isinstance(x, Jet) else np.log(x)))


def _angle(y: Operand, x: Operand) -> Jet:
    """Bound atan2: over a rectangle that misses the branch cut, its extremes lie at the corners."""
    x, y = _pair(x, y)
    right, aside = _arctan(_divide(y, x)), negative(_arctan(_divide(x, y)))
    jet = right.where(x.value.lo > 0, aside.where(~y.value.contains_zero))
    corners = np.stack([np.arctan2(a, b) for a in (y.value.lo, y.value.hi) for b in (x.value.lo, x.value.hi)])
    value = Interval(corners.min(0), corners.max(0)).widened()
    return jet._replace(value=value.where((x.value.lo > 0) | ~y.value.contains_zero))


def _maximum(x: Operand, y: Operand) -> Jet:
    """Bound the larger of two numbers: where the box does not decide, there is a kink."""
    x, y = _pair(x, y)
    chosen = x.where(x.value.lo > y.value.hi, y.where(y.value.lo > x.value.hi))
    return chosen._replace(value=Interval(np.maximum(x.value.lo, y.value.lo), np.maximum(x.value.hi, y.value.hi)))


def _minimum(x: Operand, y: Operand) -> Jet:
    return negative(_maximum(negative(x), negative(y)))  # type: ignore[return-value]


def _less(x: Operand, y: Operand, strict: bool) -> Jet:
    """Return (certainly less, possibly less): the pair (0, 1) is undecided, and so is a comparison with NaN."""
    x, y = _pair(x, y)
    a, b = x.value, y.value
    certainly, possibly = (a.hi < b.lo, a.lo < b.hi) if strict else (a.hi <= b.lo, a.lo <= b.hi)
    unknown = np.isnan(a.lo + a.hi + b.lo + b.hi)
    return constant(certainly, len(x.first.lo))._replace(value=Interval(certainly & ~unknown, possibly | unknown))


def _select(which: Operand, *cases: Operand) -> Jet:
    which, *cases = _jets(which, *cases)
    low, high = cases
    # Where the box does not decide, there is a kink or a jump.
    return high.where(which.value.lo, low).where(which.value.lo == which.value.hi)


def _convert(x: Jet, new_dtype: Any) -> Jet:
    """Convert a number to itself, or a truth value to a number; where it is undecided there is a jump."""
    if not jnp.issubdtype(new_dtype, jnp.floating):
        raise NoBound(f"convert_element_type to {np.dtype(new_dtype)}")
    decided = x.value.lo == x.value.hi
    return constant(x.value.lo.astype(float), len(x.first.lo)).where(decided) if x.value.lo.dtype == bool else x


def constant(value: Any, n: int) -> Jet:
    """Return the jet of an array that does not depend on the n coordinates."""
    zeros = [np.zeros((n,) * k + np.shape(value)) for k in (1, 2, 3)]
    return Jet(as_interval(value), *map(as_interval, zeros))


def _jets(*operands: Operand, shape: tuple[int, ...] | None = None) -> list[Jet]:
    """Return the operands as jets; of this shape, if one is given."""
    n = next(len(x.first.lo) for x in operands if isinstance(x, Jet))
    arrays = [x if isinstance(x, Jet) or shape is None else np.broadcast_to(x, shape) for x in operands]
    return [x if isinstance(x, Jet) else constant(x, n) for x in arrays]


def _pair(x: Operand, y: Operand) -> list[Jet]:
    """Return two operands as jets of the same shape."""
    return _jets(x, y, shape=(x if isinstance(x, Jet) else y).value.lo.shape)  # type: ignore[union-attr]


def _dot(x: Operand, y: Operand, dimension_numbers: Any) -> Jet:
    """Bound a product of arrays: the sum of all products, with the summed axes last."""
    (contract, batch), arrays = dimension_numbers, []
    free = [v.value.lo.ndim if isinstance(v, Jet) else v.ndim for v in (x, y)]
    free = [rank - len(c) - len(b) for rank, c, b in zip(free, contract, batch, strict=True)]
    for v, c, b, own in zip((x, y), contract, batch, (True, False), strict=True):

        def arranged(a: np.ndarray, c: Any = c, b: Any = b, own: bool = own) -> np.ndarray:
            rest = [axis for axis in range(a.ndim) if axis not in (*c, *b)]
            a = a.transpose(*b, *rest, *c)
            gap = len(b) + (free[0] if own else 0)
            return np.expand_dims(a, tuple(range(gap, gap + free[1 if own else 0])))

        arrays.append(rearranged(arranged, [v])[0] if isinstance(v, Jet) else arranged(v))
    return _total(multiply(*arrays), len(contract[0]))


def _total(x: Jet, axes: int) -> Jet:
    """Return the sum over the last axes."""

    def summed(v: Interval) -> Interval:
        last = tuple(range(-axes, 0))
        total = Interval(v.lo.sum(last), v.hi.sum(last)).widened(v.magnitude.sum(last))
        return Interval(np.where((v.lo >= 0).all(last), np.maximum(total.lo, 0.0), total.lo), total.hi)

    return Jet(*map(summed, x))


def _reduce_sum(x: Jet, axes: Sequence[int]) -> Jet:
    def arranged(a: np.ndarray) -> np.ndarray:
        return np.moveaxis(a, axes, range(-len(axes), 0))

    return _total(rearranged(arranged, [x])[0], len(axes))


def rearranged(move: Callable[..., Any], operands: Sequence[Operand]) -> list[Jet]:
    """Return what an operation that only moves numbers within arrays makes of jets.

    It is executed once, on the numbers 0, 1, ... of the entries, and all bounds follow in the same order.
    """
    jets, last = _jets(*operands), 0
    numbers = []
    for jet in jets:
        shape = jet.value.lo.shape
        numbers.append(last + np.arange(math.prod(shape)).reshape(shape))
        last += numbers[-1].size
    moved = move(*numbers)
    results = []
    for index in map(np.asarray, moved if isinstance(moved, list | tuple) else [moved]):
        if ((index < 0) | (index >= last)).any():
            raise NoBound("an index outside its array")
        results.append(Jet(*(_taken([jet[k] for jet in jets], k, index) for k in range(4))))
    return results


def _taken(channels: list[Interval], axes: int, index: np.ndarray) -> Interval:
    """Return the entries with these numbers of one kind of bound, whose derivatives have this number of axes."""
    flat = [[end.reshape(*end.shape[:axes], -1) for end in (v.lo, v.hi)] for v in channels]
    return Interval(*(np.concatenate(ends, -1)[..., index] for ends in zip(*flat, strict=True)))


def evaluate(jaxpr: Any, consts: Sequence[Operand], arguments: Sequence[Operand]) -> list[Operand]:
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
            result = evaluate(inner.jaxpr if closed else inner, inner.consts if closed else (), operands)
        elif not any(isinstance(x, Jet) for x in operands):
            result = equation.primitive.bind(*operands, **params)
            result = result if equation.primitive.multiple_results else [result]
        elif any(jnp.issubdtype(v.aval.dtype, jnp.floating) and v.aval.dtype != jnp.float64 for v in equation.outvars):
            raise NoBound(f"{name} in {equation.outvars[0].aval.dtype}")  # its rounding error exceeds ROUNDING
        elif name in REARRANGING:
            moved = 1 if name in ("gather", "dynamic_slice") else len(operands)  # the others are indices
            if any(isinstance(x, Jet) for x in operands[moved:]):
                raise NoBound(f"{name} with an index that depends on the state")

            def move(*numbers: Any, equation: Any = equation, indices: Any = operands[moved:]) -> Any:
                return equation.primitive.bind(*numbers, *indices, **equation.params)

            result = rearranged(move, operands[:moved])
        elif name in RULES:
            result = [RULES[name](*operands, **{own: params[own] for own in RULE_PARAMETERS & params.keys()})]
        else:
            raise NoBound(name)
        values.update(zip(equation.outvars, result, strict=True))
    return [read(v) for v in jaxpr.outvars]


def enclose(function: Callable[..., Any], x: Jet, *others: Any) -> Jet:
    """Return the jet of function(x, *others); the function may be jitted, and the others are ordinary arrays."""
    with enable_x64(), host_device(), np.errstate(all="ignore"):
        closed = jax.make_jaxpr(function)(np.zeros(x.value.lo.shape), *others)
        result = evaluate(closed.jaxpr, closed.consts, [x, *others])[0]
        return result if isinstance(result, Jet) else constant(np.asarray(result), len(x.first.lo))


def box_jet(lo: np.ndarray, hi: np.ndarray) -> Jet:
    """Return the jet of the points of boxes (..., n) with respect to their own coordinates."""
    n = lo.shape[-1]
    jet = constant(lo, n)
    slope = np.broadcast_to(np.eye(n).reshape(n, *(1,) * (lo.ndim - 1), n), (n, *lo.shape))
    return jet._replace(value=Interval(lo, hi), first=as_interval(slope))


CALLS = {"jit", "pjit", "closed_call", "checkpoint", "remat2"}  # no custom_jvp_call: its derivative is arbitrary
REARRANGING = {"broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "expand_dims", "gather", "pad"}
REARRANGING |= {"reshape", "rev", "slice", "split", "stack", "squeeze", "tile", "transpose", "unstack"}
RULE_PARAMETERS = {"axes", "dimension_numbers", "new_dtype", "y"}  # of primitives: what their rules need
RULES: dict[str, Callable[..., Jet]] = {
    "abs": _absolute,
    "acos": lambda x: _angle(power(add(1.0, negative(power(x, 2))), 0.5), x),
    "add": add,
    "add_any": add,
    "asin": lambda x: _angle(x, power(add(1.0, negative(power(x, 2))), 0.5)),
    "asinh": _arcsinh,
    "atan": _arctan,
    "atan2": _angle,
    "cbrt": lambda x: power(x, 1 / 3),
    "convert_element_type": _convert,
    "cos": _cosine,
    "cosh": lambda x: multiply(add(_exp(x), _exp(negative(x))), 0.5),
    "div": _divide,
    "dot_general": _dot,
    "erf": _erf,
    "exp": _exp,
    "exp2": lambda x: _exp(multiply(x, math.log(2))),
    "expm1": lambda x: add(_exp(x), -1.0),
    "ge": lambda x, y: _less(y, x, strict=False),
    "gt": lambda x, y: _less(y, x, strict=True),
    "integer_pow": lambda x, y: power(x, y),
    "le": lambda x, y: _less(x, y, strict=False),
    "log": _log,
    "log1p": lambda x: _log(add(x, 1.0)),
    "log2": lambda x: multiply(_log(x), 1 / math.log(2)),
    "logistic": lambda x: add(multiply(_tanh(multiply(x, 0.5)), 0.5), 0.5),
    "lt": lambda x, y: _less(x, y, strict=True),
    "max": _maximum,
    "min": _minimum,
    "mul": multiply,
    "neg": negative,
    "pow": _power,
    "reduce_sum": _reduce_sum,
    "rsqrt": lambda x: power(x, -0.5),
    "select_n": _select,
    "sign": _sign,
    "sin": _sine,
    "sinh": lambda x: multiply(add(_exp(x), negative(_exp(negative(x)))), 0.5),
    "sqrt": lambda x: power(x, 0.5),
    "square": lambda x: power(x, 2),
    "sub": lambda x, y: add(x, negative(y)),
    "tan": lambda x: _divide(_sine(x), _cosine(x)),
    "tanh": _tanh,
}


def measurement_jets(system: System, window: int, box: Interval) -> list[Jet]:
    """Return the jets of h(f0^j(z)) for j = 0, ..., window over the boxes of steps 0, 1, ..."""
    k, state, jets = np.arange(len(box.lo)), box_jet(box.lo, box.hi), []
    for j in range(window + 1):
        if j:
            state = enclose(jax.vmap(system.step), state, k + j - 1)
        jets.append(enclose(jax.vmap(system.measure), state, k + j))
    return jets


def cost_jet(system: System, y: np.ndarray, weights: np.ndarray, box: Interval) -> Jet:
    """Bound J(z) = 1/2 sum_j w |y_j - h(f0^j(z))|^2 and its derivatives over the boxes (B, n) of steps 0, 1, ...

    y has shape (B, window + 1, p), and the weights broadcast to it. A weight of 0 leaves a term out. Raises NoBound
    where f or h contains an operation without a rule.
    """
    total, weights = constant(np.zeros(len(y)), box.lo.shape[1]), np.broadcast_to(weights, y.shape)
    with np.errstate(all="ignore"):
        for j, measured in enumerate(measurement_jets(system, y.shape[1] - 1, box)):
            square = power(add(measured, -y[:, j]), 2)
            own = Jet(*(v.where(weights[:, j] > 0, 0.0) for v in square))
            total = add(total, _total(multiply(own, weights[:, j] / 2), 1))
    return total
