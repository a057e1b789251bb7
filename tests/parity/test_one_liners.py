"""Lines that are run in both libraries: the result has the same kind, dtype, shape, strides, layout and values, or both
refuse. The lines stand in ``one_liners/*.txt``, one a line; what comes before the last semicolon prepares."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tesserack as ts

torch = pytest.importorskip("torch")

LINES = [
    (path.stem, line)
    for path in sorted((Path(__file__).parent / "one_liners").glob("*.txt"))
    for line in path.read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]


def _names(library: ModuleType) -> dict[str, Any]:
    return {"torch": library, "np": np, "nn": library.nn, "F": library.nn.functional}


def _run(line: str, library: ModuleType) -> Any:
    names = _names(library)
    library.manual_seed(0)
    *before, last = line.split("; ")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec("; ".join(before), names)
            return list(_facts(eval(last, names), library))
    except Exception as error:
        return f"refused: {type(error).__name__}: {error}"
    finally:
        library.set_default_dtype(library.float32)
        library.use_deterministic_algorithms(False)


def _facts(value: Any, library: ModuleType) -> Iterator[Any]:
    if isinstance(value, library.Tensor):
        yield from _tensor_facts(value.detach(), library)
    elif isinstance(value, (tuple, list)):
        yield len(value)
        for item in value:
            yield from _facts(item, library)
    elif isinstance(value, (bool, int, float, complex, str, type(None))):
        yield value
    else:
        yield str(value).replace("tesserack.", "torch.")


def _tensor_facts(value: Any, library: ModuleType) -> Iterator[Any]:
    yield from (str(value.dtype).rpartition(".")[2], tuple(value.shape), str(value.layout).rpartition(".")[2])
    if value.layout is not library.strided:
        yield value._nnz()
        value = value.to_dense()
    else:
        yield value.stride()
    if not value.is_meta:
        yield from value.resolve_conj().resolve_neg().reshape(-1).tolist()


def _agree(a: Any, b: Any) -> bool:
    if isinstance(a, str) and isinstance(b, str) and a.startswith("refused") and b.startswith("refused"):
        return True
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_agree, a, b))
    if isinstance(a, (float, complex)) and isinstance(b, (float, complex)):
        if a != a or b != b:
            return a != a and b != b
        return a == b or math.isclose(abs(a - b), 0, abs_tol=1e-6 + 1e-4 * abs(a))
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize(("family", "line"), LINES, ids=[f"{family}-{line[:90]}" for family, line in LINES])
def test_both_libraries_agree(family: str, line: str) -> None:
    ours, theirs = _run(line, ts), _run(line, torch)
    assert _agree(ours, theirs), f"{line}\n  tesserack: {ours}\n  torch:     {theirs}"
