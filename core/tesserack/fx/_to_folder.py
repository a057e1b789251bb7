"""A module of a graph as a package in a folder."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

from tesserack import nn
from tesserack.fx._naming import shown_package
from tesserack.fx._writer import import_lines
from tesserack.serialization import save

__all__ = ["to_folder"]

# Layers that are made again from what they print.
_SPELLED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def to_folder(module: Any, folder: str | os.PathLike[str], module_name: str) -> None:
    """Write ``module.py`` with the class, its tensors, and submodules that text cannot spell as files of their own."""
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    save(module.state_dict(), folder / "state_dict.pt")
    package = shown_package()
    lines, pickled = [], []
    for name, child in module.named_children():
        if type(child) in _SPELLED:
            lines.append(f"setattr(self, {name!r}, {package}.nn.{child!r})")
        else:
            (folder / f"{name}.pt").write_bytes(pickle.dumps(child))
            pickled.append(name)
            lines.append(f"setattr(self, {name!r}, pickle.loads((_here / '{name}.pt').read_bytes()))")
    for name, buffer in module._buffers.items():
        if buffer is not None:
            empty = f"{package}.empty({[*buffer.shape]}, dtype={buffer.dtype})"
            lines.append(f"self.register_buffer({name!r}, {empty})")
    for name, parameter in module._parameters.items():
        if parameter is not None:
            empty = f"{package}.empty({[*parameter.shape]}, dtype={parameter.dtype})"
            lines.append(f"setattr(self, {name!r}, {package}.nn.Parameter({empty}))")
    lines.append(f"self.load_state_dict({package}.load(_here / 'state_dict.pt'))")
    (folder / "module.py").write_text(_source(package, module_name, lines, module.code))
    (folder / "__init__.py").write_text("from .module import *\n")
    if pickled:
        warnings.warn(
            f"Was not able to save the following children modules as reprs -saved as pickled files instead: {pickled}",
            stacklevel=3,
        )


def _source(package: str, name: str, lines: list[str], code: str) -> str:
    head = [
        "import pickle", "from pathlib import Path", "", *import_lines(package).values(), "",
        "_here = Path(__file__).parent", "", "", f"class {name}({package}.nn.Module):",
        "    def __init__(self):", "        super().__init__()", *(f"        {line}" for line in lines),
    ]  # fmt: skip
    return "\n".join([*head, *(f"    {line}".rstrip() for line in code.split("\n"))]) + "\n"
