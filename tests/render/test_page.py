"""Pages without a browser: they parse, load nothing from a network, and escape all text from outside."""

import functools
import io
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
from dpverify.render.content import BoundTrack
from dpverify.render.figures import privacy_map, tradeoff
from dpverify.render.page import NUMBER_WIDTH, SCRIPT, _place_track, comparison, report_page
from dpverify.render.terms import mark_terms
from dpverify.report.json import with_checksum
from dpverify.report.page import page, page_content
from mechanisms import ONE, ZERO, gaussian_trajectory, laplace

SMALL = {"select_runs": 2000, "test_runs": 10_000, "block": 1000}  # few blocks take less time
EVIL = "</script><script>alert(1)</script>"


def largest(data, runs, rng):
    return (data + rng.laplace(size=(runs, 4))).argmax(1)


def constant(data, runs, rng):
    return np.full((runs, 1), np.sum(data))


def nonfinite(data, runs, rng):
    """Returns no finite output for the second data set."""
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
    return report, page(report)


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
    assert len(found.ids) == len(set(found.ids))
    assert not found.handlers
    scripts = [attrs for tag, attrs in found.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "numbers"}, {}]
    assert "events that split a cell were not checked" in found.text
    assert text.count("<h1>") == 1
    for name in ("Claimed", "Found", "This means", "What to do"):
        assert f"<dt>{name}</dt>" in text
    assert " ".join(report.witness.text.split()) in found.text


@every_answer
def test_every_figure_has_a_title_labels_and_a_description(name):
    figures = re.findall(r"<figure.*?</figure>", report_and_page(name)[1], re.DOTALL)
    assert len(figures) >= 3
    for figure in figures:
        assert re.search(r"<h3>[^<]+</h3>", figure)
        name = re.search(r'role="img" aria-labelledby="(\S+) (\S+)"', figure)
        assert all(re.search(f'<(title|desc) id="{part}">[^<]+<', figure) for part in name.groups())
        assert re.search(r"<figcaption>[^<]+<", figure)
        assert len(re.findall(r"<text", figure)) > 6  # ticks and labels of axes are text, not outlines
        assert "#" not in "".join(re.findall(r"(?:fill|stroke): (#\w+)", figure))  # colours are CSS variables


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
    text = page(Report.from_json(tmp_path / "report.json"))
    assert text.count("<script") == 2
    assert Reader(text).text.count(EVIL) >= 7
    document["result"]["picture"]["first"] = EVIL
    (tmp_path / "report.json").write_text(json.dumps(document))
    with pytest.raises(dpv.InputError, match="found another checksum"):
        Report.from_json(tmp_path / "report.json")


def test_the_lower_and_the_upper_bound_are_separate_statements():
    text = Reader(report_and_page("line")[1]).text
    for words in (
        "every smaller ε is refuted by the witness",
        "over these 17 cells",
        "excluded for unions of cells only",
    ):
        assert words in text
    unbounded = Reader(report_and_page("constant")[1]).text
    assert "no upper bound over these 2 cells" in unbounded
    assert "infinity" not in unbounded


def test_a_lower_bound_on_delta_above_the_upper_bound_is_explained():
    content = page_content(report_and_page("line")[0])
    found = content.findings
    count = len(found.slider.epsilon)

    def is_hidden(lower, upper):
        slider = found.slider._replace(delta_lower=[lower] * count, delta_upper=[upper] * count)
        changed = content._replace(findings=found._replace(slider=slider))
        (tag,) = re.findall(r'<p class="outcome" id="crossed"[^>]*>', report_page(changed))
        return " hidden" in tag

    assert not is_hidden(0.9999, 0.9633)
    assert is_hidden(0.5, 0.5)
    assert is_hidden(0.1, 0.9633)


def test_a_page_without_an_answer_has_the_reason_and_no_number():
    report, text = report_and_page("no answer")
    found = Reader(text)
    diagnostic = report.voiding[0]
    cause, remedy = (text.lower().index(words) for words in (diagnostic.cause, diagnostic.remedy))
    assert text.index("<h1>") < cause < remedy < text.index("<section")
    assert "<figure" not in text
    assert not [tag for tag, _ in found.tags if tag in ("script", "svg", "input")]
    assert not re.search("ε is at|p-value of the claim|confidence 9", text.partition("The words on this page")[0])
    assert "<figure" in report_and_page("line")[1]


@pytest.mark.slow
def test_a_bound_over_all_events_states_its_condition():
    text = Reader(report_and_page("delta")[1]).text
    assert re.search(r"ε is at most \S+ over all events", text)
    assert "if the stated Lipschitz constant holds" in text


