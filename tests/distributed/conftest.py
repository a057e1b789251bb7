"""Programs on several ranks, as a user starts them."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # rank_faults
PROGRAMS = Path(__file__).parent / "programs"
Launch = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def launch() -> Launch:
    """``launch(program, ranks, *arguments, options=..., variables=..., torch=...)`` runs it under ``tesserack launch``;
    with ``torch`` it is one written for PyTorch."""

    def run(
        program: str,
        ranks: int,
        *arguments: Any,
        options: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
        torch: bool = False,
    ) -> Any:
        words = [sys.executable, "-m", "tesserack", "launch", "--standalone", "--nproc-per-node", str(ranks), *options]
        command = [*words, *([] if torch else ["--no-torch"]), str(PROGRAMS / program), *map(str, arguments)]
        environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
        environment.update(variables or {})
        return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)

    return run
