"""Ranks that fail where groups are made, used and left, and nobody watches: the others end by themselves, in words.

A sample of the cases, by the run's seed; ``FULL=1``: all.
"""

import random

import pytest
import rank_faults
from tesserack.testing import seeds

SAMPLE = rank_faults.CASES if seeds.full() else random.Random(seeds.seed()).sample(rank_faults.CASES, 3)


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: "-".join(map(str, case)))
def test_the_others_end_and_nothing_stays(case: rank_faults.Case) -> None:
    outcome = rank_faults.run(case)
    others = {0, 1, 2} - {case.rank}
    assert outcome.seconds.keys() == others and not outcome.left, (outcome.left, outcome.shown)
    # Ranks that end because of others' ends say so; one that waited in vain names who did not come.
    assert "Traceback" not in outcome.shown, outcome.shown
    if case.how == "stopped" and case.rank and case.point not in ("start", "store", "joined"):
        assert f"rank {case.rank}" in outcome.shown, outcome.shown
