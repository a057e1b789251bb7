"""Random calls, right and wrong, in a process of its own: prints each before making it, so that a crash names its call.

    python tests/fuzz/calls.py SEED COUNT KIND DEVICE

KIND is operators, methods or indexing. A call must return or raise an exception of a sane class.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import _native
from tesserack.ops.registry import operators

SANE = (
    RuntimeError, TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError, NotImplementedError,
    AttributeError, MemoryError, AssertionError, StopIteration, KeyError, BufferError,
)  # fmt: skip
DTYPES = [
    ts.float32, ts.float64, ts.float16, ts.bfloat16, ts.int64, ts.int32, ts.int16, ts.int8, ts.uint8, ts.bool,
    ts.uint16, ts.uint32, ts.uint64, ts.complex64, ts.complex128,
]  # fmt: skip
# Sizes too large to allocate, but for which nothing overflows, and worse.
HUGE = [2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 2**64, -(2**31), 10**30]
# They talk to the process itself: files, threads, the interpreter's own protocol.
LEFT_OUT = {
    "backward", "share_memory_", "set_", "__reduce__", "__reduce_ex__", "__init_subclass__", "__subclasshook__",
    "__class__", "__del__", "__sizeof__", "__dir__", "__getattribute__", "__setattr__", "__delattr__", "__new__",
    "__init__", "numpy", "tolist", "__repr__", "__str__", "__format__",
}  # fmt: skip


class Fuzz:
    """Draws values; every draw depends on the seed alone."""

    def __init__(self, seed: int, device: str) -> None:
        self.random = random.Random(seed)
        self.device = device

    def pick(self, options: Any) -> Any:
        return self.random.choice(list(options))

    def shape(self) -> list[int]:
        return [self.pick([0, 1, 1, 2, 3, 4, 5]) for _ in range(self.pick([0, 1, 1, 2, 2, 2, 3, 4, 5]))]

    def tensor(self, grad: bool = True) -> ts.Tensor:
        """Any dtype and layout; values with NaN, infinities and zeros; sometimes without storage, sometimes a leaf."""
        dtype = self.pick(DTYPES[:10] if self.random.random() < 0.93 else DTYPES)
        shape = self.shape()
        made: Any = ts.zeros(shape, dtype=dtype, device=self.device)
        if dtype in DTYPES[:10] and made.numel():
            values = [
                self.pick([0.0, 1.0, 2.0, -1.0, 3.5, 100.0, float("nan"), float("inf")]) for _ in range(made.numel())
            ]
            made = ts.tensor(values, dtype=ts.float64, device=self.device)
            made = made.nan_to_num(0.0, 5.0, -5.0) if not dtype.is_floating_point else made
            made = made.to(dtype).reshape(shape)
        layout = self.random.random()
        if layout < 0.1 and made.ndim:
            made = made[..., ::-1]
        elif layout < 0.2 and made.ndim > 1:
            made = made.transpose(0, -1)
        elif layout < 0.27:
            made = made.expand(2, *made.shape)
        elif layout < 0.3:
            made = made.to("meta")
        elif layout < 0.4 and grad and dtype.is_floating_point:
            made = made.requires_grad_()
        return made

    def integer(self) -> int:
        return self.pick(
            [0, 0, 1, 1, 2, 3, -1, -1, -2, 5, 7, -8, *([self.pick(HUGE)] if self.random.random() < 0.15 else [])]
        )

    def number(self) -> Any:
        return self.pick([self.integer(), 0.5, -1.5, 1e300, float("nan"), float("inf"), True, False, 2])

    def anything(self) -> Any:
        """A value of some wrong type."""
        nested: Any = []
        nested.append(nested)
        return self.pick([
            None, "mean", "", "a\\0b", 1j, b"x", [], [None], [1, "a"], {}, {"a": 1}, (1, (2, 3)), object(), int,
            nested, [[1, 2], [3]], range(3), slice(None), ..., self.integer(), self.number(), self.tensor(), ts.float32,
            [self.tensor()], ts.device(self.device), ts.contiguous_format, len, ts.Tensor, ts.Size([2]), 2**70,
        ])  # fmt: skip

    def argument(self, kind: str) -> Any:
        """A value for a schema type, wrong once in a while."""
        if self.random.random() < 0.06:
            return self.anything()
        if kind.endswith("?") and self.random.random() < 0.4:
            return None
        if "[" in kind:
            element = kind.split("[")[0]
            if element == "int" and self.random.random() < 0.3:
                return self.integer()
            return [self.argument(element) for _ in range(self.pick([0, 1, 2, 2, 3, 4]))]
        strings = [
            "mean",
            "sum",
            "none",
            "same",
            "valid",
            "floor",
            "trunc",
            "constant",
            "reflect",
            "tanh",
            "prod",
            "amax",
            "ij",
        ]
        makers: dict[str, Callable[[], Any]] = {
            "Tensor": self.tensor,
            "Operand": lambda: self.tensor() if self.random.random() < 0.7 else self.number(),
            "Scalar": self.number,
            "int": self.integer,
            "float": self.number,
            "bool": lambda: self.pick([True, False]),
            "str": lambda: self.pick(strings),
            "ScalarType": lambda: self.pick(DTYPES),
            "Device": lambda: self.pick([self.device, "meta", "nosuch", 0]),
            "Generator": lambda: self.pick([None, 1]),
            "MemoryFormat": lambda: self.pick([ts.contiguous_format, ts.preserve_format, ts.channels_last]),
        }
        return makers.get(kind, self.anything)()


def parse(schema: str) -> list[tuple[str, str, bool]]:
    """(type, name, keyword only) of each argument of a schema."""
    inside = schema.split("(", 1)[1].rsplit(") ->", 1)[0]
    found, keyword, depth, part = [], False, 0, ""
    for character in inside + ",":
        depth += (character in "([") - (character in ")]")
        if character != "," or depth:
            part += character
            continue
        text = part.strip().split("=")[0]
        part = ""
        if text == "*":
            keyword = True
        elif " " in text:
            kind, name = text.rsplit(" ", 1)
            found.append((kind.replace("(a!)", "").replace("(a)", "").replace("(b!)", ""), name, keyword))
    return found


def operator_call(fuzz: Fuzz, table: list[dict[str, Any]]) -> tuple[str, Callable[[], Any]]:
    record = fuzz.pick(table)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for kind, name, keyword in parse(record["schema"]):
        if keyword and fuzz.random.random() < 0.6:
            continue
        value = fuzz.argument(kind)
        if keyword or fuzz.random.random() < 0.05:
            kwargs[name] = value
        elif not kwargs:
            args.append(value)
    if fuzz.random.random() < 0.03:
        args = args[: fuzz.integer() % 3] + [fuzz.anything()]
    if fuzz.random.random() < 0.03:
        kwargs[fuzz.pick(["out", "dim", "nothing", "dtype"])] = fuzz.anything()
    function = operators().get(record["base"])
    if function is None:
        return f"Tensor.{record['base']}", lambda: getattr(args[0], record["base"])(*args[1:], **kwargs)
    return describe(record["name"], args, kwargs), lambda: function(*args, **kwargs)


def method_call(fuzz: Fuzz, table: list[str]) -> tuple[str, Callable[[], Any]]:
    name, tensor = fuzz.pick(table), fuzz.tensor()
    args = [
        fuzz.pick([fuzz.anything, fuzz.integer, fuzz.tensor, fuzz.number])() for _ in range(fuzz.pick([0, 1, 1, 2, 3]))
    ]
    what = f"attribute {name} of {show(tensor)}"

    def call() -> Any:
        attribute = getattr(tensor, name)
        return attribute(*args) if callable(attribute) else setattr(tensor, name, args[0] if args else None)

    return describe(what, args, {}), call


def index_call(fuzz: Fuzz, _: Any) -> tuple[str, Callable[[], Any]]:
    tensor = fuzz.tensor(grad=False)

    def item() -> Any:
        bounds = [fuzz.pick([None, fuzz.integer()]) for _ in range(3)]
        return fuzz.pick(
            [fuzz.integer(), slice(*bounds), slice(*bounds), None, ..., fuzz.tensor(), True, fuzz.anything(), [0, 1]]
        )

    index: Any = tuple(item() for _ in range(fuzz.pick([1, 1, 2, 3, 6])))
    index = index[0] if len(index) == 1 else index
    if fuzz.random.random() < 0.5:
        return describe(f"{show(tensor)}[...]", [index], {}), lambda: tensor[index]
    value = fuzz.pick([fuzz.number(), fuzz.tensor(), fuzz.anything()])
    return describe(f"{show(tensor)}[...] =", [index, value], {}), lambda: tensor.__setitem__(index, value)


def show(value: Any, depth: int = 0) -> str:
    """A description from which the call can be made again, short, and safe for what contains itself."""
    if isinstance(value, ts.Tensor):
        grad = ", grad" if value.requires_grad else ""
        return f"<{str(value.dtype)[10:]} {tuple(value.shape)} strides {value.stride()} on {value.device}{grad}>"
    if isinstance(value, list | tuple) and depth < 3:
        return "[" + ", ".join(show(v, depth + 1) for v in value) + "]"
    return repr(value)[:60] if depth < 3 else "..."


def describe(name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
    return f"{name}({', '.join([*map(show, args), *(f'{k}={show(v)}' for k, v in kwargs.items())])})"


def main(seed: int, count: int, kind: str, device: str) -> None:
    """Makes the calls numbered seed, seed + 1, ...; one of them alone can be repeated with a count of 1."""
    warnings.simplefilter("ignore")
    if "asan" not in os.environ.get("LD_PRELOAD", ""):  # sanitizers reserve more than there is
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    table: list[Any] = list(_native._operators())
    if kind == "methods":
        table = [n for n in dir(ts.Tensor) if n not in LEFT_OUT]
    make = {"operators": operator_call, "methods": method_call, "indexing": index_call}[kind]
    for number in range(seed, seed + count):
        what, call = make(Fuzz(number, device), table)
        print(number, what, flush=True)
        try:
            result = call()
            for leaf in result if isinstance(result, tuple | list) else [result]:
                if (
                    isinstance(leaf, ts.Tensor)
                    and not leaf.is_meta
                    and leaf.numel() < 1000
                    and not leaf.dtype.is_complex
                ):
                    leaf.detach().tolist()
                    if leaf.requires_grad and leaf.grad_fn is not None:
                        leaf.sum().backward()
        except SANE:
            pass
        except SystemError as error:
            print("SystemError", error, flush=True)
            sys.exit(3)
    print("finished", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
