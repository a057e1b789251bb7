"""Files of TensorBoard's projector: vectors, what they stand for, and pictures of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

from tesserack.utils.tensorboard import _images

__all__ = ["encoded", "write"]


def encoded(name: str) -> str:
    """A tag as the name of a folder."""
    return "".join(f"%{ord(c):02x}" if c in "%/\\" else c for c in name)


def write(
    log_dir: str, tag: str, step: Any, vectors: Any, metadata: Any, pictures: Any, header: Sequence[str] | None
) -> None:
    """Write the vectors (number, dims) below the folder, and name them in its ``projector_config.pbtxt``.

    ``ValueError`` for vectors of other than two dims, and for another number of labels or pictures.
    """
    array = _images.to_array(vectors)
    if array.ndim != 2:
        raise ValueError(f"add_embedding: expected vectors of shape (number, dims), got {array.shape}")
    at = str(step if step is not None else 0).zfill(5)
    folder = f"{at}/{encoded(tag)}"
    os.makedirs(os.path.join(log_dir, folder), exist_ok=True)
    lines = [f'  tensor_name: "{tag}:{at}"', f'  tensor_path: "{folder}/tensors.tsv"']
    if metadata is not None:
        _write_lines(os.path.join(log_dir, folder, "metadata.tsv"), _labels(metadata, header, len(array)))
        lines.append(f'  metadata_path: "{folder}/metadata.tsv"')
    if pictures is not None:
        sprite, height, width = _sprite(_images.to_array(pictures), len(array))
        with open(os.path.join(log_dir, folder, "sprite.png"), "wb") as file:
            file.write(sprite)
        sizes = f"    single_image_dim: {width}\n    single_image_dim: {height}"
        lines.append(f'  sprite {{\n    image_path: "{folder}/sprite.png"\n{sizes}\n  }}')
    _write_lines(os.path.join(log_dir, folder, "tensors.tsv"), ["\t".join(map(str, row)) for row in array.tolist()])
    with open(os.path.join(log_dir, "projector_config.pbtxt"), "a", encoding="utf-8") as config:
        config.write("\n".join(["embeddings {", *lines, "}", ""]))


def _write_lines(path: str, lines: Sequence[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def _labels(metadata: Any, header: Sequence[str] | None, count: int) -> list[str]:
    if len(metadata) != count:
        raise ValueError(f"add_embedding: expected {count} labels, one for each vector, got {len(metadata)}")
    if not header:
        return [str(label) for label in metadata]
    if len(header) != len(metadata[0]):
        raise ValueError(f"add_embedding: expected {len(metadata[0])} names of columns, got {len(header)}")
    return ["\t".join(str(cell) for cell in row) for row in (header, *metadata)]


def _sprite(pictures: Any, count: int) -> tuple[bytes, int, int]:
    """One square picture of all (number, channels, height, width), with the size of each."""
    import numpy as np

    if len(pictures) != count:
        raise ValueError(f"add_embedding: expected {count} pictures, one for each vector, got {len(pictures)}")
    columns = math.ceil(count**0.5)
    whole = np.zeros((columns * columns, *pictures.shape[1:]), pictures.dtype)
    whole[:count] = pictures
    grid = _images.grid(whole.transpose(0, 2, 3, 1), columns)
    return _images.png(_images.arranged(grid, "HWC")), pictures.shape[2], pictures.shape[3]
