"""The command `dpverify gallery`."""

from __future__ import annotations

import argparse
import os

from dpverify.cli.output import print_output


def run_gallery_command(arguments: argparse.Namespace) -> int:
    """Run `dpverify gallery`, and return its exit status: 0, because the verdicts are its results."""
    from dpverify.gallery.catalogue import ENTRIES
    from dpverify.gallery.run import run_gallery

    if arguments.list:
        print_output("\n".join(f"{entry.name:<17}{entry.title}" for entry in ENTRIES))
        return 0
    out, quiet = arguments.out or ("gallery-quick" if arguments.quick else "gallery"), arguments.quiet
    run_gallery(out, arguments.names, quick=arguments.quick, workers=arguments.workers, progress=not quiet)
    if not quiet:
        print_output(os.path.join(out, "index.html"))
    return 0
