"""The entry point of the command `dpverify`.

This module is not part of the package, because Python imports the whole package before any of its modules. Ctrl-C
during these imports then ends with one line and exit status 3, as it does later.
"""

import os
import signal
from types import FrameType
from typing import NoReturn


def entry() -> NoReturn:
    """Import the package, and run its command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a command in the background ignores SIGINT
        signal.signal(signal.SIGINT, _stop)
    from dpverify.cli import entry as run

    run()


def _stop(number: int, frame: FrameType | None) -> None:
    """End this process at once. A KeyboardInterrupt is not enough, because some packages catch it while they load."""
    os.write(2, b"dpverify: stopped by the keyboard\n")
    os._exit(3)
