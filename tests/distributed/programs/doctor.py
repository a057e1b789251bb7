"""``tesserack doctor --distributed``, on each rank."""

import sys

from tesserack.cli import main

sys.exit(main(["doctor", "--distributed"]))
