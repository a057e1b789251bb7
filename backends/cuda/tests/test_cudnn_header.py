"""What the backend knows of cuDNN, beside header and library of ``nvidia-cudnn-cu13``; no device is needed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import headers
import pytest
from simulated_cudnn import _PROTOTYPES
from tesserack_cuda.cudnn import CONSTANTS, FUNCTIONS, TYPES, Library, NotSupported, Status
from tesserack_cuda.driver import find_library

NATIVE = Path(__file__).parents[3] / "plugins/kernelgen/native/cudnn.cpp"


@pytest.fixture(scope="module")
def header() -> str:
    """cudnn_graph.h without comments."""
    return headers.text(headers.package_file("nvidia-cudnn-cu13", "cudnn_graph.h", "cudnn"))


@pytest.mark.parametrize("name", [*CONSTANTS])
def test_constants(header: str, name: str) -> None:
    assert headers.value(header, name) == CONSTANTS[name]


def test_data_types(header: str) -> None:
    names = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF", "bfloat16": "BFLOAT16"}
    assert {key: headers.value(header, f"CUDNN_DATA_{name}") for key, name in names.items()} == TYPES


@pytest.mark.parametrize("name", [*FUNCTIONS])
@pytest.mark.parametrize("known", [FUNCTIONS, _PROTOTYPES], ids=["backend", "simulated"])
def test_prototypes(header: str, name: str, known: dict[str, Any]) -> None:
    assert [headers.plain(kind) for kind in known[name]] == headers.declared(header, name)


def test_what_is_not_supported_has_its_range_of_statuses(header: str) -> None:
    statuses = {name: headers.value(header, name) for name in re.findall(r"CUDNN_STATUS_[A-Z_]+(?= *=)", header)}
    first, end = CONSTANTS["CUDNN_STATUS_NOT_SUPPORTED"], CONSTANTS["CUDNN_STATUS_INTERNAL_ERROR"]
    assert len(statuses) > 20
    for name, number in statuses.items():
        assert (first <= number < end) == name.startswith("CUDNN_STATUS_NOT_SUPPORTED"), name


def test_the_launchers_numbers(header: str) -> None:
    """Those that stand in C once more."""
    written = dict(re.findall(r"\b(k\w+) = (\d+)", NATIVE.read_text()))
    names = {"kVariantPack": "BACKEND_VARIANT_PACK_DESCRIPTOR", "kUniqueIds": "ATTR_VARIANT_PACK_UNIQUE_IDS"}
    names |= {"kDataPointers": "ATTR_VARIANT_PACK_DATA_POINTERS", "kScratch": "ATTR_VARIANT_PACK_WORKSPACE"}
    names |= {"kInt64": "TYPE_INT64", "kVoidPointer": "TYPE_VOID_PTR"}
    assert {key: int(written[key]) for key in names} == {
        k: headers.value(header, f"CUDNN_{n}") for k, n in names.items()
    }


@pytest.fixture(scope="module")
def library(header: str) -> Library:
    found = find_library("cudnn")
    assert found is not None
    return Library(found)


def test_a_refusal_is_told(library: Library) -> None:
    descriptor = library.create("TENSOR")
    with pytest.raises(
        Status, match=r"cudnnBackendSetAttribute returned status 2[0-9]{3} .CUDNN_STATUS_BAD_PARAM"
    ) as told:
        library.tell(descriptor, "TENSOR_DIMENSIONS", "FLOAT", [1.0])
    assert not isinstance(told.value, NotSupported)
    library.destroy([descriptor])


# Loads the real library in a process that has a libcuda.so.1 whose functions fail, and has it check what a convolution
# is described by, up to the graph: that asks for a handle, and a handle for a device.
PROGRAM = """
import itertools
import tesserack as ts
from tesserack_cuda.convolution import _DIRECTIONS, _Work
from tesserack_cuda.cudnn import Library
from tesserack_cuda.driver import find_library
from tesserack_cuda.placed import Placed

class Handle(Exception): pass

class Checked(Library):
    def handle(self, device, use):
        raise Handle

class Made:
    library, _backend, _card = Checked(find_library("cudnn")), None, None

def strides(sizes, last):
    return Placed(sizes, sizes, None, 0, 0).packed(last)

counts = 0
DTYPES = "float32", "float64", "bfloat16"
for dims, last, dtype, op in itertools.product((1, 2, 3), (False, True), DTYPES, _DIRECTIONS):
    x, y, w = [2, 8, *(7, 6, 5)[:dims]], [2, 16, *(7, 6, 5)[:dims]], [16, 4, *(3,) * dims]
    of = {"Y": y, "X": x, "W": w, "DX": x, "DY": y, "DW": w}

    class Operand:
        def __init__(self, sizes, images):
            self.shape, self.strides, self.byte_offset = sizes, strides(sizes, last and images), 8
            self.dtype, self.numel = getattr(ts, dtype), 0

    roles = _DIRECTIONS[op][2]
    tensors = [Placed.of(Operand(of[role], not role.endswith("W")), k) for k, role in enumerate(roles)]
    work = _Work(Made, 0, op, tensors, ([1] * dims, [1] * dims, [1] * dims), set())
    bias = Placed([1, 16] + [1] * max(dims, 2), [16, 1] + [1] * max(dims, 2), getattr(ts, dtype), 0, 3)
    for given in (None, *([bias] if op == "convolution" else [])):
        try:
            work._graph(given)
        except Handle:
            counts += 1
t = work._describe("TENSOR", TENSOR_UNIQUE_ID=("INT64", 7), TENSOR_DATA_TYPE=("DATA_TYPE", 9),
    TENSOR_DIMENSIONS=("INT64", [2, 3, 4, 5]), TENSOR_STRIDES=("INT64", [60, 1, 15, 3]),
    TENSOR_BYTE_ALIGNMENT=("INT64", 4), TENSOR_IS_VIRTUAL=("BOOLEAN", False))
names = {"DATA_TYPE": ("DATA_TYPE", 1), "DIMENSIONS": ("INT64", 8), "STRIDES": ("INT64", 8)}
print(counts, [Made.library.get(t, f"TENSOR_{name}", *kind) for name, kind in names.items()])
"""


def test_the_real_library_takes_the_descriptions(header: str, tmp_path: Path) -> None:
    """Attributes, their types and what they mean for one another are checked by it, and read back."""
    engines = headers.package_file("nvidia-cudnn-cu13", "libcudnn_engines_runtime_compiled.so.9", "cudnn")
    wanted = subprocess.run(
        ["nm", "-D", "--undefined-only", engines], capture_output=True, text=True, check=True
    ).stdout
    names = re.findall(r"U (cu[A-Z]\w+)", wanted)  # without which the library is not loaded
    (tmp_path / "none.c").write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
    made = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", "none.c"]
    subprocess.run(made, check=True, cwd=tmp_path)
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.stdout.split("\n")[0] == "72 [[9], [2, 3, 4, 5], [60, 1, 15, 3]]", done.stdout + done.stderr[-3000:]
