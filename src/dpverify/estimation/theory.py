"""What can be said of the W2-MHE without a sample: the paper's sufficient epsilon, and bounds of our own.

The first is a reconstruction of a theorem that the paper cites and does not restate. The others are proved in
docs/method.md, section 7.4, for the Gibbs law on compact sets: over all events, for one pair of data sets or for all
pairs at a distance.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.blocks import recorded, share
from dpverify.estimation.bounds import Jet, measured
from dpverify.estimation.gibbs import Ball
from dpverify.estimation.intervals import Interval, NoBound
from dpverify.estimation.mhe import W2MHE
from dpverify.util.arrays import enable_x64


def w2mhe_lipschitz(c_f: float, window: int, c_h: float = 100.0) -> float:
    """The paper's l = 2 (N + 1) c_h c_f; its c_h is 100."""
    return 2 * (window + 1) * c_h * c_f


def w2mhe_epsilon(s: float, lipschitz: float, c_f: float, diameter: float, distance: float, steps: int) -> float:
    """The paper's sufficient epsilon: s/(1-s) l diam(K_0) c_f^steps d, with steps = T - N + 1."""
    share("s", s)
    if min(lipschitz, c_f, diameter, distance, steps) < 0:
        raise InputError("found a negative constant; expected lipschitz, c_f, diameter, distance and steps >= 0")
    return np.inf if s == 1 else s / (1 - s) * lipschitz * diameter * c_f**steps * distance


def sufficient_epsilon(mechanism: W2MHE, distance: float, steps: int, c_h: float = 100.0) -> float:
    """The paper's sufficient epsilon with the constants of this mechanism; the theorem's own K_k only."""
    c_f = mechanism.system.lipschitz
    if mechanism.support != "theorem" or c_f is None:
        raise InputError(
            f'found support "{mechanism.support}"; expected the theorem\'s sets K_k, for which alone it has a value; '
            'take support="theorem", or gibbs_epsilon, which holds for any K_k'
        )
    lipschitz = w2mhe_lipschitz(c_f, mechanism.window, c_h)
    return w2mhe_epsilon(mechanism.s, lipschitz, c_f, mechanism.diameter, distance, steps)


def gibbs_epsilon(mechanism: W2MHE, first: Any, second: Any) -> float:
    """A certified epsilon (delta = 0, all events, both orders) of the Gibbs law for this pair of data sets.

    The sum over steps of the oscillation of J_k^1 - J_k^2 over K_k, divided by kappa; infinite where f or h may jump or
    bend sharply in it.
    """
    with enable_x64():
        least = mechanism.window + 1
        y1, y2 = (recorded(mechanism.system, y, least) for y in (first, second))
    if y1.shape != y2.shape:
        raise InputError(f"found data of shapes {y1.shape} and {y2.shape}; expected the same number of steps")
    ball, jets = _slopes(mechanism, len(y1) - mechanism.window)
    slope = Interval(np.zeros_like(ball.centre), np.zeros_like(ball.centre))
    for j, (jet, w) in enumerate(zip(jets, mechanism.problem.table, strict=True)):
        pull = w * (y1 - y2)[j : j + len(ball.radius)]
        ends = pull[..., None] * jet.first.lo, pull[..., None] * jet.first.hi
        slope = Interval(slope.lo + np.minimum(*ends).sum(1), slope.hi + np.maximum(*ends).sum(1))
    return _added_up(ball, np.linalg.norm(slope.magnitude, axis=1), mechanism.kappa)


def gibbs_epsilon_within(mechanism: W2MHE, distance: float, steps: int) -> float:
    """The same for all pairs at most `distance` apart (2-norm); steps = T - N + 1 of them are released."""
    if not distance >= 0:
        raise InputError(f"found distance {distance}; expected a number from 0 up")
    ball, jets = _slopes(mechanism, steps)
    table = mechanism.problem.table
    squares = sum(np.square(w[:, None] * jet.first.magnitude).sum((1, 2)) for jet, w in zip(jets, table, strict=True))
    return _added_up(ball, distance * np.sqrt(squares), mechanism.kappa)


def _added_up(ball: Ball, steepest: np.ndarray, kappa: float) -> float:
    """Diameter times slope over all steps; a slope without a bound is NaN and makes it infinite."""
    epsilon = float(np.sum(2 * ball.radius * steepest) / kappa * (1 + 1e-9))
    return np.inf if np.isnan(epsilon) else epsilon


def _slopes(mechanism: W2MHE, steps: int) -> tuple[Ball, list[Jet]]:
    """The sets K_k, and what h(f0^j(z)) does over each of them."""
    if mechanism.law != "gibbs" or not 0 < mechanism.s < 1:
        raise InputError(
            f"found law {mechanism.law!r} at s {mechanism.s}; expected the Gibbs law, 0 < s < 1; a blend's support "
            "moves with the data, so that no epsilon holds for it at delta = 0"
        )
    ball = mechanism.sets(steps)
    box = Interval(ball.centre - ball.radius[:, None], ball.centre + ball.radius[:, None])
    try:
        return ball, measured(mechanism.system, mechanism.window, box)
    except NoBound as unknown:
        raise InputError(
            f"found the operation {unknown} in f or h; expected ones with interval bounds; write f and h with "
            "+ - * /, powers, tanh, exp, log, sin, cos, atan2, sqrt, in 64 bits"
        ) from unknown
