"""Type stubs of the package, written from the live registry of operators.

``python -m tesserack._tools.stubs`` writes ``_native.pyi`` and ``__init__.pyi`` beside the package's sources; with
``--check`` it only says whether they are up to date.
"""

from __future__ import annotations

import argparse
import inspect
import keyword
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import tesserack
from tesserack import _native
from tesserack._registry import public_functions

__all__ = ["main"]

HEADER = "# Written by `python -m tesserack._tools.stubs`; do not edit.\n# ruff: noqa\n"
PACKAGE = Path(__file__).resolve().parent.parent

# Python types of schema types. Names such as float and bool are dtypes in this package: builtins have an underscore.
TYPES = {
    "Tensor": "Tensor",
    "Operand": "Tensor | Number",
    "Scalar": "Number",
    "int": "_int",
    "float": "_float",
    "bool": "_bool",
    "str": "str",
    "ScalarType": "_dtype",
    "Device": "_device | str",
    "Generator": "Generator",
    "MemoryFormat": "_memory_format",
}


# --- schemas -------------------------------------------------------------------------------------------------------


class Argument:
    """One argument of a schema."""

    def __init__(self, text: str, keyword_only: bool) -> None:
        declaration, _, default = text.partition("=")
        kind, self.name = declaration.rsplit(" ", 1)
        self.default = bool(default)
        self.keyword_only = keyword_only
        self.is_int_list = kind.startswith("int[")
        self.type = python_type(kind)


def python_type(kind: str) -> str:
    """The Python annotation of a schema type such as ``Tensor(a!)``, ``int[2]?`` or ``Tensor?[]``."""
    base, suffix = kind, ""
    for index, character in enumerate(kind):
        if not (character.isalnum() or character == "_"):
            base, suffix = kind[:index], kind[index:]
            break
    if suffix.startswith("("):
        suffix = suffix[suffix.index(")") + 1 :]
    result = TYPES[base]
    if "[" in suffix:
        element = f"{result} | None" if suffix.startswith("?") else result
        single = f"{result} | " if base in ("int", "float") else ""
        result = f"{single}Sequence[{element}]"
        suffix = suffix[suffix.index("]") + 1 :]
    return f"{result} | None" if suffix.endswith("?") else result


def split_arguments(text: str) -> Iterator[Argument]:
    """The arguments in the parentheses of a schema."""
    keyword_only = False
    depth, start = 0, 0
    for index, character in enumerate(text + ","):
        depth += (character in "([") - (character in ")]")
        if character != "," or depth:
            continue
        part, start = text[start:index].strip(), index + 1
        if part == "*":
            keyword_only = True
        elif part:
            yield Argument(part, keyword_only)


def parse(schema: str) -> tuple[list[Argument], str]:
    """Arguments and the Python type of the result."""
    head, _, result = schema.rpartition(" -> ")
    arguments = [*split_arguments(head[head.index("(") + 1 : -1])]
    return arguments, result_type(result)


def result_type(text: str) -> str:
    """The Python type of a schema's results."""
    if not text.startswith("("):
        kind = text.split(" ")[0]
        return "tuple[Tensor, ...]" if kind.endswith("[]") else python_type(kind)
    parts = [part.strip().split(" ")[0] for part in text[1:-1].split(",") if part.strip()]
    return f"tuple[{', '.join(python_type(part) for part in parts)}]" if parts else "None"


# --- signatures ----------------------------------------------------------------------------------------------------


def is_factory(name: str, arguments: list[Argument]) -> bool:
    """Whether the binding adds requires_grad, layout and pin_memory."""
    names = {argument.name for argument in arguments}
    makes = name.startswith("new_") or name.endswith("_like") or all("Tensor" not in a.type for a in arguments)
    return makes and {"dtype", "device"} <= names


def signature(schema: str, method: bool) -> Iterator[str]:
    """``(parameters) -> result`` of one overload; two where the last ints may also be given one by one."""
    arguments, result = parse(schema)
    factory = is_factory(schema.split("(")[0].split(".")[0], arguments)
    yield render(arguments, result, method, factory, collected=False)
    rest = [a for a in arguments if not a.keyword_only and not (method and a.name == "self")]
    if len(rest) == 1 and rest[0].is_int_list:
        yield render(arguments, result, method, factory, collected=True)


