"""The compiled Gibbs sampler of all steps of the W2-MHE.

The quick sampler has no loop, which would wait for the host in each iteration on a GPU. Where its few tests are not
enough for all runs, the full sampler draws the block again. The same keys give the same draws, so that the runs that
the quick sampler has finished stay as they are, and the distribution is exact.

On an accelerator the quick sampler has one program for the first step and one for all later steps. They are compiled at
the same time, and faster than one program of all steps. They pass on the states and not the priors, which would be
written to memory once more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpverify.estimation.devices import compiles_for_cpu, current_device, started
from dpverify.estimation.gibbs_sampler import Ball, Envelope, RejectionSampler, Taylor, float_shape
from dpverify.estimation.moving_horizon import Problem, stage_cost
from dpverify.util.arrays import enable_x64

StepInputs = tuple[jax.Array, Ball, Envelope, jax.Array]  # the window, K_k, the envelope and the key of a step


def sample_trajectories(problem: Problem, quick: bool, *arguments: Any) -> jax.Array:
    """Return the released estimates (runs, K, d); `quick` tries the quick sampler first.

    The arguments are the key, the number of runs, the windows, the support, the envelope, kappa and tau.
    """
    template, parameters = problem.template, problem.system.parameters
    if quick:
        if compiles_for_cpu():
            released, unfinished = _compiled_sampler(template, True)(parameters, *arguments)
            estimates = _by_run(released)
        else:
            estimates, unfinished = _draw_step_by_step(template, parameters, *arguments)
        if not unfinished:  # the device orders the estimates by run meanwhile, and does not stand still
            return estimates
    return _by_run(_compiled_sampler(template, False)(parameters, *arguments)[0])


@jax.jit
def _by_run(released: jax.Array) -> jax.Array:
    """Return estimates (K, d, runs) with the runs on the first axis."""
    return jnp.transpose(released, (2, 0, 1))


def _draw_step(
    template: Problem, quick: bool, parameters: Any, m: jax.Array, inputs: StepInputs, kappa: float, tau: float
) -> tuple[jax.Array, jax.Array | bool]:
    """Return the states (n, runs) of one step, and whether any run is unfinished.

    Only the quick sampler can leave a run unfinished.
    """
    rows, ball, envelope, key = inputs
    cost = stage_cost(template.system.bind(parameters), template.residual_weights)
    m = m if template.prior == "carried" else jnp.tile(ball.centre[:, None], m.shape[1])
    sampler = RejectionSampler(lambda z: cost(z, rows), envelope, ball, kappa, tau)
    return sampler.draw_quickly(m, key) if quick else (sampler.draw(m, key), False)


@functools.lru_cache(maxsize=64)
def _compiled_sampler(template: Problem, quick: bool) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """Return a function to the estimates (K, d, runs) and whether any run is unfinished."""

    def sample(
        parameters: Any,
        key: jax.Array,
        runs: int,
        y: jax.Array,
        support: Ball,
        envelope: Envelope,
        kappa: float,
        tau: float,
    ) -> tuple[jax.Array, jax.Array]:
        system = template.system

        def step(m: jax.Array, inputs: StepInputs) -> tuple[jax.Array, Any]:
            z, unfinished = _draw_step(template, quick, parameters, m, inputs, kappa, tau)
            return system.step_columns(z), (z[jnp.asarray(system.released)], unfinished)

        keys = jax.random.split(key, len(y))
        _, (released, unfinished) = jax.lax.scan(step, _start(template, runs), (y, support, envelope, keys))
        return released, jnp.any(unfinished)

    return jax.jit(sample, static_argnums=2)


def _draw_step_by_step(
    template: Problem, parameters: Any, key: jax.Array, runs: int, *arguments: Any
) -> tuple[jax.Array, jax.Array]:
    """Return the estimates (runs, K, d) of the quick sampler, and whether any run is unfinished."""
    windows = arguments[0]
    compiling = _step_programs(template, _shapes(parameters), runs, windows.shape, current_device())
    try:
        first_step, *later_step, by_run = [program.result() for program in compiling]
    except BaseException:
        _step_programs.cache_clear()  # the next call compiles again; the memory may suffice then
        raise
    z, unfinished = first_step(parameters, key, arguments)
    states = [z]
    for step in range(1, len(windows)):
        z, unfinished = later_step[0](parameters, key, arguments, np.int32(step), z, unfinished)
        states.append(z)
    return by_run(states), unfinished


def compile_quick_sampler(problem: Problem, runs: int, windows: tuple[int, ...]) -> None:
    """Start to compile the quick sampler of an accelerator for windows of this shape; nothing waits for the end.

    The plan can be computed meanwhile. If it is a plan for another sampler, the programs are not used.
    """
    if not compiles_for_cpu():
        _step_programs(problem.template, _shapes(problem.system.parameters), runs, windows, current_device())


def _shapes(parameters: Any) -> Any:
    """Return the shapes and types of the numbers of h, which need not be those of the template."""
    return jax.tree.map(lambda v: jax.ShapeDtypeStruct(np.shape(v), np.asarray(v).dtype), parameters)


@functools.lru_cache(maxsize=64)
def _step_programs(
    template: Problem, parameters: Any, runs: int, windows: tuple[int, ...], device: Any
) -> list[Future[Any]]:
    """Return the programs that draw the first step, draw a later one, and order states by run; threads compile them."""
    system, steps = template.system, windows[0]

    def draw(parameters: Any, key: jax.Array, arguments: tuple[Any, ...], step: Any, m: jax.Array) -> Any:
        *arrays, kappa, tau = arguments
        inputs = jax.tree.map(lambda v: v[step], (*arrays, jax.random.split(key, steps)))
        return _draw_step(template, True, parameters, m, inputs, kappa, tau)

    def first_step(parameters: Any, key: jax.Array, arguments: tuple[Any, ...]) -> Any:
        return draw(parameters, key, arguments, 0, _start(template, runs))

    def later_step(parameters: Any, key: jax.Array, arguments: Any, step: Any, z: jax.Array, unfinished: Any) -> Any:
        z, pending = draw(parameters, key, arguments, step, system.step_columns(z))
        return z, unfinished | pending

    def by_run(states: list[jax.Array]) -> jax.Array:
        rows = [z[i] for z in states for i in system.released]
        return jnp.stack(rows, axis=-1).reshape(runs, steps, len(system.released))

    threads = ThreadPoolExecutor(3)
    start = started(device)

    def compile_in_thread(function: Callable[..., Any], *shapes: Any) -> Future[Any]:
        with enable_x64(), jax.default_device(device):
            traced = jax.jit(function).lower(*shapes)  # Python runs one thread at a time, so threads would not help
        return threads.submit(compile_traced, traced)

    def compile_traced(traced: Any) -> Any:
        wait([start])  # the compiler would wait for the device, and could disturb its start
        # Autotuning takes a second on a GPU, and does not make drawing faster.
        return traced.compile(compiler_options={"xla_gpu_autotune_level": 0})

    with enable_x64():
        key = jax.eval_shape(jax.random.key, 0)
    n, state = system.states, float_shape(system.states, runs)
    arguments = float_shape(*windows), Ball.shapes(steps, n), Taylor.shapes(steps, n), 1.0, 1.0
    inputs = parameters, key, arguments
    programs = [compile_in_thread(first_step, *inputs)]
    if steps > 1:
        later = np.int32(0), state, jax.ShapeDtypeStruct((), bool)
        programs.append(compile_in_thread(later_step, *inputs, *later))
    programs.append(compile_in_thread(by_run, [state] * steps))
    threads.shutdown(wait=False)
    return programs


def _start(template: Problem, runs: int) -> jax.Array:
    """Return the prior of the first step, (n, runs)."""
    return jnp.tile(jnp.asarray(template.system.start, float)[:, None], runs)