def test_a_small_p_value_is_an_upper_bound_everywhere():
    report, text = report_and_page("line")
    assert "p-value <= 5e-11 " in str(report)
    assert "of the claim is at most 5e\u201111." in text
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
    monkeypatch.setitem(sys.modules, "dpverify.report.page", None)
    with pytest.raises(dpv.InputError, match=r'install "dpverify\[report\]"'):
        report.to_html(tmp_path / "page.html")
    assert report._repr_html_() is None
    missing = ["verify", "mine.py:laplace", "--first", "a", "--second", "b", "--html", "p"]
    assert main(missing) == 2  # before the mechanism is called


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
    drawing = tradeoff(rows)
    axes = drawing.figure.axes[0]
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == [f"{name} on shifted (by {by})" for by in ("0.5", "2") for name in ("W2-MHE", EVIL, "EKF")]
    assert axes.get_xlim()[0] < 0  # a marker at 0 is not cut off
    assert "pair.by" in comparison(rows)
    assert "standard errors" not in drawing.caption
    assert "Bars are two standard errors" in tradeoff([{**row, "error_se": 0.1} for row in rows]).caption


def test_the_legend_of_privacy_against_accuracy_has_what_is_drawn():
    row = {"mechanism": "a", "parameter": 3.7306, "epsilon_lower": 1.0, "error": 0.5}
    lower, upper = tradeoff([{**row, "epsilon_upper": 1.5}]).keys
    assert (lower.colour, upper.colour, upper.mark) == ("first", "first", "open")
    assert len(tradeoff([{**row, "epsilon_upper": math.inf}]).keys) == 1  # no upper bound is drawn
    drawing = tradeoff([{**row, "epsilon_upper": 1.5}, {**row, "mechanism": "b"}])
    assert all(key.colour == "muted" and "in the colour of its line" in key.text for key in drawing.keys)
    assert "3.7306" in {text.get_text() for text in drawing.figure.axes[0].texts}


@pytest.mark.parametrize(
    ("positions", "epsilons"), [(np.zeros((3, 3)), np.ones(3)), (np.zeros((3, 2)), np.ones(2)), ([[0, 0]], [math.inf])]
)
def test_a_map_rejects_invalid_input(positions, epsilons):
    with pytest.raises(dpv.InputError, match="privacy_map: found"):
        privacy_map(positions, epsilons)


def test_labels_of_neighbours_on_a_map_do_not_overlap():
    """Ten sensors, five of them close together; the boxes of the drawn texts are disjoint."""
    angles = np.array([0.1, 0.12, 0.14, 0.2, 0.21, 1.5, 2.0, 3.1, 3.2, 5.0])
    chart = privacy_map(14 * np.stack([np.cos(angles), np.sin(angles)], axis=1), 5 + np.arange(10.0))
    chart.figure.savefig(io.BytesIO(), format="svg")
    labels = [text for text in chart.figure.axes[0].texts if ": " in text.get_text()]
    boxes = [Text.get_window_extent(text) for text in labels]  # without the line to the disc
    assert len(boxes) == 10
    overlaps = [a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert not any(overlaps)


def test_a_map_of_one_position_with_epsilon_zero():
    assert "at least 0" in privacy_map([[1.0, 2.0]], [0.0]).description


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
        assert re.fullmatch(words, page_content(report.against(claim)).headline)


@pytest.mark.parametrize("claim", [None, 0.3, 0.79, 0.8, 0.81, 0.95, 1.5])
@pytest.mark.parametrize("bound", [0.02, 0.5, 0.8, 0.99])
def test_the_claim_never_crosses_the_number_of_a_bar(claim, bound):
    at = None if claim is None else min(100 * claim, 100.0)
    for track in (
        BoundTrack("proved", "", "", 0.0, bound, "0.1234"),
        BoundTrack("cells", "", "", bound, None, "0.1"),
    ):
        style = _place_track(track, 1.0, at).number_style
        position = float(re.match(r"(?:left|right): ([\d.]+)", style)[1])
        start = position if style.startswith("left") else 100 - position - NUMBER_WIDTH
        assert start >= 0
        assert at is None or not start < at < start + NUMBER_WIDTH, style


def test_terms_are_defined_on_hover():
    text = str(mark_terms("over the <cells>, cells & cells"))
    assert text.count("<abbr") == 1
    assert "&lt;<abbr title" in text


def test_names_and_units_of_the_mechanism_are_used():
    class Tracker:
        output_names, output_units, times = ("position", "speed"), ("m", "m/s"), (0.0, 0.5, 1.0)

        def __call__(self, data, runs, rng):
            return data + rng.laplace(size=(runs, 3, 2))

    data = np.zeros((3, 2)), 2.0 * (np.arange(6).reshape(3, 2) == 2)
    report = dpv.verify(Tracker(), *data, 0.5, select_runs=1000, test_runs=4000)
    assert "position at time 0.5" in report.witness.text
    text = page(report)
    assert "position (m)" in text
    assert "time 0.5" in text
    Tracker.times = (1.0,)
    wrong = dpv.verify(Tracker(), *data, 0.5, select_runs=1000, test_runs=4000)
    assert "times: found (1.0,); expected 3 entries; they are not used" in wrong.notes
    assert "step 1 position" in wrong.witness.text
