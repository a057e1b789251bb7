"""The cpu backend of Tesserack: a shared library behind the C contract ``tesserack/abi.h``.

The entry point ``cpu`` of the group ``tesserack.backends`` is :func:`library`. Nothing here imports the core.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["library"]

_LIBRARY = "libtesserack_cpu.so"


def library() -> str:
    """Path of the backend's shared library, with the libraries it needs already loaded.

    The library carries run paths to oneDNN and OpenBLAS as pip lays them out; loading both here first makes other
    layouts work too. What is absent is left for the loader to complain about: a build without oneDNN does not need it.

    Raises:
        FileNotFoundError: the shared library, or oneDNN where it is needed, is not there: the installation is damaged.

    >>> library().endswith("libtesserack_cpu.so")
    True
    """
    path = _find_library()
    with _load_time_settings():
        for needed in (_gomp(), _onednn(), _openblas(), path):
            if needed is not None:
                _open(needed)
    return str(path)


def _open(path: Path) -> None:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        if "libdnnl" not in str(error):
            raise
        raise FileNotFoundError(
            f"tesserack_cpu: expected libdnnl.so.3 of onednn-cpu-gomp: {error}; pip install --target leaves it out: "
            "install into a virtual environment"
        ) from error


_loading = threading.Lock()

# Read once, while the libraries load. libgomp's default is to spin for milliseconds at every barrier, which a busy
# machine pays for; 1,000 turns (15 us on Zen, 50 on Ice Lake) are over before a neighbour gives a processor back, and
# every short operation then wakes a sleeper: 200 us instead of 20. Three processes on two processors took the same
# time at 1,000 and 16,000 turns, and a quarter more at 64,000. OpenBLAS is only called from our own threads.
_SETTINGS = {"GOMP_SPINCOUNT": "16000", "OPENBLAS_NUM_THREADS": "1"}


# What the kernel tells of a processor: where, and which bits (asm/hwcap.h of arm64).
_HWCAP, _HWCAP2, _SVE, _SME = 16, 26, 1 << 22, 1 << 23


def _capabilities(which: int) -> int:
    function = ctypes.CDLL(None).getauxval
    function.restype, function.argtypes = ctypes.c_ulong, (ctypes.c_ulong,)
    return int(function(which))


def _for_openblas() -> dict[str, str]:
    """Other kernels than it takes for processors with SME: those of scipy-openblas32 (0.3.34) are empty there, and
    products come out wrong."""
    if platform.machine() != "aarch64" or not _capabilities(_HWCAP2) & _SME:
        return {}
    return {"OPENBLAS_CORETYPE": "ARMV8SVE" if _capabilities(_HWCAP) & _SVE else "ARMV8"}


@contextlib.contextmanager
def _load_time_settings() -> Iterator[None]:
    """Sets the variables that the user has not set, for the time of loading only. One thread at a time: another would
    take what is set here for the user's, or take it away."""
    with _loading:
        chosen = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys()
        settings = {**_SETTINGS, **_for_openblas()}
        ours = {k: v for k, v in settings.items() if k not in os.environ and not (chosen and k == "GOMP_SPINCOUNT")}
        os.environ.update(ours)
        try:
            yield
        finally:
            for name in ours:
                del os.environ[name]


def _find_library() -> Path:
    # An editable install has two folders: the sources and the one with the built library.
    for folder in __path__:
        path = Path(folder) / _LIBRARY
        if path.exists():
            return path
    searched = ", ".join(__path__)
    raise FileNotFoundError(f"tesserack_cpu: {_LIBRARY} not found in {searched}; reinstall tesserack-cpu")


def _gomp() -> Path | None:
    """The OpenMP library that wheels bring, where the system has none."""
    try:
        ctypes.CDLL("libgomp.so.1")
    except OSError:
        return next((path for folder in __path__ if (path := Path(folder) / "libgomp.so.1").exists()), None)
    return None


def _onednn() -> Path | None:
    usual = Path(sys.prefix, "lib", "libdnnl.so.3")
    if usual.exists():
        return usual
    return next(_files_of("onednn-cpu-gomp", "libdnnl.so.3"), None)


def _openblas() -> Path | None:
    spec = importlib.util.find_spec("scipy_openblas32")
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(Path(spec.submodule_search_locations[0], "lib").glob("libscipy_openblas*.so"), None)


def _files_of(distribution: str, name: str) -> Iterator[Path]:
    try:
        files = importlib.metadata.distribution(distribution).files or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        path = Path(str(file.locate())).resolve()
        if file.name == name and path.exists():
            yield path
