"""The page without a browser: it parses, asks for nothing, shows text as text, and reads off what holds."""

import functools
import json
import math
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import dpverify as dpv
from dpverify import Report
from dpverify.cli import main
from dpverify.render.figures import privacy_map, tradeoff
from dpverify.render.numbers import between_nodes, embedded, monotone, read
from dpverify.render.page import SCRIPT, comparison, page
from dpverify.render.sections import again
from dpverify.stats.lower_bound import claim_p_value
from dpverify.stats.profile import PROFILE_EPSILONS
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 2000, "test_runs": 10_000}
EVIL = "</script><script>alert(1)</script>"


def largest(data, runs, rng):
    return (data + rng.laplace(size=(runs, 4))).argmax(1)


def constant(data, runs, rng):
    return np.full((runs, 1), np.sum(data))


def lost(data, runs, rng):
    """The second data set gives no finite estimate."""
    return np.where(np.sum(data) > 0, np.nan, rng.standard_cauchy(runs))


def above(samples):
    return samples[:, 0, 0]


class Evil:
    """Everything a mechanism may say of itself, said with a script in it."""

    name = f"{EVIL} $x_1$ & 'it'"

    def __call__(self, data, runs, rng):
        return data["value"] + rng.laplace(size=runs)

    def remarks(self, data):
        return [data["remark"]]


def path(steps, dimension, move):
    return np.zeros((steps, dimension)), np.full((steps, dimension), move)


REPORTS = {
    "line": lambda: dpv.verify(laplace, ZERO, ONE, 0.5, error=dpv.rmse(ZERO), **SMALL),
    "measured": lambda: dpv.verify(laplace, ZERO, ONE, **SMALL),
    "delta": lambda: dpv.verify(laplace, ZERO, ONE, 1.5, 0.05, log_lipschitz=1.0, **SMALL),
    "paper": lambda: dpv.verify(gaussian_trajectory, *path(3, 2, 0.4), 0.5, settings=dpv.Settings.paper()),
    "values": lambda: dpv.verify(largest, np.zeros(4), np.eye(4)[0], 0.1, **SMALL),
    "constant": lambda: dpv.verify(constant, ZERO, ONE, 1.0, **SMALL),
    "plane": lambda: dpv.verify(gaussian_trajectory, *path(1, 2, 0.4), 0.5, partition="tree", **SMALL),
    "space": lambda: dpv.verify(gaussian_trajectory, *path(1, 3, 0.4), 0.5, **SMALL),
    "steps": lambda: dpv.verify(gaussian_trajectory, *path(4, 2, 0.3), partition="grid", **SMALL),
    "many": lambda: dpv.verify(gaussian_trajectory, *path(20, 1, 0.2), 0.3, **SMALL),
    "long": lambda: dpv.verify(gaussian_trajectory, *path(9, 2, 0.2), 0.3, **SMALL),
    "far": lambda: dpv.verify(laplace, ZERO, ONE, 1000.0, **SMALL),
    "lost": lambda: dpv.verify(lost, ZERO, ONE, 1.0, nonfinite="event", **SMALL),
    "own score": lambda: dpv.verify(gaussian_trajectory, *path(2, 1, 0.4), 0.3, events=above, **SMALL),
    "evil": lambda: dpv.verify(Evil(), {"value": 0.0, "remark": EVIL}, {"value": 1.0, "remark": EVIL}, 0.5, **SMALL),
}


class Reader(HTMLParser):
    """Elements that open must close; what is asked for, what is named, what is said."""

    VOID = frozenset({"meta", "input", "br", "path", "circle"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.asked, self.handlers, self.said = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        self.asked += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag, tag

    def handle_data(self, data):
        if self.open[-1:] not in (["script"], ["style"]):
            self.said.append(data)

    @property
    def text(self):
        return " ".join("".join(self.said).split())


@functools.cache
def made(name):
    report = REPORTS[name]()
    return report, page(report)


QUICK = ("line", "values", "steps", "constant", "evil")
every_kind = pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in REPORTS]
)


@every_kind
def test_the_same_page_from_json(name, tmp_path):
    report, text = made(name)
    report.to_json(tmp_path / "report.json")
    Report.from_json(tmp_path / "report.json").to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == text


@every_kind
def test_a_page_is_whole_and_alone(name):
    report, text = made(name)
    assert len(text) < 2_000_000
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    found = Reader(text)
    assert all(address.startswith("#") for address in found.asked)
    assert len(found.ids) == len(set(found.ids))
    assert not found.handlers
    scripts = [attrs for tag, attrs in found.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "numbers"}, {}]
    assert "events outside this partition: not bounded" in found.text
    assert found.text.lower().count(report.verdict.value) == 1
    assert " ".join(report.witness.text.split()) in found.text


