"""What the backend knows of cuBLASLt, beside header and library of ``nvidia-cublas``; no device is needed."""

from __future__ import annotations

import ctypes
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import headers
import pytest
from simulated_cublaslt import _PROTOTYPES
from tesserack_cuda.cublaslt import COMPUTE, CONSTANTS, FUNCTIONS, TYPES, Heuristic, Library, Status
from tesserack_cuda.driver import find_library


@pytest.fixture(scope="module")
def header() -> str:
    """cublasLt.h and cublas_api.h without comments."""
    return headers.text(*(_file(name) for name in ("cublasLt.h", "cublas_api.h")))


def _file(name: str) -> Path:
    return headers.package_file("nvidia-cublas", name, "blas")


@pytest.mark.parametrize("name", [*CONSTANTS])
def test_constants(header: str, name: str) -> None:
    assert headers.value(header, name) == CONSTANTS[name]


def test_compute_types(header: str) -> None:
    names = {"float32": "32F", "tf32": "32F_FAST_TF32", "float64": "64F"}
    assert {key: headers.value(header, f"CUBLAS_COMPUTE_{name}") for key, name in names.items()} == COMPUTE


def test_data_types() -> None:
    """By library_types.h, which the runtime's package brings."""
    files = [f for f in metadata.files("nvidia-cuda-runtime") or [] if f.name == "library_types.h"]
    if not files:
        pytest.skip("library_types.h is not installed")
    text = headers.text(Path(str(files[0].locate())))
    names = {"float32": "R_32F", "float64": "R_64F", "float16": "R_16F", "bfloat16": "R_16BF"}
    names |= {"complex64": "C_32F", "complex128": "C_64F"}
    assert {key: headers.value(text, f"CUDA_{name}") for key, name in names.items()} == TYPES


@pytest.mark.parametrize("name", [*FUNCTIONS])
@pytest.mark.parametrize("known", [FUNCTIONS, _PROTOTYPES], ids=["backend", "simulated"])
def test_prototypes(header: str, name: str, known: dict[str, Any]) -> None:
    assert [headers.plain(kind) for kind in known[name]] == headers.declared(header, name)


def test_sizes_of_structs(header: str) -> None:
    """The algorithm, 64 bytes, stands first in a result of the heuristics."""
    assert re.search(r"uint64_t data\[8\];\s*}\s*cublasLtMatmulAlgo_t", header)
    body = re.search(r"typedef struct \{([^}]*)\}\s*cublasLtMatmulHeuristicResult_t", header)
    assert body
    fields = [line.split()[0] for line in body.group(1).split(";") if line.strip()]
    assert fields == ["cublasLtMatmulAlgo_t", "size_t", "cublasStatus_t", "float", "int"]
    assert ctypes.sizeof(Heuristic) == 96 and Heuristic.workspace_bytes.offset == 64


@pytest.fixture(scope="module")
def library() -> Library:
    _file("cublasLt.h")
    found = find_library("cublasLt")
    assert found is not None
    return Library(found)


def test_the_real_library_takes_the_descriptions(library: Library) -> None:
    """It checks the size of each attribute; what it was told is read back."""
    get = find_library("cublasLt")
    desc = library.description(COMPUTE["tf32"], TYPES["float32"], (1, 0), 6, 4096)
    layout = library.layout(TYPES["bfloat16"], 5, 7, 9, 3, 100)

    def read(kind: str, which: int, name: str, held: Any) -> int:
        size, function = ctypes.c_size_t(), getattr(get, f"cublasLt{kind}GetAttribute")
        attribute = CONSTANTS[f"CUBLASLT_{name}"]
        assert not function(
            ctypes.c_void_p(which),
            attribute,
            ctypes.byref(held),
            ctypes.c_size_t(ctypes.sizeof(held)),
            ctypes.byref(size),
        )
        return int(held.value)

    assert read("MatmulDesc", desc, "MATMUL_DESC_TRANSA", ctypes.c_int32()) == 1
    assert read("MatmulDesc", desc, "MATMUL_DESC_TRANSB", ctypes.c_int32()) == 0
    assert read("MatmulDesc", desc, "MATMUL_DESC_EPILOGUE", ctypes.c_uint32()) == 6
    assert read("MatmulDesc", desc, "MATMUL_DESC_BIAS_POINTER", ctypes.c_uint64()) == 4096
    assert read("MatrixLayout", layout, "MATRIX_LAYOUT_BATCH_COUNT", ctypes.c_int32()) == 3
    assert read("MatrixLayout", layout, "MATRIX_LAYOUT_STRIDED_BATCH_OFFSET", ctypes.c_int64()) == 100
    with library._preference(1 << 20, (16, 16, 8, 4)) as preference:
        for letter, bytes_ in zip("ABCD", (16, 16, 8, 4), strict=True):
            name = f"MATMUL_PREF_MIN_ALIGNMENT_{letter}_BYTES"
            assert read("MatmulPreference", preference, name, ctypes.c_uint32()) == bytes_
        assert read("MatmulPreference", preference, "MATMUL_PREF_MAX_WORKSPACE_BYTES", ctypes.c_uint64()) == 1 << 20
        assert read("MatmulPreference", preference, "MATMUL_PREF_REDUCTION_SCHEME_MASK", ctypes.c_uint32()) == 3
    library.release(desc, (layout, layout))


def test_a_refusal_is_told(library: Library) -> None:
    layout = library.layout(TYPES["float32"], 5, 7, 9, 1, 0)
    with pytest.raises(Status, match="cublasLtMatrixLayoutSetAttribute returned status 7"):
        library._set("MatrixLayout", layout, MATRIX_LAYOUT_BATCH_COUNT=("q", 1))  # int32_t
    library.call("cublasLtMatrixLayoutDestroy", layout)
