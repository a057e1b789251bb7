"""A repository of small models, and a server for it; without LitServe the tests are skipped."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # serving_process

from serving_process import TEXT, Server, serving, write_model, write_version

NEEDED = ("litserve", "grpc", "prometheus_client")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.fixture
def device(tesserack_device: object) -> str:
    """As the others' tests name it."""
    return str(tesserack_device)


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``net`` in two versions, ``counts`` with two inputs, ``text``, and ``broken``, which cannot be built."""
    folder = tmp_path_factory.mktemp("repository")
    place = write_model(folder, "net", 'build = "model.py:Net"\ninputs = ["x=float32[batch 4]"]\nversions = "all"\n')
    write_version(place, 1)
    write_version(place, 2)
    write_model(
        folder,
        "counts",
        'build = "model.py:Counts"\ninputs = ["tokens=int64[batch time]", "mask=int64[batch time]"]\n',
    )
    write_model(folder, "text", 'build = "model.py:build"\n', TEXT)
    write_model(folder, "broken", 'build = "model.py:Nothing"\n')
    return folder


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The whole repository but ``broken``, by two frontends."""
    folder = tmp_path_factory.mktemp("server")
    words = ["--repository", str(repository), "--frontends", "2", "--trace", str(folder / "traces")]
    with serving(folder, *words, *(w for name in ("net", "counts", "text") for w in ("--load", name))) as found:
        yield found
