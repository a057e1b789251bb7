"""tesserack.check_shapes: annotations held against calls, errors told in names of axes, the switch, the hook."""

from __future__ import annotations

import copy
import importlib
import inspect
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest
import tesserack as ts
from tesserack import Tensor, nn
from tesserack.utils import shapes
from tesserack.utils.shapes import ShapeError
from tesserack.utils.shapes._dims import parse_shape

ones = ts.ones


@pytest.fixture(params=["tesserack.utils.shapes", "jaxtyping"])
def typing_of(request: pytest.FixtureRequest) -> Any:
    if request.param == "jaxtyping":
        return pytest.importorskip(
            "jaxtyping", reason="comes with tesserack[test]; the same annotations of ours are run"
        )
    return importlib.import_module(request.param)


def checked(typing_of: Any, *texts: str, result: str | None = None, family: str = "Float") -> Any:
    """A checked function of so many tensors; its result is the last."""
    hint = getattr(typing_of, family)
    names = [f"x{k}" for k in range(len(texts))]

    space: dict[str, Any] = {}
    exec(f"def f({', '.join(names)}): return {names[-1]}", space)
    f = space["f"]
    f.__annotations__ = {n: hint[Tensor, text] for n, text in zip(names, texts, strict=True)}
    if result is not None:
        f.__annotations__["return"] = hint[Tensor, result]
    return ts.check_shapes(f)


RIGHT = [
    (["a b", "b c"], [(2, 3), (3, 4)]),
    (["a a"], [(2, 2)]),
    (["a _", "a _"], [(2, 3), (2, 5)]),
    (["_rows b", "b"], [(7, 3), (3,)]),
    (["... c", "c"], [(2, 3, 4), (4,)]),
    (["... c", "c"], [(4,), (4,)]),
    (["c ...", "c"], [(4, 1, 2), (4,)]),
    (["*b c", "*b d"], [(2, 3, 4), (2, 3, 5)]),
    (["*b c", "*b"], [(4,), ()]),
    (["a *b c", "*b"], [(1, 2, 3, 4), (2, 3)]),
    (["3 a"], [(3, 9)]),
    (["channels=3 a"], [(3, 9)]),
    (["a", "a+1"], [(3,), (4,)]),
    (["a b", "a*b"], [(2, 3), (6,)]),
    (["a*b", "a b"], [(6,), (2, 3)]),
    (["a", "a//2 a%2 2**a"], [(5,), (2, 1, 32)]),
    (["a b", "min(a,b) max(a,b)"], [(5, 2), (2, 5)]),
    (["a b", "#a #b"], [(5, 2), (1, 2)]),
    (["#a", "a"], [(1,), (3,)]),
    (["*#b", "*#b"], [(2, 1), (3,)]),
    ([""], [()]),
    (["a #1"], [(3, 1)]),
]
WRONG = [
    (["a b", "b c"], [(2, 3), (4, 4)], "b is 3, got 4 in axis 0 of `x1` [4, 4]; b=3 from `x0`"),
    (["a a"], [(2, 3)], "a is 2, got 3 in axis 1 of `x0`"),
    (["a b"], [(2, 3, 4)], "`x0` has 2 axes (a b), got 3 of shape [2, 3, 4]"),
    (["a ... b"], [(2,)], "at least 2 axes"),
    (["... c", "c"], [(2, 3, 4), (3,)], "c is 4, got 3"),
    (["*b c", "*b d"], [(2, 3, 4), (3, 2, 5)], "*b is [2, 3], got [3, 2] in `x1`"),
    (["*b c", "*b"], [(2, 4), (2, 2)], "*b is [2], got [2, 2]"),
    (["3 a"], [(4, 9)], "expected 3, got 4 in axis 0"),
    (["a", "a+1"], [(3,), (3,)], "a+1 is 4, got 3 in axis 0 of `x1` [3]; a=3 from `x0`"),
    (["a b", "a*b"], [(8, 64), (384,)], "a*b is 512, got 384"),
    (["a*b", "a b"], [(7,), (2, 3)], "a*b is 6, got 7 in axis 0 of `x0`"),
    (["a b", "#a #b"], [(5, 2), (3, 2)], "a is 5, got 3"),
    (["*#b", "*#b"], [(2, 2), (3,)], "*b is [2, 2], got [3]"),
    ([""], [(1,)], "has 0 axes"),
]


