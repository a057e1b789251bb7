"""The text that templates write, against golden files, and the arguments beside it. Nothing is compiled.

``UPDATE_GOLDEN=1 pytest plugins/kernelgen/tests`` writes the files anew.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tesserack_kernelgen import Call, Card, Device
from tesserack_kernelgen.emit import program_text
from tesserack_kernelgen.kernel import pack_number
from tesserack_kernelgen.layout import contiguous, coordinates, merge, offset_text
from tesserack_kernelgen.opencl import OPENCL
from tesserack_kernelgen.templates import TEMPLATES

GOLDEN = Path(__file__).parent / "golden"


class Recorder(Card):
    """A card that compiles nothing and keeps the texts."""

    dialect, entry = OPENCL, 1

    def __init__(self, serial: bool) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.limits = Device(0, "none", 128, 4, 4 if serial else 16, True, serial, True, bytes(8))

    def compile(self, device: Device, source: str, name: str) -> int:
        self.texts.append("typedef i32 idx" + source.rpartition("typedef i32 idx")[2])
        return len(self.texts)


def tensor(*shape: int, strides: tuple[int, ...] | None = None, dtype: str = "float32", offset: int = 0) -> Any:
    if strides is None:
        strides = tuple(int(1 if d == len(shape) - 1 else _product(shape[d + 1 :])) for d in range(len(shape)))
    return SimpleNamespace(
        shape=shape, strides=strides, dtype=f"tesserack.{dtype}", ndim=len(shape), numel=_product(shape),
        byte_offset=offset,
    )  # fmt: skip


def _product(values: tuple[int, ...]) -> int:
    total = 1
    for value in values:
        total *= value
    return total


ADD_EXP = SimpleNamespace(constants=(2.0,), instructions=(("mul", 0, 2), ("add", 3, 1), ("exp", 4)), outputs=(5,))
DIVIDE = SimpleNamespace(constants=(), instructions=(("floordiv", 0, 1),), outputs=(2,))

CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "pointwise_flat": (
        "pointwise",
        {"outputs": [tensor(999)], "inputs": [tensor(999), 3.0], "program": ADD_EXP, "compute": "float32"},
    ),
    "pointwise_grid": (
        "pointwise",
        {
            "outputs": [tensor(7, 50, dtype="float16")],
            "inputs": [tensor(7, 50, strides=(1, 7)), tensor(7, 50, strides=(0, 1), dtype="bfloat16")],
            "program": ADD_EXP,
            "compute": "float32",
        },
    ),
    "pointwise_integers": (
        "pointwise",
        {
            "outputs": [tensor(9, dtype="int8")],
            "inputs": [tensor(9, dtype="int64"), tensor(9, dtype="int32")],
            "program": DIVIDE,
            "compute": "int64",
        },
    ),
    "reduce_rows": (
        "reduce",
        {"outputs": [tensor(6)], "inputs": [tensor(6, 500)], "params": (1,), "opcode": "sum", "compute": "float32"},
    ),
    "argmax_columns": (
        "reduce",
        {
            "outputs": [tensor(6, dtype="int64")],
            "inputs": [tensor(6, 500, strides=(1, 6))],
            "params": (1,),
            "opcode": "argmax",
            "compute": "float32",
        },
    ),
    "softmax": ("softmax", {"outputs": [tensor(5, 64)], "inputs": [tensor(5, 64)], "params": (1,)}),
}


def plan_of(case: str, serial: bool) -> tuple[Any, Recorder]:
    op, given = CALLS[case]
    card = Recorder(serial)
    fields = {"opcode": 0, "compute": None, "params": (), "program": None, **given}
    call = Call(
        card, card.limits, op, fields["opcode"], fields["compute"], tuple(fields["outputs"]), tuple(fields["inputs"]),
        fields["params"], fields["program"],
    )  # fmt: skip
    card.device = lambda index: card.limits  # type: ignore[method-assign]
    return TEMPLATES[op](call), card


@pytest.mark.parametrize("case", CALLS)
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_text_is_as_it_was(case: str, kind: str) -> None:
    _, card = plan_of(case, kind == "serial")
    path, text = GOLDEN / f"{case}_{kind}.txt", "\n\n".join(card.texts) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_sizes_are_arguments_so_that_one_kernel_serves_all() -> None:
    texts = set()
    for rows, length in ((6, 500), (9, 777), (40, 1234)):
        CALLS["sized"] = (
            "reduce",
            {
                "outputs": [tensor(rows)], "inputs": [tensor(rows, length)], "params": (1,), "opcode": "sum",
                "compute": "float32",
            },
        )  # fmt: skip
        texts.update(plan_of("sized", False)[1].texts)
    del CALLS["sized"]
    assert len(texts) == 1


def _texts(op: str, serial: bool, calls: list[dict[str, Any]]) -> set[str]:
    texts = set()
    for call in calls:
        CALLS["several"] = (op, call)
        texts.update(plan_of("several", serial)[1].texts)
    del CALLS["several"]
    return texts


@pytest.mark.parametrize("serial", [True, False])
def test_a_single_element_and_a_single_line_have_the_text_of_many(serial: bool) -> None:
    def exp(*pairs: tuple[Any, Any]) -> list[dict[str, Any]]:
        program = SimpleNamespace(constants=(), instructions=(("exp", 0),), outputs=(1,))
        return [{"outputs": [o], "inputs": [x], "program": program, "compute": "float32"} for o, x in pairs]

    def total(*operands: Any) -> list[dict[str, Any]]:
        return [
            {"outputs": [tensor(*x.shape[:-1])], "inputs": [x], "params": (1,), "opcode": "sum", "compute": "float32"}
            for x in operands
        ]

    assert (
        len(_texts("pointwise", serial, exp((tensor(), tensor()), (tensor(1), tensor(1)), (tensor(9), tensor(9))))) == 1
    )
    stepped, turned = tensor(9, strides=(2,)), tensor(16, 9, strides=(1, 16))
    assert len(_texts("pointwise", serial, exp((tensor(9), stepped), (tensor(16, 9), turned)))) == 1
    assert len(_texts("reduce", serial, total(tensor(9), tensor(6, 9), tensor(1, 1)))) == 1

    def along(op: str, *outputs: str, **given: Any) -> int:
        shapes = ((9,), (1, 9), (6, 9), (2, 3, 9))
        calls = [{"outputs": [tensor(*s, dtype=d) for d in outputs], "inputs": [tensor(*s)], **given} for s in shapes]
        return len(_texts(op, serial, calls))

    assert along("scan", "float32", opcode="sum", compute="float32") == 1
    assert along("topk", "float32", "int64", params=(3, -1, True, True)) == 1
    assert along("sort", "float32", "int64", params=(False,)) == 2  # in blocks, and what is written


def test_the_struct_has_the_bytes_that_the_text_reads() -> None:
    plan, _ = plan_of("pointwise_flat", False)
    (launch,) = plan.launches
    *buffers, block = launch.arguments
    assert [b.operand for b in buffers] == [0, 1]
    # two offsets of eight bytes, then the number 3 and the count
    assert struct.unpack("qqfi", block.data) == (0, 0, 3.0, 999)
    assert [(p.position, p.kind, p.source, p.format) for p in block.patches] == [
        (0, "offset", 0, "q"),
        (8, "offset", 1, "q"),
        (16, "scalar", 2, "f"),
    ]
    assert launch.groups[0] * launch.group_size[0] * 4 >= 999  # of which a thread takes as many as make 16 bytes


def test_a_plan_with_two_stages_asks_for_workspace() -> None:
    CALLS["all"] = (
        "reduce",
        {"outputs": [tensor()], "inputs": [tensor(10**6)], "params": (1,), "opcode": "sum", "compute": "float32"},
    )
    plan, _ = plan_of("all", False)
    del CALLS["all"]
    assert len(plan.launches) == 2 and plan.workspace > 0


def test_dims_merge_where_all_operands_allow_it() -> None:
    assert merge((2, 3, 4), (12, 4, 1), (12, 4, 1)) == ((24,), [(1,), (1,)])
    assert merge((2, 3, 4), (12, 4, 1), (0, 4, 1)) == ((2, 12), [(12, 1), (0, 1)])
    assert merge((2, 1, 4), (4, 99, 1)) == ((8,), [(1,)])
    assert merge((2, 3), (-3, -1)) == ((6,), [(-1,)])
    assert contiguous((2, 1, 3), (3, 77, 1)) and not contiguous((2, 3), (1, 2))


def test_coordinates_count_in_row_major_order() -> None:
    text = coordinates("i", ["2", "3", "5"], ["a", "b", "c"]).replace("const idx ", "").replace("/", "//")
    for i in range(30):
        names: dict[str, int] = {"i": i}
        exec(text, {}, names)
        assert names["a"] * 15 + names["b"] * 5 + names["c"] == i
    assert offset_text(["a", "b"], ["0", "1"]) == "(b)"


@pytest.mark.parametrize(
    "code, value, expected",
    [("f", 1e300, struct.pack("f", float("inf"))), ("i", -1, b"\xff" * 4), ("Q", 2**64 - 1, b"\xff" * 8)],
)
def test_numbers_wrap_or_overflow_as_their_types_do(code: str, value: float, expected: bytes) -> None:
    assert pack_number(code, value) == expected


def test_integer_constants_have_64_bits() -> None:
    program = SimpleNamespace(constants=(2.0**60,), integers=(2**60 + 1,), instructions=(("add", 0, 1),), outputs=(2,))
    whole, *_ = program_text(program, ["x"], "i64", lambda divisor: "")
    real, *_ = program_text(program, ["x"], "f64", lambda divisor: "")
    assert str(2**60 + 1) in whole[0] and str(2**60 + 1) not in real[0]
