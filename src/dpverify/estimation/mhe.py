"""The W2-MHE: a moving-horizon estimator with a random estimate (docs/method.md, section 7.2).

The parameter s interpolates between the deterministic estimate (s = 1) and a uniform draw from a compact set K_k
(s = 0). The paper does not print the distribution for 0 < s < 1, so there are two. `law="gibbs"` minimises
s E[cost] - (1 - s) entropy and is sampled exactly (module `gibbs`).
`law="blend"` is s times the deterministic estimate plus 1 - s times a uniform draw from K_k.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import KW_ONLY, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.errors import InputError
from dpverify.estimation import gibbs, moving_horizon
from dpverify.estimation.moving_horizon import Ball, Problem, Windows, sliding_windows
from dpverify.estimation.system import (
    System,
    check_data,
    check_noise_parameter,
    check_positive,
    compiles_for_cpu,
    current_device,
    default_block,
    log_uniform,
    measurement_weights,
)
from dpverify.mechanisms.wrappers import jax_key
from dpverify.util.arrays import Array, enable_x64, host_device
from dpverify.util.checks import check_choice, check_whole_number

LAWS = ("gibbs", "blend")
BOUNDARY_REMARK = (
    "the deterministic estimate of the W2-MHE lies on the boundary of K_k, which limits the influence of the data: the "
    'measured privacy is partly that of the set; choose a larger diameter=, or support="wide" with a radius='
)


@dataclass(frozen=True)
class W2MHE:
    """The paper's W2-MHE as a mechanism: data (T + 1, measurements) -> estimates (runs, T + 1 - window, d).

    The estimate of step k is released for k = 0, ..., T - window; d is the number of released coordinates. K_k is
    centred at f0^k(start), where f0 is the noise-free step.

    Parameters
    ----------
    system : System
        The model of the data.
    window : int
        N, the number of steps that an estimate looks ahead.
    s : float
        Weight of the cost against the entropy, from 0 (uniform on K_k) to 1 (deterministic).
    tau : float
        Weight of the measurements against the prediction: the smaller, the closer the estimate is to the prediction.
    law : {"gibbs", "blend"}
        Distribution of the estimate for 0 < s < 1; see the module docstring.
    span : {"closed", "open"}
        Whether step k uses y_k, ..., y_{k+N} ("closed") or y_{k+1}, ..., y_{k+N} ("open").
    prior : {"carried", "start"}
        The prior of window k: f0 of the estimate of window k - 1, or f0^k of the start, which uses no earlier estimate.
    weights : tuple of float, optional
        Weight of the squared residual of each measurement; 1 by default. The distribution of the noise is not used;
        1 / variance is the usual choice.
    support : {"theorem", "wide"}
        Size of K_k: of diameter `diameter` c_f^k as in the paper's theorem, or of the same `radius` at every step. The
        paper's theorem has no value for "wide".
    diameter : float
        Diameter of K_0 for `support="theorem"`, in units of the state. K_k is a ball for "gibbs"; for "blend" it is a
        cube, and this is its diagonal.
    radius : float, optional
        Half the diameter of every K_k for `support="wide"`; required there.
    name : str
        Name in reports.

    Raises
    ------
    InputError
        Where a parameter is outside its range.

    References
    ----------
    docs/method.md, sections 3 and 7.2 to 7.4.

    Examples
    --------
    >>> from dpverify.estimation import W2MHE, oscillator
    >>> mechanism = W2MHE(oscillator(), window=5, s=0.8, tau=1.4e-5)
    >>> round(mechanism.kappa, 2), mechanism.sets(2).centre.shape
    (0.25, (2, 4))
    """

    system: System
    window: int
    s: float
    tau: float
    _: KW_ONLY
    law: str = "gibbs"
    span: str = "closed"
    prior: str = "carried"
    weights: tuple[float, ...] | None = None
    support: str = "theorem"
    diameter: float = 0.1
    radius: float | None = None
    name: str = "W2-MHE"

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", check_whole_number("window", self.window))
        object.__setattr__(self, "weights", measurement_weights(self.system, self.weights))
        check_noise_parameter("s", self.s)
        check_positive("tau", self.tau, "the weight of the measurements against the prediction")
        check_choice("law", self.law, LAWS)
        check_choice("span", self.span, moving_horizon.SPANS)
        check_choice("prior", self.prior, moving_horizon.PRIORS)
        check_choice("support", self.support, ("theorem", "wide"))
        self._check_support()

    def _check_support(self) -> None:
        if self.support == "wide":
            check_positive("radius", self.radius, 'which support="wide" requires')
            return
        check_positive("diameter", self.diameter, "the diameter of K_0")
        if self.radius is not None:
            raise InputError(
                f'radius: found {self.radius} with support="theorem"; expected support="wide" with it; pass '
                "diameter=... instead, or change the support"
            )
        if self.system.lipschitz is None or not 0 < self.system.lipschitz < np.inf:
            raise InputError(
                f"system: found c_f {self.system.lipschitz}; expected a positive Lipschitz constant of f, by which K_k "
                'grows; pass System(lipschitz=...), replace a singular A, or use support="wide"'
            )

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block() << (0 if compiles_for_cpu() else 1)

    @property
    def problem(self) -> Problem:
        """The static part of the estimation problem."""
        assert self.weights is not None
        return Problem(self.system, self.window, self.span, self.weights, self.prior)

    @property
    def kappa(self) -> float:
        """The temperature (1 - s) / s of the Gibbs distribution."""
        return (1 - self.s) / self.s if self.s > 0 else np.inf

    def sets(self, steps: int) -> Ball:
        """Return centres and radii (half the diameters) of K_0, ..., K_{steps-1}."""
        return self._sets_around(self.system.open_loop(steps))

    def _sets_around(self, centre: Array) -> Ball:
        if self.radius is not None:
            return Ball(centre, np.full(len(centre), float(self.radius)))
        assert self.system.lipschitz is not None
        return Ball(centre, self.diameter / 2 * self.system.lipschitz ** np.arange(len(centre)))

    def deterministic(self, data: object) -> np.ndarray:
        """Return the estimates at s = 1 with all coordinates of the state, (T + 1 - window, states)."""
        return np.asarray(self._plan(data).trajectory)

    def estimate(self, data: jax.Array) -> jax.Array:
        """Return the released estimates at s = 1, (K, d): pure JAX, can be vmapped over data."""
        return self.estimate_windows(sliding_windows(data, self.window))

    def estimate_windows(self, windows: Windows) -> jax.Array:
        """Return the same for windows, which need not fit together."""
        support = self._sets_around(self.system.predicted(len(windows.k)))
        return moving_horizon.trajectory(self.problem, self._shape, windows, self.tau, support)[:, self._released]

    def warm_start(self, data: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """Return a function with the values of `estimate` that is faster for data sets close to `data`."""
        solve = self.warm_start_windows(data)
        return lambda other: solve(sliding_windows(other, self.window))

    def warm_start_windows(self, data: jax.Array) -> Callable[[Windows], jax.Array]:
        """Return the same function of windows, which need not fit together."""
        windows = sliding_windows(data, self.window)
        support = self._sets_around(self.system.predicted(len(windows.k)))
        solve = moving_horizon.warm_started_trajectory(self.problem, self._shape, windows, self.tau, support)
        return lambda other: solve(other)[:, self._released]

    @property
    def _shape(self) -> str:
        return "ball" if self.law == "gibbs" else "cube"

    @property
    def _released(self) -> np.ndarray:
        return np.asarray(self.system.released)

    def faithfulness(self, data: object) -> gibbs.Faithfulness:
        """Return what is proved about the sampler for this data set, and what is only expected."""
        return self._plan(data).faithfulness

    def remarks(self, data: object) -> tuple[str, ...]:
        """Return the sentences that a report on this data set adds to its numbers."""
        plan = self._plan(data)
        offset = plan.trajectory - plan.support.centre
        if self._shape == "ball":
            distance = np.linalg.norm(offset, axis=1)
        else:
            distance = np.abs(offset).max(1) * np.sqrt(offset.shape[1])
        return () if (distance < (1 - 1e-6) * plan.support.radius).all() else (BOUNDARY_REMARK,)

    @property
    def log_density(self) -> Callable[[object, Any], Any]:
        """For the blend: `log_density(data, samples)`, but for a constant; it is uniform on a box around the estimate.

        Of the Gibbs distribution only a density without its normalising constant is known, so there is no method.
        """
        if self.law != "blend" or not 0 < self.s < 1:
            raise AttributeError("log_density")
        return self._log_density

    def _log_density(self, data: object, samples: Any) -> Any:
        plan, released = self._plan(data), list(self.system.released)
        half = (1 - self.s) * np.asarray(plan.support.radius)[:, None] / np.sqrt(self.system.states)
        centre = self.s * plan.trajectory[:, released] + (1 - self.s) * np.asarray(plan.support.centre)[:, released]
        return log_uniform((samples - centre) / half)

    def _plan(self, data: object) -> gibbs.SamplerPlan:
        return _cached_plan(*self._plan_key(data))

    def _plan_key(self, data: object) -> tuple[W2MHE, tuple[int, ...], bytes]:
        """Return the key of the caches: the mechanism and the data set, whose array is given as bytes."""
        array = np.ascontiguousarray(check_data(self.system, data, self.window + 1))
        return self, array.shape, array.tobytes()

    @property
    def _is_gibbs(self) -> bool:
        return self.law == "gibbs" and 0 < self.s < 1

    def __call__(self, data: object, runs: int, rng: np.random.Generator) -> jax.Array:
        plan_key, device = self._plan_key(data), current_device()
        steps, measurements = plan_key[1]
        compiling = []
        if self._is_gibbs and not compiles_for_cpu():
            windows = steps - self.window, self.window + 1, measurements
            compiling.append(gibbs.compile_ahead(self.problem, runs, windows, device))
        plan = _cached_plan(*plan_key)
        with enable_x64():
            key, released = jax_key(rng), tuple(self.system.released)
            if self.s == 1:
                estimates = jnp.asarray(plan.trajectory)[:, list(released)]
                return jnp.broadcast_to(estimates, (runs, len(plan.trajectory), len(released)))
            if self.law == "blend":
                estimates = plan.trajectory[:, list(released)]
                return _blend(key, runs, estimates, plan.support, self.s, self.system.states, released)
            if self.s == 0:
                return _uniform(key, runs, plan.support, released)
            if plan.refusal:
                raise InputError(plan.refusal)
            wait(compiling)  # a failure there fails here again, or does not
            quick, own = plan.faithfulness.mostly_squeezed, _plan_on_device(*plan_key, device)
            return gibbs.sample_trajectories(self.problem, quick, key, runs, own, float(self.kappa), float(self.tau))


@functools.lru_cache(maxsize=64)
def _cached_plan(mechanism: W2MHE, shape: tuple[int, ...], data: bytes) -> gibbs.SamplerPlan:
    """Return the plan for a data set."""
    y, problem = np.frombuffer(data).reshape(shape), mechanism.problem
    with enable_x64(), host_device():
        support = mechanism.sets(len(y) - mechanism.window)
        if mechanism._is_gibbs:
            return gibbs.plan_sampler(problem, y, support, mechanism.kappa, mechanism.tau)
        rows = sliding_windows(y, mechanism.window)
        solved = moving_horizon.jitted_trajectory(
            problem.template, mechanism._shape, problem.system.numbers, rows, mechanism.tau, support
        )
        states = np.asarray(solved)
    if not np.isfinite(states).all():
        raise InputError("f: found NaN or infinity in f or h near an estimate; expected finite numbers; fix f or h")
    return gibbs.SamplerPlan(rows, support, None, states, gibbs.Faithfulness("direct", True, (1.0,) * len(states)))


@functools.lru_cache(maxsize=64)
def _plan_on_device(
    mechanism: W2MHE, shape: tuple[int, ...], data: bytes, device: Any
) -> tuple[Windows, Ball, gibbs.Envelope]:
    """Return the arrays of a plan on the device that samples, so that they are not copied with every block."""
    plan = _cached_plan(mechanism, shape, data)
    return jax.device_put((plan.windows, plan.support, plan.envelope), device)


@functools.partial(jax.jit, static_argnames=("runs", "states", "released"))
def _blend(
    key: jax.Array, runs: int, estimates: jax.Array, support: Ball, s: float, states: int, released: tuple[int, ...]
) -> jax.Array:
    half = jnp.asarray(support.radius)[:, None] / np.sqrt(states)
    u = jax.random.uniform(key, (runs, *estimates.shape), estimates.dtype, -1.0, 1.0)
    return s * estimates + (1 - s) * (jnp.asarray(support.centre)[:, released] + half * u)


@functools.partial(jax.jit, static_argnames=("runs", "released"))
def _uniform(key: jax.Array, runs: int, support: Ball, released: tuple[int, ...]) -> Array:
    n = support.centre.shape[1]
    inside = jax.random.ball(key, n, shape=(runs, len(support.radius)), dtype=support.centre.dtype)
    return (support.centre + jnp.asarray(support.radius)[:, None] * inside)[..., released]
