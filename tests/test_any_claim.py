"""Claims of every kind through `verify`, `Report.against`, studies and the command."""

import numpy as np
import pytest
from curves import gaussian_profile, gaussian_tradeoff, profile_of, subsampled_gaussian
from limits import most
from scipy.special import ndtr

import dpverify as dpv
from dpverify.cli import main
from dpverify.render.pages import compute_curves
from dpverify.report.text import facts, report_text, reproduction_command
from dpverify.stats.upper import holds_on_partition
from dpverify.studies.loading import load_claim

claims = dpv.claims
QUICK = {"select_runs": 4000, "test_runs": 20_000}


def gaussian(data, runs, rng):
    return data + rng.standard_normal(runs)


@pytest.fixture(scope="module")
def report():
    return dpv.verify(gaussian, 0.0, 1.0, claim=claims.gaussian(1.0), **QUICK)


def test_a_true_claim_is_not_refuted_and_its_parameter_is_bounded(report):
    assert report.verdict is dpv.Verdict.NOT_REFUTED
    assert report.claim == claims.gaussian(1.0)
    assert 0.9 < report.claim_lower < 1.02
    assert report.epsilon is None
    assert "mu >= " in str(report)


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (claims.gaussian(0.7), "REFUTED"),
        (claims.gaussian(1.6), "over the cells"),
        (claims.zcdp(0.2), "REFUTED"),
        (claims.renyi(2.0, 0.3), "REFUTED"),
        (claims.renyi(2.0, 2.0), "NOT_REFUTED"),
        (claims.points([(0.0, 0.3), (1.0, 0.05)]), "REFUTED"),
        (claims.points([(0.0, 0.5), (3.0, 0.1)]), "over the cells"),
        (claims.profile(gaussian_profile(0.7)), "REFUTED"),
        (claims.profile(gaussian_profile(1.02)), "NOT_REFUTED"),
        (claims.tradeoff(gaussian_tradeoff(0.7)), "REFUTED"),
        (claims.tradeoff(gaussian_tradeoff(1.6)), "over the cells"),
        (claims.gaussian(0.5).group(2), "NOT_REFUTED"),
        (claims.approximate(0.3, 0.01), "REFUTED"),
        (claims.pure(3.0), "over the cells"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.describe()[:30],
)
def test_every_kind_of_claim_has_its_verdict_on_the_same_counts(report, claim, verdict, tmp_path):
    other = report.against(claim)
    assert other.verdict.name == ("REFUTED" if verdict == "REFUTED" else "NOT_REFUTED")
    assert other.holds_on_cells == (verdict == "over the cells")
    assert other.claim == claim
    assert (other.claim_lower is None) == (claim.parameter_name is None)
    other.to_json(tmp_path / "report.json")
    again = dpv.Report.from_json(tmp_path / "report.json")
    assert again == other
    assert again.claim == claim
    assert str(again) == str(other)


def test_an_epsilon_and_a_claim_of_it_give_the_same_report():
    as_number = dpv.verify(gaussian, 0.0, 1.0, 0.5, 0.01, **QUICK)
    as_claim = dpv.verify(gaussian, 0.0, 1.0, claim=claims.approximate(0.5, 0.01), **QUICK)
    assert as_claim == as_number
    assert as_number.claim == claims.approximate(0.5, 0.01)
    assert as_number.claim_lower == as_number.epsilon_lower


def test_divergences_are_said_to_be_understated(report):
    for claim in (claims.zcdp(0.8), claims.renyi(2.0, 2.0)):
        other = report.against(claim)
        for text in (report_text(other, width=1000), " ".join(facts(other)).lower()):
            assert "a single event shows only a part of a divergence" in text


