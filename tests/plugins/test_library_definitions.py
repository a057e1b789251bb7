"""Operators by schema and kernels, and packages that answer for libraries built for PyTorch."""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.aten.operators import namespace
from tesserack.library import dispatch
from tesserack.library.definitions import Library


def test_a_result_that_is_optional_may_be_none() -> None:
    library = Library("optional_results", "DEF")
    library.define("maybe(bool some) -> int?")
    library.impl("maybe", lambda some: 3 if some else None, "CompositeExplicitAutograd")
    library.define("always() -> int")
    library.impl("always", lambda: None, "CompositeExplicitAutograd")
    operators = namespace("optional_results")
    assert operators.maybe(True) == 3 and operators.maybe(False) is None
    with pytest.raises(TypeError, match="expected the kernel to return int, got NoneType"):
        operators.always()


def test_open_sizes_in_schemas_are_numbers() -> None:
    library = Library("open_sizes", "DEF")
    library.define("grid(Tensor x, SymInt height, SymInt[] more) -> Tensor")
    library.impl("grid", lambda x, height, more: x.new_ones((height, *more)), "CompositeExplicitAutograd")
    assert tuple(namespace("open_sizes").grid(ts.ones(1), 2, [3, 4]).shape) == (2, 3, 4)


class Point:
    """An entry point, of a package that is not there."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.dist = name, None
        self._calls = calls

    def load(self) -> Any:
        return lambda: self._calls.append(self.name)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    points = [Point("acme/_C", calls), Point("acme/twice", calls), Point("acme/twice", calls)]
    monkeypatch.setattr(dispatch, "none_in", lambda group: False)
    monkeypatch.setattr(dispatch, "entry_points", lambda group: points if group == "tesserack.libraries" else [])
    return calls


def test_an_entry_point_answers_for_a_library_once(answered: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "acme"
    folder.mkdir()
    (folder / "_C.abi3.so").write_bytes(b"of another framework")
    for _ in range(2):
        dispatch.load_library(folder / "_C.abi3.so")
    assert answered == ["acme/_C"]
    with pytest.raises(RuntimeError, match="answered for by several packages"):
        dispatch.load_library(folder / "twice.so")
    with pytest.raises(RuntimeError):
        dispatch.load_library(folder / "other.so")


@pytest.mark.parametrize("package", ["tesserack_vision", "tesserack_audio"])
def test_a_package_here_names_its_libraries(package: str) -> None:
    pytest.importorskip(package)  # a build with the sanitizers sees an editable package's metadata, not its modules
    points = [point for point in metadata.entry_points(group="tesserack.libraries") if point.module == package]
    assert len(points) == 2
    for point in points:
        assert callable(point.load()) and "/" in point.name