@pytest.mark.parametrize(("texts", "sizes"), RIGHT, ids=lambda p: "-".join(map(str, p)))
def test_what_fits(typing_of: Any, texts: list[str], sizes: list[tuple[int, ...]]) -> None:
    f = checked(typing_of, *texts)
    tensors = [ones(size) for size in sizes]
    assert f(*tensors) is tensors[-1]
    assert f(**{f"x{k}": t for k, t in enumerate(tensors)}) is tensors[-1]


@pytest.mark.parametrize(("texts", "sizes", "said"), WRONG, ids=lambda p: "-".join(map(str, p)))
def test_what_does_not_fit(typing_of: Any, texts: list[str], sizes: list[tuple[int, ...]], said: str) -> None:
    with pytest.raises(ShapeError) as raised:
        checked(typing_of, *texts)(*(ones(size) for size in sizes))
    assert str(raised.value).startswith("`f`: ") and said in str(raised.value)


def test_results_are_held_too(typing_of: Any) -> None:
    assert checked(typing_of, "a b", result="a b")(ones(2, 3)).shape == (2, 3)
    with pytest.raises(ShapeError, match=r"`f`: b is 3, got 2 in axis 0 of the result \[2, 3\]; b=3 from `x0`"):
        checked(typing_of, "a b", result="b a")(ones(2, 3))
    with pytest.raises(ShapeError, match="a is 1, got 2 in axis 0 of the result"):
        checked(typing_of, "#a", "a", "b", result="a")(ones(1), ones(1), ones(2))


@pytest.mark.parametrize(
    "family", ["Float", "Int", "Bool", "Num", "Shaped", "Complex", "UInt", "Integer", "Real", "Inexact"]
)
def test_dtypes(typing_of: Any, family: str) -> None:
    fits = {
        "Float": "fb", "Int": "i", "Bool": "?", "Num": "fbiuc", "Shaped": "fbiuc?", "Complex": "c", "UInt": "u",
        "Integer": "iu", "Real": "fbiu", "Inexact": "fbc",
    }[family]  # fmt: skip
    kinds = {"f": ts.float64, "b": ts.bfloat16, "i": ts.int64, "u": ts.uint8, "c": ts.complex64, "?": ts.bool}
    f = checked(typing_of, "a", family=family)
    for letter, dtype in kinds.items():
        x = ts.zeros(2, dtype=dtype)
        if letter in fits:
            assert f(x) is x
        else:
            with pytest.raises(ShapeError, match=f"`x0` is {family}.*, got {str(dtype).rpartition('.')[2]} of shape"):
                f(x)


def test_other_values(typing_of: Any) -> None:
    with pytest.raises(ShapeError, match=r"`x0` is Float.*, got list"):
        checked(typing_of, "a")([1.0])
    with pytest.raises(TypeError, match="x0"):  # as Python says it
        checked(typing_of, "a")()


def test_containers_and_unions(typing_of: Any) -> None:
    Float = typing_of.Float

    def f(xs, pair, named, mask=None, *more, **rest):
        return xs

    f.__annotations__ = {
        "xs": list[Float[Tensor, "a"]],
        "pair": tuple[Float[Tensor, "a"], int],
        "named": dict[str, Float[Tensor, "a b"]],
        "mask": Optional[Float[Tensor, "b"]],  # noqa: UP045 - as it is often written
        "more": Float[Tensor, "a"],
        "rest": Float[Tensor, "b"],
    }
    f = ts.check_shapes(f)
    two, three = ones(2), ones(3)
    assert f([two, two], (two, 1), {"k": ones(2, 3)}, three, two, two, last=three) == [two, two]
    for wrong, said in (
        (([two, three], (two, 1), {}), r"a is 2, got 3 in axis 0 of `xs\[1\]`"),
        (([two], (three, 1), {}), r"`pair\[0\]`"),
        (([two], (two,), {}), "`pair` has 2 items, got 1"),
        (([two], (two, 1), {"k": ones(3, 3)}), r"`named\['k'\]`"),
        (([two], (two, 1), {"k": ones(2, 3)}, two), "b is 3, got 2 in axis 0 of `mask`"),
        (([two], (two, 1), {}, None, three), r"`more\[0\]`"),
        ((two, (two, 1), {}), "`xs` is a list of tensors, got Tensor"),
    ):
        with pytest.raises(ShapeError, match=said):
            f(*wrong)


