"""Loading a backend when its name is first used, and saying what failed when that fails."""

from __future__ import annotations

import os
import sys
import threading

from tesserack import _native
from tesserack._native import BackendUnavailableError
from tesserack.backends._accessors import offered  # the module hangs accessors on tensors when names are read
from tesserack.backends._discovery import Claim, claims, forget, plugins_enabled

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["failures", "install", "installed", "list_backends", "load", "reload"]

# Not held while a backend's module is imported: another thread may be waiting for the lock inside an import that this
# one waits for.
_lock = threading.RLock()
_failures: dict[str, tuple[str, BaseException | None]] = {}
_loading: set[tuple[int, str]] = set()  # thread, name


def installed() -> dict[str, str]:
    """Names of the installed backends, with the package and version each comes from; loads none.

    >>> installed()["cpu"].split()[0]
    'tesserack-cpu'
    """
    return {name: str(claimed[0]) for name, claimed in claims().items()}


def list_backends() -> list[str]:
    """Names of all backends that can be named as a device: installed or registered at run time; loads none."""
    registered = {backend["name"] for backend in _native._backends()}
    return sorted(registered | claims().keys())


def failures() -> dict[str, str]:
    """Backends that failed to load in this process, with the message each use of them gets."""
    return {name: message for name, (message, _) in _failures.items()}


def load(name: str) -> None:
    """Load a backend now. A failure is remembered: see :func:`reload`.

    Several threads may be at it at once: what each of them imports is registered once.

    Raises:
        BackendUnavailableError: saying which package and version, what failed (also as ``__cause__``) and what to do.
    """
    with _lock:
        if _native._is_loaded(name):
            return
        if name in _failures:
            message, cause = _failures[name]
            raise BackendUnavailableError(message) from cause
        claim = _only_claim(name)
        attempt = (threading.get_ident(), name)
        if attempt in _loading:
            raise _too_early(claim)
        _loading.add(attempt)
    try:
        _load_claim(claim)
    finally:
        with _lock:
            _loading.discard(attempt)


def reload(name: str) -> None:
    """Try again to load a backend that failed, or to find devices where there were none.

    Reads the metadata of installed packages anew, and imports the backend's module anew. A backend that has devices
    stays as it is. Raises what :func:`load` raises, also if there is still no device.

    >>> reload("cpu")
    """
    with _lock:
        if _native._is_loaded(name):
            _native._probe_again(name)
        else:
            _failures.pop(name, None)
            for claim in claims().get(name, []):
                _forget_module(claim.value.partition(":")[0])
            forget()
            load(name)
    _native._resolve_device(name)


def _forget_module(module: str) -> None:
    for known in [*sys.modules]:
        if known == module or known.startswith(f"{module}."):
            del sys.modules[known]


def _only_claim(name: str) -> Claim:
    claimed = claims().get(name, [])
    if len(claimed) == 1:
        return claimed[0]
    if not claimed:
        raise BackendUnavailableError(_unknown(name))
    raise BackendUnavailableError(
        f"device: the name {name!r} is claimed by {' and '.join(map(str, claimed))}; uninstall one of them"
    )


# --- one backend ---------------------------------------------------------------------------------------------------


def _load_claim(claim: Claim) -> None:
    try:
        entry = _entry(claim)
        with _lock:
            if not _native._is_loaded(claim.name):
                _register(claim, entry)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a module may call sys.exit while it is imported
        if _native._is_loaded(claim.name):
            return  # another thread was faster
        if _is_being_imported(claim.value.partition(":")[0]):
            raise _too_early(claim) from error
        message = (
            f"device: the backend {claim.name!r} from {claim} ({claim.value}) failed to load: "
            f"{type(error).__name__}: {error}; {_cure(error, claim)}, then restart or call "
            f"tesserack.backends.reload({claim.name!r})"
        )
        _failures[claim.name] = (message, error)
        raise BackendUnavailableError(message) from error


def _entry(claim: Claim) -> Any:
    """What an entry point names: a library's path, a Python backend, or what a function returned."""
    entry = claim.point.load()
    return entry() if callable(entry) and not _is_python_backend(entry) else entry


