"""Compares dpverify with DP-Sniper and DP-Auditorium on eight laws of the power benchmark, with equal runs.

Both sources are needed, and an environment with dpverify, torch, tensorboard, scikit-learn, tensorflow and etils:

- DP-Sniper: https://github.com/eth-sri/dp-sniper, --sniper is the folder that contains `dpsniper`;
- DP-Auditorium: https://github.com/google/differential-privacy, --auditorium is its folder `python/dp_auditorium`.

Each tool gets the same number of runs per dataset to prepare (training, thresholds, selection) and to test. A tool may
use its runs several times. Every number in the table is a lower bound on epsilon that is meant to hold with confidence
.95. Each package runs in a process of its own, because PyTorch and TensorFlow crash in the same process.

Run: python benchmarks/bench_peers.py --sniper PATH --auditorium PATH (about five minutes of processor time).
How often a statement is above the known epsilon: --validity 50 --select 20000 --test 100000.
Some laws only: --only leak. Some tools only: --tools Sniper.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from bench_power import ALPHA, Mechanism, best_bound
from laws import Law, clipped, laws
from scipy.stats import beta
from structured_laws import structured_laws

import dpverify as dpv

NAMES = (
    "clipped Laplace noise",
    "Gaussian shift",
    "leak 1e-3, shift",
    "sparse vector",
    "subsampled Gaussian, 1 step",
    "parity of 2 of 8",
    "ring",
    "multivariate t, 5 coordinates",
)
BEST_NUMBERS = 4_000_000  # coordinates times runs per dataset that find the best bound
ORDERS = ((0, 1), (1, 0))
TRAINING_BATCHES = 100  # DP-Sniper's own configuration has 107
CLAIMS = (0.25, 0.5, 0.75, 0.9)  # claims that the hockey-stick tester tests, as shares of the best bound
OUTLIERS = ("leak 1e-3, shift", "multivariate t, 5 coordinates")  # laws whose outputs it gets after tanh
KNOWN, KNOWN_EPSILON = "known epsilon", 0.2


class Sizes(NamedTuple):
    """Runs per dataset, the seed, and the best bound from as many runs, where it is known."""

    select: int
    test: int
    seed: int
    best: float = KNOWN_EPSILON


class Runs(NamedTuple):
    """Recorded runs of both datasets, to prepare a test and to perform it."""

    prepare: list[np.ndarray]
    test: list[np.ndarray]


class Replay:
    """A mechanism of DP-Sniper that returns recorded runs, from the start again after the last one."""

    def __init__(self, runs: list[np.ndarray]):
        self.runs, self.used = runs, [0, 0]

    def m(self, a, n_samples=1):
        """Return the next runs of dataset `a`."""
        start = self.used[a] % len(self.runs[a])
        self.used[a] += n_samples
        return self.runs[a][start : start + n_samples]


@functools.cache
def all_laws() -> dict[str, Law]:
    """Return the laws of the table, and the law with a known epsilon."""
    known = clipped(KNOWN, KNOWN_EPSILON, 1.5)
    return {law.name: law for law in [*laws(), *structured_laws(), known]}


def draw_runs(law: Law, sizes: Sizes) -> Runs:
    """Draw the runs of a tool that does not draw them by itself."""
    rng = np.random.default_rng([sizes.seed, 1])
    parts = [[law.draw(side, size, rng).astype(float) for side in (0, 1)] for size in (sizes.select, sizes.test)]
    if law.name == "sparse vector":  # an index: one indicator per value, because the tools expect ordered numbers
        parts = [[(outputs == np.arange(7)).astype(float) for outputs in part] for part in parts]
    return Runs(*parts)


def run_dpverify(_: Any, law: Law, sizes: Sizes) -> float:
    """Return the lower bound of a default verification."""
    settings = {"select_runs": sizes.select, "test_runs": sizes.test, "seed": sizes.seed, "alpha": ALPHA}
    return dpv.verify(Mechanism(law), 0, 1, **settings, **law.settings).epsilon_lower


@functools.cache
def load_sniper(folder: Path) -> Any:
    """Import the parts of DP-Sniper that are used."""
    sys.path.insert(0, str(folder))
    blocked: Any = {"tensorflow": None}  # TensorBoard, which it uses, would import it beside PyTorch
    sys.modules.update(blocked)
    load = importlib.import_module
    load("dpsniper.utils.paths").set_output_directory(tempfile.mkdtemp())
    load("dpsniper.utils.torch").torch_initialize(torch_threads=1)
    load("dpsniper.utils.my_logging").log.configure("ERROR")
    return types.SimpleNamespace(
        torch=load("torch"),
        classifiers=load("dpsniper.classifiers.classifier_factory"),
        optimizers=load("dpsniper.classifiers.torch_optimizer_factory"),
        estimators=load("dpsniper.probability.estimators"),
        DPSniper=load("dpsniper.attack.dpsniper").DPSniper,
        DDWitness=load("dpsniper.search.ddwitness").DDWitness,
        DDConfig=load("dpsniper.search.ddconfig").DDConfig,
    )


def run_sniper(tool: Any, law: Law, sizes: Sizes, network: bool, batches=TRAINING_BATCHES, estimate=False) -> float:
    """Return the lower confidence bound of DP-Sniper, with the classifiers of its published experiments.

    The steps of its search are called here, without its worker processes, for both orders of the datasets. If
    `estimate` is set, the result is its point estimate instead of its lower bound.
    """
    tool.torch.manual_seed(sizes.seed)
    runs = draw_runs(law, sizes)
    coordinates = runs.prepare[0].shape[1]
    if network:
        adam = tool.optimizers.AdamOptimizerFactory(learning_rate=0.1, step_size=500)
        factory = tool.classifiers.MultiLayerPerceptronFactory(
            in_dimensions=coordinates, hidden_sizes=(10, 5), optimizer_factory=adam, regularization_weight=0.0001
        )
    else:
        descent = tool.optimizers.SGDOptimizerFactory(learning_rate=0.3, momentum=0.3, step_size=500)
        factory = tool.classifiers.LogisticRegressionFactory(
            in_dimensions=coordinates, optimizer_factory=descent, regularization_weight=0.001
        )
    config = tool.DDConfig(
        n_train=sizes.select,
        n=sizes.select,
        n_check=sizes.select,
        n_final=sizes.test,
        training_batch_size=sizes.select // batches,
        n_processes=1,
        confidence=1 - ALPHA,
    )

    def evaluate(witness: Any, part: list[np.ndarray]) -> None:
        probabilities = tool.estimators.PrEstimator(Replay(part), len(part[0]), config)
        witness.compute_eps_using_estimator(tool.estimators.EpsEstimator(probabilities))

    witnesses = []
    for first, second in ORDERS:
        attack = tool.DPSniper(Replay(runs.prepare), factory, config).best_attack(first, second)
        witnesses.append(tool.DDWitness(first, second, attack))
        evaluate(witnesses[-1], runs.prepare)
    best = max(witnesses, key=lambda witness: witness.eps)
    evaluate(best, runs.test)
    return max(float(best.eps if estimate else best.lower_bound), 0.0)


@functools.cache
def load_auditorium(folder: Path) -> Any:
    """Import testers of DP-Auditorium without the package's `__init__`, which imports Vizier and PipelineDP."""
    package = types.ModuleType("dp_auditorium")
    package.__path__ = [str(folder / "dp_auditorium")]
    sys.modules["dp_auditorium"] = package
    load = importlib.import_module
    tensorflow: Any = load("tensorflow")
    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    tensorflow.keras.utils.disable_interactive_logging()
    return types.SimpleNamespace(
        seed=tensorflow.keras.utils.set_random_seed,
        properties=load("dp_auditorium.configs.privacy_property"),
        configs=load("dp_auditorium.configs.property_tester_config"),
        hockey_stick=load("dp_auditorium.testers.hockey_stick_tester"),
    )


