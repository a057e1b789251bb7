"""Writes docs/guide/support.md: how many of PyTorch's public names are there, module by module, and which are not.

``--check`` compares instead, and exits with 1 where the page is out of date. Needs no torch: the names stand in
core/tesserack/compat/torch_names.txt.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
import warnings
from pathlib import Path

from tesserack.compat import _names
from tesserack.compat._version import TORCH

TARGET = Path(__file__).resolve().parents[1] / "docs" / "guide" / "support.md"
MODULES = [
    "torch",
    "torch.Tensor",
    "torch.nn",
    "torch.nn.functional",
    "torch.nn.init",
    "torch.nn.utils",
    "torch.nn.utils.rnn",
    "torch.nn.utils.parametrizations",
    "torch.nn.utils.parametrize",
    "torch.nn.utils.prune",
    "torch.nn.attention",
    "torch.optim",
    "torch.optim.lr_scheduler",
    "torch.optim.swa_utils",
    "torch.autograd",
    "torch.autograd.functional",
    "torch.autograd.forward_ad",
    "torch.utils.data",
    "torch.utils.checkpoint",
    "torch.amp",
    "torch.linalg",
    "torch.fft",
    "torch.special",
    "torch.signal.windows",
    "torch.distributions",
    "torch.func",
    "torch.sparse",
    "torch.masked",
    "torch.nested",
    "torch.multiprocessing",
    "torch.profiler",
    "torch.hub",
    "torch.package",
    "torch.monitor",
    "torch.fx",
    "torch.jit",
    "torch.testing",
    "torch.library",
    "torch.overrides",
    "torch.random",
    "torch.quasirandom",
]
HEAD = f"""\
# What is there of PyTorch

Public names of PyTorch {TORCH.partition("+")[0]}, module by module; `tools/support_table.py` counts them.
A name that is missing can be imported under `tesserack run` and says on use that it is missing. Of `torch` itself and
`Tensor` only the names in lower case are counted, without those of quantised and vendor-specific operators.

| Module | There | Missing |
|---|---:|---|
"""
# What a module imported, or made its docstrings of.
STRAY = {"Tensor", "inf", "tqdm", "multi_dim_common", "bind"}
VENDORS = (
    "miopen",
    "cudnn",
    "hipdnn",
    "mkldnn",
    "fbgemm",
    "quantize",
    "q_",
    "per_channel",
    "per_tensor",
    "int_repr",
    "fake_quant",
    "sym_",
    "quantized",
    "qscheme",
    "choose_qparams",
    "dequantize",
    "fused_moving",
    "qint",
    "quint",
)


def names_of(module: str) -> list[str]:
    """PyTorch's public names in a module that count."""
    names = [name for name in _names.names(module) if not name.startswith("_")]
    if module in ("torch", "torch.Tensor"):
        names = [name for name in names if name.islower() and not name.startswith(VENDORS)]
    return sorted(
        name for name in names if not name.isupper() and not name.endswith(("_notes", "_args")) and name not in STRAY
    )


def has(module: str, name: str) -> bool:
    """Whether Tesserack has the name."""
    if module == "torch.Tensor":
        import tesserack

        return hasattr(tesserack.Tensor, name)
    try:
        return hasattr(importlib.import_module("tesserack" + module.removeprefix("torch")), name)
    except ImportError:
        return False


def page() -> str:
    """The text of the page."""
    rows = []
    for module in MODULES:
        names = names_of(module)
        missing = [name for name in names if not has(module, name)]
        listed = ", ".join(f"`{name}`" for name in missing)
        rows.append(f"| `{module}` | {len(names) - len(missing)} of {len(names)} | {listed} |")
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("--check", action="store_true", help="compare with the page, change nothing")
    options = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        text = page()
    if not options.check:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print(f"{TARGET.name} is out of date: run tools/support_table.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
