"""The reproduction and the gallery use public names only, so that the public interface is known to be enough."""

from pathlib import Path

import pytest
from public_names import is_public, private_names

import dpverify.render
import dpverify.studies

PROJECT = Path(__file__).parent.parent


@pytest.mark.parametrize("folder", [PROJECT / name for name in ("gallery", "reproduction")], ids=lambda path: path.name)
def test_folders_outside_the_package_use_public_names_only(folder):
    if not folder.is_dir():
        pytest.skip(f"{folder.name} does not exist")
    assert private_names(folder) == []


@pytest.mark.parametrize(
    "line",
    [
        "from dpverify.pipeline import verify",
        "import dpverify.stats.binomial",
        "from dpverify.studies.engine import run_jobs",
        "from dpverify.studies import run_jobs",
        "import dpverify as dpv\ndpv.pipeline.run_verification",
        "import dpverify as dpv\ndpv.studies.engine.make_row",
        "from dpverify import claims\nclaims.CLAIM_KINDS",
        "from dpverify import pipeline",
        "def f():\n    from dpverify import pipeline",
    ],
)
def test_a_name_that_is_not_public_is_found(tmp_path, line):
    (tmp_path / "module.py").write_text(line)
    assert private_names(tmp_path)


def test_public_names_are_not_reported(tmp_path):
    lines = (
        "import dpverify as dpv\nimport numpy as np\nfrom dpverify.studies import Job\n"
        "dpv.claims.pure(1.0).group(2)\ndpv.studies.verify_many\ndpv.render.Page\nnp.linalg.norm\n"
    )
    (tmp_path / "module.py").write_text(lines)
    assert private_names(tmp_path) == []


@pytest.mark.parametrize("module", [dpverify.render, dpverify.studies])
def test_every_public_name_exists(module):
    assert all(getattr(module, name) is not None for name in module.__all__)
    assert is_public(f"{module.__name__}.{module.__all__[0]}")
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        module.missing  # noqa: B018
