"""Times collectives and fits a link: ``measuring.py FILE``. Runs on each rank."""

import json
import sys
from pathlib import Path

from tesserack import distributed as dist
from tesserack.distributed.simulation import fit, measure

dist.init_process_group()
samples = measure(sizes=(1 << 10, 1 << 16, 1 << 20), repeats=3)
found = fit(samples)
if dist.get_rank() == 0:
    told = {"samples": len(samples), "error": found.median_error, **found.link._asdict()}
    Path(sys.argv[1]).write_text(json.dumps(told))
dist.destroy_process_group()
