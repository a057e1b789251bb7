"""Operators by schema and kernels, and packages that answer for libraries built for PyTorch."""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.aten.operators import namespace
from tesserack.export import default_decompositions, export
from tesserack.library import custom_op, dispatch
from tesserack.library.definitions import Library, define, impl


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


def test_the_older_decorators_take_a_library() -> None:
    library = Library("older_decorators", "DEF")
    decorate: Any = define(library, "double(Tensor x) -> Tensor", alias_analysis="CONSERVATIVE")
    decorate(lambda x: x * 2)
    beside: Any = impl(Library("older_decorators", "IMPL"), "double", "Meta")
    beside(lambda x: x.new_empty(x.shape))
    double = namespace("older_decorators").double
    assert double(ts.ones(1)).item() == 2 and double(ts.ones(1, device="meta")).is_meta
    with pytest.raises(RuntimeError, match="alias_analysis"):
        library.define("other(Tensor x) -> Tensor", "PURE_FUNCTION")


def test_a_kernel_may_return_what_it_was_given() -> None:
    library = Library("given_back", "DEF")
    library.define("same(Tensor x) -> Tensor")
    library.impl("same", lambda x: x, "CPU")
    x = ts.ones(2)
    result = namespace("given_back").same(x)
    assert result is not x and result.data_ptr() == x.data_ptr()


def test_kernels_of_built_in_operators_are_replaced_as_long_as_the_library_is_held() -> None:
    given: list[Any] = []

    def kernel(x: ts.Tensor, *args: Any, **options: Any) -> ts.Tensor:
        given.append((args, options))
        return x * 10

    library = Library("aten", "IMPL", "CPU")
    library.impl("aten::sum.dim_IntList", kernel)
    library.impl(namespace("aten").sgn.default, kernel)
    x = ts.tensor([[1.0, 2.0]], requires_grad=True)
    try:
        assert x.sgn().tolist() == [[10.0, 20.0]] and given == [((), {})]
        assert x.sum(1, keepdim=True).tolist() == [[10.0, 20.0]] and given[1] == (([1], True), {})
        assert x.sum().item() == 3 and x.detach().to("meta").sum(1).shape == (1,)
        x.sum(1, dtype=ts.float64)
        assert given[2] == (([1],), {"dtype": ts.float64})
        library.impl("aten::sgn", lambda x: x * 0)  # the later one counts
        assert x.sgn().tolist() == [[0.0, 0.0]]
        with pytest.raises(RuntimeError, match="already a kernel"):
            library.impl("aten::sgn", kernel, allow_override=False)
    finally:
        del library
    assert x.sgn().tolist() == [[1.0, 1.0]] and x.sum(1).tolist() == [3.0]
    x.sgn().sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.0, 0.0]]


def test_libraries_refuse_what_they_cannot_take() -> None:
    library: Any = Library("aten", "IMPL", "CPU")
    with pytest.raises(TypeError, match="callable"):
        library.impl("sum", [])
    with pytest.raises(RuntimeError, match="inconsistent with the dispatch key"):
        library.impl("sum", abs, "Meta")
    with pytest.raises(RuntimeError, match="does not match namespace"):
        library.impl("other::sum", abs)
    with pytest.raises(RuntimeError, match="operator aten::no_such does not exist"):
        library.impl("no_such", abs)
    with pytest.raises(NotImplementedError, match="AutogradCPU"):
        Library("aten", "IMPL").impl("sum", abs, "AutogradCPU")
    for arguments in (("space", "BLA"), ("prim", "DEF")):
        with pytest.raises(ValueError, match=r"kind|reserved namespace"):
            Library(*arguments)


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


