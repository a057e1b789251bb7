"""What schemathesis makes of the protocol's description."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from serving_process import serving

pytest.importorskip("schemathesis", reason="it makes requests from the description")


def test_schemathesis_finds_nothing(tmp_path: Path, repository: Path) -> None:
    """All checks but one: that what fits the schema is accepted, which no schema can say of shapes and data."""
    names = [word for name in ("net", "counts", "text") for word in ("--load", name)]
    with serving(tmp_path, "--repository", str(repository), *names) as server:
        url = f"http://127.0.0.1:{server.port}"
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--url", url]
        command += ["--max-examples", "200" if os.environ.get("FULL") else "4", "--no-color"]
        command += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
        command += ["--seed", "1", "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=900)
        assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
        assert server.get("/v2/health/ready")[0] == 200
