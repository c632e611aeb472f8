"""The budget of a verification before it starts: pilot runs that fit into memory, expected time, and expected memory.

The plan is a fixed function of the settings and of the shape of one output. The measured speed of the mechanism only
decides what is announced, never what is drawn.
"""

from __future__ import annotations

from typing import NamedTuple

from dpverify.errors import InputError
from dpverify.events.region import exact_scenario_size, scenario_size
from dpverify.settings import Settings
from dpverify.util.formatting import format_bytes, format_count

MAX_PILOT_BYTES = 256 << 20  # of the kept pilot runs, per data set
MIN_PILOT_RUNS = 1000  # if the scenario size does not fit; at least 2 (d + 1), so that the runs span all dimensions
MAX_VOID_RUNS = 1000  # runs per data set and stage of a verification whose test is void
BYTES_PER_NUMBER = 8
BYTES_PER_COUNT = 16  # the code of a cell and its count
PILOT_COPIES = 2  # the pilot runs exist twice while the region is computed
MAX_KEPT_TRAINING_BYTES = 32 << 20  # per data set; the selection keeps no more
ANNOUNCED_BYTES = 1 << 30  # a verification that needs more memory is announced
SUGGESTED_SECONDS = 600.0  # duration of the smaller budget that an announcement suggests
SMALLEST_SUGGESTED_RUNS = 1000  # per data set


class RunPlan(NamedTuple):
    """How many runs a verification draws.

    Attributes
    ----------
    pilot_runs : int
        Pilot runs per data set.
    sides : tuple of int
        The data sets that need pilot runs.
    is_limited : bool
        Whether memory limits the pilot runs, so that the region has no joint scenario guarantee.
    """

    pilot_runs: int
    sides: tuple[int, ...]
    is_limited: bool = False

    def total(self, settings: Settings) -> int:
        """Return the number of runs of all stages and both data sets."""
        return 2 * (settings.select_runs + settings.test_runs) + len(self.sides) * self.pilot_runs


def plan_pilot(settings: Settings, shape: tuple[int, int]) -> RunPlan:
    """Return the number of pilot runs per data set, and the data sets that need them.

    The paper computes the ellipsoid of each step separately, from runs of the first data set. With `settings.joint`,
    one convex program covers all steps. Each data set then has the full number of runs, so that the region contains a
    mass of 1 - beta of both output distributions (docs/method.md, section 4.3).

    The pilot runs are kept in memory. If the full number needs more than `MAX_PILOT_BYTES`, the number for one step is
    used, or as many runs as fit.

    Raises
    ------
    InputError
        If not even the smallest useful number of pilot runs fits.
    """
    steps, dimension = shape
    if settings.joint:
        wanted, sides = exact_scenario_size(dimension, settings.beta, settings.gamma, steps), (0, 1)
    else:
        wanted, sides = scenario_size(dimension, settings.beta, settings.gamma), (0,)
    run_bytes = steps * dimension * BYTES_PER_NUMBER
    most = MAX_PILOT_BYTES // run_bytes
    if wanted <= most:
        return RunPlan(wanted, sides)
    smallest = max(2 * (dimension + 1), MIN_PILOT_RUNS)
    if smallest > most:
        raise InputError(
            f"pilot runs: found outputs of {steps} x {dimension} numbers, of which {format_count(smallest)} runs take "
            f"{format_bytes(smallest * run_bytes)} per data set; expected at most {format_bytes(MAX_PILOT_BYTES)}; "
            "return fewer steps or coordinates, or raise dpverify.sampling.budget.MAX_PILOT_BYTES"
        )
    per_step = exact_scenario_size(dimension, settings.beta, settings.gamma)
    return RunPlan(per_step if per_step <= most else most, sides, True)


def shorten_settings(settings: Settings) -> Settings:
    """Return the settings of a verification whose test is void: as few runs as a report needs."""
    return settings.change(
        select_runs=min(settings.select_runs, MAX_VOID_RUNS),
        test_runs=min(settings.test_runs, MAX_VOID_RUNS),
        block=min(settings.block or MAX_VOID_RUNS, MAX_VOID_RUNS),
    )


def estimate_memory(settings: Settings, plan: RunPlan, shape: tuple[int, int], block: int) -> int:
    """Return about how many bytes a verification needs: pilot runs, training runs, a few blocks, and counts.

    A fine grid has one count for each occupied cell, so at most one for each run.
    """
    run_bytes = shape[0] * shape[1] * BYTES_PER_NUMBER
    pilot = PILOT_COPIES * len(plan.sides) * plan.pilot_runs * run_bytes
    training = 2 * min(settings.select_runs // 2 * run_bytes, max(MAX_KEPT_TRAINING_BYTES, block * run_bytes))
    return pilot + 2 * training + 4 * block * run_bytes + count_bytes(settings, shape)


def count_bytes(settings: Settings, shape: tuple[int, int]) -> int:
    """Return an upper bound of the memory for the counts of a grid; 0 for other partitions, which have few cells."""
    if settings.partition != "grid" or settings.resolution is None:
        return 0
    cells = settings.resolution ** min(shape[0] * shape[1], 1000)  # a larger exponent changes nothing
    return 2 * BYTES_PER_COUNT * min(cells, settings.test_runs)


def advise(settings: Settings, plan: RunPlan, memory: int, rate: float) -> str:
    """Return what an announcement adds to the expected time: a smaller budget, and the memory.

    Parameters
    ----------
    settings : Settings
        The settings.
    plan : RunPlan
        The number of pilot runs.
    memory : int
        Expected memory in bytes.
    rate : float
        Runs per second, over all workers.
    """
    per_side = (rate * SUGGESTED_SECONDS - len(plan.sides) * plan.pilot_runs) / 2
    share = per_side / (settings.select_runs + settings.test_runs)
    parts = []
    if share < 1:
        changes = []
        for name in ("test_runs", "select_runs"):
            runs = int(max(share * getattr(settings, name), SMALLEST_SUGGESTED_RUNS))
            runs = runs // 10 ** (len(str(runs)) - 1) * 10 ** (len(str(runs)) - 1)  # one significant digit
            if runs < getattr(settings, name):
                changes.append(f"{name}={runs}")
        if changes:
            parts.append(f"a smaller budget: {', '.join(changes)}")
    parts.append(f"memory about {format_bytes(memory)}")
    return "; ".join(parts)
