"""What is known about a backend: its package, its state, and what it can do."""

from __future__ import annotations

import contextlib
import difflib
from dataclasses import dataclass
from typing import Any

from tesserack import _native
from tesserack._native import BackendUnavailableError
from tesserack.backends._discovery import Claim, claims
from tesserack.backends._loader import failures, list_backends
from tesserack.backends._loader import load as load_backend
from tesserack.backends._place import identity, links

__all__ = ["BackendInfo", "DeviceProperties", "capabilities", "device_properties", "get"]

# In the order of the ABI's numbers. What a backend takes unless it says more: those before complex64.
DTYPES = tuple(str(dtype).rpartition(".")[2] for dtype in _native._dtypes)
USUAL_DTYPES = DTYPES[: DTYPES.index("complex64")]
_FLAGS = ("host_memory", "atomics", "asynchronous", "simulated")


@dataclass(frozen=True)
class BackendInfo:
    """A backend as :func:`tesserack.backends.get` describes it. What is not known is None.

    ``status`` is one of ``"ready"``, ``"no device"``, ``"failed"`` (to load), ``"conflict"`` (several packages claim
    the name) and ``"not loaded"``; ``reason`` says why it is not ready.
    """

    name: str
    status: str
    reason: str | None = None
    package: str | None = None
    package_version: str | None = None
    source: str | None = None
    vendor: str | None = None
    version: str | None = None
    device_count: int | None = None

    @property
    def available(self) -> bool:
        """Whether there is a device to compute on."""
        return self.status == "ready"


@dataclass(frozen=True)
class DeviceProperties:
    """What a device says about itself. Sizes are in bytes; 0 means unknown, or no limit for ``max_ndim``."""

    name: str
    total_memory: int
    free_memory: int
    dtypes: tuple[str, ...]
    max_ndim: int
    compute_units: int
    max_allocation: int
    alignment: int
    host_memory: bool
    atomics: bool
    asynchronous: bool
    simulated: bool

    @property
    def multi_processor_count(self) -> int:
        """``compute_units`` under PyTorch's name."""
        return self.compute_units


def get(name: str, load: bool = True) -> BackendInfo:
    """Everything about one backend. Loads it unless ``load=False``; a backend that cannot be loaded is described too.

    Raises ``BackendUnavailableError`` for a name that nothing installed or registered claims.

    >>> get("cpu").status
    'ready'
    """
    claimed = claims().get(name, [])
    if not claimed and not _native._is_loaded(name):
        load_backend(name)  # says what is installed
    if len(claimed) > 1 and not _native._is_loaded(name):
        return _described(name, claimed[0], "conflict", f"claimed by {' and '.join(map(str, claimed))}")
    if load:
        with contextlib.suppress(BackendUnavailableError):  # remembered, and told below
            load_backend(name)
    if _native._is_loaded(name):
        return _loaded(name, claimed)
    reason = failures().get(name)
    return _described(name, claimed[0], "failed" if reason else "not loaded", reason)


def _described(name: str, claim: Claim, status: str, reason: str | None) -> BackendInfo:
    return BackendInfo(name, status, reason, claim.package, claim.version, claim.value)


def _record(name: str) -> dict[str, Any]:
    return next(record for record in _native._backends() if record["name"] == name)


def _loaded(name: str, claimed: list[Claim]) -> BackendInfo:
    record = _record(name)
    count = record["device_count"]
    package = claimed[0] if claimed else None
    return BackendInfo(
        name,
        "ready" if count else "no device",
        None if count else record["reason"],
        package.package if package else None,
        package.version if package else None,
        record["source"],
        record["vendor"],
        record["version"],
        count,
    )


def _dtype_names(mask: int) -> list[str]:
    """Names of the bits of a mask; none set means the usual ones, as everywhere in the ABI."""
    return [name for k, name in enumerate(DTYPES) if mask >> k & 1] or [*USUAL_DTYPES]


