"""Packages that PyTorch and Tesserack write for each other."""

from __future__ import annotations

import importlib
import io
from typing import Any

import pytest
import tesserack as ts
from tesserack import package

torch = pytest.importorskip("torch")
NAMES = ("float32", "bfloat16", "int64", "bool", "complex64", "uint8")


def contents(library: Any) -> dict[str, Any]:
    made = {name: library.tensor([[1, 0, 1], [0, 1, 1]], dtype=getattr(library, name)).t() for name in NAMES}
    base = library.arange(10)
    parameter = library.nn.Parameter(library.ones(2))
    return {
        **made,
        "base": base,
        "part": base[3:7:2],
        "parameter": parameter,
        "size": library.Size([2, 3]),
        "plain": [1, "a", None],
    }


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("writer", ["ts", "torch"])
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_each_reads_what_the_other_wrote(writer: str, protocol: int) -> None:
    theirs: Any = importlib.import_module("torch.package")
    here, there = (ts, torch) if writer == "ts" else (torch, ts)
    out, back = (package, theirs) if writer == "ts" else (theirs, package)
    file = io.BytesIO()
    with out.PackageExporter(file) as exporter:
        exporter.save_source_string("code", "import math\ndef root(x):\n    return math.sqrt(x)\n")
        exporter.save_pickle("res", "o.pkl", contents(here), pickle_protocol=protocol)
        exporter.save_text("res", "t.txt", "text")
    importer = back.PackageImporter(io.BytesIO(file.getvalue()))
    got, want = importer.load_pickle("res", "o.pkl"), contents(there)
    assert importer.import_module("code").root(4.0) == 2.0
    assert importer.load_text("res", "t.txt") == "text"
    assert list(got) == list(want)
    for name, value in want.items():
        if isinstance(value, there.Tensor):
            assert type(got[name]) is type(value)
            assert got[name].dtype == value.dtype
            assert got[name].stride() == value.stride()
            assert got[name].tolist() == value.tolist()
        else:
            assert got[name] == value
    got["base"][3] = 50
    assert got["part"].tolist() == [50, 5]
