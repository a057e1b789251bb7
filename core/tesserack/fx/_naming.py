"""How functions, types and other values are called in graphs and in the programs written from them."""

from __future__ import annotations

import builtins
import keyword
import operator
import re
import sys
import types
from typing import Any

import tesserack as ts

__all__ = ["Namespace", "format_arg", "path_from_package", "qualified_name", "snake_case", "type_name"]

_NAME = re.compile(r"^([a-zA-Z_]\w*?)(?:_(\d+))?$", re.ASCII)
# Names that nothing may take that is not this very object.
RESERVED: dict[str, Any] = {**{word: object() for word in keyword.kwlist}, **vars(builtins)}


def snake_case(name: str) -> str:
    """A name as Python has those of variables.

    >>> snake_case("layerNorm"), snake_case("ALL_CAPS")
    ('layer_norm', 'all_caps')
    """
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower()


class Namespace:
    """Names that are each taken once, and no builtin's."""

    def __init__(self) -> None:
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = {}
        self._obj_to_name: dict[int, tuple[str, Any]] = {}  # with the object, whose id is taken while it is kept

    def __deepcopy__(self, memo: Any) -> Namespace:
        made = Namespace()
        made._used_names, made._base_count = {*self._used_names}, {**self._base_count}
        return made

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """A name that nothing has, made of a wish; that of ``obj``, if it has one."""
        if obj is not None and id(obj) in self._obj_to_name:
            return self._obj_to_name[id(obj)][0]
        if not _NAME.match(candidate):
            candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
            candidate = f"_{candidate}" if candidate[0].isdigit() else candidate
        found = _NAME.match(candidate)
        base, given = found.group(1, 2) if found else (candidate, None)
        if given is not None and candidate not in self._used_names:
            number = int(given)
        else:
            number = self._base_count.get(base, 0)
            if RESERVED.get(candidate, obj) is not obj:
                number += 1
                candidate = f"{base}_{number}"
        while candidate in self._used_names:
            number += 1
            candidate = f"{base}_{number}"
        self._used_names.add(candidate)
        self._base_count[base] = number
        if obj is not None:
            self._obj_to_name[id(obj)] = (candidate, obj)
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Let an object have a name."""
        if self._obj_to_name.setdefault(id(obj), (name, obj))[0] is not name:
            raise AssertionError("obj is already associated")

    def _rename_object(self, obj: Any, name: str) -> None:
        assert id(obj) in self._obj_to_name, f"Object {obj} is not in _obj_to_name"
        self._obj_to_name[id(obj)] = (name, obj)
        self._used_names.add(name)


def shown_package() -> str:
    """The package through which programs see this one: ``torch`` under the import hook."""
    return repr(ts.float32).partition(".")[0]


def shown_function(name: str) -> Any:
    """The function of the shown package: under the hook it is another object than here where it is Python."""
    return getattr(sys.modules.get(shown_package(), ts), name)


def _shown(module: str) -> str:
    return re.sub(r"^(tesserack|torch)\b", shown_package(), module)


def type_name(obj: Any) -> str:
    """A type, or a value in its place, as text: ``int``, ``collections.OrderedDict``, ``typing.List[int]``."""
    if isinstance(obj, type) and not hasattr(obj, "__origin__"):
        return obj.__qualname__ if obj.__module__ == "builtins" else f"{_shown(obj.__module__)}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj)


def qualified_name(func: Any) -> str:
    """The path to a function or type as programs write it; builtins without their module.

    >>> import operator
    >>> qualified_name(len), qualified_name(operator.add), qualified_name(operator.add.__class__)
    ('len', '_operator.add', 'builtin_function_or_method')
    """
    name = str(getattr(func, "__name__", type(func).__name__))
    if getattr(builtins, name, None) is func:
        return name
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"{_shown(func.__objclass__.__module__)}.{func.__qualname__}".removeprefix("builtins.")
    own = getattr(func, "__qualname__", name)
    own = own if isinstance(own, str) and "<" not in own else name
    module = getattr(func, "__module__", None)
    if module is None or module == "builtins":
        return own
    if module.startswith("torch._ops"):
        return f"torch.ops{module.removeprefix('torch._ops')}.{own}"
    return f"{_shown(module)}.{own}"


def path_from_package(obj: Any, name: str) -> str | None:
    """The path by which the shown package leads to this very object, where one does: ``torch.nn.functional.relu``."""
    package = shown_package()
    if name.startswith("torch.ops.") and package != "torch":
        name = name.replace("torch", package, 1)
    whole = name.partition(".")[0] == package and _follow(name) is obj
    if whole and "._" not in name:
        return name
    short = str(getattr(obj, "__name__", ""))
    ours = str(getattr(obj, "__module__", "") or "").partition(".")[0] in ("tesserack", "torch", "")
    for guess in (package, f"{package}.nn.functional") if ours and short.isidentifier() else ():
        found = _follow(f"{guess}.{short}")
        if found is obj or getattr(found, "__wrapped__", None) is obj:  # under the hook, around functions in Python
            return f"{guess}.{short}"
    return name if whole else None


def _follow(path: str) -> Any:
    first, *rest = path.split(".")
    found: Any = sys.modules.get(first)
    for name in rest:
        found = getattr(found, name, None) if name.isidentifier() else None
    return found


def format_arg(arg: Any, max_list_len: float = float("inf")) -> str:
    """Arguments as text: nodes as ``%name``, strings bare; of long lists the beginning."""
    own = getattr(arg, "_custom_fx_repr_fn", None)
    if own is not None:
        return str(own())
    if isinstance(arg, (list, tuple)):
        left, right = "[]" if isinstance(arg, list) else "()"
        parts = [format_arg(item) for k, item in enumerate(arg) if k < max_list_len]
        more = f", ...[total_len={len(arg)}]" if len(arg) > max_list_len else ""
        single = "," if len(arg) == 1 and isinstance(arg, tuple) else ""
        return f"{left}{', '.join(parts)}{single}{more}{right}"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{key}: {format_arg(value)}" for key, value in arg.items()) + "}"
    return f"%{arg}" if hasattr(arg, "_input_nodes") else str(arg)


def shown_target(target: Any) -> str:
    """A target as a line of a graph's listing shows it: ``operator.add``, ``builtins.getattr``, ``torch.relu``."""
    if isinstance(target, str):
        return target
    if not hasattr(target, "__module__"):
        return str(getattr(target, "__name__", type_name(target)))
    name = getattr(target, "__name__", None)
    if target.__module__ == "builtins":
        return f"builtins.{name}"
    if target.__module__ == "_operator" and getattr(operator, str(name), None) is target:
        return f"operator.{name}"
    full = qualified_name(target) if name != "<lambda>" else str(name)
    return path_from_package(target, full) or full