def rejects(tester: Any, runs: Runs, failure_probability: float) -> bool:
    """Say whether the tester rejects its claim in one of the two orders, as the runner of DP-Auditorium does."""
    for first, second in ORDERS:
        model = tester._get_optimized_divergence_estimation_model(runs.prepare[first], runs.prepare[second])
        bound = tester._compute_divergence_on_samples(model, runs.test[first], runs.test[second], failure_probability)
        if tester.reject_property(bound):
            return True
    return False


def run_hockey_stick(tool: Any, law: Law, sizes: Sizes) -> float:
    """Return the largest claim that the hockey-stick tester rejects, with its default network and training.

    The tester tests one claim. Claims are tested in rising order until one is not rejected. Only the first claim above
    the true epsilon can give a wrong statement, in each of the two orders of the datasets: each gets half of alpha.
    """
    tool.seed(sizes.seed)
    runs = draw_runs(law, sizes)
    if law.name in OUTLIERS:
        runs = Runs(*([np.tanh(outputs) for outputs in part] for part in runs))
    proved = 0.0
    for share in (1.0,) if law.name == KNOWN else CLAIMS:
        claim = tool.properties.ApproximateDp(epsilon=share * sizes.best, delta=law.settings.get("delta", 0.0))
        training = tool.hockey_stick.make_default_hs_training_config()
        config = tool.configs.HockeyStickPropertyTesterConfig(training_config=training, approximate_dp=claim)
        model = tool.hockey_stick.make_default_hs_base_model()
        tester = tool.hockey_stick.HockeyStickPropertyTester(config=config, base_model=model)
        if not rejects(tester, runs, ALPHA / 2):
            break
        proved = claim.epsilon
    return proved


