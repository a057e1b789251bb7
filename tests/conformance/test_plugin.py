"""The pytest plugin, as the test suite of a vendor uses it: found by its entry point, in a folder of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts

VENDOR_TEST = """
import pytest

def test_own(tesserack_device):
    assert tesserack_device.type == {device!r}
"""


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In another folder, with this build of the package on the path, and no plugin named."""
    paths = os.pathsep.join(filter(None, (str(Path(ts.__file__).parents[1]), os.environ.get("PYTHONPATH", ""))))
    without = [word for name in ("cacheprovider", "xdist", "jaxtyping") for word in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", "-q", *without, *arguments]
    return subprocess.run(
        command, cwd=folder, env=dict(os.environ, PYTHONPATH=paths), capture_output=True, text=True, timeout=600
    )


def test_beside_tests_of_ones_own(tmp_path: Path, device: ts.device) -> None:
    """The kit's tests and the vendor's in one run, with a report of the kit's."""
    (tmp_path / "test_mine.py").write_text(VENDOR_TEST.format(device=device.type))
    (tmp_path / "gaps.txt").write_text("test_broadcast  # not so\n")
    done = run_pytest(
        tmp_path,
        *("test_mine.py", "--pyargs", "tesserack.testing.conformance", f"--tesserack-device={device.type}"),
        *("--tesserack-areas=copies,views", "-k", "test_own or test_broadcast or test_view", "--tesserack-report=out"),
        "--tesserack-expected-failures=gaps.txt",
    )
    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "unexpected pass: expected to fail because not so (gaps.txt:1); remove that line" in done.stdout
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert {case["area"] for case in report["cases"]} == {"copies", "views"}
    assert report["areas"]["copies"]["failed"] == 1
    assert not any("test_mine" in case["id"] for case in report["cases"])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--tesserack-areas=dreams", "expected some of capabilities, .*, got 'dreams'"),
        ("--tesserack-expected-failures=none.txt", "none.txt"),
    ],
)
def test_wrong_options(option: str, message: str, tmp_path: Path) -> None:
    """Usage errors, without a traceback."""
    done = run_pytest(tmp_path, "--pyargs", "tesserack.testing.conformance", option)
    assert done.returncode == 4, done.stdout + done.stderr
    assert re.search(message, done.stderr)
    assert "Traceback" not in done.stderr


def test_an_unknown_device_skips_with_the_reason(tmp_path: Path) -> None:
    """Nothing fails where there is nothing to test."""
    done = run_pytest(
        tmp_path,
        "-rs",
        "--pyargs",
        "tesserack.testing.conformance",
        "--tesserack-device=nosuch",
        "-k",
        "test_broadcast",
    )
    assert "1 skipped" in done.stdout
    assert "no backend named 'nosuch' is installed" in done.stdout


def test_other_suites_do_not_notice(tmp_path: Path) -> None:
    """A suite that uses nothing of it loads nothing of it but the plugin's module."""
    (tmp_path / "test_mine.py").write_text(
        "import sys\n\ndef test_light():\n"
        "    loaded = [m for m in sys.modules if m.startswith('tesserack.testing.conformance') or m == 'numpy']\n"
        "    assert loaded == []\n"
    )
    done = run_pytest(tmp_path, "-p", "no:hypothesispytest", "test_mine.py")
    assert done.returncode == 0, done.stdout + done.stderr
