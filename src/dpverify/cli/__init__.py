"""The command `dpverify`.

Exit status 0: the claim is not refuted, or there is no claim. 1: the claim is refuted, and nothing else. 2: wrong
usage, bad input, or an exception of the mechanism, reported in one line. 3: no answer (interrupted, workers lost, the
process ended by the mechanism, a voiding diagnostic, too little power for --detects, or an internal error with its
traceback).
"""

import os
import signal
import sys
from typing import NoReturn

from dpverify.cli.commands import main as main
from dpverify.cli.commands import main_in_child


def entry() -> NoReturn:
    """Run the command, and exit with its status. On systems with `os.fork` a child process does the work."""
    if not hasattr(os, "fork"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
    status = main_in_child(sys.argv[1:])
    os._exit(status)  # the child has written everything, and a second orderly exit takes time
