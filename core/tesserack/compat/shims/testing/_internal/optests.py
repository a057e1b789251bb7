"""``torch.testing._internal.optests``: tests of custom operators, made of the tests that call them."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tesserack._native import Operator
from tesserack._tensor.overrides import TorchFunctionMode
from tesserack.library import opcheck

__all__ = ["ALL_TEST_UTILS", "DEFAULT_TEST_UTILS", "dontGenerateOpCheckTests", "generate_opcheck_tests", "opcheck"]

DEFAULT_TEST_UTILS = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
ALL_TEST_UTILS = [*DEFAULT_TEST_UTILS, "test_aot_dispatch_static"]


def dontGenerateOpCheckTests(reason: str) -> Callable[[Any], Any]:
    """Of a test: nothing is made of it."""

    def mark(test: Any) -> Any:
        test._torch_dont_generate_opcheck_tests = True
        return test

    return mark


class _OpCheckMode(TorchFunctionMode):
    """Each call of an operator of the namespaces is checked first; ``known`` are operators that are not."""

    def __init__(self, namespaces: Sequence[str], check: str, known: frozenset[str]) -> None:
        super().__init__()
        self.namespaces, self.check, self.known = namespaces, check, known

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.__name__ if isinstance(func, Operator) else ""
        base = name.partition(".")[0]
        if base.partition("::")[0] in self.namespaces and base not in self.known:
            opcheck(func, args, kwargs, test_utils=self.check)
        return func(*args, **(kwargs or {}))


def _known(path: str | Path | None) -> Mapping[str, Mapping[str, Any]]:
    """What a file of failures says of operators: ``{operator: {Class.test: {"status": "xfail" or "skip"}}}``."""
    if path is None or not Path(path).exists():
        return {}
    return json.loads(Path(path).read_text())["data"]  # type: ignore[no-any-return]


def generate_opcheck_tests(
    testcase: Any,
    namespaces: Sequence[str],
    failures_dict_path: str | None = None,
    additional_decorators: Mapping[str, Sequence[Callable[[Any], Any]]] | None = None,
    test_utils: Sequence[str] = tuple(DEFAULT_TEST_UTILS),
) -> None:
    """Add to a class of tests, for each test and check, a test that runs it with every call of an operator checked.

    ``{check}__{test}`` is its name. An operator that the file says fails there is called without the check.
    """
    if failures_dict_path is None:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        failures_dict_path = str(Path(caller.f_code.co_filename).parent / "failures_dict.json") if caller else None
    known = _known(failures_dict_path)
    decorators = additional_decorators or {}
    for name in [name for name in dir(testcase) if name.startswith("test_") and callable(getattr(testcase, name))]:
        method = getattr(testcase, name)
        if getattr(method, "_torch_dont_generate_opcheck_tests", False):
            continue
        for check in test_utils:
            made = f"{check}__{name}"
            there = f"{testcase.__name__}.{made}"
            without = frozenset(operator for operator, tests in known.items() if there in tests)
            test = _with_checks(method, namespaces, check, without)
            for decorate in decorators.get(made, ()):
                test = decorate(test)
            setattr(testcase, made, test)


def _with_checks(method: Any, namespaces: Sequence[str], check: str, known: frozenset[str]) -> Any:
    @functools.wraps(method)
    def test(*args: Any, **kwargs: Any) -> Any:
        with _OpCheckMode(namespaces, check, known):
            return method(*args, **kwargs)

    marks = test.__dict__.get("pytestmark", [])
    if any(mark.name == "opcheck_only_one" for mark in marks):
        test.pytestmark = [_first(mark) for mark in marks]  # type: ignore[attr-defined]
    return test


def _first(mark: Any) -> Any:
    """Of a mark with several cases, other than devices, the first."""
    if mark.name != "parametrize" or mark.args[0] == "device":
        return mark
    import pytest

    names, cases = mark.args
    return pytest.mark.parametrize(names, (next(iter(cases)),)).mark
