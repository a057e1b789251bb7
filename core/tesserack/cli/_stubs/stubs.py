"""Type stubs of the package, written from the live registry of operators.

``python -m tesserack.cli._stubs.stubs`` writes ``_native.pyi`` and ``__init__.pyi`` beside the package's sources; with
``--check`` it only says whether they are up to date.
"""

from __future__ import annotations

import argparse
import inspect
import keyword
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tesserack
from tesserack import _native
from tesserack.cli._stubs.stub_texts import FUNCTIONS, MEMBERS, NATIVE
from tesserack.ops.registry import public_functions
from tesserack.utils.homes import MODULES, NAMES, home

__all__ = ["main"]

HEADER = "# Written by `python -m tesserack.cli._stubs.stubs`; do not edit.\n# ruff: noqa\n"
PACKAGE = Path(__file__).resolve().parent.parent.parent

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
        # What the binding collects from the rest of a call: view(2, 3), broadcast_tensors(a, b).
        self.collected = self._element(kind)
        self.type = python_type(kind)

    @staticmethod
    def _element(kind: str) -> str | None:
        if kind.startswith("int["):
            return "_int"
        return "Tensor" if kind.startswith("Tensor") and kind.endswith("[]") and "?" not in kind else None


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
    """``(parameters) -> result`` of one overload; two where a list may also be given one by one."""
    arguments, result = parse(schema)
    factory = is_factory(schema.split("(")[0].split(".")[0], arguments)
    yield render(arguments, result, method, factory, collected=False)
    rest = [a for a in arguments if not a.keyword_only and not (method and a.name == "self")]
    if len(rest) == 1 and rest[0].collected:
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
        elif collected and argument.collected:
            parts.append(f"*{name}: {argument.collected}")
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


# Words of annotations that mean something else where they stand, in a module with a dtype `int` and a type `device`.
RENAMED = {word: f"_{word}" for word in ("int", "float", "bool", "dtype", "device", "layout", "memory_format")}
KNOWN = {*RENAMED.values(), "str", "Tensor", "Any", "None", "Sequence", "Number", "Generator", "Self", "tuple", "list"}


STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def python_annotation(annotation: Any) -> str:
    """An annotation of a Python method as a stub says it; ``Any`` where a name would have to be imported."""
    if not isinstance(annotation, str):
        return "Any"
    text = re.sub(r"\b(?:ts|tesserack|_native)\.", "", annotation)
    text = re.sub(r"\w+", lambda word: RENAMED.get(word[0], word[0]), text)
    return text if set(re.findall(r"\w+", text)) <= KNOWN else "Any"


def python_signature(function: Any) -> str | None:
    """``(self, ...) -> result`` of a method that is written in Python."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    parts, keywords = [], False
    for index, parameter in enumerate(found.parameters.values()):
        if index == 0:
            parts.append("self")
            continue
        star = STARS.get(parameter.kind, "")
        if parameter.kind == parameter.KEYWORD_ONLY and not keywords:
            parts.append("*")
        keywords = keywords or parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        default = "" if parameter.default is parameter.empty else " = ..."
        parts.append(f"{star}{parameter.name}: {python_annotation(parameter.annotation)}{default}")
    return f"({', '.join(parts)}) -> {python_annotation(found.return_annotation)}"


# --- the Tensor class ----------------------------------------------------------------------------------------------

OPERATORS = {
    "Tensor | Number": "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow and rand or "
    "ror xor rxor lshift rlshift rshift rrshift lt le gt ge iadd isub imul itruediv ifloordiv imod ipow iand ior ixor "
    "ilshift irshift",
    "Tensor": "matmul rmatmul",
}

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
        if name in written:
            continue
        delegated = type(member).__name__ == "_Delegate"  # to a module that is imported when it is first asked for
        if delegated:
            member = getattr(_native.Tensor, name)
        if isinstance(member, _native.OperatorMethod):
            yield from definitions(name, member.schemas, True, "    ")
        elif (name[0] != "_" or delegated) and callable(member) and (text := python_signature(member)):
            yield f"    def {name}{text}: ..."


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
        if f"def {name}(" in FUNCTIONS:
            continue
        # What Python wraps stands for the operator: einsum(equation, *operands).
        replaced = name in functions and inspect.isfunction(value)
        if name.startswith("_") or (name in functions and not replaced):
            continue
        if not isinstance(module, str) or not module.startswith("tesserack."):
            continue
        if module != "tesserack._native" and (inspect.isfunction(value) or inspect.isclass(value)):
            yield module, name
    for name, module in NAMES.items():
        yield f"tesserack.{module}", name


def package_stub() -> str:
    """The text of ``__init__.pyi``."""
    native = sorted(
        n
        for n in dir(_native)
        if not n.startswith("_") and n not in ("Operator", "OperatorMethod", "FunctionCtx", "Node", "SavedTensor")
    )
    lines = [
        HEADER + "import builtins",
        "from collections.abc import Sequence",
        "from typing import Any, Literal, overload",
        "",
    ]
    lines += [
        f"from {home(f'tesserack.{name}').rpartition('.')[0]} import {name} as {name}"
        for name in sorted((*MODULES, "backends"))
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
    lines += FUNCTIONS.strip("\n").splitlines()
    written = set(re.findall(r"^def (\w+)", FUNCTIONS, re.MULTILINE))
    defined = set(native) | {name for _, name in python_names()} | written
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
        print(f"out of date: {', '.join(stale)}; run python -m tesserack.cli._stubs.stubs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