def render(arguments: list[Argument], result: str, method: bool, factory: bool, collected: bool) -> str:
    """The text of one signature."""
    parts = ["self"] if method else []
    keywords, starred, optional = [], False, False
    for argument in arguments:
        if method and argument.name == "self":
            continue
        name = "input" if argument.name == "self" else argument.name
        if keyword.iskeyword(name):
            name = f"{name}_"  # Tensor.uniform_(from, to): positional in Python
        text = f"{name}: {argument.type}"
        if argument.keyword_only:
            keywords.append(text + (" = ..." if argument.default else ""))
        elif collected and argument.is_int_list:
            parts.append(f"*{name}: _int")
            starred = True
        else:
            optional = optional or argument.default
            parts.append(text + (" = ..." if optional else ""))
    if factory:
        given = {part.split(":")[0] for part in keywords}
        options = {"requires_grad": "_bool", "layout": "_layout", "pin_memory": "_bool"}
        keywords += [f"{name}: {kind} = ..." for name, kind in options.items() if name not in given]
    if keywords and not starred:
        parts.append("*")
    return f"({', '.join(parts + keywords)}) -> {result}"


def definitions(name: str, schemas: Iterable[str], method: bool, indent: str) -> Iterator[str]:
    """All overloads of a function or method as stub lines."""
    found: list[str] = []
    for schema in schemas:
        found += [text for text in signature(schema, method) if text not in found]
    for text in found:
        if len(found) > 1:
            yield f"{indent}@overload"
        yield f"{indent}def {name}{text}: ..."


# --- the Tensor class ----------------------------------------------------------------------------------------------

OPERATORS = {
    "Tensor | Number": "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or "
    "ror xor rxor lshift rlshift rshift rrshift lt le gt ge iadd isub imul itruediv ifloordiv imod ipow iand ior ixor "
    "ilshift irshift",
    "Tensor": "matmul rmatmul",
}

MEMBERS = """
    grad: Tensor | None
    data: Tensor
    requires_grad: _bool
    shape: Size
    dtype: _dtype
    device: _device
    layout: _layout
    ndim: _int
    itemsize: _int
    nbytes: _int
    grad_fn: Node | None
    is_leaf: _bool
    retains_grad: _bool
    output_nr: _int
    is_meta: _bool
    is_cpu: _bool
    is_sparse: _bool
    is_quantized: _bool
    is_nested: _bool
    real: Tensor
    T: Tensor
    mT: Tensor
    H: Tensor
    mH: Tensor
    _version: _int
    _base: Tensor | None
    __hash__: Any
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor: ...
    def __pos__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...
    def __invert__(self) -> Tensor: ...
    def __bool__(self) -> _bool: ...
    def __int__(self) -> _int: ...
    def __float__(self) -> _float: ...
    def __index__(self) -> _int: ...
    def __len__(self) -> _int: ...
    def __iter__(self) -> Iterator[Tensor]: ...
    def __reversed__(self) -> Tensor: ...
    def __contains__(self, element: Any) -> _bool: ...
    def __getitem__(self, key: Any) -> Tensor: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __divmod__(self, other: Tensor | Number) -> tuple[Tensor, Tensor]: ...
    def __buffer__(self, flags: _int, /) -> memoryview: ...
    def __array__(self, dtype: Any = ..., copy: _bool | None = ...) -> Any: ...
    def __dlpack__(
        self, *, stream: Any = ..., max_version: Any = ..., dl_device: Any = ..., copy: _bool | None = ...
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[_int, _int]: ...
    def __deepcopy__(self, memo: dict[_int, Any]) -> Self: ...
    def item(self) -> Any: ...
    def tolist(self) -> Any: ...
    def numpy(self, *, force: _bool = ...) -> Any: ...
    @overload
    def size(self, dim: None = ...) -> Size: ...
    @overload
    def size(self, dim: _int) -> _int: ...
    @overload
    def stride(self, dim: None = ...) -> tuple[_int, ...]: ...
    @overload
    def stride(self, dim: _int) -> _int: ...
    def dim(self) -> _int: ...
    def ndimension(self) -> _int: ...
    def numel(self) -> _int: ...
    def nelement(self) -> _int: ...
    def element_size(self) -> _int: ...
    def storage_offset(self) -> _int: ...
    def data_ptr(self) -> _int: ...
    def is_contiguous(self, memory_format: _memory_format = ...) -> _bool: ...
    def is_set_to(self, other: Tensor) -> _bool: ...
    def is_floating_point(self) -> _bool: ...
    def is_complex(self) -> _bool: ...
    def is_signed(self) -> _bool: ...
    def is_inference(self) -> _bool: ...
    def is_nonzero(self) -> _bool: ...
    def is_same_size(self, other: Tensor) -> _bool: ...
    def is_pinned(self, device: Any = ...) -> _bool: ...
    def get_device(self) -> _int: ...
    def resize_(self, *sizes: Any, memory_format: _memory_format = ...) -> Self: ...
    def set_(self, source: Tensor) -> Self: ...
    def apply_(self, callable: Callable[[Any], Any]) -> Self: ...
    def map_(self, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Self: ...
    def pin_memory(self, device: Any = ...) -> Tensor: ...
    def untyped_storage(self) -> Any: ...
    def new_tensor(
        self, data: Any, *, dtype: _dtype | None = ..., device: Any = ..., requires_grad: _bool = ...
    ) -> Tensor: ...
    def type(self, dtype: _dtype | str | None = ..., non_blocking: _bool = ...) -> Any: ...
    def backward(
        self,
        gradient: Tensor | None = ...,
        retain_graph: _bool | None = ...,
        create_graph: _bool = ...,
        inputs: Sequence[Tensor] | Tensor | None = ...,
    ) -> None: ...
    def requires_grad_(self, requires_grad: _bool = ...) -> Self: ...
    def retain_grad(self) -> None: ...
    def detach_(self) -> Self: ...
    def register_hook(self, hook: Callable[[Tensor], Any]) -> HookHandle: ...
    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], Any]) -> HookHandle: ...
    @staticmethod
    def _make_subclass(cls: builtins.type[_Subclass], data: Tensor, require_grad: _bool = ...) -> _Subclass: ...
    def _register_hook(self, hook: Any) -> _int: ...
    def _register_post_hook(self, hook: Any) -> _int: ...
    def _remove_hook(self, number: _int, hook: Any) -> None: ...
    def _numpy(self) -> Any: ...
    def _storage_ptr(self) -> _int: ...
    def _storage_nbytes(self) -> _int: ...
    def _is_view(self) -> _bool: ...
"""