def test_an_absent_argument_binds_nothing(typing_of: Any) -> None:
    Float = typing_of.Float

    def f(x, mask=None):
        return x

    f.__annotations__ = {"x": Float[Tensor, "a"], "mask": Float[Tensor, "b"] | None, "return": Float[Tensor, "b"]}
    f = ts.check_shapes(f)
    assert f(ones(2)).shape == (2,)
    with pytest.raises(ShapeError, match="b is 3, got 2 in axis 0 of the result"):
        f(ones(2), ones(3))


@pytest.mark.parametrize("text", ["a-b c", "a.b", "... *b", "f(a)", "a+1.5", "**", "a+", "lambda:0"])
def test_texts_that_are_no_shapes(text: str) -> None:
    if text == "a-b c":
        assert parse_shape(text)[0].kind == "expression"
        return
    with pytest.raises(ValueError, match="shape"):
        parse_shape(text)


def test_an_expression_needs_its_names() -> None:
    with pytest.raises(ValueError, match=r"`f`: 'heads\*dim' needs 'heads', which no annotation has as an axis"):
        checked(shapes, "heads*dim")


@pytest.mark.parametrize(
    ("body", "texts", "sizes", "said"),
    [
        ("x0 @ x1", ["a b", "c d"], [(2, 3), (4, 5)], ["`f`: matmul: ", "3 is b", "4 is c", "b=3 from `x0`"]),
        ("x0 + x1", ["a b", "c"], [(2, 3), (4,)], ["3 is b", "4 is c"]),
        ("x0.view(7, -1)", ["heads dim"], [(8, 64)], ["512 is heads*dim", "heads=8 from `x0`"]),
        ("ts.cat([x0, x1])", ["a b", "a c"], [(2, 3), (2, 4)], ["b=3 from `x0`", "c=4 from `x1`"]),
        ("x0.transpose(1, 2)", ["a b"], [(2, 3)], ["`f`: transpose: ", "a=2"]),
        ("ts.einsum('ij,jk', x0, x1)", ["a b", "c d"], [(2, 3), (4, 5)], ["3 is b", "4 is c"]),
    ],
)
def test_errors_of_operators_name_axes(body: str, texts: list[str], sizes: Any, said: list[str]) -> None:
    space: dict[str, Any] = {"ts": ts}
    exec(f"def f({', '.join(f'x{k}' for k in range(len(texts)))}): return {body}", space)
    f = space["f"]
    f.__annotations__ = {f"x{k}": shapes.Float[Tensor, text] for k, text in enumerate(texts)}
    tensors = [ones(size) for size in sizes]
    with pytest.raises((RuntimeError, IndexError)) as plain:
        f(*tensors)
    with pytest.raises(type(plain.value)) as raised:
        ts.check_shapes(f)(*tensors)
    assert str(plain.value) in str(raised.value)
    assert [part for part in said if part not in str(raised.value)] == []


def test_only_the_innermost_function_names_axes() -> None:
    inner = ts.check_shapes(_inner)

    @ts.check_shapes
    def outer(y: shapes.Float[Tensor, "n m"]):
        return inner(y)

    with pytest.raises(RuntimeError) as raised:
        outer(ones(2, 3))
    assert str(raised.value).count("`_inner`") == 1 and "outer" not in str(raised.value)


def _inner(x: shapes.Float[Tensor, "a b"]):
    return x @ x


def test_other_errors_stay_as_they_are() -> None:
    @ts.check_shapes
    def f(x: shapes.Float[Tensor, "a"]):
        raise KeyError("size 3")

    with pytest.raises(KeyError) as raised:
        f(ones(3))
    assert raised.value.args == ("size 3",)


@ts.check_shapes(keep="dim")
class Kept(nn.Module):
    def forward(self, x: shapes.Float[Tensor, "batch dim"]) -> shapes.Float[Tensor, "batch dim"]:
        return x


