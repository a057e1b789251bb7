"""Models from repositories with a ``hubconf.py``, local or cached, and files from the network."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from types import ModuleType
from typing import Any
from urllib.parse import urlparse

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

# What decides where things are kept, and what a repository says, as PyTorch names it.
ENV_TORCH_HOME, ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR = "TORCH_HOME", "XDG_CACHE_HOME", "~/.cache"
MODULE_HUBCONF, VAR_DEPENDENCY = "hubconf.py", "dependencies"
READ_DATA_CHUNK = 128 * 1024  # bytes
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_dir: str | None = None


def get_dir() -> str:
    """The folder that repositories and files are kept in: what :func:`set_dir` set, or ``$TORCH_HOME/hub``."""
    if _dir is not None:
        return _dir
    return os.path.join(torch_home(), "hub")


def torch_home() -> str:
    """Where downloads are kept: ``$TORCH_HOME``, or ``torch`` in ``$XDG_CACHE_HOME``."""
    cache = os.environ.get(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return os.path.expanduser(os.environ.get(ENV_TORCH_HOME, os.path.join(cache, "torch")))


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the folder that repositories and files are kept in."""
    global _dir
    _dir = os.path.expanduser(os.fspath(d))


def _folder_of(repo: str, source: str) -> str:
    """The folder of a repository: the path itself, or where it is cached."""
    if source == "local":
        return os.path.expanduser(repo)
    if source != "github":
        raise ValueError(f"hub: expected source to be 'github' or 'local', got {source!r}")
    name, _, branch = repo.partition(":")
    owner, _, project = name.partition("/")
    if not project:
        raise ValueError(f"hub: expected a repository as 'owner/name', got {repo!r}")
    for ref in [branch] if branch else ["main", "master"]:
        folder = os.path.join(get_dir(), "_".join((owner, project, ref.replace("/", "_"))))
        if os.path.isdir(folder):
            return folder
    raise RuntimeError(
        f"hub: {repo!r} is not in {get_dir()}, and repositories are not downloaded; clone it and load it with "
        "source='local'"
    )


@contextlib.contextmanager
def _path_of(folder: str) -> Any:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _config(folder: str) -> ModuleType:
    """The module ``hubconf`` of a repository."""
    path = os.path.join(folder, MODULE_HUBCONF)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"hub: there is no {path}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"hub: {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = [name for name in getattr(module, VAR_DEPENDENCY, ()) if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module: ModuleType, model: str) -> Any:
    function = getattr(module, model, None)
    if not callable(function):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return function


def list(github: str, force_reload: bool = False, source: str = "github", **options: Any) -> Any:
    """The names of a repository's models."""
    folder = _folder_of(github, "local" if os.path.isdir(os.path.expanduser(github)) else source)
    with _path_of(folder):
        module = _config(folder)
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, source: str = "github", **options: Any) -> str | None:
    """The docstring of a model's entry point."""
    folder = _folder_of(github, "local" if os.path.isdir(os.path.expanduser(github)) else source)
    with _path_of(folder):
        return _entry(_config(folder), model).__doc__  # type: ignore[no-any-return]


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """What the entry point ``model`` of a repository's ``hubconf.py`` returns for the arguments.

    ``source="local"`` takes a folder; ``"github"`` what is in :func:`get_dir`. Runs the repository's code.

    Raises:
        RuntimeError: if the repository is not cached, lacks the entry point, or needs a package that is not installed.
        FileNotFoundError: if it has no ``hubconf.py``.
    """
    folder = _folder_of(repo_or_dir, source.lower())
    with _path_of(folder):
        return _entry(_config(folder), model)(*args, **kwargs)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download a file; it appears when it is whole. ``RuntimeError`` if its SHA-256 does not begin as asked."""
    from urllib.request import Request, urlopen

    folder = os.path.dirname(os.path.abspath(os.path.expanduser(dst)))
    digest = hashlib.sha256()
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part:
        try:
            with urlopen(Request(url, headers={"User-Agent": "tesserack.hub"})) as reply:
                while chunk := reply.read(READ_DATA_CHUNK):
                    part.write(chunk)
                    digest.update(chunk)
            part.close()
            if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f"invalid hash value (expected {hash_prefix!r}, got {digest.hexdigest()!r})")
            shutil.move(part.name, os.path.expanduser(dst))
        finally:
            if os.path.exists(part.name):
                os.remove(part.name)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> Any:
    """The tensors in a file from the network, which is kept in ``model_dir``, by default ``get_dir()/checkpoints``.

    With ``check_hash`` the file's name must have the form ``name-<sha256>.ext``, as published checkpoints have.
    """
    from tesserack import load as load_file

    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return load_file(path, map_location=map_location)
