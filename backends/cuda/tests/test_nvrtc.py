"""Every kernel that a broad set of operators takes on CUDA compiles, for three generations of devices."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from families import FAMILIES, recorded
from tesserack_kernelgen import DiskCache
from tesserack_kernelgen.batch import join
from tesserack_kernelgen.cuda import CUDA

ARCHITECTURES = "sm_80", "sm_90", "sm_100"
BATCH = 24  # kernels in one text
#: Kernels that may spill a few bytes, and why.
REASONS = {
    ("softmax", "float64"): "two float64 functions stand in one loop, and the assembler keeps to 40 registers",
    ("log_softmax", "float64"): "the same",
    ("attention_dq", "float16"): "sm_80, heads of 8: four bytes, where the assembler keeps to 72 registers",
    ("attention_dq", "bfloat16"): "the same",
    ("grid_sample_scatter", "float16"): "cubic: 24 bytes of sixteen taps, where the assembler keeps to 32 registers",
    ("grid_sample_scatter", "bfloat16"): "the same",
    ("grid_sample_scatter", "float32"): "the same",
    ("grid_sample_scatter", "float64"): "the same, 32 bytes on sm_90 and sm_100",
    ("batch_norm", "float32"): "sm_80, with five dims: four bytes, where the assembler keeps to 32 registers",
}


@pytest.fixture(scope="module")
def nvrtc() -> Any:
    """CuPy's bindings of NVRTC. Skips where they or the library are not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns of each optional library that is absent
        pytest.importorskip("cupy")
        from cupy_backends.cuda.libs import nvrtc as bindings
    try:
        bindings.getVersion()
    except Exception as error:
        pytest.skip(f"no NVRTC: {error}; pip install nvidia-cuda-nvrtc")
    return bindings


def told(log: str) -> dict[str, dict[str, int]]:
    """By kernel: registers, bytes of stack, and bytes that the assembler spilled."""
    rows = {}
    for part in log.split("Compiling entry function")[1:]:
        name = re.match(r" '(\w+)'", part)
        assert name
        patterns = {
            "registers": r"Used (\d+) reg",
            "stack": r"(\d+) bytes stack",
            "spilled": r"(\d+) bytes spill stores",
        }
        rows[name[1]] = {key: int((re.search(p, part) or [0, 0])[1]) for key, p in patterns.items()}
    return rows


def compiled(nvrtc: Any, kernels: list[tuple[str, str]], architecture: str) -> dict[str, dict[str, int]]:
    """What the assembler tells of kernels, from the disk cache where it has compiled the very same before."""
    from tesserack_cuda.card import compile_text

    text, names = join(CUDA.text("", True), kernels)
    cache, key = DiskCache(), DiskCache.key(text, architecture, str(nvrtc.getVersion()), "report")
    if (kept := cache.get(key)) is None:
        _, log = compile_text(nvrtc, text, architecture, "--ptxas-options=-v")
        kept = json.dumps(told(log)).encode()
        cache.put(key, kept)
    rows = json.loads(kept)
    assert {*rows} == {*names}
    return rows


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_every_variant_compiles(family: Callable[[str], None], architecture: str, nvrtc: Any) -> None:
    pytest.importorskip("tesserack_reference")
    kernels = sorted(recorded(family, CUDA).items(), key=lambda item: item[1])
    assert kernels
    batches = [kernels[start : start + BATCH] for start in range(0, len(kernels), BATCH)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(lambda batch: compiled(nvrtc, batch, architecture), batches))
    rows = [row for part in parts for _, row in sorted(part.items(), key=lambda item: int(item[0].rpartition("_")[2]))]
    assert len(rows) == len(kernels)
    if folder := os.environ.get("TESSERACK_KERNEL_REPORT"):
        Path(folder, f"{architecture}-{family.__name__}.json").write_text(
            json.dumps([{"kernel": name, **row} for (_, name), row in zip(kernels, rows, strict=True)])
        )
    spilled = [
        (name, row)
        for (text, name), row in zip(kernels, rows, strict=True)
        if row["spilled"] and not _excused(text, name)
    ]
    assert not spilled


def _excused(text: str, name: str) -> bool:
    body = text[len(CUDA.text("", True)) :]
    return any(name == kernel and f"LOAD_{dtype}(" in body for kernel, dtype in REASONS)


def test_an_error_carries_the_log(nvrtc: Any) -> None:
    from tesserack_cuda.card import compile_text

    with pytest.raises(RuntimeError, match=r"sm_90.*nonsense"):
        compile_text(nvrtc, 'extern "C" __global__ void k() { nonsense(); }', "sm_90")
