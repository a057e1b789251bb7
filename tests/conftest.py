"""Options and fixtures of the whole suite: tests that take ``device`` run on the one named on the command line."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
import tesserack as ts
from tesserack.testing import seeds

# Nothing is remembered from run to run, in CI neither: what is drawn follows from the seed alone. Said in full, since
# Hypothesis loads a profile of its own where it sees CI, which draws the same whatever the seed.
hypothesis.settings.register_profile(
    "seeded",
    hypothesis.settings.get_profile("default"),
    database=None,
    derandomize=False,
    deadline=None,
    print_blob=True,
)
hypothesis.settings.load_profile("seeded")


def pytest_configure(config: pytest.Config) -> None:
    """One seed for all, and for every process of the run."""
    config.option.tesserack_seed = seeds.seed()
    if getattr(config.option, "hypothesis_seed", "") is None:
        config.option.hypothesis_seed = str(seeds.seed())


def pytest_report_header(config: pytest.Config) -> str:
    """How to choose the same cases again."""
    return f"seed: --tesserack-seed {seeds.seed()}{' FULL=1' if seeds.full() else ''}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where no header was shown."""
    if terminalreporter.no_header or terminalreporter.verbosity < 0:
        terminalreporter.write_line(pytest_report_header(terminalreporter.config))


# float32 first: the dtype a quick look would use.
FLOATS = (ts.float32, ts.float64, ts.bfloat16, ts.float16)
INTEGERS = (ts.int64, ts.int32, ts.int16, ts.int8, ts.uint8)
DTYPES = (*FLOATS, *INTEGERS, ts.bool)


@pytest.fixture(scope="session")
def device(tesserack_device: ts.device) -> ts.device:
    """The device under test, ``--tesserack-device``."""
    return tesserack_device


@pytest.fixture
def needs_lapack(device: ts.device) -> None:
    """Skips the test on a device that factors matrices nowhere, as a cpu card built without OpenBLAS."""
    try:
        ts.linalg.inv(ts.eye(2, device=device))
    except RuntimeError as error:
        if "without" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(params=FLOATS, ids=str)
def float_dtype(request: pytest.FixtureRequest) -> ts.dtype:
    """Every floating dtype in turn."""
    return request.param


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest) -> ts.dtype:
    """Every real dtype in turn."""
    return request.param


@pytest.fixture(autouse=True)
def _fresh_state() -> Iterator[None]:
    """Each test starts from the same seed, and leaves the modes of the thread as it found them."""
    if ts.backends.list():
        ts.manual_seed(0)
    default_dtype = ts.get_default_dtype()
    yield
    ts.set_default_dtype(default_dtype)
    assert ts.is_grad_enabled(), "a test left gradients switched off"
