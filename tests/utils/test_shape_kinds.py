"""tesserack.check_shapes of coroutines, generators, data classes and properties."""

# No postponed annotations here: these name what a fixture gives.
import asyncio
import dataclasses
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Generator
from typing import Any

import pytest
import tesserack as ts
from tesserack import Tensor
from tesserack.utils import shapes
from tesserack.utils.shapes import ShapeError

ones = ts.ones


@pytest.fixture(params=["tesserack.utils.shapes", "jaxtyping"])
def typing_of(request: pytest.FixtureRequest) -> Any:
    if request.param == "jaxtyping":
        return pytest.importorskip(
            "jaxtyping", reason="comes with tesserack[test]; the same annotations of ours are run"
        )
    return importlib.import_module(request.param)


def test_coroutines_stay_what_they_are(typing_of: Any) -> None:
    Float = typing_of.Float

    @ts.check_shapes
    async def rows(x: Float[Tensor, "b d"], turned: bool = False) -> Float[Tensor, "b"]:
        return x @ x if turned is None else x.sum(0 if turned else 1)

    assert inspect.iscoroutinefunction(rows) and asyncio.run(rows(ones(2, 3))).shape == (2,)
    for arguments, said in (
        ((ones(2, 3), True), r"`rows`: b is 2, got 3 in axis 0 of the result \[3\]; b=2 from `x`"),
        ((ones(2),), "`x` has 2 axes"),
        ((ones(2, 3), None), "`rows`: matmul: .*2 is b, 3 is d"),
    ):
        with pytest.raises(RuntimeError, match=said):
            asyncio.run(rows(*arguments))
    with pytest.raises(TypeError, match="unexpected keyword argument 'y'"):
        asyncio.run(rows(ones(2, 3), y=1))


def test_generators_are_held_to_what_they_yield(typing_of: Any) -> None:
    Float = typing_of.Float

    @ts.check_shapes
    def rows(x: Float[Tensor, "b d"], last: Any = None) -> Generator[Float[Tensor, "d"], Any, Float[Tensor, "b"]]:
        sent = []
        for row in x:
            try:
                sent.append((yield row))
            except KeyError as error:
                sent.append(error)
        if last is not None:
            yield last
        return x.sum(1) if len(sent) == len(x) else x

    assert inspect.isgeneratorfunction(rows) and [r.shape for r in rows(ones(2, 3))] == [(3,), (3,)]
    running = rows(ones(2, 3))
    assert (next(running).shape, running.send(1).shape) == ((3,), (3,))
    with pytest.raises(StopIteration) as stopped:
        running.throw(KeyError("told to it"))
    assert stopped.value.value.shape == (2,)
    with pytest.raises(ShapeError, match=r"`rows`: d is 3, got 2 in axis 0 of what it yields \[2\]; d=3 from `x`"):
        [*rows(ones(2, 3), ones(2))]
    with pytest.raises(ShapeError, match="`x` has 2 axes"):
        next(rows(ones(2)))
    running = rows(ones(2, 3))
    next(running), running.close()
    assert [*running] == []
    shapes.set_shape_checks_enabled(False)
    try:
        assert len([*rows(ones(2, 3), ones(2))]) == 3
    finally:
        shapes.set_shape_checks_enabled(True)


def test_asynchronous_generators_too(typing_of: Any) -> None:
    Float = typing_of.Float

    @ts.check_shapes
    async def rows(x: Float[Tensor, "b d"], last: Any = None) -> AsyncIterator[Float[Tensor, "d"]]:
        for row in x:
            yield row
        if last is not None:
            yield last

    async def all_of(*arguments: Any) -> list[Any]:
        return [row.shape async for row in rows(*arguments)]

    assert inspect.isasyncgenfunction(rows) and asyncio.run(all_of(ones(2, 3))) == [(3,), (3,)]
    with pytest.raises(ShapeError, match="d is 3, got 2 in axis 0 of what it yields"):
        asyncio.run(all_of(ones(2, 3), ones(2)))


def test_data_classes_with_defaults_that_are_made(typing_of: Any) -> None:
    Float = typing_of.Float

    @ts.check_shapes
    @dataclasses.dataclass
    class Made:
        x: Float[Tensor, "a b"] = dataclasses.field(default_factory=lambda: ones(2, 3))
        y: list[Float[Tensor, "a"]] = dataclasses.field(default_factory=list)
        z: Float[Tensor, "b"] = None

    assert Made().x.shape == (2, 3) and Made(y=[ones(2)], z=ones(3)).z is not None
    for wrong, said in (
        ({"y": [ones(3)]}, "a is 2, got 3|a is 3, got 2"),
        ({"z": ones(2)}, "b is 3, got 2|b is 2, got 3"),
        ({"x": ones(2)}, "`x` has 2 axes"),
    ):
        with pytest.raises(ShapeError, match=said):
            Made(**wrong)


def test_properties(typing_of: Any) -> None:
    Float = typing_of.Float

    class Alone:
        @ts.check_shapes
        @property
        def wrong(self) -> Float[Tensor, "3"]:
            return ones(2)

        @ts.check_shapes
        @functools.cached_property
        def right(self) -> Float[Tensor, "2"]:
            return ones(2)

    class Inside:
        @property
        def wrong(self) -> Float[Tensor, "3"]:
            "Of a wrong size."
            return ones(2)

        @wrong.setter
        def wrong(self, value: Float[Tensor, "n n"]) -> None: ...

        @functools.cached_property
        def right(self) -> Float[Tensor, "2"]:
            return ones(2)

    ts.check_shapes(Inside)
    for kind in (Alone, Inside):
        made = kind()
        assert made.right is made.right
        with pytest.raises(ShapeError, match="expected 3, got 2 in axis 0 of the result"):
            _ = made.wrong
    assert Inside.wrong.__doc__ == "Of a wrong size."
    with pytest.raises(ShapeError, match="n is 2, got 3"):
        Inside().wrong = ones(2, 3)
