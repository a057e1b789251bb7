"""How the build compiles through ccache: ``cmake/ccache.sh``."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "cmake" / "ccache.sh"


@pytest.fixture
def compiled(tmp_path: Path):
    """``compiled(comment)`` gives the bytes of a precompiled header that includes one with that comment."""
    if not SCRIPT.exists() or not shutil.which("ccache") or not shutil.which("g++"):
        pytest.skip("needs a checkout, ccache and g++")
    environment = dict(os.environ, CCACHE_DIR=str(tmp_path / "cache"))

    def run(comment: str) -> bytes:
        (tmp_path / "part.h").write_text(f"#pragma once\ninline int one() {{ return 1; }} // {comment}\n")
        (tmp_path / "all.h").write_text('#include "part.h"\n')
        made = tmp_path / "all.h.gch"
        options = ("-std=c++20", "-MD", "-MT", made.name, "-MF", "all.d", "-x", "c++-header", "-o", str(made), "-c")
        command = ["sh", str(SCRIPT), "g++", *options, "all.h"]
        subprocess.run(command, cwd=tmp_path, env=environment, check=True)
        return made.read_bytes()

    return run


def test_a_precompiled_header_follows_comments(compiled):
    """The compiler compares the headers that it reads with those in it, comments included."""
    first = compiled("a first one")
    assert compiled("another one") != first
    assert compiled("a first one") == first
