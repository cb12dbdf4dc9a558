"""``python -m streamsvm``."""

from __future__ import annotations

import sys

from streamsvm.cli import main

if __name__ == "__main__":
    sys.exit(main())
