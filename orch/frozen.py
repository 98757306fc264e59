"""The entry of the binary: it sets right what Python does for a program of its own, and runs the binary's children.

The binary starts itself again for whatever multiprocessing needs: workers, the server that forks them, the tracker of
shared resources. Their words are Python's and never reach the command line.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings


def begin() -> None:
    """Do as Python does at its start: a binary's Python is an isolated one, which leaves all this alone."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Nor does it read PYTHONWARNINGS: multiprocessing must not warn of what a killed fire could not give back.
    warnings.filterwarnings("ignore", message="resource_tracker")
    # The file that was started, which has unpacked this program: not to be handed on to what this one starts.
    sys.argv[0] = os.environ.pop("ORCH_PROGRAM", sys.argv[0])


if __name__ == "__main__":
    begin()
    if len(sys.argv) > 1 and sys.argv[1].startswith("-"):
        # The import alone runs the children that are told what to do by -c.
        from multiprocessing import freeze_support

        freeze_support()
    from orch.__main__ import main

    main()
