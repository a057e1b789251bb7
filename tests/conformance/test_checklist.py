"""What the contract's reviewers named is planted, and what is planted is named."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from checklist import CHECKLIST
from faults import NATIVE, PYTHON, STREAMS
from faults_habits import HABITS, OWN
from faults_makers import MAKERS
from faults_paths import DILATED, PATHS
from faults_ranks import RANKS
from faults_services import SERVICES
from faults_trials import TRIALS
from faults_vendors import VENDORS

ROOT = Path(__file__).parents[2]
PLANTED = {*NATIVE, *STREAMS, *PYTHON, *SERVICES, *RANKS, *VENDORS, *HABITS, *OWN, *MAKERS, *TRIALS, *PATHS, *DILATED}
NAMED = Counter(name for kind in CHECKLIST.values() for names in kind.values() for name in names)


def test_every_fault_that_is_named_is_planted() -> None:
    """In the catalogue, or by a test that is there."""
    for name in NAMED:
        path, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text() if test else name in PLANTED, name


def test_every_fault_that_is_planted_is_named_once() -> None:
    assert PLANTED - NAMED.keys() == set()
    assert [name for name, count in NAMED.items() if count > 1] == []
