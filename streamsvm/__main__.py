"""Command ``streamsvm``, also as ``python -m streamsvm``."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run the command line and return the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # An interrupt during imports ends the process without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    import gc

    from streamsvm import cli

    try:
        return cli.main()
    finally:
        # At exit, Python would search all objects for garbage, when no thread can end the process at its deadline.
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
