"""Fingerprints by value, and hashes of source files."""

import datetime
import decimal
import enum
import fractions
import functools
import importlib
import subprocess
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest

import dpverify as dpv
from dpverify.util.hashing import fingerprint
from dpverify.util.sources import changed_sources, source_hashes


class Colour(enum.Enum):
    RED = 1
    GREEN = 2


class Plain:
    """An object that is neither plain data nor a dataclass."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def method(self):
        return self


PAIRS = [  # two values of one kind, which were one value when kinds were hashed by name
    (datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)),
    (datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)),
    (datetime.time(1), datetime.time(2)),
    (datetime.timedelta(1), datetime.timedelta(2)),
    (decimal.Decimal("1.0"), decimal.Decimal("1.1")),
    (fractions.Fraction(1, 2), fractions.Fraction(1, 3)),
    (Path("a"), Path("b")),
    ({1, 2}, {1, 3}),
    (frozenset("ab"), frozenset("ac")),
    (Colour.RED, Colour.GREEN),
    (np.float32(1), np.float32(2)),
    (np.float32(1), np.float64(1)),
    (range(3), range(4)),
    (bytearray(b"a"), bytearray(b"b")),
    (Plain(a=1), Plain(a=2)),
    (Plain(a={"x", "y"}), Plain(a={"x", "z"})),
    (Plain(a=1).method, Plain(a=2).method),
    (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    (np.random.default_rng(1), np.random.default_rng(2)),
    (functools.partial(max, 1), functools.partial(max, 2)),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: type(pair[0]).__name__)
def test_values_of_one_kind_have_different_fingerprints(pair):
    first, second = pair
    assert fingerprint(first) != fingerprint(second)
    assert fingerprint([first]) == fingerprint([first])


def test_the_fingerprints_of_plain_data_never_change():
    """Checkpoint folders and studies contain them. A new setting must not change the identity of the default ones."""
    value = (1, "a", 2.5, None, True, b"x", [1, (2,)], {"k": np.arange(3, dtype=np.int64)})
    assert fingerprint(value) == "de1f33888759af0181ccb1bdc86e2083bb20b361780fc0f01e98c48bf1ef2790"
    assert fingerprint(dpv.Settings().identity) == "582a133423e43765ee72fe3148bd04a7b8369a93f155f10eb7184653330e0939"
    assert (
        fingerprint((len, np.sum, dpv.Settings)) == "f49f79ee3d7ef8b70cf593829c78af2b9eeae582ff65b094891b07142f222cf2"
    )


def test_a_fingerprint_does_not_depend_on_the_process():
    code = (
        "import types; from dpverify.util.hashing import fingerprint; a = 'x' * 9; "
        "print(fingerprint(types.SimpleNamespace(names={'a', 'b', 'c', 'd'}, twice=[a, {}])))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in "123"
    }  # fmt: skip
    value = types.SimpleNamespace(names={"a", "b", "c", "d"}, twice=["xxxxxxxxx", {}])
    assert found == {fingerprint(value) + "\n"}


def test_an_object_that_contains_itself_has_a_fingerprint():
    first, second = Plain(a=1), Plain(a=2)
    first.me, second.me = first, second
    assert fingerprint(first) != fingerprint(second)


def test_an_object_without_a_value_is_refused_in_one_line():
    message = r"_thread.lock: found an object that cannot be hashed \(cannot pickle '_thread.lock' object\); expected"
    with pytest.raises(dpv.InputError, match=message) as caught:
        fingerprint({"a": Plain(lock=threading.Lock())})
    assert "\n" not in str(caught.value)


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A package of the user: a module that imports others in several ways."""
    files = {
        "own_main.py": "import numpy as np, json\nfrom own_package import inner\nfrom own_package.deep import f\n"
        "def g():\n    import own_lazy\n    import importlib\n    importlib.import_module('own_named')\n",
        "own_lazy.py": "VALUE = 1\n",
        "own_named.py": "import own_main\n",
        "own_unused.py": "",
        "own_package/__init__.py": "",
        "own_package/inner.py": "from . import other\nfrom .deep import f\n",
        "own_package/other.py": "",
        "own_package/deep.py": "def f():\n    pass\n",
        "own_package/unused.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


def test_all_imports_from_the_folders_of_the_user_count(modules):
    hashes = source_hashes(importlib.import_module("own_main").g)
    assert list(hashes) == [
        "own_lazy.py",
        "own_main.py",
        "own_named.py",
        "own_package/__init__.py",
        "own_package/deep.py",
        "own_package/inner.py",
        "own_package/other.py",
    ]
    assert "own_lazy" not in sys.modules  # nothing is executed


def test_a_wrapped_function_is_found(modules):
    function = importlib.import_module("own_package.deep").f
    for wrapped in (function, dpv.per_run(function), functools.partial(function), Plain(inner=function)):
        hashes = source_hashes(wrapped)
        assert {"own_package/__init__.py", "own_package/deep.py"} <= set(hashes)
    assert "own_package/deep.py" in source_hashes(dpv.per_run(lambda data, rng: function))


def test_libraries_do_not_count():
    assert source_hashes(np.sum, dpv.rmse([0.0]), Path, dpv.verify) == {}


def test_a_loaded_module_keeps_the_hash_of_what_was_loaded(modules):
    """A file that is edited while its old code is in memory does not change what is run."""
    module = importlib.import_module("own_lazy")
    before = source_hashes(modules=["own_lazy"])
    (modules / "own_lazy.py").write_text("VALUE = 22\n")
    assert source_hashes(modules=["own_lazy"]) == before
    importlib.reload(module)
    assert changed_sources(before, source_hashes(modules=["own_lazy"])) == ("own_lazy.py",)


def test_a_function_has_the_fingerprint_of_its_sources(modules):
    before = fingerprint(importlib.import_module("own_main").g)
    plain = fingerprint(importlib.import_module("own_main").g, sources=False)
    (modules / "own_lazy.py").write_text("VALUE = 22\n")
    assert fingerprint(importlib.import_module("own_main").g) != before
    assert fingerprint(importlib.import_module("own_main").g, sources=False) == plain


def test_code_without_a_file_counts():
    """In a notebook there is no file; the compiled code is hashed."""
    made = []
    for text in ("lambda: 1", "lambda: 2", "\n\nlambda: 1"):
        made.append(eval(text.strip(), {"__name__": "no_such_module"}))
    first, second, third = (source_hashes(function) for function in made)
    assert list(first) == ["<lambda>"]
    assert first == third != second


def test_a_program_counts_as_a_source(tmp_path):
    path = tmp_path / "noise.sh"
    path.write_text("#!/bin/sh\n")
    before = source_hashes(dpv.program([sys.executable, path]))
    assert list(before) == ["noise.sh"]
    path.write_text("#!/bin/sh\n# changed\n")
    assert changed_sources(before, source_hashes(dpv.program([sys.executable, path]))) == ("noise.sh",)