NATIVE = """
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from typing_extensions import Self

from tesserack._tensor_methods import HookHandle

# `float`, `int` and `bool` are dtypes here, as in the package.
import builtins

_int = builtins.int
_float = builtins.float
_bool = builtins.bool
Number = _int | _float | _bool
_Subclass = TypeVar("_Subclass")
_Function = TypeVar("_Function", bound=Callable[..., Any])

__version__: str

class OutOfMemoryError(RuntimeError): ...
class BackendUnavailableError(RuntimeError): ...

class dtype:
    itemsize: _int
    is_floating_point: _bool
    is_complex: _bool
    is_signed: _bool
    def to_complex(self) -> dtype: ...
    def to_real(self) -> dtype: ...

class memory_format: ...
class layout: ...

_dtype = dtype
_memory_format = memory_format
_layout = layout

class device:
    type: str
    index: _int | None
    def __init__(self, type: str | device, index: _int | None = ...) -> None: ...
    def __enter__(self) -> device: ...
    def __exit__(self, *exc: object) -> None: ...
    def __call__(self, function: _Function) -> _Function: ...
    def clone(self) -> device: ...

_device = device

class Size(tuple[_int, ...]):
    def __new__(cls, sizes: Any = ...) -> Size: ...
    def numel(self) -> _int: ...
    @overload  # type: ignore[override]
    def __getitem__(self, key: _int) -> _int: ...
    @overload
    def __getitem__(self, key: slice) -> Size: ...
    def __add__(self, other: tuple[_int, ...]) -> Size: ...  # type: ignore[override]

class Generator:
    device: _device
    def __init__(self, device: _device | str | None = ...) -> None: ...
    def manual_seed(self, seed: _int) -> Generator: ...
    def seed(self) -> _int: ...
    def initial_seed(self) -> _int: ...
    def get_state(self) -> Tensor: ...
    def set_state(self, new_state: Tensor) -> Generator: ...
    def _position(self) -> tuple[_int, _int]: ...
    def _set_position(self, seed: _int, offset: _int) -> Generator: ...

class Node:
    next_functions: tuple[tuple[Node | None, _int], ...]
    metadata: dict[Any, Any]
    variable: Tensor
    def name(self) -> str: ...
    register_hook: Any
    register_prehook: Any
    def __getattr__(self, name: str) -> Any: ...

class FunctionCtx:
    saved_tensors: tuple[Any, ...]
    needs_input_grad: tuple[_bool, ...]
    materialize_grads: _bool
    def save_for_backward(self, *tensors: Tensor | None) -> None: ...
    def mark_dirty(self, *args: Tensor) -> None: ...
    def mark_non_differentiable(self, *args: Tensor) -> None: ...
    def set_materialize_grads(self, value: _bool) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class Operator:
    __name__: str
    schemas: list[str]
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

class OperatorMethod(Operator): ...

class _GradMode:
    def __enter__(self) -> None: ...
    def __exit__(self, *exc: object) -> None: ...
    def __call__(self, function: Any) -> Any: ...
    def clone(self) -> Self: ...

class no_grad(_GradMode):
    def __new__(cls, function: Any = ...) -> Any: ...

class enable_grad(_GradMode):
    def __new__(cls, function: Any = ...) -> Any: ...

class set_grad_enabled(_GradMode):
    def __init__(self, mode: _bool) -> None: ...

class inference_mode(_GradMode):
    def __new__(cls, mode: Any = ...) -> Any: ...

def tensor(
    data: Any,
    *,
    dtype: dtype | None = ...,
    device: device | str | None = ...,
    requires_grad: _bool = ...,
    pin_memory: _bool = ...,
) -> Tensor: ...
def as_tensor(data: Any, dtype: dtype | None = ..., device: device | str | None = ...) -> Tensor: ...
def from_numpy(ndarray: Any) -> Tensor: ...
def is_grad_enabled() -> _bool: ...
def is_inference_mode_enabled() -> _bool: ...
def is_anomaly_enabled() -> _bool: ...
def is_anomaly_check_nan_enabled() -> _bool: ...
def get_default_dtype() -> dtype: ...
def set_default_dtype(d: dtype) -> None: ...
def get_default_device() -> device: ...
def set_default_device(device: device | str | None) -> None: ...
def promote_types(type1: dtype, type2: dtype) -> dtype: ...
def can_cast(from_: dtype, to: dtype) -> _bool: ...
def result_type(tensor1: Tensor | Number, tensor2: Tensor | Number) -> dtype: ...
def memory_stats(device: device | str | None = ...) -> dict[str, _int]: ...
def empty_cache(device: device | str | None = ...) -> None: ...
def reset_peak_memory_stats(device: device | str | None = ...) -> None: ...
def synchronize(device: device | str | None = ...) -> None: ...
def _default_generator(device: Any) -> Generator: ...
def _from_dlpack(o: Any) -> Tensor: ...
def _from_buffer(o: Any, dtype: dtype, count: _int, offset: _int) -> Tensor: ...
def _get_num_threads(name: str) -> _int: ...
class Stream:
    def __init__(self, device: Any = None, priority: _int = 0) -> None: ...
    @property
    def device(self) -> _device: ...
    @property
    def stream_id(self) -> _int: ...
    def synchronize(self) -> None: ...
    def query(self) -> _bool: ...
    def wait_event(self, event: Event) -> None: ...
    def record_event(self, event: Event | None = ...) -> Event: ...
    def wait_stream(self, stream: Stream) -> None: ...

class Event:
    def __init__(self, device: Any = None, enable_timing: _bool = False) -> None: ...
    @property
    def device(self) -> _device: ...
    def record(self, stream: Stream | None = None) -> None: ...
    def wait(self, stream: Stream | None = None) -> None: ...
    def query(self) -> _bool: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end_event: Event) -> _float: ...

def current_stream(device: Any = None) -> Stream: ...
def default_stream(device: Any = None) -> Stream: ...
def set_stream(stream: Stream) -> None: ...

class _Operand:
    handle: Any
    byte_offset: _int
    shape: tuple[_int, ...]
    strides: tuple[_int, ...]
    byte_strides: tuple[_int, ...]
    dtype: _dtype
    itemsize: _int
    numel: _int
    ndim: _int
    is_contiguous: _bool
    is_mutable: _bool

class _Program(tuple[Any, ...]):
    id: _int
    n_inputs: _int
    constants: tuple[_float, ...]
    instructions: tuple[tuple[Any, ...], ...]
    outputs: tuple[_int, ...]
    text: str

class _Call:
    op: str
    schema: str
    def redispatch(self, *args: Any) -> Any: ...

def _device_properties(device: Any) -> dict[str, Any]: ...
def _function_apply(function: Any, separate_setup: _bool, *args: Any) -> Any: ...
"""

