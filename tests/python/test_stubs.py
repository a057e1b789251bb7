"""The type stubs in the sources are those of the registry."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest
import tesserack as ts
from tesserack.cli._stubs import stubs


def test_the_stubs_are_up_to_date() -> None:
    """In a process of its own: other tests register operators."""
    command = [sys.executable, "-m", "tesserack.cli._stubs.stubs", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Tensor", "Tensor"),
        ("Tensor(a!)", "Tensor"),
        ("Tensor?", "Tensor | None"),
        ("Tensor(a)[]", "Sequence[Tensor]"),
        ("Tensor?[]", "Sequence[Tensor | None]"),
        ("int[2]?", "_int | Sequence[_int] | None"),
        ("Operand?", "Tensor | Number | None"),
        ("ScalarType?", "_dtype | None"),
    ],
)
def test_types(kind: str, expected: str) -> None:
    assert stubs.python_type(kind) == expected


def test_signatures() -> None:
    assert [*stubs.signature("relu(Tensor self) -> Tensor", method=True)] == ["(self) -> Tensor"]
    assert [*stubs.signature("view(Tensor(a) self, int[] size) -> Tensor(a)", method=True)] == [
        "(self, size: _int | Sequence[_int]) -> Tensor",
        "(self, *size: _int) -> Tensor",
    ]
    (text,) = stubs.signature(
        "max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)", False
    )
    assert text == "(input: Tensor, dim: _int, keepdim: _bool = ...) -> tuple[Tensor, Tensor]"


def test_every_operator_has_a_signature_and_a_docstring() -> None:
    for name in dir(ts):
        function = getattr(ts, name)
        if isinstance(function, ts._native.Operator):
            assert inspect.signature(function).parameters
            assert len(function.__doc__.strip().splitlines()) > 1, name
