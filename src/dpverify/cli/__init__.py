"""The command `dpverify`.

Exit status 0: the claim is not refuted, or there is no claim. 1: the claim is refuted, and nothing else. 2: wrong
usage, bad input, or an exception of the mechanism, reported in one line. 3: no answer (interrupted, workers lost, a
voiding diagnostic, too little power for --detects, or an internal error with its traceback).
"""

import sys
from typing import NoReturn

from dpverify.cli.commands import main as main


def entry() -> NoReturn:
    """Run the command, and exit with its status."""
    sys.exit(main())
