"""Nothing in the core knows a device by name, except the declared default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CORE = Path(__file__).resolve().parents[2] / "core"
# What PyTorch calls its devices, and methods that it names after them.
PARTS = ("compat", "cli/run.py", "nn/attention", "nn/utils/rnn.py", "utils/profiler", "backends/_card.py")
PARTS += ("distributed",)  # PyTorch's names of communicators, which all mean ours
COMPAT = [CORE / "tesserack" / part for part in PARTS]
NAMES = (
    *("cuda", "nvidia", "cudnn", "nccl", "opencl", "ocl", "mps", "metal", "xpu", "sycl", "hip", "rocm", "amdgpu"),
    *("vulkan", "npu", "tpu", "hpu", "mlu", "directml", "webgpu"),
)
# Not between letters or digits; an underscore does not hide a name, so is_cuda counts.
PATTERN = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(NAMES)})(?![A-Za-z0-9])", re.IGNORECASE)
# Texts in which a word names no device of ours.
EXCEPTIONS = (
    "com.acme.npu",  # an example of a vendor's string
    "only supported on CUDA inputs",  # as PyTorch says it
    '"torch.cuda"',  # a module that files of PyTorch name
    *("def cuda(self, device", "is_cuda: _bool"),  # PyTorch's names, in the stubs
    *('_default_device_type = "cuda"', 'device: str = "cuda"'),  # PyTorch's default of a setting
    'device_for_folded_attrs: str = "cuda"',  # likewise
    *("bool cudnn_enable", "cudnn_enabled: bool", "cudnn_enable: bool"),  # arguments of ATen's, which mean nothing here
    "_cuda_graph_capture_health_check",  # a method that steps copied from PyTorch's call
    '"CPU", "CUDA"',  # keys of PyTorch's dispatcher
)
SOURCES = {".py", ".pyi", ".c", ".cpp", ".h", ".hpp", ".in", ".txt", ".md", ".toml"}


def test_no_device_is_named_in_the_core() -> None:
    found = []
    for path in sorted(CORE.rglob("*")):
        if path.suffix not in SOURCES or not path.is_file() or any(path.is_relative_to(part) for part in COMPAT):
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for text in EXCEPTIONS:
                line = line.replace(text, "")
            if PATTERN.search(line):
                found.append(f"{path.relative_to(CORE.parent)}:{number}: {line.strip()}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["cuda", "is_cuda", '"cuda:0"', "x.to('MPS')", "tesserack-opencl", "torch.xpu."])
def test_the_search_finds_names(text: str) -> None:
    assert PATTERN.search(text)


@pytest.mark.parametrize("text", ["clamps", "tip", "ship", "output", "metallic", "input", "chip"])
def test_the_search_leaves_words_alone(text: str) -> None:
    assert not PATTERN.search(text)


def test_exceptions_are_still_needed() -> None:
    files = [path for path in CORE.rglob("*") if path.suffix in SOURCES and not path.is_relative_to(COMPAT[0])]
    texts = "\n".join(path.read_text() for path in files)
    assert all(text in texts for text in EXCEPTIONS)
