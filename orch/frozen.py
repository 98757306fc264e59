"""The entry of the binary: it sets right what Python does for a program of its own, and runs the binary's children.

The binary starts itself again for whatever multiprocessing needs: workers, the server that forks them, the tracker of
shared resources. Their words are Python's and never reach the command line.
"""

# Before anything else a Ctrl-C means the end: the module `signal` alone takes so long that one would be shown in it.
import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import os
import signal
import sys
import warnings

from orch.program import hear_interrupts


def begin() -> None:
    """Do as Python does at its start: a binary's Python is an isolated one, which leaves all this alone."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Nor does it read PYTHONWARNINGS: multiprocessing must not warn of what a killed fire could not give back.
    warnings.filterwarnings("ignore", message="resource_tracker")
    # The file that was started, which has unpacked this program: not to be handed on to what this one starts.
    sys.argv[0] = os.environ.pop("ORCH_PROGRAM", sys.argv[0])


def code_for_child() -> str | None:
    """What a child that is none of the command line's is told to do, in Python's words: ``-I -c CODE``."""
    words = sys.argv[1:]
    while words and words[0].startswith("-") and words[0] != "-c":
        words = words[1:]
    if len(words) < 2 or not words[1].startswith("from multiprocessing."):
        return None
    # Taken away, so that the import of multiprocessing itself does not run it: nothing else could be imported then.
    sys.argv[1:] = words[2:]
    return words[1]


if __name__ == "__main__":
    begin()
    code = code_for_child()
    if code is not None:
        hear_interrupts()
        exec(code)
        sys.exit()
    if sys.argv[1:2] == ["--multiprocessing-fork"]:
        from multiprocessing import freeze_support

        hear_interrupts()
        freeze_support()
    from orch.__main__ import main

    main()
