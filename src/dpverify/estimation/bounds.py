"""Bounds of the stage cost's derivatives over boxes, for any f and h that JAX can differentiate three times.

Only f and h themselves are differentiated and enclosed; their derivatives are put together by the chain rule in
interval arithmetic, window step by window step, so that the work (and what is compiled) does not grow with the window.
The formulas are in docs/method.md, section 7.3.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from dpverify.estimation.intervals import SLACK, Interval, enclose
from dpverify.estimation.system import System
from dpverify.util.arrays import enable_x64


class CostBounds(NamedTuple):
    """Over each of B boxes: the gradient and the Hessian of J, and the most that |D^3 J [u, u, u]| is for |u| = 1.

    `third` is None where it was not asked for.
    """

    gradient: Interval  # (B, n)
    hessian: Interval  # (B, n, n)
    third: Any  # (B,)


class Jet(NamedTuple):
    """A map of z, and its derivatives up to order 2 or 3, over a batch of boxes; only D^3 [u, u, u] is ever used."""

    value: Interval  # (B, p)
    first: Interval  # (B, p, n)
    second: Interval  # (B, p, n, n)
    third: Interval | None  # (B, p, n, n, n)


@functools.lru_cache(maxsize=64)
def _derivatives(function: Any, order: int) -> Any:
    """Boxes (B, n) -> the jet of `function` over each of them."""

    def orders(x: Any) -> tuple[Any, ...]:
        maps = [function]
        for _ in range(order):
            maps.append(jax.jacfwd(maps[-1]))
        return tuple(map_(x) for map_ in maps)

    return jax.jit(lambda lo, hi: enclose(jax.vmap(orders), lo, hi))


def round_size(count: int) -> int:
    """What a number of boxes is filled up to: few sizes, few compilations."""
    return next((size for size in (32, 1024) if count <= size), 1 << (count - 1).bit_length())


def _jet(function: Any, box: Interval, order: int) -> Jet:
    size = round_size(len(box.lo))
    padded = [np.concatenate([end, np.repeat(end[-1:], size - len(end), 0)]) for end in box]
    with enable_x64():
        enclosed = _derivatives(function, order)(*padded)
    values = [Interval(*(np.asarray(end)[: len(box.lo)] for end in v)) for v in enclosed]
    broken = np.zeros(len(box.lo), bool)  # where an order has no bound: a jump, a kink; later ones say nothing there
    for k, (lo, hi) in enumerate(values):
        at = broken.reshape(-1, *(1,) * (lo.ndim - 1))
        values[k] = Interval(np.where(at, -np.inf, lo), np.where(at, np.inf, hi))
        broken = broken | ~np.isfinite(lo + hi).all(tuple(range(1, lo.ndim)))
    return Jet(values[0], values[1], values[2], values[3] if order == 3 else None)


def times(subscripts: str, x: Interval, y: Interval) -> Interval:
    """einsum of two intervals, by midpoints and radii."""
    with np.errstate(invalid="ignore", over="ignore"):
        mx, my = (x.lo + x.hi) / 2, (y.lo + y.hi) / 2
        rx, ry = (x.hi - x.lo) / 2 + SLACK * np.abs(mx), (y.hi - y.lo) / 2 + SLACK * np.abs(my)
        middle = np.einsum(subscripts, mx, my)
        radius = np.einsum(subscripts, np.abs(mx), ry) + np.einsum(subscripts, rx, np.abs(my) + ry)
        radius = radius * (1 + SLACK) + SLACK * np.abs(middle)
        return Interval(middle - radius, middle + radius)


def plus(x: Interval, y: Interval, factor: float = 1.0) -> Interval:
    """x + factor y."""
    ends = factor * y.lo, factor * y.hi
    lo, hi = x.lo + np.minimum(*ends), x.hi + np.maximum(*ends)
    size = SLACK * (np.abs(lo) + np.abs(hi) + np.abs(ends[0]) + np.abs(ends[1]))
    return Interval(lo - size, hi + size)


def after(outer: Jet, inner: Jet) -> Jet:
    """The jet of a composition: outer's taken over (at least) inner's values."""
    first = times("bpi,biu->bpu", outer.first, inner.first)
    bent = times("bpij,biu->bpuj", outer.second, inner.first)
    second = plus(times("bpuj,bjv->bpuv", bent, inner.first), times("bpi,biuv->bpuv", outer.first, inner.second))
    if outer.third is None or inner.third is None:
        return Jet(outer.value, first, second, None)
    cubed = times("bpijk,biu->bpujk", outer.third, inner.first)
    cubed = times("bpujk,bjv->bpuvk", cubed, inner.first)
    cubed = times("bpuvk,bkw->bpuvw", cubed, inner.first)
    third = plus(cubed, times("bpuj,bjvw->bpuvw", bent, inner.second), 3.0)
    third = plus(third, times("bpi,biuvw->bpuvw", outer.first, inner.third))
    return Jet(outer.value, first, second, third)


def measured(system: System, window: int, box: Interval, order: int = 2) -> list[Jet]:
    """The jets of h(f0^j(z)), j = 0..window, over each box."""
    count, n = box.lo.shape
    flat = [np.zeros((count,) + (n,) * (k + 1)) for k in (1, 2, 3)]
    flat[0][:] = np.eye(n)
    first, second, third = (Interval(v, v) for v in flat)
    state = Jet(box, first, second, third if order == 3 else None)
    jets = []
    for j in range(window + 1):
        if j:
            state = after(_jet(system.f, state.value, order), state)
        jets.append(after(_jet(system.h, state.value, order), state))
    return jets


def cost_bounds(
    system: System, y: np.ndarray, weights: np.ndarray, lo: np.ndarray, hi: np.ndarray, order: int = 3
) -> CostBounds:
    """Of J(z) = 1/2 sum_j |y_j - h(f0^j(z))|^2 over boxes (B, n); y is (B, window + 1, p), weights broadcast to it.

    A weight of 0 leaves a term out. Raises NoBound where f or h is made of something that has no interval rule.
    """
    count, n = lo.shape
    gradient, hessian, third = (
        Interval(np.zeros(s), np.zeros(s)) for s in ((count, n), (count, n, n), (count, n, n, n))
    )
    weights = np.broadcast_to(weights, y.shape)
    for j, jet in enumerate(measured(system, y.shape[1] - 1, Interval(lo, hi), order)):
        w, exact = weights[:, j], Interval(y[:, j], y[:, j])
        residual = plus(jet.value, exact, -1.0)  # h - y
        pulled = Interval(w * residual.lo, w * residual.hi)
        heavy = Interval(w[..., None] * jet.first.lo, w[..., None] * jet.first.hi)
        gradient = plus(gradient, times("bp,bpu->bu", pulled, jet.first))
        hessian = plus(hessian, times("bpu,bpv->buv", heavy, jet.first))
        hessian = plus(hessian, times("bp,bpuv->buv", pulled, jet.second))
        if jet.third is not None:
            third = plus(third, times("bpu,bpvw->buvw", heavy, jet.second), 3.0)
            third = plus(third, times("bp,bpuvw->buvw", pulled, jet.third))
    if order < 3:
        return CostBounds(gradient, hessian, None)
    return CostBounds(gradient, hessian, np.sqrt(np.square(third.magnitude).sum((1, 2, 3))) * (1 + SLACK))
