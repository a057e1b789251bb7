"""From checkpoints to single files and back."""

from __future__ import annotations

import os

import tesserack as ts
from tesserack.distributed.checkpoint._single_file import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from tesserack.distributed.checkpoint._together import Together
from tesserack.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from tesserack.distributed.checkpoint.filesystem import FileSystemReader
from tesserack.distributed.checkpoint.state_dict_loader import _load
from tesserack.distributed.checkpoint.state_dict_saver import save

__all__ = ["BroadcastingTorchSaveReader", "DynamicMetaLoadPlanner", "dcp_to_torch_save", "torch_save_to_dcp"]

Path = str | os.PathLike[str]


def dcp_to_torch_save(dcp_checkpoint_dir: Path, torch_save_path: Path) -> None:
    """Write a checkpoint, whole, as the one file that ``torch.save`` would write. Not within several ranks.

    >>> import tempfile, tesserack as ts
    >>> folder = tempfile.mkdtemp()
    >>> metadata = save({"model": {"weight": ts.ones(2)}}, checkpoint_id=folder)
    >>> dcp_to_torch_save(folder, folder + "/whole.pt")
    >>> ts.load(folder + "/whole.pt")
    {'model': {'weight': tensor([1., 1.])}}
    """
    state: dict[str, object] = {}
    _load(state, FileSystemReader(dcp_checkpoint_dir), _EmptyStateDictLoadPlanner(), Together(None, True))
    ts.save(state, torch_save_path, format="torch")


def torch_save_to_dcp(torch_save_path: Path, dcp_checkpoint_dir: Path) -> None:
    """Write what a file of ``torch.save`` (or ``tesserack.save``) holds as a checkpoint. Not within several ranks."""
    save(ts.load(torch_save_path), checkpoint_id=dcp_checkpoint_dir, no_dist=True)
