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
    UNSET,
    System,
    as_tuples,
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
PROPOSED_DRAWS_PER_RUN = 64.0  # up to so many draws per run and step, a CPU draws thousands of runs per second
PROPOSED_TAUS = 10  # down to a prior of 1/500 of the deviation of the prediction
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
    support : {"theorem", "wide", "tube"}, optional
        Size of K_k: of diameter `diameter` c_f^k as in the paper's theorem, of the same `radius` at every step, or
        a tube around the prediction from the start that follows its error to first order: the root of its mean square,
        plus twice the largest deviation of a coordinate. By default "wide" if a
        radius is given, "theorem" if the system has a Lipschitz constant, and "tube" otherwise. The paper's theorem
        has a value for "theorem" only.
    diameter : float
        Diameter of K_0 for `support="theorem"`, in units of the state. K_k is a ball for "gibbs"; for "blend" it is a
        cube, and this is its diagonal.
    radius : float, optional
        Half the diameter of every K_k for `support="wide"`; required there.
    scale : tuple of float, optional
        The unit of each state in which distances are measured: that of the prior, and the size of K_k; 1 by default.
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
    support: str = UNSET
    diameter: float = 0.1
    radius: float | None = None
    scale: tuple[float, ...] | None = None
    name: str = "W2-MHE"

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", check_whole_number("window", self.window))
        object.__setattr__(self, "weights", measurement_weights(self.system, self.weights))
        check_noise_parameter("s", self.s)
        check_positive("tau", self.tau, "the weight of the measurements against the prediction")
        check_choice("law", self.law, LAWS)
        check_choice("span", self.span, moving_horizon.SPANS)
        check_choice("prior", self.prior, moving_horizon.PRIORS)
        if self.scale is not None:
            object.__setattr__(self, "scale", as_tuples(self.scale))
            if np.shape(self.scale) != (self.system.states,) or not 0 < min(self.scale) <= max(self.scale) < np.inf:
                raise InputError(f"scale: found {self.scale}; expected {self.system.states} positive numbers")
        c_f = self.problem.system.lipschitz
        if self.support is None:
            default = "wide" if self.radius is not None else "theorem" if c_f else "tube"
            object.__setattr__(self, "support", default)
        check_choice("support", self.support, ("theorem", "wide", "tube"))
        check_positive("diameter", self.diameter, "the diameter of K_0")
        if self.support == "wide":
            check_positive("radius", self.radius, 'which support="wide" requires')
        elif self.radius is not None:
            raise InputError(
                f'radius: found {self.radius} with support="{self.support}"; expected support="wide" with it'
            )
        if self.support == "theorem" and not (c_f and np.isfinite(c_f)):
            raise InputError(
                f"system: found c_f {c_f}; expected a positive Lipschitz constant of f, by which K_k grows; pass "
                'System(lipschitz=...), replace a singular A, or use support="tube"'
            )

    @property
    def block(self) -> int:
        """The number of runs per block."""
        return default_block() << (0 if compiles_for_cpu() else 1)

    @functools.cached_property
    def problem(self) -> Problem:
        """The static part of the estimation problem, whose states are divided by the scale."""
        assert self.weights is not None
        model = self.system if self.scale is None else self.system.rescaled(self.scale)
        return Problem(model, self.window, self.span, self.weights, self.prior)

    @property
    def kappa(self) -> float:
        """The temperature (1 - s) / s of the Gibbs distribution."""
        return (1 - self.s) / self.s if self.s > 0 else np.inf

    def sets(self, steps: int) -> Ball:
        """Return centres and radii (half the diameters) of K_0, ..., K_{steps-1}, in units of the scale."""
        ball = self._sets_around(*self.system.open_loop(steps))
        if not ball.radius.all():
            raise InputError(
                "radius: found a system without initial uncertainty and disturbance; expected some, by which K_k is as "
                "large as the error of the prediction; pass initial= and disturbance= to System, or radius="
            )
        return ball

    def _sets_around(self, states: Array, deviations: Array) -> Ball:
        scale, steps = np.ones(self.system.states) if self.scale is None else np.asarray(self.scale), len(states)
        centre = states if self.scale is None else states / scale
        if self.support == "tube":
            square = (deviations / scale) ** 2
            return Ball(centre, square.sum(1) ** 0.5 + 2 * square.max(1) ** 0.5)
        if self.support == "wide":
            return Ball(centre, np.full(steps, float(self.radius or 0.0)))
        return Ball(centre, self.diameter / 2 * (self.problem.system.lipschitz or 0.0) ** np.arange(steps))

    def deterministic(self, data: object) -> np.ndarray:
        """Return the estimates at s = 1 with all coordinates of the state, (T + 1 - window, states)."""
        states = np.asarray(self._plan(data).trajectory)
        return states if self.scale is None else states * np.asarray(self.scale)

    def estimate(self, data: jax.Array) -> jax.Array:
        """Return the released estimates at s = 1, (K, d): pure JAX, can be vmapped over data."""
        return self.estimate_windows(sliding_windows(data, self.window))

    def estimate_windows(self, windows: Windows) -> jax.Array:
        """Return the same for windows, which need not fit together."""
        support = self._sets_around(*self.system.predicted(len(windows.k)))
        return self._release(moving_horizon.trajectory(self.problem, self._shape, windows, self.tau, support))

    def warm_start(self, data: jax.Array) -> Callable[[jax.Array], jax.Array]:
        """Return a function with the values of `estimate` that is faster for datasets close to `data`."""
        solve = self.warm_start_windows(data)
        return lambda other: solve(sliding_windows(other, self.window))

    def warm_start_windows(self, data: jax.Array) -> Callable[[Windows], jax.Array]:
        """Return the same function of windows, which need not fit together."""
        windows = sliding_windows(data, self.window)
        support = self._sets_around(*self.system.predicted(len(windows.k)))
        solve = moving_horizon.warm_started_trajectory(self.problem, self._shape, windows, self.tau, support)
        return lambda other: self._release(solve(other))

    @property
    def _shape(self) -> str:
        return "ball" if self.law == "gibbs" else "cube"

    def _release(self, states: Array) -> Array:
        """Return the released coordinates of states, in their own units."""
        return self._in_units(states[..., np.asarray(self.system.released)])

    def _in_units(self, estimates: Any) -> Any:
        return estimates if self.scale is None else estimates * np.asarray(self.scale)[list(self.system.released)]

    def faithfulness(self, data: object) -> gibbs.Faithfulness:
        """Return what is proved about the sampler for this dataset, and what is only expected."""
        return self._plan(data).faithfulness

    def remarks(self, data: object) -> tuple[str, ...]:
        """Return the sentences that a report on this dataset adds to its numbers."""
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
        return log_uniform((samples - self._in_units(centre)) / self._in_units(half * np.ones(len(released))))

    def _plan(self, data: object) -> gibbs.SamplerPlan:
        return _cached_plan(*self._plan_key(data))

    def _plan_key(self, data: object) -> tuple[W2MHE, tuple[int, ...], bytes]:
        """Return the key of the caches: the mechanism and the dataset, whose array is given as bytes."""
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
                estimates = self._release(jnp.asarray(plan.trajectory))
                return jnp.broadcast_to(estimates, (runs, *estimates.shape))
            if self.law == "blend":
                estimates = plan.trajectory[:, list(released)]
                return self._in_units(_blend(key, runs, estimates, plan.support, self.s, self.system.states, released))
            if self.s == 0:
                return self._in_units(_uniform(key, runs, plan.support, released))
            if plan.refusal:
                raise InputError(plan.refusal)
            wait(compiling)  # a failure there fails here again, or does not
            own = _plan_on_device(*plan_key, device)
            drawn = gibbs.sample_trajectories(
                self.problem, plan.faithfulness, key, runs, own, float(self.kappa), float(self.tau)
            )
            return self._in_units(drawn)

    @classmethod
    def proposed(cls, system: System, data: object, window: int = 5, s: float = 0.8, **changes: Any) -> W2MHE:
        """Return the estimator with the weights of the textbook, as far as it can be sampled quickly for a recording.

        A residual is weighted by 1 / variance of the noise. Distances of states are measured in deviations of the
        prediction from the start, and K_k is a tube around this prediction. `tau` is 1, and is reduced until most
        draws of the Gibbs distribution are accepted.

        Parameters
        ----------
        system : System
            The model of the data, with `noise` and with `initial` or `disturbance`.
        data : array_like
            A recording (T + 1, measurements). It decides about tau: take a public or a simulated one.
        window, s
            As for the class.
        **changes
            Other parameters of the class, instead of the proposed ones.

        Returns
        -------
        W2MHE
            An estimator that is feasible for this recording.

        Examples
        --------
        >>> import numpy as np
        >>> from dpverify.estimation import W2MHE, Normal, System
        >>> walk = System(A=[[1.0]], C=[[1.0]], start=(0.0,), noise=Normal(0.5), initial=Normal(2.0))
        >>> mechanism = W2MHE.proposed(walk, walk.simulate(np.random.default_rng(0)).data)
        >>> mechanism.tau, mechanism.weights, mechanism.scale
        (1.0, (4.0,), (2.0,))
        """
        steps = len(check_data(system, data, window + 1)) - window
        deviations, variances = system.open_loop(steps)[1].max(0), system.measurement_variances
        if not deviations.any() or not variances.all():
            raise InputError(
                "system: found a system without noise, or without initial uncertainty and disturbance; expected both, "
                "because they weight measurements against predictions; pass Normal(...) for them, or use W2MHE(...)"
            )
        own = {
            "weights": tuple(1 / variances),
            "support": "tube",
            "scale": tuple(np.where(deviations > 0, deviations, deviations[deviations > 0].min())),
        }
        for tau in 4.0 ** -np.arange(PROPOSED_TAUS):
            mechanism = cls(system, window, s, **({"tau": float(tau)} | own | changes))
            plan = mechanism._plan(data)
            if max(plan.faithfulness.M) <= PROPOSED_DRAWS_PER_RUN:
                return mechanism
        raise InputError(plan.refusal or gibbs.refusal(f"step {int(np.argmax(plan.faithfulness.M))}"))


@functools.lru_cache(maxsize=64)
def _cached_plan(mechanism: W2MHE, shape: tuple[int, ...], data: bytes) -> gibbs.SamplerPlan:
    """Return the plan for a dataset."""
    y, problem = np.frombuffer(data).reshape(shape), mechanism.problem
    with enable_x64(), host_device():
        support = mechanism.sets(len(y) - mechanism.window)
        if mechanism._is_gibbs:
            return gibbs.plan_sampler(problem, y, support, mechanism.kappa, mechanism.tau)
        rows = sliding_windows(y, mechanism.window)
        states = problem.solve(mechanism._shape, rows, mechanism.tau, support)
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
