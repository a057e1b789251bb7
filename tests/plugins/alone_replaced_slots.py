"""Kernels and backends that are registered, replaced and probed again while other threads use them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from bytes_backend import Bytes, bits, floats
from tesserack import _native
from tesserack.backends import Operand

native: Any = _native


@pytest.fixture(scope="module")
def backend() -> Bytes:
    made = Bytes("bytes_replaced")
    native._register_python_backend(made, "a test")

    @made.kernel("copy_cast")
    def copy_cast(out: Operand, x: Operand) -> None:
        bits(out)[...] = bits(x)

    return made


def beside(work: Callable[[], None], meanwhile: Callable[[], None], threads: int = 4) -> None:
    """Run ``work`` again and again in several threads until ``meanwhile`` is done; raise what any of them raised."""
    done, failures = threading.Event(), list[BaseException]()

    def again() -> None:
        try:
            while not done.is_set():
                work()
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=again, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        meanwhile()
    finally:
        done.set()
    for thread in running:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in running)
    if failures:
        raise failures[0]


def test_a_replaced_kernel_is_not_called_again(backend: Bytes) -> None:
    """Once a registration has returned, every later call reaches the new kernel or one after it."""
    newest = 0

    def register(version: int) -> None:
        nonlocal newest

        @backend.kernel("fill")
        def fill(out: Operand, value: float) -> None:
            floats(out)[...] = version

        newest = version

    def call() -> None:
        before = newest
        assert ts.full((2,), -1.0, device=backend.name).tolist()[0] >= before

    def replace() -> None:
        for version in range(2, 400):
            register(version)

    register(1)
    beside(call, replace)


class Overtaken(Bytes):
    """Its kernel of "fill" is replaced while the core is asking for it: the answer is out of date when it arrives."""

    asked = 0

    def _find_kernel(self, op: str, device: int = 0) -> tuple[Any, ...] | None:
        answer = super()._find_kernel(op, device)
        if op == "fill":
            self.asked += 1
            if self.asked == 1:
                self.kernel("fill")(lambda out, value: floats(out).fill(2.0))
        return answer


def test_an_answer_that_was_overtaken_is_not_kept() -> None:
    backend = Overtaken("bytes_overtaken")
    backend.kernel("fill")(lambda out, value: floats(out).fill(1.0))
    backend.kernel("copy_cast")(lambda out, x: bits(out).__setitem__(..., bits(x)))
    native._register_python_backend(backend, "a test")
    backend.asked = 0  # registering asks too
    results = [ts.full((2,), -1.0, device=backend.name).tolist() for _ in range(3)]
    assert backend.asked >= 2
    assert results[1:] == [[2.0, 2.0]] * 2


PROGRAM = """
import threading
import tesserack as ts
from bytes_backend import Bytes, bits, floats
from tesserack import _native
from alone_replaced_slots import beside

def make(name):
    backend = Bytes(name)
    backend.kernel("fill")(lambda out, value: floats(out).fill(value))
    backend.kernel("copy_cast")(lambda out, x: bits(out).__setitem__(..., bits(x)))
    return backend

class Empty(Bytes):
    present = 0
    def probe(self):
        return self.present

first, late = make("slots_first"), Empty("slots_late")
for backend in (first, late):
    _native._register_python_backend(backend, "a test")

def use():
    assert ts.full((3,), 2.0, device="slots_first").tolist() == [2.0] * 3
    names = [each["name"] for each in _native._backends()]
    assert len(set(names)) == len(names) and "slots_first" in names
    assert _native._device_count("slots_late") in (0, 1)

def change():
    for k in range(12):
        _native._register_python_backend(make(f"slots_{k}"), "a test")
        assert ts.full((2,), 1.0, device=f"slots_{k}").tolist() == [1.0] * 2
        for _ in range(20):
            _native._probe_again("slots_late")
    Empty.present = 1
    _native._probe_again("slots_late")
    assert _native._device_count("slots_late") == 1

beside(use, change)
print("done")
"""


def test_backends_come_and_are_probed_again_meanwhile() -> None:
    """In a process of its own, which has room for all the backends."""
    here = Path(__file__).resolve().parent
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=here, capture_output=True, text=True, timeout=120, check=False
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
