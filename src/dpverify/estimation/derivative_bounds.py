"""Bounds of the derivatives of the stage cost over boxes, for any f and h that JAX can differentiate three times.

Only f and h are differentiated and enclosed by interval arithmetic. The chain rule combines their derivatives in
interval arithmetic, one step of the window after the other, so that neither the work per step nor the compiled program
grows with the window. The formulas are in docs/method.md, section 7.3.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from dpverify.estimation.interval_arithmetic import ROUNDING, Interval, enclose
from dpverify.estimation.system import ParametricMap, StateMap, System
from dpverify.util.arrays import enable_x64


class CostBounds(NamedTuple):
    """Bounds of the derivatives of J over each of B boxes with n states."""

    gradient: Interval  # (B, n)
    hessian: Interval  # (B, n, n)
    third: np.ndarray | None  # (B,): the largest |D^3 J [u, u, u]| for |u| = 1; None where it was not requested


class Jet(NamedTuple):
    """Bounds of a map of z and of its derivatives up to order 2 or 3, over each of B boxes."""

    value: Interval  # (B, p)
    first: Interval  # (B, p, n)
    second: Interval  # (B, p, n, n)
    third: Interval | None  # (B, p, n, n, n); only the values D^3 [u, u, u] are used


def _enclosed_derivatives(function: StateMap, order: int) -> Callable[[np.ndarray, np.ndarray], tuple[Interval, ...]]:
    """Return the compiled function from boxes (B, n) to the bounds of `function` and its derivatives."""
    if isinstance(function, ParametricMap):
        return functools.partial(_compiled_enclosure(function.family, order), function.parameters)
    return functools.partial(_compiled_enclosure(function, order), ())


@functools.lru_cache(maxsize=64)
def _compiled_enclosure(template: StateMap | ParametricMap, order: int) -> Callable[..., tuple[Interval, ...]]:
    def bounds(parameters: Any, lo: jax.Array, hi: jax.Array) -> tuple[Interval, ...]:
        maps: list[StateMap] = [template.bind(parameters) if isinstance(template, ParametricMap) else template]
        for _ in range(order):
            maps.append(jax.jacfwd(maps[-1]))
        return enclose(jax.vmap(lambda x: tuple(map_(x) for map_ in maps)), lo, hi)

    return jax.jit(bounds)


def padded_batch_size(count: int) -> int:
    """Return the batch size that a number of boxes is filled up to; few sizes mean few compilations."""
    return next((size for size in (32, 1024) if count <= size), 1 << (count - 1).bit_length())


def _jet(function: StateMap, box: Interval, order: int) -> Jet:
    """Return the jet of f or h over each box."""
    size = padded_batch_size(len(box.lo))
    padded = [np.concatenate([end, np.repeat(end[-1:], size - len(end), 0)]) for end in box]
    with enable_x64():
        enclosed = _enclosed_derivatives(function, order)(*padded)
    bounds = [Interval(*(np.asarray(end)[: len(box.lo)] for end in v)) for v in enclosed]
    # Where one order has no bound there is a jump or a kink, and the bounds of the higher orders are meaningless.
    broken = np.zeros(len(box.lo), bool)
    for k, (lo, hi) in enumerate(bounds):
        mask = broken.reshape(-1, *(1,) * (lo.ndim - 1))
        bounds[k] = Interval(np.where(mask, -np.inf, lo), np.where(mask, np.inf, hi))
        broken = broken | ~np.isfinite(lo + hi).all(tuple(range(1, lo.ndim)))
    return Jet(bounds[0], bounds[1], bounds[2], bounds[3] if order == 3 else None)


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
    if outer.third is None or inner.third is None:
        return Jet(outer.value, first, second, None)
    third = interval_einsum("bpijk,biu->bpujk", outer.third, inner.first)
    third = interval_einsum("bpujk,bjv->bpuvk", third, inner.first)
    third = interval_einsum("bpuvk,bkw->bpuvw", third, inner.first)
    third = interval_add(third, interval_einsum("bpuj,bjvw->bpuvw", second_times_first, inner.second), 3.0)
    third = interval_add(third, interval_einsum("bpi,biuvw->bpuvw", outer.first, inner.third))
    return Jet(outer.value, first, second, third)


def measurement_jets(system: System, window: int, box: Interval, order: int = 2) -> list[Jet]:
    """Return the jets of h(f0^j(z)) for j = 0, ..., window over each box."""
    count, n = box.lo.shape
    identity = [np.zeros((count,) + (n,) * (k + 1)) for k in (1, 2, 3)]
    identity[0][:] = np.eye(n)
    first, second, third = (Interval(v, v) for v in identity)
    state = Jet(box, first, second, third if order == 3 else None)
    jets = []
    for j in range(window + 1):
        if j:
            state = compose(_jet(system.f, state.value, order), state)
        jets.append(compose(_jet(system.h, state.value, order), state))
    return jets


def cost_bounds(
    system: System, y: np.ndarray, weights: np.ndarray, lo: np.ndarray, hi: np.ndarray, order: int = 3
) -> CostBounds:
    """Bound the derivatives of J(z) = 1/2 sum_j w |y_j - h(f0^j(z))|^2 over boxes.

    The boxes lo, hi have shape (B, n), y has shape (B, window + 1, p), and the weights broadcast to it. A weight of 0
    leaves a term out. Raises NoBound where f or h contains an operation without an interval rule.
    """
    count, n = lo.shape
    gradient, hessian, third = (
        Interval(np.zeros(s), np.zeros(s)) for s in ((count, n), (count, n, n), (count, n, n, n))
    )
    weights = np.broadcast_to(weights, y.shape)
    for j, jet in enumerate(measurement_jets(system, y.shape[1] - 1, Interval(lo, hi), order)):
        w, measured = weights[:, j], Interval(y[:, j], y[:, j])
        residual = interval_add(jet.value, measured, -1.0)  # h - y
        weighted_residual = Interval(w * residual.lo, w * residual.hi)
        weighted_first = Interval(w[..., None] * jet.first.lo, w[..., None] * jet.first.hi)
        gradient = interval_add(gradient, interval_einsum("bp,bpu->bu", weighted_residual, jet.first))
        hessian = interval_add(hessian, interval_einsum("bpu,bpv->buv", weighted_first, jet.first))
        hessian = interval_add(hessian, interval_einsum("bp,bpuv->buv", weighted_residual, jet.second))
        if jet.third is not None:
            third = interval_add(third, interval_einsum("bpu,bpvw->buvw", weighted_first, jet.second), 3.0)
            third = interval_add(third, interval_einsum("bp,bpuvw->buvw", weighted_residual, jet.third))
    if order < 3:
        return CostBounds(gradient, hessian, None)
    return CostBounds(gradient, hessian, np.sqrt(np.square(third.magnitude).sum((1, 2, 3))) * (1 + ROUNDING))
