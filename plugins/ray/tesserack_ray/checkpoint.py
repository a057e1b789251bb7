"""A folder of files from which training can go on."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Checkpoint"]

_METADATA = ".metadata.json"


class Checkpoint:
    """Names a folder; nothing is read or copied before it is asked for.

    >>> import tempfile, pathlib
    >>> folder = tempfile.mkdtemp()
    >>> _ = pathlib.Path(folder, "step.txt").write_text("7")
    >>> with Checkpoint.from_directory(folder).as_directory() as place:
    ...     pathlib.Path(place, "step.txt").read_text()
    '7'
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    @classmethod
    def from_directory(cls, path: str | Path) -> Checkpoint:
        """The checkpoint that lies in a folder. ``ValueError`` where there is none."""
        if not Path(path).is_dir():
            raise ValueError(f"Checkpoint: expected a folder, got {str(path)!r}")
        return cls(path)

    def to_directory(self, path: str | Path | None = None) -> str:
        """Copy the files into a folder, by default one of its own; returns its path."""
        target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="checkpoint-"))
        shutil.copytree(self.path, target, dirs_exist_ok=True)
        return str(target)

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The folder itself, to be read."""
        yield self.path

    def get_metadata(self) -> dict[str, Any]:
        """What was noted beside the files."""
        file = Path(self.path, _METADATA)
        return dict(json.loads(file.read_text())) if file.exists() else {}

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Note something beside the files, instead of what was noted."""
        Path(self.path, _METADATA).write_text(json.dumps(metadata))

    def update_metadata(self, metadata: dict[str, Any]) -> None:
        """Note something more."""
        self.set_metadata(self.get_metadata() | metadata)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __repr__(self) -> str:
        return f"Checkpoint({self.path!r})"
