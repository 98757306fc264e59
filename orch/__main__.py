"""The entry of the program; light, as every child of a pool imports it again."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        from orch import versions

        print(versions.told())
        return
    try:
        from orch.cli import run

        code = run(sys.argv[1:], alone=True)
    except KeyboardInterrupt:
        # Before a command was there to end in order.
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
