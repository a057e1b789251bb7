"""Sequences of different lengths as one tensor: padded, or packed step after step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor, _native, full
from tesserack.nn.utils import _packed_by_masks as by_masks

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences laid out step after step: the input and output of recurrent layers.

    ``data`` (rows, *) holds the first step of all sequences, then the second of those that have one, and so on;
    ``batch_sizes`` (int64, on the cpu) tells how many rows each step has. Sequences are sorted by falling length;
    ``sorted_indices`` is the order taken, None if they were sorted. Made by :func:`pack_padded_sequence` and
    :func:`pack_sequence`. Raises ``ValueError`` for batch sizes elsewhere than on the cpu.

    >>> import tesserack as ts
    >>> packed = pack_sequence([ts.tensor([1, 2, 3]), ts.tensor([4])])
    >>> packed.data.tolist(), packed.batch_sizes.tolist()
    ([1, 4, 2, 3], [2, 1, 1])
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:  # the old form: one pair
            data, batch_sizes = data
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "PackedSequence: batch_sizes should always be on CPU, "
                f"got them on {batch_sizes.device}; use pack_padded_sequence or pack_sequence"
            )
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def _with(self, change: Callable[[Tensor], Tensor]) -> PackedSequence:
        data = change(self.data)
        if data is self.data:
            return self

        def moved(indices: Tensor | None) -> Tensor | None:
            return None if indices is None else indices.to(data.device)

        return type(self)(data, self.batch_sizes, moved(self.sorted_indices), moved(self.unsorted_indices))

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences with ``data.to(...)``; the same object if nothing changes."""
        return self._with(lambda data: data.to(*args, **kwargs))

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences on the cpu."""
        return self.to("cpu", *args, **kwargs)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The sequences on the current cuda device."""
        return self.to("cuda", *args, **kwargs)

    def double(self) -> PackedSequence:
        """The sequences in float64."""
        return self.to(ts.float64)

    def float(self) -> PackedSequence:
        """The sequences in float32."""
        return self.to(ts.float32)

    def half(self) -> PackedSequence:
        """The sequences in float16."""
        return self.to(ts.float16)

    def long(self) -> PackedSequence:
        """The sequences in int64."""
        return self.to(ts.int64)

    def int(self) -> PackedSequence:
        """The sequences in int32."""
        return self.to(ts.int32)

    def short(self) -> PackedSequence:
        """The sequences in int16."""
        return self.to(ts.int16)

    def char(self) -> PackedSequence:
        """The sequences in int8."""
        return self.to(ts.int8)

    def byte(self) -> PackedSequence:
        """The sequences in uint8."""
        return self.to(ts.uint8)

    def pin_memory(self) -> PackedSequence:
        """The sequences in page-locked memory."""
        return self._with(lambda data: data.pin_memory())

    def is_pinned(self) -> bool:
        """Whether ``data`` lies in page-locked memory."""
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        """Whether ``data`` is on a cuda device."""
        return self.data.device.type == "cuda"


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes a 1-d one; None for None.

    >>> import tesserack as ts
    >>> invert_permutation(ts.tensor([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    if permutation is None:
        return None
    places = ts.arange(permutation.numel(), device=permutation.device)
    return ts.empty_like(permutation).scatter_(0, permutation, places.to(permutation.dtype))


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences (longest, number, *), or (number, longest, *) with ``batch_first``.

    ``lengths`` are positive, as many as sequences; sorted from long to short unless ``enforce_sorted=False``, which
    sorts them. Gradients reach ``input``. Lengths without data, on the device "meta", count as those of the longest.
    ``RuntimeError`` for lengths that do not fit.

    >>> import tesserack as ts
    >>> packed = pack_padded_sequence(ts.tensor([[1, 2], [3, 0]]), [2, 1], batch_first=True)
    >>> packed.data.tolist()
    [1, 3, 2]
    """
    rows = input.transpose(0, 1) if batch_first else input
    if isinstance(lengths, Tensor) and lengths.is_meta:
        counts = [int(rows.shape[0])] * lengths.numel()
        _check_lengths(counts, rows)
    else:
        counts = lengths.tolist() if isinstance(lengths, Tensor) else [int(length) for length in lengths]
    order = None
    if not enforce_sorted:
        ranked = sorted(range(len(counts)), key=lambda i: -counts[i])
        if isinstance(lengths, Tensor) and not lengths.is_meta and _native._is_tracing():
            order = by_masks.order_of(lengths).to(input.device)
        else:
            order = ts.tensor(ranked, dtype=ts.int64, device=input.device)
        counts = [counts[i] for i in ranked]
        rows = rows.index_select(1, order)
    _check_lengths(counts, rows)
    if isinstance(lengths, Tensor) and not lengths.is_meta and _native._is_tracing():
        falling = lengths if order is None else lengths.index_select(0, order.to(lengths.device))
        return PackedSequence(*by_masks.packed(rows, falling), order)
    sizes = _sizes_of_steps(counts)
    data = ts.cat([rows[step, :size] for step, size in enumerate(sizes)])
    return PackedSequence(data, ts.tensor(sizes, dtype=ts.int64, device="cpu"), order)


def _check_lengths(lengths: list[int], rows: Tensor) -> None:
    name = "pack_padded_sequence"
    if rows.numel() == 0 or len(lengths) != rows.shape[1]:
        raise RuntimeError(
            f"{name}: expected `len(lengths)` to be equal to the batch size of a non-empty input, "
            f"got {len(lengths)} lengths and shape {tuple(rows.shape)}"
        )
    if min(lengths) <= 0:
        raise RuntimeError(f"{name}: Length of all samples has to be greater than 0, got {min(lengths)}")
    if any(a < b for a, b in itertools.pairwise(lengths)):
        raise RuntimeError(
            f"{name}: `lengths` array must be sorted in decreasing order when `enforce_sorted` is True; "
            "pass enforce_sorted=False"
        )
    if lengths[0] > rows.shape[0]:
        raise RuntimeError(f"{name}: Expected lengths of at most {rows.shape[0]} steps, got {lengths[0]}")


def _sizes_of_steps(lengths: Sequence[int]) -> list[int]:
    """How many sequences have each step; lengths fall."""
    sizes, alive = [], len(lengths)
    for step in range(lengths[0]):
        while lengths[alive - 1] <= step:
            alive -= 1
        sizes.append(alive)
    return sizes


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Undo :func:`pack_padded_sequence`: the padded tensor and the lengths (int64, on the cpu), in the order packed.

    ``total_length`` pads further than the longest sequence; ``ValueError`` if it is shorter.

    >>> import tesserack as ts
    >>> padded, lengths = pad_packed_sequence(pack_sequence([ts.tensor([1, 2]), ts.tensor([3])]), batch_first=True)
    >>> padded.tolist(), lengths.tolist()
    ([[1, 2], [3, 0]], [2, 1])
    """
    sizes = sequence.batch_sizes.tolist()
    longest = len(sizes)
    if total_length is not None and total_length < longest:
        raise ValueError(
            "pad_packed_sequence: expected total_length to be at least the length of the longest sequence, "
            f"got total_length={total_length} and max sequence length being {longest}"
        )
    if _native._is_tracing():
        number = sizes[0] if sequence.unsorted_indices is None else sequence.unsorted_indices.shape[0]
        padded, lengths = by_masks.padded(sequence.data, sequence.batch_sizes, number, padding_value, total_length)
        return _in_given_order(padded, lengths, sequence.unsorted_indices, batch_first)
    steps, start = [], 0
    rest = sequence.data.shape[1:]
    for size in sizes:
        step = sequence.data[start : start + size]
        if size < sizes[0]:
            step = ts.cat([step, full((sizes[0] - size, *rest), padding_value, dtype=step.dtype, device=step.device)])
        steps.append(step)
        start += size
    padded = ts.stack(steps)
    if total_length is not None and total_length > longest:
        more = (total_length - longest, sizes[0], *rest)
        padded = ts.cat([padded, full(more, padding_value, dtype=padded.dtype, device=padded.device)])
    lengths = ts.tensor([sum(size > row for size in sizes) for row in range(sizes[0])], dtype=ts.int64, device="cpu")
    return _in_given_order(padded, lengths, sequence.unsorted_indices, batch_first)


def _in_given_order(padded: Tensor, lengths: Tensor, order: Tensor | None, batch_first: bool) -> tuple[Tensor, Tensor]:
    if order is not None:
        padded = padded.index_select(1, order)
        lengths = lengths[order.cpu()]
    return (padded.transpose(0, 1) if batch_first else padded), lengths


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack tensors (length, *); from long to short unless ``enforce_sorted=False``, which sorts them.

    >>> import tesserack as ts
    >>> pack_sequence([ts.tensor([4]), ts.tensor([1, 2])], enforce_sorted=False).data.tolist()
    [1, 4, 2]
    """
    lengths = [len(sequence) for sequence in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences that were packed, in the order given.

    >>> import tesserack as ts
    >>> [s.tolist() for s in unpack_sequence(pack_sequence([ts.tensor([1, 2]), ts.tensor([3])]))]
    [[1, 2], [3]]
    """
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack tensors (length, *) as (longest, number, *), or (number, longest, *) with ``batch_first``.

    Shorter ones are filled with ``padding_value`` on ``padding_side``, "left" or "right". Gradients reach every
    sequence. ``RuntimeError`` for another side, no sequences, or dims after the first that differ.

    >>> import tesserack as ts
    >>> pad_sequence([ts.tensor([1, 2, 3]), ts.tensor([4])], batch_first=True).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"pad_sequence: expected padding_side to be 'left' or 'right', got {padding_side!r}")
    if not isinstance(sequences, (Tensor, Iterable)):
        raise RuntimeError(f"pad_sequence: expected an iterable of tensors, got {type(sequences).__name__}")
    if not isinstance(sequences, Tensor):
        sequences = list(sequences)
    if not len(sequences):
        raise RuntimeError("pad_sequence: expected at least one sequence")
    first = sequences[0]
    longest = max(len(sequence) for sequence in sequences)
    padded = full((len(sequences), longest, *first.shape[1:]), padding_value, dtype=first.dtype, device=first.device)
    for row, sequence in enumerate(sequences):
        if sequence.shape[1:] != first.shape[1:]:
            raise RuntimeError(f"pad_sequence: expected sequences of shape {first.shape[1:]}, got {sequence.shape[1:]}")
        start = 0 if padding_side == "right" else longest - len(sequence)
        padded[row, start : start + len(sequence)] = sequence
    return padded if batch_first else padded.transpose(0, 1).contiguous()


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences that ``pad_sequence`` filled on the right, as views of the lengths given.

    >>> import tesserack as ts
    >>> [s.tolist() for s in unpad_sequence(ts.tensor([[1, 2], [4, 0]]), ts.tensor([2, 1]), batch_first=True)]
    [[1, 2], [4]]
    """
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