def test_a_claim_about_a_divergence_is_never_bounded(report):
    """Of Gaussian noise with rho 0.5, no single event violates rho 0.4, and the cells together do."""
    claim = claims.zcdp(0.4)
    part = report.on_partition
    p, q = (np.repeat(counts, part.number) / part.runs for counts in (part.c1, part.c2))
    on_cells = max(np.log((p**a * q ** (1 - a)).sum()) / ((a - 1) * a) for a in (1.5, 2.0, 3.0))
    assert on_cells > claim.rho
    assert report.against(claim).verdict is dpv.Verdict.NOT_REFUTED
    assert not report.against(claims.zcdp(40.0)).holds_on_cells
    assert report.against(claims.gaussian(1.6)).holds_on_cells  # not a divergence


def test_an_edited_bound_of_a_claim_is_refused(report, tmp_path):
    report.to_json(tmp_path / "report.json")
    text = (tmp_path / "report.json").read_text()
    assert text.count('"claim_lower":0.9') == 1
    (tmp_path / "report.json").write_text(text.replace('"claim_lower":0.9', '"claim_lower":0.99'))
    with pytest.raises(dpv.InputError, match="another checksum"):
        dpv.Report.from_json(tmp_path / "report.json")


def test_the_page_draws_the_claimed_curve(report):
    curves = compute_curves(report, report.on_partition.epsilon_upper())
    assert curves.delta_claimed == pytest.approx([gaussian_profile(1.0)(e) for e in curves.epsilon], abs=1e-4)
    _, bounded, claimed, *_ = report.plot("errors").axes[0].lines
    type1, type2 = claimed.get_data()
    assert type2 == pytest.approx(1 - claims.gaussian(1.0).boundary(type1), abs=1e-4)
    assert (bounded.get_ydata() <= type2 + 0.02).all()
    assert "claim=dpv.claims.gaussian(mu=1.0)" in reproduction_command(report)
    assert compute_curves(report.against(0.5), 1.0).delta_claimed is None


def test_a_folder_belongs_to_one_curve(tmp_path):
    first = dpv.verify(gaussian, 0.0, 1.0, claim=claims.gaussian(1.0), folder=tmp_path, **QUICK)
    again = dpv.verify(gaussian, 0.0, 1.0, claim=claims.gaussian(1.0), folder=tmp_path, **QUICK)
    assert again == first
    with pytest.raises(dpv.FolderError):
        dpv.verify(gaussian, 0.0, 1.0, claim=claims.gaussian(2.0), folder=tmp_path, **QUICK)


def test_claims_that_contradict_other_arguments_are_refused():
    with pytest.raises(dpv.InputError, match="use claim or epsilon, not both"):
        dpv.verify(gaussian, 0.0, 1.0, 1.0, claim=claims.gaussian(1.0))
    with pytest.raises(dpv.InputError, match="delta: found"):
        dpv.verify(gaussian, 0.0, 1.0, delta=0.1, claim=claims.approximate(1.0, 0.2))
    with pytest.raises(dpv.InputError, match="claim: found Gaussian"):
        dpv.verify(gaussian, 0.0, 1.0, claim=claims.gaussian(1.0), test="thinned")
    with pytest.raises(dpv.InputError, match="claim: found 'mu'"):
        dpv.verify(gaussian, 0.0, 1.0, claim="mu")


def test_a_claim_is_asserted_in_a_test():
    options = {"alpha": 0.05, "detects": 1.3, **QUICK}
    assert not dpv.assert_private(gaussian, 0.0, 1.0, claim=claims.gaussian(1.05), **options).refuted
    dpv.assert_private(gaussian, 0.0, 1.0, claim=claims.profile(gaussian_profile(1.05)), **options)
    with pytest.raises(AssertionError, match="REFUTED"):
        dpv.assert_private(gaussian, 0.0, 1.0, claim=claims.gaussian(0.8), **options)
    with pytest.raises(dpv.TooWeak, match=r"the true mu of .* were 1\.06") as caught:
        dpv.assert_private(gaussian, 0.0, 1.0, claim=claims.gaussian(1.05), alpha=0.05, detects=1.01, **QUICK)
    assert caught.value.needed > QUICK["test_runs"]


