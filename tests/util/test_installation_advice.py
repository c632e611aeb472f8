"""What to install if an optional package is missing: the advice does not assume a package index."""

import subprocess
import sys

import pytest

import dpverify as dpv
from dpverify.errors import how_to_install


def test_estimation_without_jax_gives_one_clear_line():
    code = "import sys; sys.modules['jax'] = None\nimport dpverify.estimation"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: dpverify.estimation: ")
    assert how_to_install("estimation") in last
    assert "During handling" not in ended.stderr


def test_a_page_without_its_packages_says_how_to_install_them(monkeypatch, tmp_path):
    report = dpv.verify(lambda data, runs, rng: data + rng.laplace(size=runs), 0.0, 1.0, select_runs=100, test_runs=100)
    monkeypatch.setitem(sys.modules, "dpverify.render.pages", None)
    with pytest.raises(dpv.InputError) as caught:
        report.to_html(tmp_path / "page.html")
    assert 'pip install ".[report]" in a clone of dpverify' in str(caught.value)
