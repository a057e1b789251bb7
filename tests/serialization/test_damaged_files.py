"""Damaged files of our own format, of safetensors and in parts: each is read, or refused in little memory."""

from __future__ import annotations

import io
import json
import random
import resource
from pathlib import Path

import numpy as np
import pytest
import tesserack as ts
from tesserack.serialization import SerializationError


@pytest.fixture
def little_memory():
    """An enormous allocation fails, and is seen."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 29), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bits flipped, bytes and digits replaced, parts copied over others, or cut; most of it in the header."""
    kind = rng.randrange(6)
    if kind == 0:
        return content[: rng.randrange(len(content))]
    made = bytearray(content)
    end = max(min(len(made), 700), 1) if rng.random() < 0.8 else len(made)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        at = rng.randrange(end)
        if kind == 1:
            made[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            made[at] = rng.randrange(256)
        elif kind == 3:
            size, other = rng.randrange(1, 40), rng.randrange(end)
            made[at : at + size] = made[other : other + size]
        else:  # other numbers: sizes, offsets, shapes
            digits = [k for k in range(end) if 48 <= made[k] < 58] or [at]
            made[rng.choice(digits)] = rng.choice(b"0123456789-")
    return bytes(made)


def own_format() -> bytes:
    buffer = io.BytesIO()
    tied = ts.arange(12.0).reshape(3, 4)
    ts.save({"a": tied, "b": [1, {"c": ts.tensor([True])}, tied.t()], "d": (2**70, b"x", None)}, buffer)
    return buffer.getvalue()


def safetensors_format() -> bytes:
    from safetensors.numpy import save

    return save({"w": np.ones((4, 5), "f4"), "n": np.arange(6), "empty": np.ones((0, 3), "f8")}, {"format": "pt"})


@pytest.mark.parametrize("make", [own_format, safetensors_format])
def test_a_thousand_damaged_files(make, little_memory, tmp_path):
    content, refused = make(), 0
    path = tmp_path / "file.safetensors"
    for seed in range(1000):
        bad = damaged(content, random.Random(seed))
        try:
            if seed % 4:
                ts.load(io.BytesIO(bad))
            else:
                path.write_bytes(bad)
                ts.load(path, mmap=True)
        except SerializationError as error:
            refused += 1
            assert "MemoryError" not in str(error), seed
    assert 200 < refused < 1000


def test_a_thousand_damaged_indices_and_parts(little_memory, tmp_path):
    """Nothing outside the folder is opened either: an index may name any path."""
    outside = tmp_path / "outside.safetensors"
    ts.save({"secret": ts.ones(3)}, outside)
    folder = tmp_path / "model"
    folder.mkdir()
    index = folder / "m.safetensors.index.json"
    state = {f"w{k}": ts.full((10,), float(k)) for k in range(6)}
    ts.save(state, index, max_shard_size=100)
    files = {path: path.read_bytes() for path in folder.iterdir()}
    refused = 0
    for seed in range(1000):
        rng = random.Random(seed)
        target = index if seed % 3 else rng.choice(sorted(files))
        target.write_bytes(damaged(files[target], rng))
        try:
            assert "secret" not in ts.load(index)
        except (SerializationError, OSError) as error:  # a part of another name is not found
            refused += 1
            assert "MemoryError" not in str(error), seed
        target.write_bytes(files[target])
    assert 200 < refused < 1000
    assert all(ts.equal(value, state[name]) for name, value in ts.load(index).items())


@pytest.mark.parametrize(
    "name",
    ["../outside.safetensors", "/etc/passwd", "", ".", "..", "a/../../outside.safetensors", "m\0.safetensors", 3, None],
)
def test_an_index_names_files_of_its_own_folder_only(name, tmp_path):
    ts.save({"secret": ts.ones(3)}, tmp_path / "outside.safetensors")
    index = tmp_path / "model" / "m.safetensors.index.json"
    Path(index).parent.mkdir()
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"secret": name}}))
    with pytest.raises(SerializationError):
        ts.load(index)
