"""Archives of a release: their bytes depend on what is in them alone, and they stay what installers take."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "archives.py"
FILES = {
    "acme/__init__.py": "answer = 42\n",
    "acme/libacme.so": "\0",
    "acme-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n",
    "acme-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n",
}


@pytest.fixture(scope="module")
def archives() -> ModuleType:
    spec = importlib.util.spec_from_file_location("archives", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wheel(folder: Path, seed: int) -> Path:
    """A wheel with members in any order, of any time."""
    folder.mkdir()
    path, rng = folder / "acme-1.0-py3-none-linux_x86_64.whl", random.Random(seed)
    names = [*FILES, "acme-1.0.dist-info/RECORD"]
    rng.shuffle(names)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            item = zipfile.ZipInfo(name, (2000 + rng.randint(0, 20), 1, 1, 0, 0, 0))
            item.external_attr = (0o755 if name.endswith(".so") else rng.choice((0o644, 0o600))) << 16
            archive.writestr(item, FILES.get(name, ""))
    return path


def test_wheels_of_the_same_files_are_the_same_bytes(archives: ModuleType, tmp_path: Path) -> None:
    one, two = (archives.normalize(wheel(tmp_path / str(k), k), 1_700_000_000) for k in (1, 2))
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert {item.external_attr >> 16 & 0o777 for item in archive.infolist()} == {0o644, 0o755}
        rows = list(csv.reader(io.StringIO(archive.read("acme-1.0.dist-info/RECORD").decode())))
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(data))
        assert rows[-1] == ["acme-1.0.dist-info/RECORD", "", ""] and len(rows) == len(FILES) + 1


def test_what_is_retagged_and_added_to_can_be_installed(archives: ModuleType, tmp_path: Path) -> None:
    path = wheel(tmp_path / "wheel", 3)
    archives.add_file(path, "acme/more.txt", b"more")
    path = archives.retag(path, "manylinux_2_17_x86_64")
    assert path.name == "acme-1.0-py3-none-manylinux_2_17_x86_64.whl" and [*path.parent.iterdir()] == [path]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        tmp_path / "there",
        path,
    ]
    subprocess.run(command, check=True, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    assert (tmp_path / "there" / "acme" / "more.txt").read_text() == "more"


def test_sources_of_the_same_files_are_the_same_bytes(archives: ModuleType, tmp_path: Path) -> None:
    found = []
    for seed in (1, 2):
        path, rng = tmp_path / f"acme-{seed}.tar.gz", random.Random(seed)
        names = [*FILES]
        rng.shuffle(names)
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                item = tarfile.TarInfo(f"acme-1.0/{name}")
                item.size, item.mtime, item.uid = len(FILES[name]), rng.randint(1, 10**9), rng.randint(0, 1000)
                archive.addfile(item, io.BytesIO(FILES[name].encode()))
        found.append(archives.normalize(path, 1_700_000_000))
    assert found[0].read_bytes() == found[1].read_bytes()
    with tarfile.open(found[0]) as archive:
        assert {item.mtime for item in archive} == {1_700_000_000} and len(archive.getnames()) == len(FILES)
