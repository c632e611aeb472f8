"""`verify_many`: resumed, parallel, and never with the result of another job."""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

import dpverify as dpv
from dpverify.settings import type_one_error_factor
from dpverify.studies import Job, Results, compute_many, verify_many

SMALL = dpv.Settings(select_runs=500, test_runs=2000)
ONE = dpv.claims.pure(1.0)


@dataclass(frozen=True)
class Noise:
    """Laplace noise that counts its calls in a file."""

    scale: float
    log: str | None = None

    def __call__(self, data, runs, rng):
        if self.log is not None:
            with open(self.log, "a") as file:
                file.write(f"{runs}\n")
        return data + rng.laplace(scale=self.scale, size=(runs, 1))


def ends_its_process(data, runs, rng):
    os._exit(7)


def fails(data, runs, rng):
    raise ValueError("no samples today")


def calls(log):
    """Return how often a mechanism was called, and forget it."""
    number = len(log.read_text().splitlines()) if log.exists() else 0
    log.unlink(missing_ok=True)
    return number


def digests(reports):
    return [report.digest for report in reports]


def test_reports_are_those_of_verify_in_the_order_of_the_jobs(tmp_path):
    jobs = [Job(f"scale {scale}", Noise(scale), 0.0, 1.0, ONE, SMALL) for scale in (0.5, 1.0, 2.0)]
    expected = digests(dpv.verify(job.mechanism, 0.0, 1.0, claim=ONE, settings=SMALL) for job in jobs)
    assert digests(verify_many(jobs)) == expected
    assert digests(verify_many(jobs, tmp_path / "serial")) == expected
    assert digests(verify_many(map(tuple, jobs), tmp_path / "parallel", workers=2)) == expected
    assert digests(verify_many(jobs, tmp_path / "parallel")) == expected
    rows = (tmp_path / "serial" / "table.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["job", "scale 0.5", "scale 1.0", "scale 2.0"]
    assert not (tmp_path / "serial" / "running").exists()


def test_a_finished_job_is_not_run_again(tmp_path):
    log = tmp_path / "log"
    jobs = [Job("count", Noise(1.0, str(log)), 0.0, 1.0, ONE, SMALL.change(block=64))]
    first = verify_many(jobs, tmp_path / "folder")
    assert calls(log) > 40
    assert digests(verify_many(jobs, tmp_path / "folder")) == digests(first)
    assert calls(log) == 2  # 64 runs per dataset show that its behaviour is the same


@pytest.mark.filterwarnings("ignore:count")
@pytest.mark.parametrize(
    "change",
    [
        {"mechanism": Noise(2.0)},
        {"second": 0.5},
        {"claim": dpv.claims.gaussian(1.0)},
        {"settings": SMALL.change(seed=1)},
        {"settings": SMALL.change(stop_early=True, test_runs=4000)},
        {"options": {"log_lipschitz": 1.0}},
    ],
)
def test_a_changed_job_is_run_again(tmp_path, change):
    job = Job("count", Noise(1.0), 0.0, 1.0, ONE, SMALL)
    (before,) = verify_many([job], tmp_path)
    with pytest.warns(dpv.DPVerifyWarning, match="changed|its runs are others"):
        (after,) = verify_many([job._replace(**change)], tmp_path)
    (fresh,) = verify_many([job._replace(**change)])
    assert after.digest == fresh.digest != before.digest


def test_a_closure_with_another_parameter_is_run_again(tmp_path):
    def noisy(scale):
        return lambda data, runs, rng: data + rng.laplace(scale=scale, size=(runs, 1))

    verify_many([Job("count", noisy(1.0), 0.0, 1.0, ONE, SMALL)], tmp_path)
    with pytest.warns(dpv.DPVerifyWarning, match="its runs are others"):
        (after,) = verify_many([Job("count", noisy(0.2), 0.0, 1.0, ONE, SMALL)], tmp_path)
    assert after.refuted


class NotComparable:
    """A mechanism without a value that can be compared: its lock cannot be pickled."""

    def __init__(self, scale):
        self.scale, self.file = scale, open(os.devnull)  # noqa: SIM115

    def __call__(self, data, runs, rng):
        return data + rng.laplace(scale=self.scale, size=(runs, 1))

    def finish(self):
        self.file.close()


def test_a_mechanism_that_cannot_be_compared_by_value_is_compared_by_its_runs(tmp_path):
    job = Job("count", NotComparable(1.0), 0.0, 1.0, ONE, SMALL)
    first = verify_many([job], tmp_path)
    assert digests(verify_many([job._replace(mechanism=NotComparable(1.0))], tmp_path)) == digests(first)
    with pytest.warns(dpv.DPVerifyWarning, match="its runs are others"):
        verify_many([job._replace(mechanism=NotComparable(0.5))], tmp_path)


def test_a_damaged_report_is_replaced(tmp_path):
    job = Job("count", Noise(1.0), 0.0, 1.0, ONE, SMALL)
    first = verify_many([job], tmp_path)
    (tmp_path / "reports" / "count.json").write_text("{}")
    with pytest.warns(dpv.DPVerifyWarning, match="damaged"):
        again = verify_many([job], tmp_path)
    assert digests(first) == digests(again)


def test_a_failure_does_not_prevent_the_other_jobs(tmp_path):
    log = tmp_path / "log"
    jobs = [Job("bad", fails, 0.0, 1.0, ONE, SMALL), Job("good", Noise(1.0, str(log)), 0.0, 1.0, ONE, SMALL)]
    with pytest.raises(dpv.MechanismError, match="no samples today") as caught:
        verify_many(jobs, tmp_path / "folder")
    assert "in job bad; 1 of 2 jobs are finished" in caught.value.__notes__[0]
    number = calls(log)
    verify_many(jobs[1:], tmp_path / "folder")
    assert calls(log) == 2 < number


def test_a_mechanism_that_ends_its_process_does_not_prevent_the_other_jobs(tmp_path):
    jobs = [Job("bad", ends_its_process, 0.0, 1.0, ONE, SMALL), Job("good", Noise(1.0), 0.0, 1.0, ONE, SMALL)]
    with pytest.raises(dpv.MechanismError, match="the process ended"):
        verify_many(jobs, tmp_path, workers=2)
    assert (tmp_path / "reports" / "good.json").is_file()


def test_what_cannot_be_sent_to_a_process_is_refused_in_one_line():
    closure = functools.partial(lambda data, runs, rng: data + rng.laplace(size=runs))
    with pytest.raises(dpv.InputError, match=r"job count: .*dpverify\.factory.*workers=None"):
        verify_many([Job("count", closure, 0.0, 1.0, ONE, SMALL)], workers=1)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([("a", fails, 0, 1), ("A", fails, 0, 1)], "different names"),
        ([("a",)], "expected Job"),
        ([("", fails, 0, 1)], "expected a text"),
        ([("a", fails, 0, 1, None, {"seed": 1})], "expected a Settings"),
        ([("a", fails, 0, 1, "pure")], "claim"),
    ],
)
def test_jobs_that_cannot_be_used_are_refused(jobs, message):
    with pytest.raises(dpv.InputError, match=message):
        verify_many(jobs)