def test_a_search_aims_at_the_curve():
    pairs = [(0.0, 0.2), (0.0, 1.5), (0.0, 0.7)]
    found = dpv.search_pairs(gaussian, pairs, claim=claims.gaussian(1.0), runs=6000, **QUICK)
    assert found.pair == 1
    assert found.report.refuted


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("gaussian(mu=1)", claims.gaussian(1.0)),
        ("gaussian(0.5).group(2)", claims.gaussian(1.0)),
        ("zcdp(rho=0.5)", claims.zcdp(0.5)),
        ("renyi(order=8, epsilon=1)", claims.renyi(8.0, 1.0)),
        ("points([(1, 1e-3), (2, 1e-6)])", claims.points([(1.0, 1e-3), (2.0, 1e-6)])),
        ("approximate(1, 1e-5)", claims.approximate(1.0, 1e-5)),
    ],
)
def test_a_text_names_a_claim(text, claim):
    assert load_claim(text) == claim


@pytest.mark.parametrize(
    "text",
    ["gauss(1)", "gaussian", "gaussian(mu=x)", "__import__('os')", "gaussian(1).boundary(0)", "", "gaussian(-1)"],
)
def test_a_bad_text_is_refused_in_one_line(text):
    with pytest.raises(dpv.InputError) as caught:
        load_claim(text)
    assert "\n" not in str(caught.value)


def test_the_command_tests_a_claim(tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import math\n"
        "def mechanism(data, runs, rng):\n    return data + rng.standard_normal(runs)\n"
        "def profile(epsilon):\n    return 0.9 * math.exp(-epsilon)\n"
    )
    for name, number in (("a.txt", "0"), ("b.txt", "1")):
        (tmp_path / name).write_text(number)
    monkeypatch.chdir(tmp_path)
    base = ["verify", "mine.py:mechanism", "--first", "a.txt", "--second", "b.txt"]
    base += ["--set", "select_runs=2000", "--set", "test_runs=8000", "--claim"]
    assert main([*base, "gaussian(mu=0.5)"]) == 1
    assert "mu 0.5" in capsys.readouterr().out
    assert main([*base, "mine.py:profile"]) == 0
    assert main([*base, "gaussian(mu=1.05)", "--detects", "1.4"]) == 0
    assert main([*base, "gaussian(mu=1)", "--epsilon", "1"]) == 2


def test_a_study_tests_a_claim(tmp_path):
    (tmp_path / "mine.py").write_text("def mechanism(data, runs, rng):\n    return data + rng.standard_normal(runs)\n")
    for name, number in (("a.txt", "0"), ("b.txt", "1")):
        (tmp_path / name).write_text(number)
    file = tmp_path / "study.toml"
    text = (
        'claim = "gaussian(mu=0.5)"\n[pairs.one]\nfirst = "a.txt"\nsecond = "b.txt"\n'
        '[mechanisms.noise]\nuse = "mine.py:mechanism"\n[settings]\nselect_runs = 1000\ntest_runs = 4000\n'
    )
    file.write_text(text)
    for _ in range(2):  # the second time the report is read
        study = dpv.run_study(file, tmp_path / "out")
        assert study.rows[0]["verdict"] == "REFUTED"
        assert study.rows[0]["claim"] == "Gaussian differential privacy with mu 0.5"
    file.write_text(text.replace("0.5", "0.6"))
    with pytest.warns(dpv.DPVerifyWarning, match="its claim, settings or options changed; it is run again"):
        study = dpv.run_study(file, tmp_path / "out")
    assert study.rows[0]["claim"] == "Gaussian differential privacy with mu 0.6"


@pytest.mark.parametrize("control", [False, True])
def test_a_claim_that_fails_on_the_partition_is_not_bounded(control):
    """The claim is just violated by one of the cells. The negative control compares shares without a margin."""
    p1, p2 = np.array([ndtr(0.5), ndtr(-0.5)]), np.array([ndtr(-0.5), ndtr(0.5)])
    claim, runs, trials = claims.gaussian(1.0 - 1e-6), 20_000, 30
    rng, bounded = np.random.default_rng(4), 0
    for c1, c2 in zip(rng.multinomial(runs, p1, trials), rng.multinomial(runs, p2, trials), strict=True):
        if control:
            bounded += bool(c1[0] / runs <= claim.boundary(c2[0] / runs))
        else:
            bounded += holds_on_partition(claim, c1, c2, runs, 0.05, True)
    assert (bounded > most(trials, 0.05)) is control


