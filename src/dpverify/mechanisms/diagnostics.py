"""Diagnostics: findings about a mechanism or a pair of datasets that a reader of the report must know.

Each diagnostic is a member of an enum. Code compares members; the value of a member is the sentence that people read.
A voiding diagnostic means that the test has no answer: the verdict of the report is then `NO_ANSWER`. Its
sentence states the cause and, after the first semicolon, the remedy.
"""

from __future__ import annotations

import enum
import os
from pathlib import Path

from dpverify.errors import InputError, describe_exception
from dpverify.mechanisms.outputs import CallableOutput
from dpverify.mechanisms.protocol import Mechanism, accepts_arguments, mechanism_name, positional_names
from dpverify.util.checks import shorten
from dpverify.util.files import is_readable

PARAMETERS = ("data", "runs", "rng")  # of a mechanism, in this order
CALL_ORDER = "a mechanism is called as (data, runs, rng)"
DATA_SUFFIXES = (".csv", ".txt", ".npy", ".json")


class Diagnostic(enum.Enum):
    """A finding about the mechanism or the datasets; the value is the sentence that is printed.

    Attributes
    ----------
    SAME_DATA
        Both datasets are equal. Voiding.
    CHANGED_DATA
        The mechanism modifies its input data. Voiding.
    UNREPEATABLE_BLOCK
        A seeded mechanism gave two different outputs for the same block and generator. Voiding.
    REPEATED_BLOCKS
        Different blocks contain the same outputs. Voiding.
    NOT_THREAD_SAFE
        Blocks that threads drew at the same time differ from the same blocks drawn alone. Voiding.
    SHORTENED
        The test is void, so the verification drew few runs.
    PILOT_LIMITED
        Memory limits the pilot runs, so the region has no joint scenario guarantee.
    DEPENDENT_RUNS
        Counts of an event vary more between blocks, or between positions in a block, than independent runs allow.
        Voiding.
    IDENTICAL_OUTPUTS
        Every run of both datasets gave the same output.
    DETERMINISTIC_OUTPUTS
        Each dataset gave one constant output in the pilot runs, and the two outputs differ.
    UNSEEDED
        The mechanism cannot be seeded.
    NOTHING_TO_STOP
        The verification was allowed to stop early, but no claim was stated.
    WRONG_DENSITY
        Runs contradict the density of the output that was stated. Voiding.
    NO_DENSITY
        Output values repeat, so a stated Lipschitz constant of the log-density was not used.
    LIPSCHITZ_DIMENSION
        The output has more than two dimensions, so a stated Lipschitz constant was not used.

    Examples
    --------
    >>> from dpverify.mechanisms.diagnostics import Diagnostic
    >>> Diagnostic.SAME_DATA.voids, Diagnostic.UNSEEDED.voids
    (True, False)
    """

    SAME_DATA = "both datasets are equal, so no event can distinguish them; pass two different datasets"
    CHANGED_DATA = (
        "the mechanism modifies its input data, so later runs depend on earlier ones; let it work on a copy of the data"
    )
    UNREPEATABLE_BLOCK = (
        "the mechanism gave two different outputs for the same block and the same generator; draw all noise from the "
        "generator that is passed in and keep no state; for code that uses NumPy's global generator, call "
        "np.random.seed(rng.integers(2**32)) in the mechanism; for noise that cannot be seeded, state it: "
        "dpverify.per_run(f, seeded=False), the same keyword of jax_run, factory and program, or a class attribute "
        "seeded = False"
    )
    REPEATED_BLOCKS = (
        "different blocks contain the same outputs, so the mechanism ignores its generator; draw all noise from the "
        "generator that is passed in; for code that uses NumPy's global generator, call "
        "np.random.seed(rng.integers(2**32)) in the mechanism"
    )
    NOT_THREAD_SAFE = (
        "blocks that threads drew at the same time differ from the same blocks drawn alone, so the mechanism is not "
        "thread-safe; keep no state on the mechanism, or use processes: executor=4"
    )
    SHORTENED = "stopped at 1 000 runs per dataset and stage, because the test is void"
    PILOT_LIMITED = (
        "memory limits the pilot runs of such large outputs, so the scenario guarantee of the region does not hold "
        "jointly over all steps; the mass of the region is bounded from the test runs, and no privacy bound depends on "
        "the guarantee"
    )
    DEPENDENT_RUNS = (
        "the number of runs in an event varies more between blocks, or between positions in a block, than independent "
        "runs allow; draw new noise for every run, and share no random number between runs or calls"
    )
    IDENTICAL_OUTPUTS = "every run of both datasets gave the same output"
    DETERMINISTIC_OUTPUTS = (
        "all pilot runs of a dataset gave one output, and the outputs of the two datasets differ; if the mechanism "
        "is deterministic, it violates every epsilon"
    )
    UNSEEDED = "the mechanism cannot be seeded, so the numbers of this report cannot be reproduced exactly"
    NOTHING_TO_STOP = (
        "no claim was stated, so nothing could be refuted or certified, and the verification did not stop early"
    )
    WRONG_DENSITY = (
        "the stated density does not fit the runs; correct the density or the mechanism, or verify without a density"
    )
    NO_DENSITY = "output values repeat, so the output has no density; the stated Lipschitz constant was not used"
    LIPSCHITZ_DIMENSION = (
        "the bound over all events is informative in one or two dimensions only; the stated Lipschitz constant was not "
        "used"
    )

    @property
    def voids(self) -> bool:
        """Whether the test has no answer because of this finding."""
        return self in VOIDING

    @property
    def cause(self) -> str:
        """What was found: the sentence up to its first semicolon."""
        return self.value.partition("; ")[0]

    @property
    def remedy(self) -> str:
        """What to do: the sentence after its first semicolon; empty if it has none."""
        return self.value.partition("; ")[2]