@pytest.mark.parametrize("workers", [0, 1.5, True, "two"])
def test_a_number_of_workers_is_checked(workers):
    with pytest.raises(dpv.InputError, match="workers: found"):
        verify_many([], workers=workers)


def test_any_name_becomes_a_file_of_its_own(tmp_path):
    names = ["../../up", "a b", "a-b", "ü", "x" * 300]
    verify_many([Job(name, Noise(1.0), 0.0, 1.0, ONE, SMALL.change(test_runs=100)) for name in names], tmp_path)
    files = list((tmp_path / "reports").iterdir())
    assert len(files) == len(names)
    assert all(len(file.name) < 120 for file in files)


def logged_square(number, log):
    """A task of compute_many."""
    with open(log, "a") as file:
        file.write("called\n")
    return {"square": number**2, "array": (1.5, float("inf"))}


def test_compute_many_keeps_plain_data(tmp_path):
    def tasks(numbers):
        return {f"square {n}": functools.partial(logged_square, n, tmp_path / "log") for n in numbers}

    folder = tmp_path / "folder"
    assert compute_many(tasks([3]))[0]["square"] == 9
    assert compute_many(tasks([3]), folder) == compute_many(tasks([3, 4]), folder)[:1]
    assert calls(tmp_path / "log") == 3
    assert [one["square"] for one in compute_many(tasks([3, 4, 5]), folder, workers=2)] == [9, 16, 25]
    assert calls(tmp_path / "log") == 1
    changed = {"square 3": functools.partial(logged_square, 2, tmp_path / "log")}
    assert compute_many(changed, folder)[0]["square"] == 4
    with pytest.raises(ValueError, match="no samples today") as caught:
        compute_many({"bad": functools.partial(fails, 0, 0, 0), **tasks([6])}, folder)
    assert "in task bad; 1 of 2" in caught.value.__notes__[0]
    with pytest.raises(dpv.InputError, match="task bad: found a result that cannot be stored"):
        compute_many({"bad": object}, folder)


@dataclass(frozen=True)
class Interrupted(Noise):
    """Noise that Ctrl-C interrupts at its last block."""

    def __call__(self, data, runs, rng):
        if calls_so_far(self.log) == 60:
            raise KeyboardInterrupt
        return super().__call__(data, runs, rng)


def calls_so_far(log):
    return len(Path(log).read_text().splitlines()) if Path(log).exists() else 0


def test_an_interrupted_call_resumes_with_its_blocks(tmp_path):
    log, settings = tmp_path / "log", SMALL.change(block=64)
    whole = verify_many([Job("count", Noise(1.0, str(log)), 0.0, 1.0, ONE, settings)])
    all_calls = calls(log)
    interrupted = Job("count", Interrupted(1.0, str(log)), 0.0, 1.0, ONE, settings)
    with pytest.raises(dpv.Stopped, match="after 1 of 2 jobs"):
        verify_many([Job("first", Noise(2.0), 0.0, 1.0, ONE, SMALL), interrupted], tmp_path / "folder")
    assert calls(log) == 60
    resumed = verify_many([interrupted], tmp_path / "folder")
    assert calls(log) < all_calls
    assert resumed[0].witness.counts == whole[0].witness.counts


def test_results_are_a_table_and_a_page(tmp_path):
    jobs = [
        Job("a <b>", Noise(0.5), 0.0, 1.0, ONE, SMALL),
        Job("curve", Noise(1.0), 0.0, 1.0, dpv.claims.gaussian(1.0), SMALL),
    ]
    results = Results.of(jobs, verify_many(jobs))
    assert results.headline == "2 verifications: 1 refuted, 1 not refuted"
    lines = str(results).splitlines()
    assert [name in line for name, line in zip(("a <b>", "curve"), lines[2:], strict=True)] == [True, True]
    results.to_csv(tmp_path / "table.csv")
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 3
    page = results.page().html()
    assert "a &lt;b&gt;" in page
    assert "<b>" not in page


def test_the_type_one_error_of_the_thinned_test_is_twice_its_level():
    assert type_one_error_factor(dpv.Settings()) == 1
    assert type_one_error_factor(dpv.Settings.paper()) == 2
    assert type_one_error_factor(dpv.Settings.paper(test="averaged")) == 4
