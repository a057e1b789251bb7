"""``inspect.signature`` of operators."""

from __future__ import annotations

import ast
import inspect
import keyword
import re
from typing import Any

__all__ = ["keyword_defaults", "of_operator"]

_WORDS = re.compile(rf"\b({'|'.join(word for word in keyword.kwlist if word.islower())})\b(?=[=,)])")


def of_operator(operator: Any) -> inspect.Signature:
    """The signature of an operator with one overload; ``(*args, **kwargs)`` for several.

    An argument that is a word of Python's, as in ``uniform_(from, to)``, has an underscore behind it.
    """
    text = operator.__text_signature__.replace("$self", "self").replace("/, ", "")
    text = _WORDS.sub(r"\1_", text)
    function = ast.parse(f"def f{text}: pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    parameters = []
    plain = arguments.args
    defaults: list[Any] = [inspect.Parameter.empty] * (len(plain) - len(arguments.defaults)) + [
        _value(d) for d in arguments.defaults
    ]
    for argument, default in zip(plain, defaults, strict=True):
        parameters.append(inspect.Parameter(argument.arg, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default))
    if arguments.vararg:
        parameters.append(inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL))
    for argument, node in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        default = inspect.Parameter.empty if node is None else _value(node)
        parameters.append(inspect.Parameter(argument.arg, inspect.Parameter.KEYWORD_ONLY, default=default))
    if arguments.kwarg:
        parameters.append(inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters)


def keyword_defaults(operator: Any) -> dict[str, Any] | None:
    """What a function written in Python has as ``__kwdefaults__``, None without any.

    >>> import tesserack as ts
    >>> keyword_defaults(ts.meshgrid)
    {'indexing': None}
    """
    named = (p for p in of_operator(operator).parameters.values() if p.kind is p.KEYWORD_ONLY)
    return {p.name: p.default for p in named if p.default is not p.empty} or None


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