VOIDING = (
    Diagnostic.SAME_DATA,
    Diagnostic.CHANGED_DATA,
    Diagnostic.UNREPEATABLE_BLOCK,
    Diagnostic.REPEATED_BLOCKS,
    Diagnostic.NOT_THREAD_SAFE,
    Diagnostic.DEPENDENT_RUNS,
    Diagnostic.WRONG_DENSITY,
)


# The cause of a failure of a mechanism in words, with advice for frequent mistakes.


def describe_failure(mechanism: Mechanism, data: object, problem: BaseException) -> str:
    """Return what a mechanism raised for a dataset, or what is wrong with its output, and advice.

    Examples
    --------
    >>> print(describe_failure(lambda runs, data, rng: data, 0.0, TypeError("no")))
    TypeError: no; a mechanism is called as (data, runs, rng); compare the order of its parameters, (runs, data, rng)
    """
    # The messages of an InputError are complete.
    cause = str(problem) if isinstance(problem, InputError) else describe_exception(problem)
    if isinstance(problem, TypeError) and not accepts_arguments(mechanism, 3):
        cause += f"; {CALL_ORDER}; wrap a function of one run: dpverify.per_run(f)"
        cause += _call_first(mechanism)
    elif has_other_order(mechanism):
        names = ", ".join(positional_names(mechanism))
        cause += f"; {CALL_ORDER}; compare the order of its parameters, ({names})"
    if isinstance(problem, CallableOutput):
        cause += _call_first(mechanism)
    if isinstance(problem, ValueError) and "read-only" in cause:
        cause += "; datasets are read-only, so that no run can change the data of the next; work on a copy"
    return cause + _read_first(data)


def has_other_order(mechanism: Mechanism) -> bool:
    """Return whether the name of a parameter shows another order than (data, runs, rng).

    Examples
    --------
    >>> has_other_order(lambda data, rng, runs: data), has_other_order(lambda readings, n, generator: readings)
    (True, False)
    """
    names = positional_names(mechanism)
    return any(name in PARAMETERS and PARAMETERS.index(name) != place for place, name in enumerate(names))


def _read_first(data: object) -> str:
    """Return the advice for the name of a file that was passed as a dataset; empty for every other dataset."""
    if not isinstance(data, (str, os.PathLike)):
        return ""
    name = os.fsdecode(data)
    if not name.endswith(DATA_SUFFIXES) and not is_readable(Path(name)):
        return ""
    return f"; the dataset is the text {shorten(name)}; read the file first, for example with numpy.loadtxt"


def _call_first(mechanism: Mechanism) -> str:
    """Return the advice for a function that makes a mechanism and was passed as if it were one."""
    name = mechanism_name(mechanism)
    if not accepts_arguments(mechanism, 0):
        return (
            f"; if {name} makes a mechanism, call it first, for example mine = {name}(...); on the command line, write "
            "this in the file and use FILE.py:mine"
        )
    return f"; if {name} makes a mechanism, call it first: {name}(), or on the command line FILE.py:{name}()"
