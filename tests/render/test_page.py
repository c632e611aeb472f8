"""Pages without a browser: they parse, load nothing from a network, and escape all text from outside."""

import functools
import json
import math
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.text import Text

import dpverify as dpv
from dpverify import Report
from dpverify.cli import main
from dpverify.render import report_page, tradeoff
from dpverify.render.builder import SCRIPT
from dpverify.report.json import with_checksum
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 2000, "test_runs": 10_000, "block": 1000}  # few blocks take less time
EVIL = "</script><script>alert(1)</script>"


def largest(data, runs, rng):
    return (data + rng.laplace(size=(runs, 4))).argmax(1)


def constant(data, runs, rng):
    return np.full((runs, 1), np.sum(data))


def nonfinite(data, runs, rng):
    """Returns no finite output for the second dataset."""
    return np.where(np.sum(data) > 0, np.nan, rng.standard_cauchy(runs))


def user_score(samples):
    return samples[:, 0, 0]


class Evil:
    """A mechanism whose name and remarks contain a script."""

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
    "nonfinite": lambda: dpv.verify(nonfinite, ZERO, ONE, 1.0, nonfinite="event", **SMALL),
    "user score": lambda: dpv.verify(gaussian_trajectory, *path(2, 1, 0.4), 0.3, events=user_score, **SMALL),
    "no answer": lambda: dpv.verify(laplace, ZERO, ZERO, 0.5, **SMALL),
    "evil": lambda: dpv.verify(Evil(), {"value": 0.0, "remark": EVIL}, {"value": 1.0, "remark": EVIL}, 0.5, **SMALL),
}


class Reader(HTMLParser):
    """A parser that checks that elements are closed and collects identifiers, addresses, handlers and text."""

    VOID = frozenset({"meta", "input", "br", "path", "circle"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.addresses, self.handlers, self.texts = [], [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset", "action", "data")]
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
            self.texts.append(data)

    @property
    def text(self):
        return " ".join("".join(self.texts).split())


@functools.cache
def report_and_page(name):
    report = REPORTS[name]()
    return report, report_page(report).html()


QUICK = ("line", "values", "steps", "constant", "no answer", "evil")
KINDS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in REPORTS]
every_kind = pytest.mark.parametrize("name", KINDS)
every_answer = pytest.mark.parametrize("name", [name for name in KINDS if name != "no answer"])


@every_kind
def test_a_report_from_json_gives_the_same_page(name, tmp_path):
    report, text = report_and_page(name)
    report.to_json(tmp_path / "report.json")
    Report.from_json(tmp_path / "report.json").to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == text


@every_answer
def test_a_page_is_complete_and_loads_nothing(name):
    report, text = report_and_page(name)
    assert len(text) < 2_000_000
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", text)
    found = Reader(text)
    assert all(address.startswith("#") for address in found.addresses)
    assert {address[1:] for address in found.addresses if address.startswith("#term")} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert not found.handlers
    scripts = [attrs for tag, attrs in found.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "numbers"}, {}]
    assert "events that split a cell were not checked" in found.text.lower()
    assert text.count("<h1>") == 1
    places = [
        found.text.index(words) for words in ("Claimed:", "This means:", "What to do:", "Bounds", "For statisticians")
    ]
    assert places == sorted(places)
    assert " ".join(report.witness.text.split()) in found.text
    assert report.digest in found.text


@every_answer
def test_every_figure_has_a_title_labels_and_a_description(name):
    report, text = report_and_page(name)
    figures = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    assert len(figures) >= 3
    for figure in figures:
        assert re.search(r"<h3>[^<]+</h3>", figure)
        named = re.search(r'role="img" aria-labelledby="(\S+) (\S+)"', figure)
        assert all(re.search(f'<(title|desc) id="{part}">[^<]+<', figure) for part in named.groups())
        assert len(re.findall(r"<text", figure)) > 2  # ticks and labels of axes are text, not outlines
        assert "#" not in "".join(re.findall(r"(?:fill|stroke): (#\w+)", figure))  # colours are CSS variables
        assert (
            min(map(float, re.findall(r"font(?:-size)?: ([\d.]+)px", figure))) >= 9.5
        )  # 11 px on a phone, see TEXT_SIZE
    assert report.witness.text in Reader(text.replace("<desc", "<p").replace("</desc", "</p")).text.replace("\n", " ")


def test_text_from_a_mechanism_is_escaped():
    text = report_and_page("evil")[1]
    assert text.count("<script") == 2
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)", "", text)
    found = Reader(text)
    assert " ".join(Evil.name.split()) in found.text
    assert found.text.count("alert(1)") >= 3  # name, remark, call
    assert "sha256-" in text


