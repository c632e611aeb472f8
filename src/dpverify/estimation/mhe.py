"""The W2-MHE: a moving-horizon estimator whose estimate is random (docs/method.md, section 7.2).

Between the deterministic estimate (s = 1) and pure chance on a compact set K_k (s = 0) lies s; the paper does not print
the law in between, so there are two. `law="gibbs"` minimises s E[cost] - (1 - s) entropy and is drawn exactly (`gibbs`,
`cells`, `faithful`); `law="blend"` is s times the deterministic estimate plus 1 - s times a uniform draw from K_k.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation.blocks import device_block, measurement_weights, one_of, positive, recorded, share, whole
from dpverify.estimation.faithful import Faithfulness, Plan, Problem, beyond_reach, count_modes, jitted_estimates, plan
from dpverify.estimation.gibbs import Ball, keep
from dpverify.estimation.horizon import SPANS, estimates, stage_cost, windows
from dpverify.estimation.near import estimates_near
from dpverify.estimation.system import System
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import enable_x64

LAWS = ("gibbs", "blend")
EDGE = (
    "the W2-MHE's estimate lies on the edge of K_k, which holds it back from the data: what was measured is the set's "
    'privacy as well; a larger diameter=, or support="wide" with a radius=, lets the data speak'
)


@dataclass(frozen=True)
class W2MHE:
    """The mechanism: data (T + 1, measurements) -> estimates (runs, T + 1 - window, released coordinates).

    `window` is N; `span="closed"` lets a step read y_k..y_{k+N}, "open" y_{k+1}..y_{k+N}. `weights`: one number for
    each measurement, on its squared residual (all 1 unless stated: the law of the noise is not used, 1/variance is the
    usual choice). K_k is centred at f0^k(start): by default the theorem's, of diameter
    `diameter` c_f^k (a ball for gibbs, a cube for blend); with `support="wide"` of the stated `radius` at every step
    (half the diagonal of the cube), for which the theory has no value.
    """

    system: System
    window: int
    s: float
    tau: float
    _: KW_ONLY
    law: str = "gibbs"
    span: str = "closed"
    weights: tuple[float, ...] | None = None
    support: str = "theorem"
    diameter: float = 0.1
    radius: float | None = None
    name: str = "W2-MHE"

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", whole("window", self.window))
        object.__setattr__(self, "weights", measurement_weights(self.system, self.weights))
        share("s", self.s)
        positive("tau", self.tau, "the smaller, the more the prediction is trusted")
        one_of("law", self.law, LAWS)
        one_of("span", self.span, SPANS)
        one_of("support", self.support, ("theorem", "wide"))
        self._check_support()

    def _check_support(self) -> None:
        if self.support == "wide":
            positive("radius", self.radius, 'which support="wide" has to state')
            return
        positive("diameter", self.diameter, "that of K_0")
        if self.radius is not None:
            raise InputError('found a radius with the theorem\'s support; expected support="wide" with it, or diameter')
        if self.system.lipschitz is None or not 0 < self.system.lipschitz < np.inf:
            raise InputError(
                f"found c_f {self.system.lipschitz}; expected a positive Lipschitz constant of f, by which K_k grows; "
                'state System(lipschitz=...), mend a singular A, or take support="wide"'
            )

    @property
    def block(self) -> int:
        return device_block()

    @property
    def problem(self) -> Problem:
        assert self.weights is not None
        return Problem(self.system, self.window, self.span, self.weights)

    @property
    def kappa(self) -> float:
        """The temperature (1 - s) / s."""
        return (1 - self.s) / self.s if self.s > 0 else np.inf

    def sets(self, steps: int) -> Ball:
        """K_0..K_{steps-1}: centres and radii (half the diameters)."""
        with enable_x64():
            centres = [jnp.asarray(self.system.start)]
            for _ in range(steps - 1):
                centres.append(self.system.f(centres[-1]))
            centre = np.asarray(jnp.stack(centres))
        if self.radius is not None:
            return Ball(centre, np.full(steps, float(self.radius)))
        assert self.system.lipschitz is not None
        return Ball(centre, self.diameter / 2 * self.system.lipschitz ** np.arange(steps))

    def deterministic(self, data: Any) -> np.ndarray:
        """The estimates at s = 1, all coordinates: (T + 1 - window, states)."""
        return np.asarray(self._plan(data).trajectory)

    def estimate(self, data: Any) -> Any:
        """The released estimates at s = 1, (K, d): pure JAX, can be vmapped over data."""
        solve = estimates(self.system, self.problem.table, self._shape)
        return solve(windows(data, self.window), self.tau, *self._constant_sets(data))[:, self._released]

    def near(self, data: Any) -> Callable[[Any], Any]:
        """`estimate`, made faster for data sets near this one."""
        solve = estimates_near(self.system, self.problem.table, self._shape)
        trajectory = solve(windows(data, self.window), self.tau, *self._constant_sets(data))
        return lambda other: trajectory(windows(other, self.window))[:, self._released]

    @property
    def _shape(self) -> str:
        return "ball" if self.law == "gibbs" else "cube"

    @property
    def _released(self) -> Any:
        return np.asarray(self.system.released)

    def _constant_sets(self, data: Any) -> Ball:
        with jax.ensure_compile_time_eval():  # the sets do not depend on the data, only on their number
            return self.sets(len(data) - self.window)

    def faithfulness(self, data: Any) -> Faithfulness:
        """What is certain of the sampler for this data set."""
        known = self._plan(data)
        with enable_x64():
            return known.faithfulness._replace(modes=count_modes(self.problem, known, self.tau))

    def remarks(self, data: Any) -> tuple[str, ...]:
        """What a report on this data set has to say beside its numbers."""
        known = self._plan(data)
        ball = known.ball
        way = known.trajectory - ball.centre
        out = np.linalg.norm(way, axis=1) if self._shape == "ball" else np.abs(way).max(1) * np.sqrt(way.shape[1])
        if (out < (1 - 1e-6) * ball.radius).all():
            return known.remarks
        return *known.remarks, EDGE

    def _plan(self, data: Any) -> Plan:
        array = np.ascontiguousarray(recorded(self.system, data, self.window + 1))
        return _planned(self, array.shape, array.tobytes())

    def __call__(self, data: Any, runs: int, rng: np.random.Generator) -> Any:
        known = self._plan(data)
        with enable_x64():
            key, released = jax_key(rng), list(self.system.released)
            if self.s == 1:
                return jnp.broadcast_to(jnp.asarray(known.trajectory)[:, released], (runs, len(known.y), len(released)))
            if self.law == "blend":
                return _blend(
                    key, runs, known.trajectory[:, released], known.ball, self.s, self.system.states, tuple(released)
                )
            if self.s == 0:
                return _uniform(key, runs, known.ball, tuple(released))
            if not known.faithfulness.reached:
                raise InputError(beyond_reach(known.faithfulness))
            return _gibbs(self.problem)(key, runs, known.y, known.ball, known.envelope, self.kappa, self.tau)


@functools.lru_cache(maxsize=64)
def _planned(mechanism: W2MHE, shape: tuple[int, ...], data: bytes) -> Plan:
    y = np.frombuffer(data).reshape(shape)
    ball = mechanism.sets(len(y) - mechanism.window)
    if mechanism.law == "gibbs" and 0 < mechanism.s < 1:
        return plan(mechanism.problem, y, ball, mechanism.kappa, mechanism.tau)
    with enable_x64():
        rows = np.stack([y[k : k + mechanism.window + 1] for k in range(len(ball.radius))])
        trajectory = np.asarray(jitted_estimates(mechanism.problem, mechanism._shape)(rows, mechanism.tau, *ball))
    if not np.isfinite(trajectory).all():
        raise InputError("found NaN or infinity in f or h near an estimate; expected finite numbers; mend f or h")
    steps = len(rows)
    return Plan(rows, ball, None, trajectory, Faithfulness("direct", True, (1.0,) * steps))


@functools.partial(jax.jit, static_argnames=("runs", "states", "released"))
def _blend(key: Any, runs: int, trajectory: Any, ball: Ball, s: Any, states: int, released: tuple[int, ...]) -> Any:
    half = jnp.asarray(ball.radius)[:, None] / np.sqrt(states)
    u = jax.random.uniform(key, (runs, *trajectory.shape), trajectory.dtype, -1.0, 1.0)
    return s * trajectory + (1 - s) * (jnp.asarray(ball.centre)[:, released] + half * u)


@functools.partial(jax.jit, static_argnames=("runs", "released"))
def _uniform(key: Any, runs: int, ball: Ball, released: tuple[int, ...]) -> Any:
    inside = jax.random.ball(key, ball.centre.shape[1], shape=(runs, len(ball.radius)), dtype=ball.centre.dtype)
    return (ball.centre + jnp.asarray(ball.radius)[:, None] * inside)[..., released]


@functools.lru_cache(maxsize=64)
def _gibbs(problem: Problem) -> Callable[..., Any]:
    """All steps of all runs, under one jit: only runs and the kind of envelope are compiled in."""
    system, cost = problem.system, stage_cost(problem.system, problem.table)
    carry = jax.vmap(system.f, in_axes=1, out_axes=1)

    def run(key: Any, runs: int, y: Any, ball: Ball, envelope: Any, kappa: Any, tau: Any) -> Any:
        def step(m: Any, at: Any) -> Any:
            rows, here, envelope, key = at
            z = keep(lambda z: cost(z, rows), envelope, here, m, key, kappa, tau)
            return carry(z), z[jnp.asarray(system.released)]

        start = jnp.tile(jnp.asarray(system.start, y.dtype)[:, None], runs)
        keys = jax.random.split(key, len(y))
        _, released = jax.lax.scan(step, start, (y, ball, envelope, keys))
        return jnp.transpose(released, (2, 0, 1))

    return jax.jit(run, static_argnums=1)
