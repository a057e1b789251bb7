"""Operands that a kernel computes while it loads them, and results that it goes on with before it stores them.

A part of a graph is one template's kernel with pointwise programs around it: memory of the values between is neither
read nor written. What stands for such an operand has no address; a template that asks for it is not for this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen.dtypes import convert
from tesserack_kernelgen.emit import program_text
from tesserack_kernelgen.tensor import Tensor
from tesserack_kernelgen.vectors import has_vectors, vector_program

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = [
    *("Computed", "ComputedTensor", "Dropped", "DroppedTensor", "Finished", "FinishedTensor", "Function", "Given"),
    *("Slot", "Unfused"),
]


class Unfused(Exception):
    """A template needs memory of something that has none."""


@dataclass(frozen=True)
class Given:
    """An operand of the part."""

    number: int


@dataclass(frozen=True)
class Computed:
    """An operand that is a program of others, element by element, which lie alike. Numbers stand for themselves."""

    program: Any
    args: tuple[Given | float, ...]


@dataclass(frozen=True)
class Finished:
    """A result that is stored as ``to``, when a program of it, ``args[value]``, and of others has been computed."""

    program: Any
    args: tuple[Given | float, ...]
    value: int
    to: Given


@dataclass(frozen=True)
class Dropped:
    """A result that nobody reads."""


Slot = Given | Computed | Finished | Dropped


@dataclass(frozen=True)
class Function:
    """A program of one output as a function in the text of a kernel, of elements or of vectors."""

    name: str
    program: Any
    c: str

    def call(self, args: Sequence[str]) -> str:
        """An expression."""
        return f"{self.name}({', '.join(args)})"

    def text(self) -> str:
        """The function of elements, without those that it calls."""
        names = [f"x{k}" for k in range(self.program.n_inputs)]
        lines, (value,), _ = program_text(self.program, names, self.c, lambda divisor: "")
        return self._text(self.c, names, lines, value)

    def vector_text(self) -> str:
        """The function of vectors of type ``V``, without those that it calls."""
        names = [f"x{k}" for k in range(self.program.n_inputs)]
        lines, (value,) = vector_program(self.program, names, self.c)
        return self._text("V", names, lines, value)

    def has_vectors(self, call: Call) -> bool:
        """Whether there is a function of vectors."""
        return has_vectors(call, self.program, self.c)

    def _text(self, c: str, names: Sequence[str], lines: Sequence[str], value: str) -> str:
        given = ", ".join(f"{c} {name}" for name in names)
        return f"DEVICE {c} {self.name}({given}) {{ {' '.join(lines)} return {value}; }}"


class _WithoutMemory(Tensor):
    """What has no address."""

    def __init__(self, dtype: str):
        self.dtype = dtype

    @property
    def pointer(self) -> str:  # type: ignore[override]
        """There is none."""
        raise Unfused

    def load(self, index: str, c: str) -> str:
        """Nobody may."""
        raise Unfused

    def store(self, index: str, value: str, c: str) -> str:
        """Nobody may."""
        raise Unfused


class DroppedTensor(_WithoutMemory):
    """A result that nobody reads."""

    def store(self, index: str, value: str, c: str) -> str:
        """A statement that does nothing."""
        return ";"


class _OfProgram(_WithoutMemory):
    """``args`` are tensors and expressions of numbers, of C type ``function.c``."""

    def __init__(self, function: Function, args: Sequence[Tensor | str], dtype: str):
        super().__init__(dtype)
        self.function, self.args = function, args

    def _loaded(self, index: str) -> list[str]:
        c = self.function.c
        return [x if isinstance(x, str) else x.load(index, c) for x in self.args]


class ComputedTensor(_OfProgram):
    """An operand that is computed where it is loaded."""

    def load(self, index: str, c: str) -> str:
        """An expression: the element at ``index``, as C type ``c``."""
        return convert(self.function.call(self._loaded(index)), self.function.c, c)


class FinishedTensor(_OfProgram):
    """A result that is gone on with where it is stored."""

    def __init__(self, function: Function, args: Sequence[Tensor | str], value: int, to: Tensor):
        super().__init__(function, args, to.dtype)
        self.value, self.to = value, to

    def finished(self, value: str, others: Sequence[str]) -> str:
        """The expression of what is stored, given that of the result and of the others."""
        args = [*others[: self.value], value, *others[self.value :]]
        return self.function.call(args)

    def store(self, index: str, value: str, c: str) -> str:
        """A statement that stores what becomes of ``value``, of C type ``c``."""
        given = convert(value, c, self.function.c)
        return self.to.store(index, self.finished(given, self._loaded(index)), self.function.c)
