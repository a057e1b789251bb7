"""One kernel: its text, and beside it the arguments that the text reads."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tesserack.backends import WORKSPACE, Block, Buffer, Launch, Patch

from tesserack_kernelgen.call import FAULTS
from tesserack_kernelgen.dtypes import FORMAT, accumulator, name_of
from tesserack_kernelgen.emit import program_helpers
from tesserack_kernelgen.fused import Computed, ComputedTensor, Dropped, DroppedTensor, FinishedTensor, Function, Given
from tesserack_kernelgen.layout import reach
from tesserack_kernelgen.tensor import Tensor

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call
    from tesserack_kernelgen.fused import Slot

__all__ = ["Kernel", "Tensor"]

_WIDE = 2**31 - 1


class Kernel:
    """Collects the arguments of one launch while the template writes its text.

    Sizes, strides, offsets and numbers of a call go into one struct that is passed by value (``a`` in the text), so
    that one compiled kernel serves every shape. ``idx`` in the text is the type of indices: 32 bits where they suffice.
    """

    def __init__(self, call: Call, name: str):
        self.call, self.name = call, name
        self.wide = any(reach(x) > _WIDE for x in (*call.outputs, *call.inputs) if hasattr(x, "strides"))
        self._buffers: list[tuple[str, Buffer | Block]] = []
        self._pointers: list[str] = []
        self._fields: list[tuple[str, str, float, Patch | None]] = []  # C type, name, value, what is patched
        self._faults = False
        self.site = call.op  # what a fault says it is of
        self._made: dict[int, Tensor] = {}  # operands, by number
        self.functions: list[Function] = []  # of programs that belong to the kernel, in parts of graphs

    # --- arguments ------------------------------------------------------------------------------------------------

    def output(self, k: int) -> Tensor:
        """The output ``k`` of the call."""
        return self._operand(self.call.outputs[k], k)

    def input(self, k: int) -> Tensor:
        """The input ``k`` of the call, which must have storage."""
        return self._operand(self.call.inputs[k], len(self.call.outputs) + k)

    def _operand(self, operand: Any, number: int) -> Tensor:
        part = self.call.part
        return self._tensor(operand, number) if part is None else self._of_part(operand, part.slots[number])

    def _of_part(self, operand: Any, slot: Slot) -> Tensor:
        part = self.call.part
        assert part is not None
        if isinstance(slot, Given):
            return self._tensor(part.operands[slot.number], slot.number)
        if isinstance(slot, Dropped):
            return DroppedTensor(name_of(operand.dtype))
        c = accumulator(name_of(operand.dtype))
        function = Function(f"fused{len(self.functions)}", slot.program, c)
        self.functions.append(function)
        args = [self._of_part(operand, x) if isinstance(x, Given) else self.number(x, c) for x in slot.args]
        if isinstance(slot, Computed):
            return ComputedTensor(function, args, name_of(operand.dtype))
        return FinishedTensor(function, args, slot.value, self._of_part(operand, slot.to))

    def _tensor(self, operand: Any, number: int) -> Tensor:
        if number in self._made:
            return self._made[number]
        self._made[number] = tensor = self._addressed(operand, number)
        return tensor

    def _addressed(self, operand: Any, number: int) -> Tensor:
        offset = self._field("i64", f"o{number}", operand.byte_offset, ("offset", number))
        return Tensor(self._pointer(f"p{number}", Buffer(number), offset), name_of(operand.dtype))

    def workspace(self, offset: int, dtype: str) -> Tensor:
        """Memory of the plan's workspace, from a byte on that is a multiple of 16."""
        n = len(self._buffers)
        return Tensor(self._pointer(f"w{n}", Buffer(WORKSPACE), self.index(offset)), dtype)

    def _pointer(self, name: str, argument: Buffer | Block, offset: str) -> str:
        self._buffers.append((f"b{name}", argument))
        self._pointers.append(f"GLOBAL u8* const {name} = b{name} + {offset};")
        return name

    def index(self, value: int) -> str:
        """An expression for a size, stride or count, passed as ``idx``; 0 and 1 are written out."""
        if value in (0, 1):
            return str(value)
        return self.own_index(value)

    def indices(self, values: Any) -> list[str]:
        """Expressions for several."""
        return [self.index(value) for value in values]

    def own_index(self, value: int) -> str:
        """As :meth:`index`, but 0 and 1 are passed as any number, so that the text is the same."""
        self.wide = self.wide or abs(value) > _WIDE
        return self._field("idx", f"m{len(self._fields)}", value)

    def own_indices(self, values: Any) -> list[str]:
        """Expressions for several."""
        return [self.own_index(value) for value in values]

    def number(self, value: float, c: str) -> str:
        """An expression for a number of C type ``c`` that stays as it is while the signature does."""
        return self._field(c, f"x{len(self._fields)}", value)

    def param(self, k: int, c: str) -> str:
        """An expression for the number ``k`` of the call's parameters, one that changes from call to call."""
        return self._field(c, f"x{len(self._fields)}", self.call.params[k], ("param", k))

    def scalar(self, k: int, c: str) -> str:
        """An expression for input ``k``, a tensor without storage, as C type ``c``."""
        return self._field(c, f"s{k}", self.call.inputs[k], ("scalar", len(self.call.outputs) + k))

    def fault(self, code: str, value: str) -> str:
        """A statement that reports one of the ``FAULTS`` of the data. The next wait raises it."""
        if not self._faults:
            self._faults = True
            self._buffers.append(("fault", Block(self.call.device.fault)))
            self._field("i32", "site", self.call.card.site(self.site))
        return f"report_fault((GLOBAL u32*)fault, {FAULTS[code]}, a.site, (i64)({value}));"

    def _field(self, c: str, name: str, value: float, patch: tuple[str, int] | None = None) -> str:
        made = Patch(0, *patch, FORMAT[c]) if patch else None
        self._fields.append((c, name, value, made))
        return f"a.{name}"

    # --- the launch -----------------------------------------------------------------------------------------------

    def launch(
        self,
        body: str,
        groups: tuple[int, ...],
        group_size: tuple[int, ...] = (),
        helpers: str = "",
        of_vectors: bool = False,
    ) -> Launch:
        """Compile the text, or find it compiled, and give the launch of it.

        Args:
            body: statements of the kernel.
            groups: how many groups along each axis, up to three.
            group_size: how many items each has; compiled into the kernel.
            helpers: functions before the kernel.
            of_vectors: whether these have the functions of programs that belong to the kernel, of vectors.
        """
        idx = "i64" if self.wide else "i32"
        sizes = _three(group_size)
        fields = sorted(self._fields, key=lambda f: _size(f[0], idx), reverse=True)
        device = self.call.device
        dialect = self.call.card.dialect
        struct_text = " ".join(f"{c} {name};" for c, name, _, _ in fields)
        parameters = [dialect.buffer.format(name=name) for name, _ in self._buffers]
        parameters.append(dialect.value.format(type="arguments", name="a"))
        text = "\n".join(
            (
                f"typedef {idx} idx;",
                f"typedef struct {{ {struct_text} }} arguments;",
                helpers,
                *(() if of_vectors else self._functions()),
                f"KERNEL({sizes[0]}, {sizes[1]}, {sizes[2]}) void {self.name}({', '.join(parameters)}) {{",
                *(f"  {line}" for line in self._pointers),
                body,
                "}",
            )
        )
        kernel = self.call.card.kernel(device, dialect.text(text, device.fp64), self.name)
        arguments = (*(argument for _, argument in self._buffers), _pack(fields, idx))
        return Launch(self.call.card.entry, kernel, _three(groups), sizes, arguments)

    def _functions(self) -> list[str]:
        """Functions of programs that belong to the kernel, after those that they call."""
        called: dict[str, str] = {}
        for function in self.functions:
            called.update(program_helpers(function.program, function.c))
        return [*called.values(), *(function.text() for function in self.functions)]


def _three(counts: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*counts, 1, 1, 1)[:3]
    return x, y, z


def _size(c: str, idx: str) -> int:
    return struct.calcsize(FORMAT[idx if c == "idx" else c])


def _pack(fields: list[tuple[str, str, float, Patch | None]], idx: str) -> Block:
    """The struct's bytes. Fields stand in order of size, so that there are no gaps but at the end."""
    data, patches = b"", []
    for c, _, value, patch in fields:
        code = FORMAT[idx if c == "idx" else c]
        if patch:
            patches.append(patch._replace(position=len(data)))
        data += pack_number(code, value)
    return Block(data + bytes(-len(data) % 8), tuple(patches))


def pack_number(code: str, value: float) -> bytes:
    """A number in the format of ``struct``, integers modulo their width and reals rounded, infinite beyond."""
    if code in "fd":
        try:
            return struct.pack(code, value)
        except OverflowError:
            return struct.pack(code, float("inf") if value > 0 else float("-inf"))
    bits = 8 * struct.calcsize(code)
    whole = int(value) & ((1 << bits) - 1) if value == value and abs(value) != float("inf") else 0
    return whole.to_bytes(bits // 8, "little")
