"""Lets the files of this folder share ``export_models``."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent)]
