"""Streams of files: their names, the files opened, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tesserack.utils.data.datapipes._decorator import functional_datapipe
from tesserack.utils.data.datapipes.datapipe import IterDataPipe
from tesserack.utils.data.datapipes.iter.mapping import IterableWrapperIterDataPipe, no_length
from tesserack.utils.data.datapipes.utils import decoder
from tesserack.utils.data.datapipes.utils.common import (
    get_file_binaries_from_pathnames,
    get_file_pathnames_from_root,
    validate_pathname_binary_tuple,
)

__all__ = [
    "FileListerIterDataPipe",
    "FileOpenerIterDataPipe",
    "RoutedDecoderIterDataPipe",
    "StreamReaderIterDataPipe",
]


class _Counted(IterDataPipe[Any]):
    """A stream whose length its maker may know; -1 means not."""

    length: int

    def __len__(self) -> int:
        if self.length == -1:
            raise no_length(self)
        return self.length


@functional_datapipe("list_files")
class FileListerIterDataPipe(_Counted):
    """Paths of files in a folder, in several, or in those of another stream; functional form ``.list_files()``.

    ``masks`` are shell patterns of names; ``recursive`` looks into folders in them; ``abspath`` gives absolute paths.
    """

    def __init__(
        self,
        root: str | Sequence[str] | IterDataPipe[Any] = ".",
        masks: str | list[str] = "",
        *,
        recursive: bool = False,
        abspath: bool = False,
        non_deterministic: bool = False,
        length: int = -1,
    ) -> None:
        roots = [root] if isinstance(root, str) else root
        self.datapipe = roots if isinstance(roots, IterDataPipe) else IterableWrapperIterDataPipe(roots)
        self.masks = masks
        self.recursive = recursive
        self.abspath = abspath
        self.non_deterministic = non_deterministic
        self.length = length

    def __iter__(self) -> Iterator[str]:
        for root in self.datapipe:
            yield from get_file_pathnames_from_root(
                root, self.masks, self.recursive, self.abspath, self.non_deterministic
            )


@functional_datapipe("open_files")
class FileOpenerIterDataPipe(_Counted):
    """Pairs of a path and the file there, opened in ``mode``; functional form ``.open_files()``."""

    def __init__(self, datapipe: Iterable[str], mode: str = "r", encoding: str | None = None, length: int = -1) -> None:
        if mode not in ("b", "t", "rb", "rt", "r"):
            raise ValueError(f"Invalid mode {mode}; expected 'b', 't', 'rb', 'rt' or 'r'")
        if "b" in mode and encoding is not None:
            raise ValueError("binary mode doesn't take an encoding argument")
        self.datapipe = datapipe
        self.mode = mode
        self.encoding = encoding
        self.length = length

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield from get_file_binaries_from_pathnames(self.datapipe, self.mode, self.encoding)


@functional_datapipe("read_from_stream")
class StreamReaderIterDataPipe(IterDataPipe[Any]):
    """Pairs of a path and what its file holds, at most ``chunk`` bytes each; functional form ``.read_from_stream()``.

    >>> import io
    >>> from tesserack.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([("a", io.StringIO("abc"))]).read_from_stream(chunk=2))
    [('a', 'ab'), ('a', 'c')]
    """

    def __init__(self, datapipe: Any, chunk: int | None = None) -> None:
        self.datapipe = datapipe
        self.chunk = chunk

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for path, stream in self.datapipe:
            while content := stream.read(self.chunk):
                yield path, content
            stream.close()


@functional_datapipe("routed_decode")
class RoutedDecoderIterDataPipe(IterDataPipe[Any]):
    """Pairs of a path and its file decoded, by the first of ``handlers`` that knows it; form ``.routed_decode()``.

    Without handlers those of text, JSON and numbers, then those of images ("torch") are asked.
    """

    def __init__(
        self, datapipe: Any, *handlers: Callable[..., Any], key_fn: Callable[[str], str] = decoder.extension_extract_fn
    ) -> None:
        self.datapipe = datapipe
        chosen = handlers or (decoder.basichandlers, decoder.imagehandler("torch"))
        self.decoder = decoder.Decoder(*chosen, key_fn=key_fn)

    def add_handler(self, *handler: Callable[..., Any]) -> None:
        """Ask these after the others."""
        self.decoder.add_handler(*handler)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        for sample in self.datapipe:
            validate_pathname_binary_tuple(sample)
            yield sample[0], self.decoder(sample)[sample[0]]

    def __len__(self) -> int:
        return len(self.datapipe)