@pytest.mark.parametrize(
    ("package", "names"),
    [
        # From 0.29 on torchvision's are those of the stable ABI.
        ("tesserack_vision", [f"torchvision/{n}{end}" for n in ("_C", "image") for end in ("", "_stable")]),
        ("tesserack_audio", ["torchaudio/lib/_torchaudio", "torchaudio/lib/libtorchaudio"]),
    ],
)
def test_a_package_here_names_its_libraries(package: str, names: list[str]) -> None:
    pytest.importorskip(package)  # a build with the sanitizers sees an editable package's metadata, not its modules
    points = [point for point in metadata.entry_points(group="tesserack.libraries") if point.module == package]
    assert sorted(point.name for point in points) == sorted(names)
    for point in points:
        assert callable(point.load())


def _exported(name: str, key: str) -> tuple[Any, Any, Any]:
    """An operator with a kernel at this key and no rule for shapes, a module that calls it, and that exported."""
    library = Library("definedhere", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x.cos() + x.sin(), key)

    class Program(ts.nn.Module):
        def forward(self, x: Any) -> Any:
            return getattr(namespace("definedhere"), name)(x) * 2

    return getattr(namespace("definedhere"), name).default, Program(), export(Program(), (ts.ones(3),))


@pytest.mark.parametrize("key", ["CompositeExplicitAutograd", "CompositeImplicitAutograd", ""])
def test_a_kernel_for_every_device_tells_how_results_look(key: str) -> None:
    operator, module, program = _exported(f"seen_{key or 'plain'}".lower(), key)
    assert any(node.target is operator for node in program.graph.nodes)
    x = ts.randn(3)
    assert ts.equal(program.module()(x), module(x))
    assert operator(ts.ones(2, device="meta")).shape == (2,)


def test_operators_made_of_others_are_taken_apart_unless_they_are_kept() -> None:
    kept, _, program = _exported("explicit", "CompositeExplicitAutograd")
    assert kept in {node.target for node in program.run_decompositions().graph.nodes}
    apart, module, program = _exported("implicit", "CompositeImplicitAutograd")
    made = program.run_decompositions()
    assert apart not in {node.target for node in made.graph.nodes}
    assert ts.equal(made.module()(ts.arange(3.0)), module(ts.arange(3.0)))
    table = default_decompositions()
    del table[apart]
    assert apart in {node.target for node in program.run_decompositions(table).graph.nodes}


def _plus(k: int) -> Any:
    library = Library("notebook", "FRAGMENT")
    library.define("plus(Tensor x) -> Tensor")
    library.impl("plus", lambda x: x + k, "CompositeExplicitAutograd")
    return library


def test_a_library_that_is_gone_leaves_its_names_to_another() -> None:
    library = _plus(1)
    held = namespace("notebook").plus
    compiled = ts.compile(lambda x: namespace("notebook").plus(x) * 2)
    with pytest.raises(RuntimeError, match="'notebook::plus' is already registered"):
        _plus(2)
    assert [compiled(ts.ones(1)).item() for _ in range(4)] == [4.0] * 4
    del library
    assert namespace("notebook").plus(ts.ones(1)) == 2  # as long as nobody takes the name
    library = _plus(2)
    for operator in (namespace("notebook").plus, held, held.default):
        assert operator(ts.ones(1)) == 3
    assert compiled(ts.ones(1)) == 6
    library._destroy()
    with pytest.raises(AttributeError, match="no attribute 'plus'"):
        _ = namespace("notebook").plus


def test_an_operator_that_is_made_again_takes_the_place_of_the_former() -> None:
    def made(k: int) -> Any:
        @custom_op("notebook::times", mutates_args=())
        def times(x: ts.Tensor) -> ts.Tensor:
            return x * k

        return times

    former, latter = made(2), made(3)
    assert former(ts.ones(1)) == 2 and latter(ts.ones(1)) == 3 and namespace("notebook").times(ts.ones(1)) == 3
    with pytest.raises(RuntimeError, match="is built in"):
        ts._native._forget_operator("add")
    with pytest.raises(RuntimeError, match="no operator named"):
        ts._native._forget_operator("notebook::none")
