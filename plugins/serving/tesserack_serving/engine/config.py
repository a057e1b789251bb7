"""What is known of a model before it is built: from the command line, or from a folder of a repository."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tesserack_serving.protocol.datatypes import NAMES
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.protocol.messages import TensorSpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["ModelConfig", "parse_input", "read_folder", "read_repository"]

FILE = "model.toml"
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "tuple[str, ...]": (tuple,),
    "dict[str, Any]": (dict,),
}
WEIGHTS = ("*.safetensors", "*.index.json", "*.pt", "*.pth", "*.bin")
_NAME_MARKS = "-_."


@dataclass(frozen=True)
class ModelConfig:
    """How a model is built and served.

    Args:
        name: its name in the protocol.
        version: its version there, a whole number above 0.
        build: what builds it, as ``model.py:build`` or ``package.module:build``.
        folder: where relative paths begin.
        weights: file of its state, or empty.
        inputs: their names, dtypes and axes, as ``x=float32[batch 3 224 224]``; none: whatever a client sends.
        arguments: what ``build`` is called with.
        batching: whether requests may run together, along the first axis of every input and output.
        max_batch: rows of a batch at most.
        batch_delay: seconds that a batch may wait for more rows.
        queue: requests that may wait or run; more are answered 429.
        warm_up: whether it is tried on zeros before it counts as ready.
        torch: whether ``import torch`` means Tesserack in its file.
    """

    name: str
    build: str
    version: str = "1"
    folder: str = ""
    weights: str = ""
    inputs: tuple[str, ...] = ()
    arguments: dict[str, Any] = field(default_factory=dict)
    batching: bool = True
    max_batch: int = 8
    batch_delay: float = 0.0
    queue: int = 128
    warm_up: bool = True
    torch: bool = True

    def __post_init__(self) -> None:
        where = f"model {self.name!r}"
        if not self.name or not all(c.isalnum() or c in _NAME_MARKS for c in self.name):
            raise ServingError(f"{where}: expected a name of letters, digits and {' '.join(_NAME_MARKS)}")
        if not (self.version.isascii() and self.version.isdigit() and int(self.version) > 0):
            raise ServingError(f"{where}: expected a version above 0, got {self.version!r}")
        for one in fields(self):
            value = getattr(self, one.name)
            if type(value) not in _KINDS[str(one.type)]:
                raise ServingError(f"{where}: {one.name}: expected {one.type}, got {value!r}")
        if self.max_batch < 1 or self.queue < 1 or not 0 <= self.batch_delay <= 10:
            raise ServingError(f"{where}: max_batch and queue begin at 1, and batch_delay is 0 to 10 seconds")
        self.specs()

    def specs(self) -> list[TensorSpec]:
        """The declared inputs."""
        return [parse_input(text, k) for k, text in enumerate(self.inputs)]

    def path(self, name: str) -> Path:
        """A file, seen from the model's folder."""
        return Path(self.folder or ".") / name

    def as_json(self) -> dict[str, Any]:
        """As :meth:`from_json` takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ModelConfig:
        """From what :meth:`as_json` gave."""
        return cls(**{**found, "inputs": tuple(found["inputs"])})


def parse_input(text: str, place: int = 0) -> TensorSpec:
    """An input as ``tesserack check`` takes it; an axis with a name varies.

    Raises:
        ServingError: it is no input.

    >>> parse_input("x=float32[batch 3 8 8]")
    TensorSpec(name='x', datatype='FP32', shape=(-1, 3, 8, 8))
    """
    name, equals, rest = text.rpartition("=")
    dtype, bracket, axes = rest.strip().partition("[")
    if not bracket:
        dtype, axes = "float32", dtype
    elif not axes.endswith("]"):
        raise ServingError(f"input {text!r}: expected such as 'x=float32[batch 3 224 224]'")
    datatype = "BYTES" if dtype == "bytes" else NAMES.get(dtype)
    if datatype is None:
        raise ServingError(f"input {text!r}: expected a dtype among {', '.join(NAMES)}, bytes, got {dtype!r}")
    shape = tuple(int(axis) if axis.isdigit() else -1 for axis in axes.rstrip("]").split())
    return TensorSpec(name.strip() if equals else f"input{place}", datatype, shape)


def read_repository(folder: Path) -> list[str]:
    """Names of the models in a folder: those of its folders that have a ``model.toml``."""
    if not folder.is_dir():
        raise ServingError(f"repository: there is no folder {str(folder)!r}", 404)
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}"))


def read_folder(repository: Path, name: str) -> list[ModelConfig]:
    """The versions of a model that are to be served, lowest first.

    Raises:
        ServingError: there is no such model, or its ``model.toml`` is wrong.
    """
    if name not in read_repository(repository):
        raise ServingError(f"there is no model {name!r} in the repository", 404)
    folder = repository / name
    try:
        table = tomllib.loads((folder / FILE).read_text())
    except (OSError, ValueError) as error:
        raise ServingError(f"model {name!r}: {FILE} cannot be read: {error}") from error
    policy = table.pop("versions", "latest")
    known = {found.name for found in fields(ModelConfig)} - {"name", "version", "folder", "weights"}
    unknown = sorted(set(table) - known)
    if unknown or "build" not in table:
        raise ServingError(f"model {name!r}: {FILE} has no 'build'" if not unknown else _unknown(name, unknown, known))
    try:
        base = ModelConfig(name, folder=str(folder.resolve()), **{**table, "inputs": tuple(table.get("inputs", ()))})
    except TypeError as error:
        raise ServingError(f"model {name!r}: {FILE}: {error}") from error
    found = [replace(base, version=v, weights=_weights(folder / v)) for v in _versions(folder, policy, name)]
    return found or [base]


def _unknown(name: str, unknown: list[str], known: set[str]) -> str:
    return f"model {name!r}: {FILE} has {', '.join(unknown)}; it may have {', '.join(sorted(known))} and versions"


def _versions(folder: Path, policy: Any, name: str) -> Iterator[str]:
    there = sorted(int(p.name) for p in folder.iterdir() if p.is_dir() and p.name.isdigit() and int(p.name))
    if policy == "latest":
        yield from map(str, there[-1:])
    elif policy == "all":
        yield from map(str, there)
    elif isinstance(policy, list) and {*policy} <= {*there}:
        yield from map(str, sorted(policy))
    else:
        raise ServingError(
            f"model {name!r}: versions: expected 'latest', 'all' or a list among {there}, got {policy!r}"
        )


def _weights(folder: Path) -> str:
    for pattern in WEIGHTS:
        found = sorted(folder.glob(pattern))
        if len(found) == 1 or (found and pattern == "*.index.json"):
            return f"{folder.name}/{found[0].name}"
        if found:
            raise ServingError(f"{folder}: expected one file of weights, got {', '.join(p.name for p in found)}")
    return ""