@ts.check_shapes
class Layer(nn.Module):
    weight: shapes.Float[Tensor, "out dim"]

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.weight, self.heads = nn.Parameter(ones(3, 4)), heads

    def forward(self, x: shapes.Float[Tensor, "*batch dim"]) -> shapes.Float[Tensor, "*batch out"]:
        return x @ self.weight.T

    def split(self, x: shapes.Float[Tensor, "n {self.heads}*2"]) -> Any:
        return x

    @staticmethod
    def plain(x: shapes.Float[Tensor, "n n"]) -> Any:
        return x


def test_names_kept_across_calls() -> None:
    module, other = Kept(), Kept()
    module(ones(2, 5)), module(ones(3, 5)), other(ones(2, 6))
    for again in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        with pytest.raises(ShapeError, match=r"dim is 5, got 6 in axis 1 of `x`.*; dim=5 from `x` of an earlier call"):
            again(ones(2, 6))
    assert [*module.state_dict()] == []


def test_attributes_bind_their_names() -> None:
    layer = Layer()
    assert layer(ones(7, 2, 4)).shape == (7, 2, 3)
    with pytest.raises(
        ShapeError, match=r"`Layer.forward`: dim is 4, got 5 in axis 1 of `x`.*dim=4 from `self.weight`"
    ):
        layer(ones(2, 5))
    assert layer.split(ones(1, 4)) is not None and Layer.plain(ones(2, 2)) is not None
    with pytest.raises(ShapeError, match=r"heads\*2 is 4, got 5"):
        layer.split(ones(1, 5))
    with pytest.raises(ShapeError, match="n is 2, got 3"):
        layer.plain(ones(2, 3))


def test_gradients_and_signatures_stay() -> None:
    layer = Layer()
    layer(ones(2, 4)).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.shape == (3, 4)
    assert Layer.forward.__name__ == "forward" and Layer.forward.__wrapped__ is not Layer.forward

    @ts.check_shapes
    def f(a, /, x: shapes.Float[Tensor, "n"], *args, key=1, other: Any = None, **rest):
        return a, args, key, rest

    assert f(0, ones(1), 2, 3, key=4, more=5) == (0, (2, 3), 4, {"more": 5})
    assert ts.check_shapes(f) is f and ts.check_shapes(copy.copy) is copy.copy


def test_what_cannot_be_checked() -> None:
    with pytest.raises(TypeError, match="check_shapes: expected a function, a class or a package's name, got int"):
        ts.check_shapes(3)


def test_the_switch() -> None:
    f = ts.check_shapes(_square)
    shapes.set_shape_checks_enabled(False)
    try:
        assert not shapes.are_shape_checks_enabled()
        assert f(ones(2, 3)).shape == (2, 3) and ts.check_shapes(_square) is _square
    finally:
        shapes.set_shape_checks_enabled(True)
    with pytest.raises(ShapeError):
        f(ones(2, 3))


def _square(x: shapes.Float[Tensor, "n n"]) -> Any:
    return x


def test_the_variable_leaves_functions_alone() -> None:
    program = "import tesserack as ts\nfrom tesserack.utils.shapes import Float\ndef f(x: Float[ts.Tensor, 'n']): 0\n"
    command = [sys.executable, "-c", program + "assert ts.check_shapes(f) is f"]
    subprocess.run(command, check=True, env={**os.environ, "TESSERACK_SHAPES": "off"})


