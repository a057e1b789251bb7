"""``python -m tesserack``: the command line."""

import sys

from tesserack.cli import main

if __name__ == "__main__":
    sys.exit(main())