# Of interest to the package alone.
PRIVATE = [
    name
    for name in dir(_native)
    if name.startswith("_")
    and not any(f"{word} {name}{end}" in NATIVE for word in ("def", "class") for end in "(:")
    and name[:2] != "__"
]


def tensor_class() -> Iterator[str]:
    """The class Tensor as stub lines."""
    yield "class Tensor:"
    yield MEMBERS.strip("\n")
    for operand, names in OPERATORS.items():
        for name in names.split():
            result = "Self" if name.startswith("i") else "Tensor"
            yield f"    def __{name}__(self, other: {operand}) -> {result}: ..."
    written = {
        line.split("(")[0].removeprefix("    def ") for line in MEMBERS.splitlines() if line.startswith("    def ")
    }
    for name, member in sorted(vars(_native.Tensor).items()):
        if isinstance(member, _native.OperatorMethod) and name not in written:
            yield from definitions(name, member.schemas, True, "    ")


def constants() -> Iterator[str]:
    """dtypes, memory formats and layouts."""
    for name in sorted(vars(_native)):
        value = getattr(_native, name)
        for kind in (_native.dtype, _native.memory_format, _native.layout):
            if isinstance(value, kind):
                yield f"{name}: {kind.__name__}"


def native_stub() -> str:
    """The text of ``_native.pyi``."""
    lines = [
        HEADER + NATIVE.strip("\n"),
        "",
        *tensor_class(),
        "",
        *(f"{name}: Any" for name in PRIVATE),
        "",
        *constants(),
    ]
    return "\n".join(lines) + "\n"


