"""Finding, importing and validating plugins; each fails on its own."""

from __future__ import annotations

import difflib
import importlib
import inspect
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tesserack.backends._discovery import Claim, entry_points, plugins_enabled
from tesserack.plugins._errors import PluginError

if TYPE_CHECKING:
    import pluggy

__all__ = ["GROUP", "call_each", "failures", "installed", "load", "load_if_new", "loaded"]

GROUP = "tesserack.plugins"
# Called once, when a plugin is loaded, with the module that it registers things with.
_REGISTERING = {"tesserack_operators": "library", "tesserack_dispatch_keys": "dispatch"}

# Not held while a plugin's module is imported: another thread may be waiting for the lock inside an import that this
# one waits for.
_lock = threading.RLock()
_importing: set[tuple[int, str]] = set()  # thread, plugin
_claims: list[Claim] | None = None
_failures: dict[str, PluginError] = {}
_manager: pluggy.PluginManager | None = None


def _installed_claims() -> list[Claim]:
    global _claims
    if _claims is None:
        found = [Claim(point) for point in entry_points(GROUP)] if plugins_enabled() else []
        # The same package may lie on the path twice.
        _claims = [*{(claim.name, claim.value, str(claim)): claim for claim in found}.values()]
    return _claims


def _key(claim: Claim) -> str:
    return f"{claim.name} ({claim})"


def installed() -> dict[str, str]:
    """Names of the installed plugins with the package and version each comes from; loads none."""
    names: dict[str, list[str]] = {}
    for claim in _installed_claims():
        names.setdefault(claim.name, []).append(str(claim))
    return {name: ", ".join(packages) for name, packages in sorted(names.items())}


def loaded() -> list[str]:
    """The plugins loaded so far, as ``"name (package version)"``."""
    return sorted(name for name, _ in _manager.list_name_plugin()) if _manager is not None else []


def failures() -> dict[str, str]:
    """Plugins that could not be loaded, with the reason."""
    return {name: str(error) for name, error in _failures.items()}


def load(name: str | None = None) -> None:
    """Load one installed plugin, or all. What is loaded already stays; what failed is not tried again.

    All others are loaded before the error of one is raised.

    Raises:
        PluginError: the plugin cannot be imported, implements a hook that does not exist or takes arguments that the
            hook does not have; or there is no plugin of this name. The original error is its ``__cause__``.
    """
    with _lock:
        wanted = [claim for claim in _installed_claims() if name in (None, claim.name)]
        if name is not None and not wanted:
            have = ", ".join(installed()) or "none"
            raise PluginError(f"plugins: no plugin named {name!r} is installed (installed: {have})")
    for claim in wanted:
        _load_once(claim)
    with _lock:
        failed = [_failures[_key(claim)] for claim in wanted if _key(claim) in _failures]
    if failed:
        raise PluginError("\n".join(map(str, failed))) from failed[0].__cause__


def load_if_new(name: str) -> bool:
    """Load the plugin of this name if one is installed that was not tried yet; whether it was."""
    wanted = [claim for claim in _installed_claims() if claim.name == name]
    if not wanted or all(_key(claim) in _failures or _get_manager().has_plugin(_key(claim)) for claim in wanted):
        return False
    load(name)
    return True


def _load_once(claim: Claim) -> None:
    manager = _get_manager()
    key = _key(claim)
    attempt = (threading.get_ident(), key)
    with _lock:
        if key in _failures or manager.has_plugin(key) or attempt in _importing:
            return
        _importing.add(attempt)
    try:
        plugin = claim.point.load()
        with _lock:
            if not manager.has_plugin(key):  # else another thread was faster
                _register(manager, plugin, key)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a module may call sys.exit while it is imported
        reason = " ".join(str(error).split())
        failure = PluginError(f"plugins: {key} cannot be used: {type(error).__name__}: {reason}")
        failure.__cause__ = error
        with _lock:
            if not manager.has_plugin(key):
                _failures[key] = failure
    finally:
        with _lock:
            _importing.discard(attempt)


def _register(manager: pluggy.PluginManager, plugin: Any, key: str) -> None:
    _check_names(manager, plugin)
    manager.register(plugin, key)
    try:
        _load_libraries(manager, plugin)
        _run_registering(manager, plugin)
    except BaseException:
        manager.unregister(name=key)
        raise


def _get_manager() -> pluggy.PluginManager:
    global _manager
    with _lock:
        if _manager is None:
            _manager = _make_manager()
        return _manager


def _make_manager() -> pluggy.PluginManager:
    import pluggy

    from tesserack.plugins import hooks

    class Manager(pluggy.PluginManager):
        """Takes functions by their prefix, without a marker, so that a plugin need not import anything."""

        def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
            options = super().parse_hookimpl_opts(plugin, name)
            if options is None and name.startswith(hooks.PREFIX) and inspect.isroutine(getattr(plugin, name)):
                return {}
            return options

    manager = Manager("tesserack")
    manager.add_hookspecs(hooks)
    return manager


def _check_names(manager: pluggy.PluginManager, plugin: Any) -> None:
    known = [name for name in dir(manager.hook) if not name.startswith("_")]
    for name in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is None:
            continue
        hook = options.get("specname") or name
        if hook not in known:
            near = difflib.get_close_matches(hook, known, n=1)
            raise PluginError(
                f"unknown hook {hook!r}; " + (f"did you mean {near[0]!r}?" if near else f"hooks are {', '.join(known)}")
            )


def _load_libraries(manager: pluggy.PluginManager, plugin: Any) -> None:
    for impl in manager.hook.tesserack_libraries.get_hookimpls():
        if impl.plugin is not plugin:
            continue
        paths: Any = impl.function()
        if isinstance(paths, (str, os.PathLike)):
            raise PluginError(f"tesserack_libraries gave {paths!r}; expected a list of paths")
        from tesserack.library import dispatch

        for path in paths:
            dispatch.load_library(path)


def _run_registering(manager: pluggy.PluginManager, plugin: Any) -> None:
    for hook, module in _REGISTERING.items():
        for impl in getattr(manager.hook, hook).get_hookimpls():
            if impl.plugin is plugin:
                given = {module: importlib.import_module(f"tesserack.{module}")}
                impl.function(*(given[argument] for argument in impl.argnames))


def call_each(hook: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
    """Call a hook of every loaded plugin: (plugin, result). ``PluginError`` naming the plugin if one raises."""
    if _manager is None:
        return
    for impl in getattr(_manager.hook, hook).get_hookimpls():
        try:
            result = impl.function(*(arguments[name] for name in impl.argnames))
            if isinstance(result, Iterator):
                result = [*result]  # a generator's errors are the plugin's too
        except Exception as error:
            raise PluginError(
                f"plugins: {impl.plugin_name} failed in {hook}: {type(error).__name__}: {error}"
            ) from error
        yield impl.plugin_name, result
