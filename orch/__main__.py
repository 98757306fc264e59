"""The entry of the program; light, as every child of a pool imports it again."""

from __future__ import annotations

import sys

from orch.program import hold_interrupts, open_streams


def main() -> None:
    """Run the command line and exit with its code."""
    hold_interrupts()
    open_streams()
    if sys.argv[1:] == ["--version"]:
        from orch import versions

        print(versions.told())
        return
    from orch.cli import run

    sys.exit(run(sys.argv[1:], alone=True))


if __name__ == "__main__":
    main()
