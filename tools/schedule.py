"""How the whole suite is handed out: a part of the many cases of a test, and what takes longest first.

A plugin of pytest for ``make test`` and ``make asan`` (``-p tools.schedule``); tests that are run by hand do without.

- ``--one-of N``: of a test of a dozen cases or more, one case in N, others with another commit; of the tests that start
  processes and take seconds each one in N, one of a file at least. ``FULL=1`` runs all.
- There, OpenCL kernels are compiled without optimisation, which takes PoCL a half to a third of the time; those of the
  card's own tests, the conformance kit apart, are compiled as users have them.
- Beside pytest-xdist's ``--dist loadfile``, which begins with the files of most tests: a page whose one test compiles
  for a minute came last, and one process worked alone. Files stay whole, since their fixtures register devices; of
  those that take minutes each test goes by itself.
"""

from __future__ import annotations

import collections
import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tesserack.testing import seeds
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

#: Files whose tests have nothing in common that is dear to set up, and take minutes.
SPLIT = ("tests/docs/test_pages.py", "tests/conformance/test_planted_faults.py")
#: Begun first, in this order. Others follow by their number of tests.
LONG = (
    *SPLIT,
    "tests/thirdparty/test_new_backend.py",
    "tests/data/test_loader_processes.py",
    "plugins/ray/tests/test_ray.py",
    "plugins/mpi/tests/test_mpi.py",
    "backends/opencl/tests/test_conformance.py",
    "tests/conformance/test_conform.py",
    "tests/examples/test_digits.py",
    "tests/distributed/",
    "tests/thirdparty/",
    "tests/conformance/",
    "tests/examples/",
    "tests/plugins/test_alone.py",
    "plugins/serving/tests/",
)

#: Whose tests start processes and take seconds each, by waiting, compiling or importing.
DEAR = (
    "tests/distributed/",
    "tests/conformance/",
    "tests/thirdparty/",
    "tests/examples/",
    "tests/backends/",
    "tests/robustness/",
    "tests/data/test_loader_processes.py",
    "tests/docs/test_pages.py",
    "plugins/serving/tests/",
    "plugins/kernelgen/tests/",
    "backends/opencl/tests/",
)

#: Tests of fewer cases are run whole.
MANY = 12


def file_of(nodeid: str) -> str:
    """The file of a test."""
    return nodeid.partition("::")[0]


def whose_turn(nodeids: Sequence[str], share: int, seed: int) -> set[str]:
    """Of each test of many cases one in ``share``, drawn case by case: no dtype or layout is left out as a whole. Of
    dear files, so many of all tests."""
    cases: dict[str, list[str]] = collections.defaultdict(list)
    for nodeid in nodeids:
        cases[file_of(nodeid) if nodeid.startswith(DEAR) else nodeid.partition("[")[0]].append(nodeid)
    chosen: set[str] = set()
    for name, same in cases.items():
        fewest = 2 if name.startswith(DEAR) else MANY
        drawn = [nodeid for nodeid in same if (zlib.crc32(nodeid.encode()) + seed) % share == 0]
        chosen.update(same if len(same) < fewest else drawn or same[:1])
    return chosen


def share_of(config: pytest.Config) -> int:
    """One in how many cases this run takes."""
    return 1 if seeds.full() else int(config.getoption("--one-of"))


def in_order(nodeids: Sequence[str]) -> list[int]:
    """The places of tests in the order in which their files are begun."""
    tests = collections.Counter(map(file_of, nodeids))

    def rank(place: int) -> tuple[int, int, str]:
        file = file_of(nodeids[place])
        return next((k for k, name in enumerate(LONG) if file.startswith(name)), len(LONG)), -tests[file], file

    return sorted(range(len(nodeids)), key=rank)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Whole files, but those that are split. What is asked for each test takes no longer the more tests there are."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.places: dict[WorkerController, dict[str, int]] = {}

    def _split_scope(self, nodeid: str) -> str:
        file = file_of(nodeid)
        return nodeid if file in SPLIT else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope, unit = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[scope] = unit
        if node not in self.places:
            self.places[node] = {nodeid: place for place, nodeid in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self.places[node][nodeid] for nodeid, completed in unit.items() if not completed])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        nodeid = self.registered_collections[node][item_index]
        scope = self._split_scope(nodeid)
        work = self.assigned_work[node]
        work[scope].pop(nodeid)
        if not work[scope]:
            del work[scope]
        self._reschedule(node)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The part of a run."""
    parser.addoption("--one-of", type=int, default=1, metavar="N", help="of tests of many cases, one case in N")


def pytest_configure(config: pytest.Config) -> None:
    """The order of what is collected is that of the work. A part of a run compiles quickly, its processes too."""
    config.option.loadscopereorder = False
    if share_of(config) > 1:
        os.environ.setdefault("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In each process the same."""
    chosen = whose_turn([item.nodeid for item in items], share_of(config), seeds.seed())
    left = [item for item in items if item.nodeid not in chosen]
    kept = [item for item in items if item.nodeid in chosen]
    if left:
        config.hook.pytest_deselected(items=left)
    items[:] = [kept[place] for place in in_order([item.nodeid for item in kept])]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., Any]) -> Scheduling | None:
    """Only where files are to stay whole."""
    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None
