"""Golden cases: what dpverify says about fixed mechanisms with fixed seeds, through public names only.

`python tests/support/golden.py --write` records counts, bounds and verdicts in `golden.json`, and prints what differs
from the last record. Digests are left out: they hold on one kind of machine only, because processors round functions
such as exp differently in the last bit. Record again only after a change that is meant to change these numbers, and
say in the commit which ones and why.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from golden_scores import fit_mean_difference, square

import dpverify as dpv

FILE = Path(__file__).with_name("golden.json")
FEW = {"select_runs": 2000, "test_runs": 6000, "block": 500}
CLAIMS = {
    "gaussian": dpv.claims.gaussian(0.8),
    "zcdp": dpv.claims.zcdp(0.3),
    "renyi": dpv.claims.renyi(2.0, 0.5),
    "profile": dpv.claims.profile(lambda epsilon: 0.3 * math.exp(-epsilon)),
    "tradeoff": dpv.claims.tradeoff(lambda a: max(0.0, 1 - 1.5 * a)),
    "approximate": dpv.claims.approximate(0.7, 0.01),
}


def laplace(data, runs, rng):
    return data + rng.laplace(size=runs)


def quiet_laplace(data, runs, rng):
    return data + rng.laplace(scale=0.5, size=runs)


def gaussian(data, runs, rng):
    return data + rng.standard_normal(runs)


def rounded(data, runs, rng):
    return np.round(2 * (data + rng.laplace(size=runs)))


def steps(data, runs, rng):
    return 0.5 * data + rng.standard_normal((runs, 6, 2))


def stream(data, runs, rng):
    return np.asarray(data)[:, None] + rng.laplace(size=(runs, len(data), 1))


def correlated(data, runs, rng):
    x = rng.standard_normal((runs, 3))
    x[:, 1] += (0.9 if data else -0.9) * x[:, 0]
    return x


def deterministic(data, runs, rng):
    return np.full(runs, float(data))


def sometimes_missing(data, runs, rng):
    x = data + rng.laplace(size=runs)
    x[rng.random(runs) < (0.05 if data else 0.01)] = math.nan
    return x


def family(scale):
    return lambda data, runs, rng: data + rng.laplace(scale=scale, size=runs)


def one(report: dpv.Report) -> dict:
    """Return the counts, bounds and verdict of a report."""
    result: dict = {"verdict": report.verdict.name, "diagnostics": [found.name for found in report.diagnostics]}
    result["counts"] = sorted([*map(int, event.counts), round(event.share, 12)] for event in report.tested)
    if not report.voiding:
        bounds = report.epsilon_lower, report.epsilon_critical, report.on_partition.epsilon_upper(report.delta)
        result["bounds"] = [*bounds, report.claim_lower, report.p_value, report.on_partition.delta_upper(0.5)]
        result["delta_lower"] = [report.delta_lower(epsilon) for epsilon in (0.0, 0.5, 2.0)]
        result["cells"] = report.on_partition.cells
        result["region_mass"] = report.on_partition.region_mass
    if report.settings.follows_paper:
        result["paper"] = [report.paper.eta, report.paper.lambda_, *(report.paper.p_values or ())]
    if report.stopped is not None:
        result["stopped"] = [str(getattr(report.stopped, "value", report.stopped)), report.runs_used, report.e_value]
    if report.error is not None:
        result["error"] = [list(pair) for pair in report.error]
    return result


def verified(mechanism: Callable, first: object = 0.0, second: object = 1.0, *arguments: object, **options: object):
    """Return a case that verifies a mechanism."""
    return lambda folder: one(dpv.verify(mechanism, first, second, *arguments, **{**FEW, **options}))


def resumed(folder: Path) -> dict:
    """Verify with a folder, then again with the finished blocks, and through JSON."""
    place, file = folder / "run", folder / "report.json"
    dpv.verify(steps, 0.0, 1.0, 1.0, folder=place, **FEW).to_json(file)
    again = dpv.verify(steps, 0.0, 1.0, 1.0, folder=place, **FEW)
    assert again == dpv.Report.from_json(file)
    return one(again)


def against(folder: Path) -> dict:
    """Test other claims on the same counts."""
    report = dpv.verify(gaussian, 0.0, 1.0, 1.0, 0.01, **FEW)
    return {"line": one(report.against(0.4)), "curve": one(report.against(CLAIMS["gaussian"]))}


def in_jax(folder: Path) -> dict:
    """Verify a mechanism that returns JAX arrays, and the paper's system under the paper's settings."""
    import jax

    from dpverify import estimation

    noisy = dpv.jax_run(lambda data, key: data + jax.random.laplace(key, (2,)))
    system = estimation.oscillator()
    first, second, _ = estimation.adjacent_recordings(system, system.h, 0, 10.0, np.random.default_rng(0))
    mechanism = estimation.PrivateEKF(system, s_hat=0.8)
    settings = dpv.Settings.paper(block=1000)
    return {
        "jax_run": one(dpv.verify(noisy, 0.0, 1.0, 1.0, **FEW)),
        "private EKF": one(dpv.verify(mechanism, first, second, 1.0, settings=settings)),
    }


def over_time(folder: Path) -> dict:
    """Measure every prefix of a stream."""
    first, second = np.zeros(5), np.array([0.0, 0.6, 0.6, 0.0, 0.6])
    result = dpv.privacy_over_time(stream, first, second, epsilon=1.0, **FEW)
    early = dpv.privacy_over_time(stream, first, second, epsilon=0.3, stop_early=True, **FEW)
    table = dpv.privacy_over_time(stream, pairs={"a": (first, second), "b": (first, first + 0.2)}, **FEW)
    return {
        "counts": np.asarray(result.counts).sum(axis=2).tolist(),
        "lower": np.asarray(result.epsilon_lower).tolist(),
        "upper": np.asarray(result.epsilon_upper).tolist(),
        "verdict": result.verdict.name,
        "early": [early.verdict.name, np.asarray(early.epsilon_lower).tolist()],
        "table": [np.asarray(table[record].epsilon_lower).tolist() for record in ("a", "b")],
    }


def pairs(folder: Path) -> dict:
    """Test one claim on several pairs, and search for the worst pair of a list."""
    many = dpv.verify_pairs(laplace, [(0.0, 0.5), (0.0, 1.0), (0.0, 2.0)], 1.0, **FEW)
    found = dpv.search_pairs(laplace, [(0.0, 0.5), (0.0, 1.5), (0.0, 1.0)], runs=6000, **FEW)
    return {
        "pairs": [one(report) for report in many.reports],
        "certain": list(many.certain),
        "worst": many.worst,
        "search": one(found.report),
    }


def calibrated(folder: Path) -> dict:
    """Find the scale of the noise for a claim, and the trade-off against the error."""
    found = dpv.calibrate(family, (0.3, 5.0), 0.0, 1.0, 1.0, 0.0, **FEW)
    table = dpv.tradeoff({"laplace": (family, [0.8, 1.6])}, 0.0, 1.0, 0.0, dpv.rmse(np.zeros((1, 1))), **FEW)
    return {
        "calibrate": [found.insufficient, found.sufficient, found.parameter],
        "tradeoff": [[row["epsilon_lower"], row.get("error_first")] for row in table.rows],
    }


def files(folder: Path) -> dict:
    """Run a study and two releases of a check from their files."""
    (folder / "golden_mine.py").write_text(
        "import numpy as np\n"
        "def noisy(data, runs, rng, scale=1.0):\n    return data + rng.laplace(scale=scale, size=runs)\n"
        "def make(scale):\n    return lambda data, runs, rng: noisy(data, runs, rng, scale)\n"
    )
    np.save(folder / "a.npy", np.zeros(1))
    np.save(folder / "b.npy", np.ones(1))
    (folder / "study.toml").write_text(
        "epsilon = 1.0\n[pairs.unit]\nfirst = 'a.npy'\nsecond = 'b.npy'\n"
        "[mechanisms.laplace]\nuse = 'golden_mine.py:make'\nscale = [0.5, 1.0]\n"
        "[settings]\nselect_runs = 2000\ntest_runs = 6000\nblock = 500\n"
    )
    (folder / "claims.toml").write_text(
        "[[claims]]\nmechanism = 'noisy'\npair = 'unit'\nepsilon = 1.0\n"
        "[mechanisms.noisy]\nuse = 'golden_mine.py:noisy'\n"
        "[pairs.unit]\nfirst = 'a.npy'\nsecond = 'b.npy'\n"
        "[settings]\nselect_runs = 2000\ntest_runs = 6000\nblock = 500\n"
    )
    study = dpv.run_study(folder / "study.toml", folder=folder / "study")
    check = dpv.run_check(folder / "claims.toml", folder / "check")
    return {
        "study": [one(study.report(row)) for row in study.rows],
        "check": [[row["name"], row["state"], row.get("epsilon_lower")] for row in check.rows],
    }


def eight_laws(folder: Path) -> dict:
    """Return the lower bounds on eight laws; for most of them the best event is not an interval of one output."""

    def ring(data, runs, rng):
        angle, radius = rng.uniform(0, 2 * np.pi, runs), 1 + 0.1 * rng.standard_normal(runs) + 0.05 * data
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)

    def burst(data, runs, rng):
        x = rng.standard_normal((runs, 12, 1))
        x[np.arange(runs), rng.integers(12, size=runs), 0] += 2.5 * data
        return x

    def counts(data, runs, rng):
        return rng.poisson(3.0 + data, (runs, 2))

    def leak(data, runs, rng):
        return rng.standard_normal(runs) + 20.0 * (rng.random(runs) < 0.03) * data

    def cauchy(data, runs, rng):
        return rng.standard_cauchy((runs, 2)) + 0.5 * data

    laws = {"gaussian": gaussian, "steps": steps, "correlated": correlated}
    laws |= {"ring": ring, "burst": burst, "counts": counts, "leak": leak, "cauchy": cauchy}
    runs = {"select_runs": 6000, "test_runs": 20_000, "block": 1000}
    return {name: dpv.verify(law, 0, 1, delta=0.01, **runs).epsilon_lower for name, law in laws.items()}


def commands(folder: Path) -> dict:
    """Return the exit status and the output of the commands, without durations."""
    (folder / "golden_mine.py").write_text(
        "def noisy(data, runs, rng, scale=1.0):\n    return data + rng.laplace(scale=scale, size=(runs, 1))\n"
        "def make(scale):\n    return lambda data, runs, rng: noisy(data, runs, rng, scale)\n"
        "def stream(data, runs, rng):\n    return data[:, None] + rng.laplace(size=(runs, len(data), 1))\n"
    )
    (folder / "a.txt").write_text("0\n")
    (folder / "b.txt").write_text("1\n")
    (folder / "s.txt").write_text("0\n0\n0\n")
    (folder / "t.txt").write_text("0\n1\n1\n")
    few = "--set select_runs=1000 --set test_runs=4000 --set block=500"
    pair = "--first a.txt --second b.txt"
    commands = {
        "verify": f"verify golden_mine.py:noisy {pair} --epsilon 0.5 {few} --json out.json",
        "not refuted": f"verify golden_mine.py:noisy {pair} --epsilon 3 {few} --json later.json",
        "too weak": f"verify golden_mine.py:noisy {pair} --epsilon 1.1 --detects 1.25 {few}",
        "report": "report out.json",
        "compare": "compare out.json later.json",
        "over time": f"over-time golden_mine.py:stream --first s.txt --second t.txt {few}",
        "plan": "plan --epsilon 1 --margin 2 --event-mass 0.1",
        "no file": "verify golden_mine.py:noisy --first no.txt --second b.txt",
        "unknown setting": f"verify golden_mine.py:noisy {pair} --set test_run=1",
        "unknown command": "verfy",
    }
    results = {}
    for name, words in commands.items():
        command = [sys.executable, "-m", "dpverify", *words.split()]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        text = re.sub(r"\d+(\.\d+)? (s|ms|min)\b", "TIME", done.stdout + done.stderr)
        text = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", text)
        lines = [line for line in text.splitlines() if "runs/s" not in line]  # a busy machine announces the cost
        results[name] = [done.returncode, *lines]
    return results


CASES: dict[str, Callable[[Path], dict]] = {
    "laplace": verified(laplace, 0.0, 1.0, 0.5),
    "laplace, no claim": verified(laplace),
    "laplace, measured at delta": verified(laplace, 0.0, 1.0, None, 0.05),
    "gaussian, delta": verified(gaussian, 0.0, 1.0, 0.5, 0.05),
    "grid, union": verified(laplace, 0.0, 1.0, 1.0, partition="grid", resolution=8, events="union"),
    "equal-mass": verified(steps, 0.0, 1.0, 1.0, partition="equal-mass", resolution=32),
    "tree": verified(steps, 0.0, 1.0, 1.0, partition="tree", resolution=32),
    "atoms": verified(rounded, 0.0, 1.0, 1.0, partition="atoms"),
    "one cell": verified(laplace, 0.0, 1.0, 1.0, events="cell"),
    "scores only": verified(correlated, 0, 1, 1.0, events="score"),
    "own score": verified(correlated, 0, 1, 1.0, events=square),
    "learned score": verified(steps, 0.0, 1.0, 1.0, learn=fit_mean_difference),
    "non-finite outputs": verified(sometimes_missing, 0.0, 0.0, 1.0, nonfinite="event"),
    "trajectory with error": verified(steps, 0.0, 1.0, 5.0, error=dpv.rmse(np.zeros((6, 2)))),
    "Lipschitz constant": verified(laplace, 0.0, 1.0, 2.0, log_lipschitz=1.0, test_runs=30_000),
    "deterministic": verified(deterministic, 0.0, 1.0, 1.0),
    "equal datasets": verified(laplace, 1.0, 1.0, 1.0),
    "coupled selection": verified(laplace, 0.0, 1.0, 1.0, coupled_selection=True),
    "paper": verified(steps, 0.0, 1.0, 1.0, settings=dpv.Settings.paper()),
    "stop early, false": verified(quiet_laplace, 0.0, 1.0, 0.5, stop_early=True),
    "stop early, true": verified(laplace, 0.0, 1.0, 1.5, stop_early=True),
    "two processes": verified(laplace, 0.0, 1.0, 0.5, executor=2),
    **{f"claim: {name}": verified(gaussian, 0.0, 1.0, claim=claim) for name, claim in CLAIMS.items()},
    "resumed": resumed,
    "against": against,
    "JAX": in_jax,
    "over time": over_time,
    "pairs": pairs,
    "calibrate and tradeoff": calibrated,
    "study and check": files,
    "commands": commands,
}


EIGHT_LAWS = "lower bounds on eight laws"  # a measure of power: compared by `weaker_laws`, not number by number


def weaker_laws(old: dict[str, float], new: dict[str, float]) -> list[str]:
    """Return the laws whose bound is more than 5% lower than before, and whether the mean is more than 1% lower."""
    shares = {name: new[name] / old[name] for name in old}
    found = [f"{name}: {share:.3f} of the bound before" for name, share in shares.items() if share < 0.95]
    mean = sum(shares.values()) / len(shares)
    return [*found, f"mean: {mean:.3f} of the bounds before"] if mean < 0.99 else found


def run(name: str) -> dict:
    """Return what a case says now, as it is read from JSON."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", dpv.DPVerifyWarning)
        return json.loads(json.dumps({**CASES, EIGHT_LAWS: eight_laws}[name](Path(folder))))


def differences(old: object, new: object, place: str = "") -> list[str]:
    """Return the places where two records differ; numbers may differ in the last digits only."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in sorted({*old, *new}):
            found += differences(old.get(key), new.get(key), f"{place}.{key}" if place else key)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            text for i, pair in enumerate(zip(old, new, strict=True)) for text in differences(*pair, f"{place}[{i}]")
        ]
    numbers = all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (old, new))
    same = math.isclose(old, new, rel_tol=1e-9) if numbers else old == new  # type: ignore[arg-type]
    return [] if same else [f"{place}: {old} -> {new}"]


def main() -> None:
    """Print what differs from the record, and replace it with `--write`."""
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    records = {}
    for case in [*CASES, EIGHT_LAWS]:
        records[case] = run(case)
        changed = differences(stored.get(case), records[case]) if case in stored else ["new"]
        print(f"{case}: {'; '.join(changed) if changed else 'same'}", flush=True)
    if "--write" in sys.argv:
        FILE.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    import golden  # the test runs of a user's function depend on the name of its module

    golden.main()
