"""NCCL through the contract's table: each rank calls it as the core would, on streams with work under way."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from simulated import NAME, Simulated
from tesserack import _native
from tesserack_cuda.communicator import AVERAGE, DTYPES, KINDS
from tesserack_cuda.communicator_table import Collective, Table

pytestmark = pytest.mark.usefixtures("no_fallback")
VALUE_ERROR, DECLINED = 6, 1
_PRINTED = ("kind", "reduction", "dtype", "peer", "sequence", "count", "counts", "gotten", "src", "src_offset", "dst")
_PRINTED += ("dst_offset", "stream")


def test_the_structs_are_those_of_the_header(tmp_path: Path) -> None:
    slots = [name for name, _ in Table._fields_]
    lines = [f"offsetof(ts_collective, {name})" for name in _PRINTED]
    lines += [f"offsetof(ts_communicator, {name})" for name in slots]
    source, program = tmp_path / "offsets.cpp", tmp_path / "offsets"
    shown = "".join(f'printf("%zu ", {line});' for line in lines)
    header = f'#include <cstdio>\n#include "{ts.get_include()}/tesserack/abi.h"\nint main() {{ {shown}'
    sizes = 'printf("%zu %zu", sizeof(ts_collective), sizeof(ts_communicator)); }'
    source.write_text(header + sizes)
    subprocess.run(["g++", str(source), "-o", str(program)], check=True)
    told = [int(n) for n in subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()]
    ours = [getattr(Collective, name).offset for name in _PRINTED] + [getattr(Table, name).offset for name in slots]
    assert told == [*ours, ctypes.sizeof(Collective), ctypes.sizeof(Table)]


class Ranks:
    """Ranks of one communicator, one on each device."""

    def __init__(self, size: int):
        backend: Any = _native._python_backend(NAME)
        self.table, self.size = Table.from_address(backend.communicator_table), size
        identity, told = ctypes.create_string_buffer(200), ctypes.c_size_t()
        assert self.table.unique_id(None, identity, 200, ctypes.byref(told)) == 0 and told.value == 128
        self.handles = []
        for rank in range(size):
            out = ctypes.c_void_p()
            assert self.table.open(None, rank, identity, told.value, rank, size, ctypes.byref(out)) == 0
            self.handles.append(out)

    def call(self, rank: int, kind: str, src: Any, dst: Any, stream: Any = None, **fields: Any) -> int:
        fields["counts"] = _numbers(fields.get("counts"))
        fields["gotten"] = _numbers(fields.get("gotten"))
        dtype = str((src if src is not None else dst).dtype).rpartition(".")[2] if kind != "barrier" else "int32"
        given = Collective(
            ctypes.sizeof(Collective),
            _native._host_table(),
            KINDS.index(kind),
            dtype=fields.pop("code", _DTYPES.index(dtype)),
            src=None if src is None else src.data_ptr() - 8,
            src_offset=8,
            dst=None if dst is None else dst.data_ptr() - 16,
            dst_offset=16,
            stream=None if stream is None else stream.stream_id,
            **fields,
        )
        return int(self.table.collective(None, self.handles[rank], ctypes.byref(given)))

    def all(self, kind: str, sources: Any, targets: Any, **fields: Any) -> list[Any]:
        """Every rank calls, on a stream of its own where its source is still being computed."""
        for rank in range(self.size):
            each = {key: value[rank] if isinstance(value, tuple) else value for key, value in fields.items()}
            src, dst = (x[rank] if x is not None else None for x in (sources, targets))
            status = self.call(rank, kind, src, dst, **each)
            assert status == 0, _native and status
        return [None if x is None else x.cpu().tolist() for x in targets]

    def close(self) -> None:
        for handle in self.handles:
            self.table.close(None, handle)


_DTYPES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16"]
_DTYPES += ["float32", "float64", "complex64", "complex128"]


def _numbers(values: Any) -> Any:
    return None if values is None else (ctypes.c_int64 * len(values))(*values)


@pytest.fixture
def ranks(driver: Simulated) -> Any:
    made = Ranks(2)
    yield made
    made.close()


def tensors(*values: Any, dtype: Any = ts.float32) -> list[Any]:
    return [ts.tensor(v, dtype=dtype).to(f"{NAME}:{rank}") for rank, v in enumerate(values)]


def room(count: int, dtype: Any = ts.float32) -> list[Any]:
    return [ts.full((count,), -1, dtype=dtype, device=f"{NAME}:{rank}") for rank in range(2)]


def test_all_reduce(ranks: Ranks) -> None:
    for reduction, expected in ((0, [5, 7]), (1, [4, 10]), (2, [4, 5]), (3, [1, 2]), (AVERAGE, [2.5, 3.5])):
        sources = tensors([1, 2], [4, 5])
        assert ranks.all("all_reduce", sources, room(2), count=2, reduction=reduction) == [expected] * 2
        assert ranks.all("all_reduce", sources, sources, count=2, reduction=reduction) == [expected] * 2


def test_broadcast_and_reduce(ranks: Ranks) -> None:
    assert ranks.all("broadcast", tensors([1, 2], [4, 5]), room(2), count=2, peer=1) == [[4, 5]] * 2
    assert ranks.all("reduce", tensors([1, 2], [4, 5]), room(2), count=2, peer=1) == [[-1, -1], [5, 7]]


def test_all_gather(ranks: Ranks) -> None:
    assert ranks.all("all_gather", tensors([1, 2], [4, 5]), room(4), count=2) == [[1, 2, 4, 5]] * 2
    got = ranks.all("all_gather", tensors([1], [4, 5, 6]), room(4), count=(1, 3), counts=[1, 3])
    assert got == [[1, 4, 5, 6]] * 2


def test_reduce_scatter(ranks: Ranks) -> None:
    sources = tensors([1, 2, 3, 4], [10, 20, 30, 40])
    assert ranks.all("reduce_scatter", sources, room(2), count=2) == [[11, 22], [33, 44]]
    targets = [room(1)[0], room(3)[1]]
    assert ranks.all("reduce_scatter", sources, targets, count=(1, 3), counts=[1, 3]) == [[11], [22, 33, 44]]
    assert sources[0].cpu().tolist() == [1, 2, 3, 4], "the source is not written"


def test_all_to_all(ranks: Ranks) -> None:
    assert ranks.all("all_to_all", tensors([1, 2], [3, 4]), room(2), count=2) == [[1, 3], [2, 4]]
    own = tensors([1, 2], [3, 4])
    assert ranks.all("all_to_all", own, own, count=2) == [[1, 3], [2, 4]]
    given, gotten = ([1, 2], [0, 1]), ([1, 0], [2, 1])
    for rank, (src, dst) in enumerate(zip(tensors([1, 2, 3], [4]), (made := [room(1)[0], room(3)[1]]), strict=True)):
        assert ranks.call(rank, "all_to_all", src, dst, count=3, counts=given[rank], gotten=gotten[rank]) == 0
    assert [x.cpu().tolist() for x in made] == [[1], [2, 3, 4]]


def test_gather_and_scatter(ranks: Ranks, driver: Simulated) -> None:
    assert ranks.all("gather", tensors([1, 2], [4, 5]), room(4), count=2, peer=0) == [[1, 2, 4, 5], [-1] * 4]
    assert ranks.all("scatter", tensors([1, 2, 3, 4], [0, 0, 0, 0]), room(2), count=2, peer=0) == [[1, 2], [3, 4]]
    assert driver.libraries["nccl"].depth == 0


def test_send_recv_and_barrier(ranks: Ranks) -> None:
    source, target = tensors([7, 8], [0, 0])
    assert ranks.call(0, "send", source, None, count=2, peer=1) == 0
    assert ranks.call(1, "recv", None, target, count=2, peer=0) == 0
    assert target.cpu().tolist() == [7, 8]
    for rank in range(2):
        assert ranks.call(rank, "barrier", None, None) == 0


@pytest.mark.parametrize("dtype", _DTYPES)
def test_dtypes_are_moved(ranks: Ranks, dtype: str) -> None:
    kind = getattr(ts, dtype)
    values = [1, 0, 1], [0, 1, 1]
    given, got = tensors(*values, dtype=kind), room(6, ts.float32)
    targets = [ts.zeros(6, dtype=kind, device=x.device) for x in got]
    assert (
        np.asarray(ranks.all("all_gather", given, targets, count=3)).astype(complex).tolist()
        == [[1, 0, 1, 0, 1, 1]] * 2
    )
    assert DTYPES[_DTYPES.index(dtype)][0] == kind.itemsize


def test_reductions_that_nccl_has_not(ranks: Ranks) -> None:
    for dtype, reduction in ((ts.bool, 0), (ts.int16, 0), (ts.complex64, 1), (ts.float32, 6)):
        x = tensors([1, 0], [1, 1], dtype=dtype)
        assert ranks.call(0, "all_reduce", x[0], x[0], count=2, reduction=reduction) == DECLINED
    x = tensors([1 + 2j], [3 - 1j], dtype=ts.complex64)
    assert ranks.all("all_reduce", x, x, count=1, reduction=0) == [[4 + 1j]] * 2
    y = tensors([True, False], [True, True], dtype=ts.bool)
    assert ranks.all("all_reduce", y, y, count=2, reduction=3) == [[True, False]] * 2


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        ("broadcast", {"count": 2, "peer": 2}, "a rank from 0 to 1, got 2"),
        ("send", {"count": 2, "peer": 0}, "another rank than one's own"),
        ("all_reduce", {"count": -1}, "counts of at least 0"),
        ("all_to_all", {"count": 3}, "a count that 2 ranks share"),
        ("all_to_all", {"count": 2, "counts": [1, 1]}, "counts and gotten, or neither"),
        ("all_reduce", {"count": 2, "code": 99}, "a dtype of the contract"),
    ],
)
def test_mistakes_are_told(ranks: Ranks, kind: str, fields: dict[str, Any], message: str) -> None:
    x = tensors([1, 2], [3, 4])
    assert ranks.call(0, kind, x[0], x[0], sequence=7, **fields) == VALUE_ERROR
    assert message in _native._take_last_error()


def test_memory_that_is_missing(ranks: Ranks) -> None:
    (x, _) = tensors([1, 2], [3, 4])
    assert ranks.call(0, "all_reduce", x, None, count=2, sequence=4) == VALUE_ERROR
    assert "all_reduce (number 4): expected memory to read and write" in _native._take_last_error()


def test_the_order_of_the_stream_holds(ranks: Ranks) -> None:
    """Sources are computed by work under way on other streams than the default ones."""
    sides, sources, targets = [], [], room(3)
    for rank in range(2):
        side = ts.Stream(f"{NAME}:{rank}")
        side.wait_stream(ts.current_stream(f"{NAME}:{rank}"))
        with ts.stream(side):
            sources.append(ts.ones(3, device=f"{NAME}:{rank}") * (rank + 2))
        sides.append(side)
    for rank in range(2):
        assert ranks.call(rank, "all_reduce", sources[rank], targets[rank], stream=sides[rank], count=3) == 0
    for side in sides:
        side.synchronize()
    assert [t.cpu().tolist() for t in targets] == [[5, 5, 5]] * 2


def test_split_and_errors(ranks: Ranks) -> None:
    made = [ctypes.c_void_p() for _ in range(2)]
    driver_order = [(0, 0), (-1, 0)]
    for rank, (color, key) in enumerate(driver_order):
        status = ranks.table.split(None, ranks.handles[rank], color, key, ctypes.byref(made[rank]))
        assert status == 0
    assert made[0].value and not made[1].value
    ranks.table.close(None, made[0])
    assert ranks.table.query_error(None, ranks.handles[0]) == 0
    assert ranks.table.abort(None, ranks.handles[0]) == 0
    assert ranks.table.query_error(None, ranks.handles[1]) == 2
    assert "aborted" in _native._take_last_error()


def test_without_the_library(ranks: Ranks, driver: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(driver.libraries, "nccl")
    told = ctypes.c_size_t()
    assert ranks.table.unique_id(None, ctypes.create_string_buffer(200), 200, ctypes.byref(told)) == 2
    assert "pip install nvidia-nccl-cu13" in _native._take_last_error()


def test_the_names_are_those_of_cupy(driver: Simulated) -> None:
    """Numbers of types and operations, and the methods, beside CuPy's own module, which needs no device."""
    nccl = pytest.importorskip("cupy.cuda.nccl")
    if not nccl.available:
        pytest.skip("nvidia-nccl is not installed")
    simulated = driver.libraries["nccl"]
    names = [name for name in dir(simulated) if name.startswith("NCCL_")]
    assert {name: getattr(simulated, name) for name in names} == {name: getattr(nccl, name) for name in names}
    methods = ("allReduce", "reduce", "broadcast", "allGather", "reduceScatter", "send", "recv", "commSplit", "abort")
    for name in (*methods, "destroy", "check_async_error", "rank_id", "size"):
        assert hasattr(nccl.NcclCommunicator, name)
    assert len(nccl.get_unique_id()) == 128 and isinstance(nccl.get_unique_id(), bytes)