@every_kind
def test_every_figure_has_a_title_axes_and_a_name(name):
    figures = re.findall(r"<figure.*?</figure>", made(name)[1], re.DOTALL)
    assert len(figures) >= 3
    for figure in figures:
        assert re.search(r"<h3>[^<]+</h3>", figure)
        name = re.search(r'role="img" aria-labelledby="(\S+) (\S+)"', figure)
        assert all(re.search(f'<(title|desc) id="{part}">[^<]+<', figure) for part in name.groups())
        assert re.search(r"<figcaption>[^<]+<", figure)
        assert len(re.findall(r"<text", figure)) > 6  # ticks and names of axes: text, not outlines
        assert "#" not in "".join(re.findall(r"(?:fill|stroke): (#\w+)", figure))  # colours are the page's


def test_what_comes_from_outside_is_text():
    text = made("evil")[1]
    assert text.count("<script") == 2
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)", "", text)
    found = Reader(text)
    assert " ".join(Evil.name.split()) in found.text
    assert found.text.count("alert(1)") >= 3  # name, remark, call
    assert "sha256-" in text


def test_a_file_made_to_harm_shows_its_text(tmp_path):
    made("line")[0].to_json(tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text())
    document["run"] = {"versions": {EVIL: EVIL}, "command": EVIL, "device": EVIL, "notes": [EVIL], "seconds": {}}
    document["result"]["witness"]["text"] = document["result"]["next_step"] = EVIL
    document["result"]["settings"]["events"] = f"a:{EVIL}"
    (tmp_path / "report.json").write_text(json.dumps(document))
    text = page(Report.from_json(tmp_path / "report.json"))
    assert text.count("<script") == 2
    assert Reader(text).text.count(EVIL) >= 7
    document["result"]["picture"]["first"] = EVIL
    (tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(dpv.InputError, match="picture: no verification gives this value"):
        Report.from_json(tmp_path / "report.json")


def test_what_is_proved_and_what_is_bounded_are_no_interval():
    text = Reader(made("line")[1]).text
    for words in ("proved against: every ε below", "no union of these 17 cells goes beyond", "over all events"):
        assert words in text
    unbounded = Reader(made("constant")[1]).text
    assert "unions of these 2 cells: no finite bound" in unbounded
    assert "infinity" not in unbounded


@pytest.mark.slow
def test_a_certificate_names_its_condition():
    text = Reader(made("delta")[1]).text
    assert "certified: no event goes beyond" in text
    assert "if the stated Lipschitz constant holds" in text


def test_the_slider_reads_what_holds():
    report = made("line")[0]
    readings = read(report, report.on_partition.epsilon_upper())
    numbers = json.loads(json.dumps(embedded(report, readings), allow_nan=False))
    epsilon = np.array(numbers["epsilon"])
    tested = np.array(numbers["first" if numbers["direction"] == 1 else "second"])
    away = np.abs(epsilon - report.epsilon_lower) > 1e-9
    np.testing.assert_array_equal((tested <= report.alpha)[away], (epsilon < report.epsilon_lower)[away])
    assert epsilon[numbers["start"]] == 0.5
    assert f"{tested[numbers['start']]:.3g}" == f"{report.p_value:.3g}" == "5e-11"
    assert (np.array(numbers["lower"]) <= readings.lower).all()
    assert (np.array(numbers["upper"]) >= readings.upper - 1e-12).all()
    for i in range(0, epsilon.size, 20):  # whole curves are wider than single values
        assert numbers["lower"][i] <= report.delta_lower(epsilon[i])
        assert numbers["upper"][i] >= report.on_partition.delta_upper(epsilon[i]) - 1e-9


def test_a_small_p_value_is_told_in_one_way():
    report, text = made("line")
    assert "p-value <= 5e-11 " in str(report)
    assert "Its p-value is at most 5e\u201111." in text
    assert ">≤ 5e-11</output>" in text
    assert "drawn no lower than 0.0001." in text


def test_skipping_level_stretches_changes_nothing():
    at = np.linspace(0, 2, 41)

    def p(epsilon):
        return claim_p_value(520, 200, 1000, epsilon)

    np.testing.assert_allclose(monotone(p, at), [p(e) for e in at], rtol=1e-5)


def test_between_nodes_the_bound_runs_on_chords_in_the_exponential():
    """From exact values at the nodes; chords in epsilon itself would fall below the truth."""
    p, q = np.array([0.02, 0.18, 0.3, 0.5]), np.array([0.001, 0.05, 0.349, 0.6])
    nodes, at = np.array(PROFILE_EPSILONS, float), np.linspace(0, 5, 501)

    def delta(epsilons):
        return np.maximum(p - np.exp(np.asarray(epsilons))[:, None] * q, 0).sum(1)

    assert (between_nodes(nodes, delta(nodes), at) >= delta(at) - 1e-12).all()
    assert (np.interp(at, nodes, delta(nodes)) < delta(at) - 1e-6).any()


def test_the_command_line_draws_and_remembers_itself(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def laplace(data, runs, rng):\n    return data.sum() + rng.laplace(size=(runs, 1))\n"
    )
    (tmp_path / "a.txt").write_text("0\n")
    (tmp_path / "b.txt").write_text("1\n")
    given = ["verify", "mine.py:laplace", "--first", "a.txt", "--second", "b.txt", "--set", "test_runs=5000"]
    assert main([*given, "--json", "r.json", "--html", "live page.html", "--quiet"]) == 0
    assert main(["report", "r.json", "--html", "again.html"]) == 0
    assert capsys.readouterr().out == ""
    live = (tmp_path / "live page.html").read_text()
    assert live == (tmp_path / "again.html").read_text()
    assert "dpverify verify mine.py:laplace --first a.txt --second b.txt --set test_runs=5000" in live
    assert main(["report", "r.json", "--html", "nowhere/again.html"]) == 2
    assert "expected a place that can be written" in capsys.readouterr().err


def test_without_a_command_the_call_is_given():
    report = REPORTS["paper"]()
    call = again(report).replace("mechanism, first, second", "gaussian_trajectory, *path(3, 2, 0.4)")
    assert "Settings.paper()" in call
    assert eval(call.splitlines()[-1], {**globals(), "dpv": dpv}) == report


def test_a_notebook_gets_a_frame():
    text = made("line")[0]._repr_html_()
    assert text.startswith("<iframe srcdoc=")
    assert text.count("<") == 2  # the frame; the page is all escaped


def test_without_the_extra_one_line_and_plain_text(monkeypatch, tmp_path):
    report = made("line")[0]
    monkeypatch.setitem(sys.modules, "dpverify.render.page", None)
    with pytest.raises(dpv.InputError, match=r"install dpverify\[report\]"):
        report.to_html(tmp_path / "page.html")
    assert report._repr_html_() is None
    missing = ["verify", "mine.py:laplace", "--first", "a", "--second", "b", "--html", "p"]
    assert main(missing) == 2  # before anything is run


ROWS = [
    {"mechanism": name, "parameter": s, "epsilon_lower": s * k, "epsilon_upper": upper, "error": 1 / (s * k)}
    for k, (name, upper) in enumerate([("W2-MHE", 9.0), (EVIL, math.inf), ("EKF", None)], start=1)
    for s in (0.5, 1.0)
]


def test_a_comparison():
    around = np.stack([np.cos(np.arange(5)), np.sin(np.arange(5))], axis=1)
    chart = privacy_map(around, np.arange(5.0), names=[EVIL, *"bcde"], target=[0.0, 0.0], unit="m")
    text = comparison(ROWS, title=f"A study {EVIL}", error_name="RMSE (m)", drawings=[chart])
    assert not re.search(r"https?:", text)
    assert "<script" not in text
    found = Reader(text)
    assert found.text.count(EVIL) > 4
    assert "horizontal position (m)" in found.text
    assert sum(tag == "figure" for tag, _ in found.tags) == 2
    assert sum(tag == "tr" for tag, _ in found.tags) == 1 + len(ROWS)
    with pytest.raises(dpv.InputError, match="found a row without error"):
        comparison([{"mechanism": "a", "parameter": 1, "epsilon_lower": 0.0}])
    with pytest.raises(dpv.InputError, match="found no rows"):
        comparison([])


def test_each_mechanism_on_each_pair_is_a_line():
    rows = [{**row, "pair": "shifted", "pair.by": by} for by in (0.5, 2.0) for row in ROWS]
    drawn = tradeoff(rows)
    axes = drawn.figure.axes[0]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == [f"{name} on shifted (by {by})" for by in ("0.5", "2") for name in ("W2-MHE", EVIL, "EKF")]
    assert axes.get_xlim()[0] < 0  # a mark at 0 is seen whole
    assert "pair.by" in comparison(rows)
    assert "standard errors" not in drawn.caption
    assert "Bars are two standard errors" in tradeoff([{**row, "error_se": 0.1} for row in rows]).caption


@pytest.mark.parametrize(
    ("positions", "epsilons"), [(np.zeros((3, 3)), np.ones(3)), (np.zeros((3, 2)), np.ones(2)), ([[0, 0]], [math.inf])]
)
def test_a_map_of_something_else_is_refused(positions, epsilons):
    with pytest.raises(dpv.InputError, match="privacy_map: found"):
        privacy_map(positions, epsilons)


def test_a_map_of_one_place_and_of_nothing_proved():
    assert "at least 0" in privacy_map([[1.0, 2.0]], [0.0]).description


def test_the_script_is_small_and_asks_for_nothing():
    assert len(SCRIPT) < 4000
    assert not re.search(r"fetch|XMLHttp|import|eval|innerHTML|https?:", SCRIPT)