def _is_being_imported(module: str) -> bool:
    """Here or in another thread, which may be waiting for this one."""
    return bool(getattr(getattr(sys.modules.get(module), "__spec__", None), "_initializing", False))


def _too_early(claim: Claim) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"device: the backend {claim.name!r} from {claim} uses its own device while it is being loaded; "
        f"report this to the authors of {claim.package}"
    )


_namespaces: dict[str, Any] = {}


def namespace(name: str) -> Any:
    """What a loaded backend adds to ``tesserack.<name>``: a mapping."""
    return _namespaces.get(name, {})


def _register(claim: Claim, entry: Any) -> None:
    if _is_python_backend(entry):
        if entry.name != claim.name:
            raise RuntimeError(
                f"backend: {claim} calls itself {entry.name!r}, but is announced as {claim.name!r}; "
                "report this to the authors of the package"
            )
        _namespaces[entry.name] = entry.namespace
        _native._register_python_backend(entry, f"{claim} ({claim.value})")
    elif isinstance(entry, (str, os.PathLike)):
        from tesserack.backends import _integrity

        _integrity.check(os.fspath(entry), claim.name, claim.point.dist)
        _native._load_backend(os.fspath(entry), claim.name, str(claim))
    else:
        raise TypeError(
            f"expected {claim.value} to be the path of a library, a tesserack.backends.Backend or a function that "
            f"returns either, got {type(entry).__name__}"
        )


def _is_python_backend(entry: Any) -> bool:
    # An instance can only exist once the module of its class was imported.
    module = sys.modules.get("tesserack.backends._python")
    return module is not None and isinstance(entry, module.Backend)


# --- what to do ----------------------------------------------------------------------------------------------------


def _cure(error: BaseException, claim: Claim) -> str:
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        own = error.name.partition(".")[0] == claim.value.partition(":")[0].partition(".")[0]
        return f"try reinstalling {claim.package}" if own else f"install the missing Python module {error.name!r}"
    if "built for ABI" in text or "needs ABI" in text:
        major, minor = _native._abi_version()
        return f"install a version of {claim.package} for ABI {major}.{minor}, or the tesserack it was made for"
    if "cannot open shared object file" in text:
        return "install the library that is missing; it may be part of the device's driver"
    if "announced as" in text or isinstance(error, TypeError):
        return f"try another version of {claim.package}"
    return f"try reinstalling {claim.package}"


def _unknown(name: str) -> str:
    have = list_backends()
    default = _native._declared_default()
    hidden = "" if plugins_enabled() or name == default else "; TESSERACK_PLUGINS=off hides all others"
    if not have:
        return (
            f"device: no backend is installed, so there is no device {name!r}; "
            f"install one, for example: pip install tesserack-{default}{hidden}"
        )
    missing = f"device: no backend named {name!r} is installed (installed: {', '.join(have)}{hidden})"
    # Programs read the names of devices from the last sentence, which is PyTorch's.
    expected = f"Expected one of {', '.join(sorted({*have, 'meta'}))} device type at start of device string: {name}"
    return f"{missing}; {_advice(name, have)}. {expected}"


def _advice(name: str, have: list[str]) -> str:
    """Only packages that the distribution names are advised: any other name may be anybody's, or a slip."""
    import difflib

    if name in offered():
        return f"try pip install tesserack-{name}"
    near = difflib.get_close_matches(name, [*have, *offered()], n=1)
    return f"did you mean {near[0]!r}?" if near else "install the package that brings it, or choose one of these"


def _load_by_name(name: str) -> None:
    """What the native core calls for a name it does not know; for "meta", which it knows, only once."""
    if name == "meta":
        claims()
    else:
        load(name)


def install() -> None:
    """Let the native core load backends by name, and ask which device is the default."""
    _native._set_backend_loader(_load_by_name)
    _native._set_default_chooser(_choose_default)


def _choose_default() -> Any:
    from tesserack.backends import _default

    return _default.choose()
