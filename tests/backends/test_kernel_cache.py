"""Compiled kernels on disk, as Python and C reach them."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.backends import KernelCache
from tesserack_reference import backend as reference


@pytest.mark.parametrize("length", [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000])
def test_names_are_those_of_sha256(length: int) -> None:
    key = "k" * length
    assert KernelCache.key(key) == hashlib.sha256(key.encode()).hexdigest()[:40]


def test_what_is_kept_is_whole_or_not_there(tmp_path: Path) -> None:
    cache, key = KernelCache(tmp_path / "deep" / "er"), KernelCache.key("source", "device")
    assert cache.get(key) is None
    for binary in (b"", b"\0binary\xff" * 5000):
        cache.put(key, binary)
        assert cache.get(key) == binary
    (path,) = (tmp_path / "deep" / "er").iterdir()  # no draft is left
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:20], b"", bytes([whole[0] ^ 1]) + whole[1:], whole[:-1] + b"?"):
        path.write_bytes(damaged)
        assert cache.get(key) is None
    (tmp_path / "file").write_text("")
    KernelCache(tmp_path / "file").put(key, b"x")  # no folder: no error
    assert KernelCache(tmp_path / "file").get(key) is None and KernelCache("").folder is None


def test_a_disk_that_is_full_keeps_what_it_has(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    cache, kept, new = KernelCache(tmp_path), KernelCache.key("kept"), KernelCache.key("new")
    cache.put(kept, b"x" * 500)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, before[1]))  # no file may grow beyond
    try:
        cache.put(kept, b"y" * 100_000)
        cache.put(new, b"y" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert cache.get(kept) == b"x" * 500 and cache.get(new) is None
    assert [path.name for path in tmp_path.iterdir()] == [kept]  # no draft is left


class Host(ctypes.Structure):
    """The end of ``ts_host``."""

    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("before", ctypes.c_char * (72 - 8)),
        ("get", ctypes.CFUNCTYPE(*[ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p])),
        ("put", ctypes.CFUNCTYPE(*[ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t])),
    )


def test_native_cards_use_the_same(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("TESSERACK_KERNEL_CACHE", str(tmp_path))
    libc = ctypes.CDLL(None)  # the core reads the environment of the process
    libc.setenv(b"TESSERACK_KERNEL_CACHE", str(tmp_path).encode(), 1)
    host = Host.from_address(ts._native._host_table())
    assert host.struct_size >= ctypes.sizeof(Host)
    room, size = ctypes.create_string_buffer(10), ctypes.c_size_t(10)
    assert host.get(b"acme key", 8, room, ctypes.byref(size)) == 1  # declined: nothing is kept
    assert host.put(b"acme key", 8, b"compiled", 8) == 0
    assert host.get(b"acme key", 8, room, ctypes.byref(size)) == 0 and room.raw[: size.value] == b"compiled"
    size.value = 3
    assert host.get(b"acme key", 8, room, ctypes.byref(size)) == 0 and size.value == 8  # again, with more room
    assert KernelCache().get(KernelCache.key("acme key")) == b"compiled"
    assert host.get(None, 0, room, ctypes.byref(size)) == 2 and "cache_get" in ts._native._take_last_error()


def named(program: Any) -> str:
    """What the contract says of ``ts_program.hash``, computed anew: a later core must not name programs otherwise, or
    every kernel is compiled again."""
    numbers = ts._native._instructions()
    words = [program.n_inputs, len(program.constants), len(program.instructions), len(program.outputs)]
    data = struct.pack("<4Q", *words)
    for constant, integer in zip(program.constants, program.integers, strict=True):
        data += struct.pack("<dq", constant, integer)
    for name, *operands in program.instructions:
        a, b, c = (*operands, 0, 0, 0)[:3]
        data += struct.pack("<Q", numbers.index(name) << 48 | a << 32 | b << 16 | c)
    data += struct.pack(f"<{len(program.outputs)}Q", *program.outputs)
    return "{:016x}{:016x}".format(*struct.unpack("<2Q", hashlib.sha256(data).digest()[:16]))


def test_programs_have_one_hash_everywhere() -> None:
    """Of all that they say but their text and number."""
    record = reference._kernels["pointwise"]
    seen: list[Any] = []

    def noting(*, program: Any, **fields: Any) -> Any:
        seen.append(program)
        return record[0](program=program, **fields)

    reference._kernels["pointwise"] = (noting, *record[1:])
    ts._native._kernel_changed("reference", "pointwise")
    try:
        x = ts.ones(3, device="reference")
        for y in (x.exp(), x * 2.5, ts.nn.functional.gelu(x), x.clamp(0, 1), x * 3.5, x.sigmoid()):
            assert y.shape == (3,)
    finally:
        reference._kernels["pointwise"] = record
        ts._native._kernel_changed("reference", "pointwise")
    assert len(seen) >= 6 and any(program.constants for program in seen)
    for program in seen:
        assert program.hash == named(program), program.text
    by_number = {program.id: program.hash for program in seen}
    assert len(set(by_number.values())) == len(by_number) < len(seen)