def test_names_defined_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "later_shapes.py").write_text(
        "from __future__ import annotations\nimport tesserack as ts\n"
        "@ts.check_shapes\ndef f(x: Float[ts.Tensor, 'n n']): return x\n"
        "@ts.check_shapes\nasync def h(x: Float[ts.Tensor, 'n n']): return x\n"
        "@ts.check_shapes\ndef g(x: Missing[ts.Tensor, 'n n']): return x\n"
        "from tesserack.utils.shapes import Float\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("later_shapes")
    assert module.f(ones(2, 2)) is not None
    with pytest.raises(ShapeError, match="n is 2, got 3"):
        module.f(ones(2, 3))
    assert inspect.iscoroutinefunction(module.h)
    with pytest.raises(ShapeError, match="`h`: n is 2, got 3"):
        module.h(ones(2, 3)).send(None)
    with pytest.raises(TypeError, match=r"`g`: cannot evaluate Missing.*TYPE_CHECKING"):
        module.g(ones(2, 2))


def test_a_package_as_it_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shaped_package"
    folder.mkdir()
    text = "from tesserack import Tensor, nn\nfrom tesserack.utils.shapes import Float\n"
    (folder / "__init__.py").write_text(text + "def f(x: Float[Tensor, 'n n']): return x\n")
    net = "class Net(nn.Module):\n    def forward(self, x: Float[Tensor, 'n n']): return x\n"
    (folder / "inner.py").write_text(text + net)
    (folder / "after.py").write_text(text + net)
    monkeypatch.syspath_prepend(tmp_path)
    with ts.check_shapes("shaped_package"):
        package = importlib.import_module("shaped_package")
        inner = importlib.import_module("shaped_package.inner")
    after = importlib.import_module("shaped_package.after")
    for call in (package.f, inner.Net()):
        with pytest.raises(ShapeError, match="n is 2, got 3"):
            call(ones(2, 3))
    assert after.Net()(ones(2, 3)) is not None
    with ts.check_shapes("shaped_package"), pytest.raises(ShapeError):  # what is there already is checked too
        after.Net()(ones(2, 3))


def test_functions_within_functions_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "nested_shapes"
    folder.mkdir()
    (folder / "__init__.py").write_text(NESTED)
    monkeypatch.syspath_prepend(tmp_path)
    with ts.check_shapes("nested_shapes"):
        package = importlib.import_module("nested_shapes")
    assert package.outer()(ones(2, 2)).shape == (2, 2) and package.later()(ones(2, 3)).shape == (2, 3)
    for call, name in ((package.outer(), "inner"), (package.Net().call, "deep"), (package.made(), "Made.__init__")):
        with pytest.raises(ShapeError, match=f"`{name}`: n is 2, got 3"):
            call(ones(2, 3))


NESTED = """
from __future__ import annotations
import dataclasses
from tesserack import Tensor
from tesserack.utils.shapes import Float

def outer():
    def inner(x: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
        return x
    return inner

class Net:
    def call(self, x):
        def deep(*, y: Float[Tensor, "n n"]):
            return y
        return deep(y=x)

def made():
    @dataclasses.dataclass
    class Made:
        x: Float[Tensor, "n n"]
    return Made

def later():
    from tesserack.utils.shapes import Float as Own
    def inner(x: Own[Tensor, "n n"]):
        return x
    return inner
"""


def test_expressions_of_arguments(typing_of: Any) -> None:
    def f(x, size, b=2, **more):
        return x

    f.__annotations__ = {"x": typing_of.Float[Tensor, "b {size[0]} {len(size)*b} {max(more.values(),default=1)}*b"]}
    f = ts.check_shapes(f)
    assert f(ones(3, 5, 4, 3), (5, 6)).shape == (3, 5, 4, 3)  # the argument b is not the axis
    assert f(ones(3, 5, 4, 21), (5, 6), k=7) is not None
    for size, said in (((4, 6), r"size\[0\] is 4, got 5"), ((5,), r"len\(size\)\*b is 2, got 4")):
        with pytest.raises(ShapeError, match=said):
            f(ones(3, 5, 4, 3), size)
    assert [axis.text for axis in parse_shape("a {size[0] + 1} b")] == ["a", "{size[0] + 1}", "b"]
    with pytest.raises(ValueError, match="is no axis"):
        parse_shape("{size[}")


def test_modules_are_recorded_and_mapped() -> None:
    layer = Layer()
    graph = ts.fx.symbolic_trace(layer)
    assert graph(ones(2, 4)).shape == (2, 3)
    assert ts.vmap(layer)(ones(5, 2, 4)).shape == (5, 2, 3)


def test_mypy_sees_tensors(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="comes with the packages of `make lint`")
    program = tmp_path / "program.py"
    program.write_text(
        "import tesserack as ts\nfrom tesserack import Tensor\nfrom tesserack.utils.shapes import Float, Int\n"
        '@ts.check_shapes\ndef f(x: Float[Tensor, "batch dim"], n: Int[Tensor, ""]) -> Float[Tensor, "batch"]:\n'
        "    return x.sum(1)\n"
        "f(ts.ones(2, 3), ts.ones(2)).relu()\n"
        'f(ts.ones(2, 3), "n")\n'
    )
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path / 'cache'}", str(program)]
    environment = dict(os.environ, MYPYPATH=str(Path(ts.__file__).parents[1]))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1 and ':8: error: Argument 2 to "f"' in errors[0], done.stdout