def device_properties(device: Any = None) -> DeviceProperties:
    """The properties of a device, the default one unless given."""
    raw = dict(_native._device_properties(device))
    dtypes, flags = _dtype_names(raw.pop("dtypes")), raw.pop("flags")
    switches: dict[str, Any] = {flag: bool(flags >> k & 1) for k, flag in enumerate(_FLAGS)}
    return DeviceProperties(dtypes=tuple(dtypes), **raw, **switches)


def capabilities(name: str) -> dict[str, Any]:
    """What a backend can do, as plain data: for reports, for tests, for choosing a path.

    Keys: ``name vendor version package package_version device_count``; ``dtypes`` (of the first device) and
    ``max_ndim`` (0: any); ``kernels``, a dict from the name of each kernel the core may ask for and the backend
    answers to the dtypes it takes; ``missing``, required kernels it does not answer; ``unused``, a dict from the
    names of kernels that nothing ever calls (known of backends in Python only) to why; ``streams events peer_copies
    host_memory own_allocator profiler sharing recovery``; ``devices``, the properties of each as a dict, with what
    :func:`tesserack.backends.identity` tells; ``links``, what :func:`tesserack.backends.link` does; ``launches``,
    None but for backends in Python: how many launch ``plans`` were made, how many kernel calls ran ``by_plan``, and
    how many calls of kernels and of other methods entered Python (``kernels_in_python``, ``slots_in_python``).

    Raises ``BackendUnavailableError`` if the backend has no device.

    >>> "matmul" in capabilities("cpu")["kernels"]
    True
    """
    _native._resolve_device(name)
    info, record = get(name), _record(name)
    places = [f"{name}:{index}" for index in range(record["device_count"])]
    devices = [{**vars(device_properties(place)), **_identity(place)} for place in places]
    kernels = {kernel: _dtype_names(mask) for kernel, mask in _native._backend_kernels(name).items()}
    return {
        **{key: getattr(info, key) for key in ("name", "vendor", "version", "package", "package_version")},
        "device_count": record["device_count"],
        "dtypes": [*devices[0]["dtypes"]],
        "max_ndim": devices[0]["max_ndim"],
        "kernels": kernels,
        "unused": unused_kernels(name),
        "missing": [kernel for kernel in _native._required_kernels() if kernel not in kernels],
        **{key: record[key] for key in ("streams", "events", "peer_copies", "host_memory", "own_allocator")},
        **{key: record[key] for key in ("profiler", "sharing", "recovery")},
        "links": [one._asdict() for one in links(name)],
        "launches": _native._launch_counters(name),
        "devices": [{**properties, "dtypes": [*properties["dtypes"]]} for properties in devices],
    }


def _identity(device: str) -> dict[str, Any]:
    found = identity(device)
    return {"uuid": found.uuid and str(found.uuid), "bus": found.bus, "numa_node": found.numa_node}


def unused_kernels(name: str) -> dict[str, str]:
    """Kernels of a backend in Python that nothing ever calls, with what may have been meant."""
    backend = _native._python_backend(name)
    names = [] if backend is None else [n for n in backend.kernels() if not _native._is_kernel_used(n)]
    # An operator with a namespace may come with a plugin that is not loaded now.
    return {n: _why_unused(n) for n in names if "::" not in n}


def _why_unused(name: str) -> str:
    operators = {record["name"] for record in _native._operators()}
    if name in operators:
        return "a view or an operator that writes its arguments, which the core does itself"
    usable = [n for n in {*operators, *_native._kernel_names()} if _native._is_kernel_used(n)]
    near = difflib.get_close_matches(name, usable, n=1)
    return f"did you mean {near[0]!r}?" if near else "see tesserack ops"


def all_backends(load: bool = True) -> list[BackendInfo]:
    """:func:`get` of every name in :func:`tesserack.backends.list`."""
    return [get(name, load) for name in list_backends()]