def python_names() -> Iterator[tuple[str, str]]:
    """(module, name) of what the package takes from its Python modules."""
    functions = public_functions()
    for name, value in sorted(vars(tesserack).items()):
        module = getattr(value, "__module__", None)
        if (
            name.startswith("_")
            or name in functions
            or not isinstance(module, str)
            or not module.startswith("tesserack.")
        ):
            continue
        if module != "tesserack._native" and (inspect.isfunction(value) or inspect.isclass(value)):
            yield module, name
    for name, module in vars(tesserack)["_LAZY_NAMES"].items():
        yield f"tesserack.{module}", name


def package_stub() -> str:
    """The text of ``__init__.pyi``."""
    native = sorted(
        n
        for n in dir(_native)
        if not n.startswith("_") and n not in ("Operator", "OperatorMethod", "FunctionCtx", "Node")
    )
    lines = [HEADER + "import builtins", "from collections.abc import Sequence", "from typing import Any, overload", ""]
    lines += [
        f"from tesserack import {name} as {name}" for name in sorted((*vars(tesserack)["_LAZY_MODULES"], "backends"))
    ]
    lines += [f"from tesserack._native import {name} as {name}" for name in native]
    lines += [f"from {module} import {name} as {name}" for module, name in sorted(python_names())]
    lines += ["from tesserack.backends._device_module import DeviceModule"]
    aliases = [f"_{name} = {name}" for name in ("dtype", "device", "layout", "memory_format")]
    lines += [
        "",
        *aliases,
        "_int = builtins.int",
        "_float = builtins.float",
        "_bool = builtins.bool",
        "Number = _int | _float | _bool",
        "",
    ]
    lines += [
        "cpu: DeviceModule",
        "__version__: str",
        "pi: _float",
        "e: _float",
        "inf: _float",
        "nan: _float",
        "newaxis: None",
    ]
    defined = set(native) | {name for _, name in python_names()}
    for name, function in sorted(public_functions().items()):
        if name not in defined and not keyword.iskeyword(name):
            lines += definitions(name, function.schemas, False, "")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the stubs; 1 if a check finds them out of date."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if the stubs are out of date")
    check = parser.parse_args(arguments).check
    stale = []
    for name, text in (("_native.pyi", native_stub()), ("__init__.pyi", package_stub())):
        path = PACKAGE / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text)
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python -m tesserack._tools.stubs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
