"""The hooks a plugin may implement: module-level functions of these names, or methods of an object.

Arguments are passed by name, so an implementation may leave out those it does not need. An unknown hook or argument is
refused when the plugin is loaded. Names beginning with ``tesserack_`` are hooks without further ado; a function with
another name becomes one with ``@tesserack.plugins.hookimpl(specname="tesserack_doctor")``.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pluggy

from tesserack.plugins._finding import Finding

__all__ = ["PREFIX", "hookimpl", "hookspec"]

PREFIX = "tesserack_"
hookspec = pluggy.HookspecMarker("tesserack")
hookimpl = pluggy.HookimplMarker("tesserack")


@hookspec
def tesserack_operators(library: Any) -> None:
    """Define operators, once, when the plugin is loaded. ``library`` is the module ``tesserack.library``."""


@hookspec
def tesserack_dispatch_keys(dispatch: Any) -> None:
    """Register dispatch keys and kernels for them, once, when the plugin is loaded.

    ``dispatch`` is the module ``tesserack.dispatch``.
    """


@hookspec
def tesserack_libraries() -> Iterable[str | os.PathLike[str]]:  # type: ignore[empty-body]
    """Native libraries of dispatch keys and operators: paths, loaded once, when the plugin is.

    They are given to :func:`tesserack.dispatch.load_library`, before the hooks above are called.
    """


@hookspec
def tesserack_autocast() -> Mapping[str, Iterable[str]]:  # type: ignore[empty-body]
    """How operators behave under autocast: names of operators by category.

    ``{"lower": [...], "float32": [...], "promote": [...]}``: run in the lower precision, in float32, or in the widest
    dtype among the arguments.
    """


@hookspec
def tesserack_communicators() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Factories of communicators by the name that users give as the communication backend."""


@hookspec
def tesserack_trackers() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Places for the results of runs, by the name that users give to ``tesserack.utils.tracking.track``."""


@hookspec
def tesserack_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add subcommands of ``tesserack``.

    ``parser = subparsers.add_parser("hello", help="...")``, then ``parser.set_defaults(run=function)``, where
    ``function(arguments)`` returns the exit status or None.
    """


@hookspec
def tesserack_doctor() -> Iterable[Finding]:  # type: ignore[empty-body]
    """Checks of the plugin's environment: findings for ``tesserack doctor``."""


@hookspec
def tesserack_compile() -> Mapping[str, Callable[..., Any]]:  # type: ignore[empty-body]
    """Graph compilers by the name that users give to ``compile``: functions of a graph and its sample inputs."""