def test_an_uneven_trade_off_function_is_bounded_only_if_it_lies_above_all_corners():
    """Its boundary starts above 0 and is flat at 1, so only likely events can violate it."""
    claim, runs = claims.tradeoff(lambda q: 0.8 * (1 - q) ** 1.5), 2000

    def holds(p1, p2, all_occupied):
        c1, c2 = round(p1 * runs), round(p2 * runs)
        return holds_on_partition(claim, [c1, runs - c1], [c2, runs - c2], runs, 0.05, all_occupied)

    likely = float(claim.boundary(0.93))
    assert not holds(likely - 0.001, 0.93, False)  # half a standard error below the boundary
    assert holds(0.5, 0.5, True)


@pytest.fixture(scope="module")
def accountant():
    return profile_of(subsampled_gaussian())


@pytest.mark.parametrize(
    ("seeds", "thresholds"), [(30, (1.0,)), pytest.param(200, (0.0, 0.5, 1.0, 2.0), marks=pytest.mark.slow)]
)
def test_an_accountants_profile_stands_at_its_own_claim_and_falls_with_less_noise(accountant, seeds, thresholds):
    """30 steps, sampling rate 0.1, noise 1; the events are level sets of the true likelihood ratio."""
    claim, runs = claims.profile(accountant), 10**6
    rng = np.random.default_rng(5)
    for threshold in thresholds:
        p1, p2 = subsampled_gaussian().event(threshold)
        assert float(claim.boundary(p2)) == pytest.approx(p1, abs=1e-5)  # on the boundary of the claim
        counts = zip(rng.binomial(runs, p1, seeds).tolist(), rng.binomial(runs, p2, seeds).tolist(), strict=True)
        refuted = sum(claim.p_value(c1, c2, runs, 0.05) <= 0.05 for c1, c2 in counts)
        assert refuted <= most(seeds, 0.05)
        p1, p2 = subsampled_gaussian(sigma=0.9).event(threshold)
        counts = zip(rng.binomial(runs, p1, 20).tolist(), rng.binomial(runs, p2, 20).tolist(), strict=True)
        assert all(claim.p_value(c1, c2, runs, 0.05) <= 0.05 for c1, c2 in counts)


def test_opendps_profile_of_the_same_mechanism_is_the_same_claim(accountant):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious")
    claim = claims.as_claim(dp.new_privacy_profile(accountant))
    q = np.linspace(0.0, 1.0, 101)
    assert claim.boundary(q) == pytest.approx(claims.profile(accountant).boundary(q), abs=1e-12)


class SubsampledGaussian:
    """30 steps; with the first dataset each output is shifted by 1 with probability 0.1."""

    def __init__(self, sigma):
        self.sigma = sigma

    def __call__(self, data, runs, rng):
        return self.sigma * rng.standard_normal((runs, 30)) + (rng.random((runs, 30)) < 0.1 * data)


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "verdict"), [(1.0, "NOT_REFUTED"), (0.9, "REFUTED")])
def test_verify_compares_the_subsampled_gaussian_with_its_accountant(accountant, sigma, verdict):
    report = dpv.verify(SubsampledGaussian(sigma), 1.0, 0.0, claim=accountant, test_runs=10**6)
    assert report.verdict.name == verdict


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "control"), [(1.0, False), (0.995, True)])
def test_verify_proves_mu_of_gaussian_noise(mu, control):
    """One bound has the standard error 0.0019, and the median of 25 has 0.0005. The control has slightly more noise."""
    lower = [
        dpv.verify(gaussian, 0.0, mu, claim=claims.gaussian(1.0), test_runs=10**6, seed=seed).claim_lower
        for seed in range(25)
    ]
    assert bool(np.median(lower) < 0.995) is control
    assert bool(lower[0] < 0.995) is control