def test_text_from_a_report_file_is_escaped(tmp_path):
    report_and_page("line")[0].to_json(tmp_path / "report.json")
    document = json.loads((tmp_path / "report.json").read_text())
    document["provenance"] = {"versions": {EVIL: EVIL}, "command": EVIL, "device": EVIL, "notes": [EVIL], "seconds": {}}
    for event in document["result"]["tested"]:
        event["text"] = EVIL
    document["result"]["settings"]["events"] = f"a:{EVIL}"
    (tmp_path / "report.json").write_text(json.dumps(with_checksum(document)))
    text = report_page(Report.from_json(tmp_path / "report.json")).html()
    assert text.count("<script") == 2
    assert Reader(text).text.count(EVIL) >= 7
    document["result"]["picture"]["first"] = EVIL
    (tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(dpv.InputError, match="found another checksum"):
        Report.from_json(tmp_path / "report.json")


def test_the_lower_and_the_upper_bound_are_separate_statements():
    text = Reader(report_and_page("line")[1]).text
    assert re.search(r"ε ≥ [\d.]+ at δ = 0 \(95% confidence\), for these two datasets", text)
    assert re.search(r"ε at most [\d.]+ at δ = 0 over the 17 cells \(95% confidence\)", text)
    unbounded = Reader(report_and_page("constant")[1]).text
    assert "No finite upper bound on ε at δ = 0 over the 2 cells" in unbounded
    assert "infinity" not in unbounded


def test_what_an_observer_learns():
    report, text = report_and_page("line")
    at_least, allowed = report.observer_certainty
    assert at_least == pytest.approx(1 / (1 + math.exp(-report.epsilon_lower)))
    assert allowed == pytest.approx(1 / (1 + math.exp(-0.5)))
    words = f"at least {math.floor(1000 * at_least) / 10:g}% sure after seeing the witness; the claim allows 62.2%."
    assert words in Reader(text).text
    with_delta = report.against(0.1, 0.05)
    larger, smaller = (with_delta.witness.probabilities[side - 1] for side in with_delta.witness.direction)
    p, q = larger[1], smaller[2]
    allowed = math.exp(0.1) * q + 0.05
    assert with_delta.observer_certainty == pytest.approx((p / (p + q), allowed / (allowed + q)))
    assert report_and_page("no answer")[0].observer_certainty is None


def test_a_page_without_an_answer_has_the_reason_and_no_number():
    report, text = report_and_page("no answer")
    found = Reader(text)
    diagnostic, text = report.voiding[0], text[text.index("<h1>") :]
    cause, remedy = (text.lower().index(words) for words in (diagnostic.cause, diagnostic.remedy))
    assert 0 < cause < remedy < text.index("<section")
    assert "<figure" not in text
    assert not [tag for tag, _ in found.tags if tag in ("use", "input")]
    assert not re.search("ε ≥|ε is at|p-value|9[0-9.]*% confidence", found.text)
    assert "<figure" in report_and_page("line")[1]


@pytest.mark.slow
def test_a_bound_over_all_events_states_its_condition():
    text = Reader(report_and_page("delta")[1]).text
    words = r"ε ≤ [\d.]+ at δ = 0.05 \(95% confidence\), over all events. Provided that the stated"
    assert re.search(words, text)


def test_a_small_p_value_is_an_upper_bound_everywhere():
    report, text = report_and_page("line")
    assert "p-value   at most 5e-11, of the 3 tested events together; 0.05 refutes" in str(report)
    assert ">≤ 5e-11</output>" in text
    assert "p-values below 0.0001 are drawn at 0.0001." in text


def test_the_command_line_makes_a_page_that_shows_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def laplace(data, runs, rng):\n    return data.sum() + rng.laplace(size=(runs, 1))\n"
    )
    (tmp_path / "a.txt").write_text("0\n")
    (tmp_path / "b.txt").write_text("1\n")
    given = ["verify", "mine.py:laplace", "--first", "a.txt", "--second", "b.txt", "--set", "test_runs=5000"]
    assert main([*given, "--json", "r.json", "--html", "live page.html", "--quiet"]) == 0
    assert main(["report", "r.json", "--html", "again.html", "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    live = (tmp_path / "live page.html").read_text()
    assert live == (tmp_path / "again.html").read_text()
    assert "dpverify verify mine.py:laplace --first a.txt --second b.txt --set test_runs=5000" in live
    assert main(["report", "r.json", "--html", "nowhere/again.html"]) == 2
    assert "expected a path that can be written" in capsys.readouterr().err


def test_a_notebook_shows_the_page_in_a_frame():
    text = report_and_page("line")[0]._repr_html_()
    assert text.startswith("<iframe srcdoc=")
    assert text.count("<") == 2  # the frame only: the page is escaped


def test_without_the_optional_packages_there_is_an_error_and_plain_text(monkeypatch, tmp_path):
    report = report_and_page("line")[0]
    monkeypatch.setitem(sys.modules, "dpverify.render.pages", None)
    with pytest.raises(dpv.InputError, match="expected matplotlib and MarkupSafe"):
        report.to_html(tmp_path / "page.html")
    assert report._repr_html_() is None
    missing = ["verify", "mine.py:laplace", "--first", "a", "--second", "b", "--html", "p"]
    assert main(missing) == 2  # before the mechanism is called


ROWS = [
    {"mechanism": name, "parameter": s, "epsilon_lower": s * k, "epsilon_upper": upper, "error": 1 / (s * k)}
    for k, (name, upper) in enumerate([("W2-MHE", 9.0), (EVIL, math.inf), ("EKF", None)], start=1)
    for s in (0.5, 1.0)
]


def test_each_mechanism_on_each_pair_is_a_line():
    rows = [{**row, "pair": "shifted", "pair.by": by} for by in (0.5, 2.0) for row in ROWS]
    drawing = tradeoff(rows)
    names = [f"{name} on shifted (by {by})" for by in ("0.5", "2") for name in ("W2-MHE", EVIL, "EKF")]
    assert [key.text for key in drawing.keys][:-1] == names
    assert len({key[:2] for key in drawing.keys}) == 7  # colour and mark together identify a line
    axes = drawing.figure.axes[0]
    assert axes.get_xlim()[0] < 0  # a marker at 0 is not cut off
    assert "0.5" in {text.get_text() for text in axes.texts}  # the parameter
    assert "standard errors" not in drawing.caption
    assert "Bars are two standard errors" in tradeoff([{**row, "error_se": 0.1} for row in rows]).caption
    unbounded = tradeoff([{**row, "epsilon_upper": math.inf} for row in rows])
    assert [key.mark for key in unbounded.keys].count("open") == 0


def test_the_script_is_small_and_loads_nothing():
    assert len(SCRIPT) < 4000
    assert not re.search(r"fetch|XMLHttp|import|eval|innerHTML|https?:", SCRIPT)


def test_the_headline_has_a_number():
    """A reader who sees nothing else knows what was found."""
    report = dpv.verify(laplace, ZERO, ONE, 1.0, select_runs=2000, test_runs=20_000)
    for claim, words in {
        0.5: r"Refuted at 95% confidence, strong evidence: ε is at least 0\.9\d+, not 0\.5\.",
        2.0: r"Not refuted: ε is at least 0\.9\d+, which the claim allows\.",
        1.0: r"Not refuted: ε is at least 0\.9\d+, which the claim allows\.",
        None: r"Measured: ε is at least 0\.9\d+\.",
    }.items():
        assert re.fullmatch(words, report_page(report.against(claim)).title)


@pytest.mark.parametrize("claimed", [0.02, 0.5, 0.9])
@pytest.mark.parametrize("kind", ["delta", "p-value"])
def test_names_of_lines_stay_inside_a_figure(claimed, kind):
    figure = report_and_page("line")[0].against(claimed).plot(kind)
    figure.draw_without_rendering()
    frame = figure.axes[0].get_window_extent()
    names = [text for text in figure.axes[0].texts if "ε" in text.get_text()]
    assert names
    for box in (Text.get_window_extent(name) for name in names):
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1


def test_names_and_units_of_the_mechanism_are_used():
    class Tracker:
        output_names, output_units, times = ("position", "speed"), ("m", "m/s"), (0.0, 0.5, 1.0)

        def __call__(self, data, runs, rng):
            return data + rng.laplace(size=(runs, 3, 2))

    data = np.zeros((3, 2)), 2.0 * (np.arange(6).reshape(3, 2) == 2)
    report = dpv.verify(Tracker(), *data, 0.5, select_runs=1000, test_runs=4000)
    assert "position at time 0.5" in report.witness.text
    text = report_page(report).html()
    assert "position (m)" in text
    assert "time 0.5" in text
    Tracker.times = (1.0,)
    wrong = dpv.verify(Tracker(), *data, 0.5, select_runs=1000, test_runs=4000)
    assert "times: found (1.0,); expected 3 entries; they are not used" in wrong.notes
    assert "step 1 position" in wrong.witness.text