class Tool(NamedTuple):
    """A function that returns a lower bound, and how to import the package that it uses."""

    package: str
    run: Callable[..., float]


LOADERS: dict[str, Callable[[Path], Any]] = {
    "dpverify": lambda folder: None,
    "sniper": load_sniper,
    "auditorium": load_auditorium,
}
TOOLS = {
    "dpverify": Tool("dpverify", run_dpverify),
    "Sniper logistic": Tool("sniper", functools.partial(run_sniper, network=False)),
    "Sniper network": Tool("sniper", functools.partial(run_sniper, network=True)),
    "hockey-stick": Tool("auditorium", run_hockey_stick),
}
QUICK = {"network": False, "batches": 10}  # less training, because validity does not depend on it
VALIDITY_TOOLS = {
    "dpverify": TOOLS["dpverify"],
    "Sniper lower bound": Tool("sniper", functools.partial(run_sniper, **QUICK)),
    "Sniper estimate (control)": Tool("sniper", functools.partial(run_sniper, **QUICK, estimate=True)),
    "hockey-stick": TOOLS["hockey-stick"],
}


def measure(name: str, folder: Path, law: str, sizes: Sizes) -> tuple[float, float]:
    """Return the lower bound and the processor time of one tool, without its imports."""
    warnings.simplefilter("ignore")
    tool = {**VALIDITY_TOOLS, **TOOLS}[name]
    package = LOADERS[tool.package](folder)
    start = time.process_time()
    bound = tool.run(package, all_laws()[law], sizes)
    return bound, time.process_time() - start


def compare(names: list[str], call: Callable[..., tuple[float, float]], arguments: argparse.Namespace) -> None:
    """Print the table: for each law and tool the median lower bound and the median processor time."""
    print(f"{'law':<32}{'best':>8}" + "".join(f"{name:>20}" for name in names), flush=True)
    for law in NAMES:
        if arguments.only in law:
            best = best_bound(all_laws()[law], arguments.test, BEST_NUMBERS, 0)
            print(f"{law:<32}{best:8.3f}", end="", flush=True)
            for name in names:
                sizes = [Sizes(arguments.select, arguments.test, seed, best) for seed in range(arguments.seeds)]
                bounds, seconds = zip(*(call(name, law, size) for size in sizes), strict=True)
                print(f"{statistics.median(bounds):12.3f}{statistics.median(seconds):6.1f} s", end="", flush=True)
            print(flush=True)


def count_errors(names: list[str], call: Callable[..., tuple[float, float]], arguments: argparse.Namespace) -> None:
    """Print in how many seeds each tool states more than the known epsilon, with .95 limits of that probability."""
    seeds = arguments.validity
    print(f"exact epsilon {KNOWN_EPSILON}, {arguments.select} + {arguments.test} runs per dataset, {seeds} seeds")
    for name in names:
        sizes = [Sizes(arguments.select, arguments.test, seed) for seed in range(seeds)]
        bounds, seconds = zip(*(call(name, KNOWN, size) for size in sizes), strict=True)
        above = sum(bound >= KNOWN_EPSILON for bound in bounds)
        low = beta.ppf(0.025, above, seeds - above + 1) if above else 0.0
        high = beta.ppf(0.975, above + 1, seeds - above) if above < seeds else 1.0
        print(
            f"{name:<28}above in {above:>3}, probability {low:.3f} to {high:.3f}, "
            f"mean bound {statistics.mean(bounds):.3f}, {sum(seconds):.0f} s",
            flush=True,
        )


def main() -> None:
    """Print the comparison, or the count of wrong statements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sniper", type=Path, help="folder that contains dpsniper")
    parser.add_argument("--auditorium", type=Path, help="folder python/dp_auditorium")
    parser.add_argument("--select", type=int, default=100_000, help="runs per dataset to prepare the test")
    parser.add_argument("--test", type=int, default=500_000, help="test runs per dataset")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", default="", help="laws whose name contains this text")
    parser.add_argument("--tools", default="", help="tools whose name contains this text")
    parser.add_argument("--validity", type=int, default=0, help="seeds for the count of wrong statements")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    folders = {"dpverify": Path(), "sniper": arguments.sniper, "auditorium": arguments.auditorium}
    tools = VALIDITY_TOOLS if arguments.validity else TOOLS
    names = [name for name, tool in tools.items() if folders[tool.package] and arguments.tools in name]
    context = multiprocessing.get_context("spawn")
    workers = {package: ProcessPoolExecutor(1, mp_context=context) for package in folders}

    def call(name: str, law: str, sizes: Sizes) -> tuple[float, float]:
        package = tools[name].package
        return workers[package].submit(measure, name, folders[package], law, sizes).result()

    (count_errors if arguments.validity else compare)(names, call, arguments)
    for worker in workers.values():
        worker.shutdown()


if __name__ == "__main__":
    main()
