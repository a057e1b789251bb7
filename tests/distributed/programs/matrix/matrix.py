"""Each collective of each dtype, shape and layout, against NumPy: ``matrix.py DEVICE [MEGABYTES [SHARE [SEED]]]``.

Runs on each rank. With MEGABYTES tensors have that size, else up to some thousand elements. Of the cases one in SHARE.
"""

import itertools
import math
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import tesserack as ts
from tesserack import distributed as dist

WHOLE = tuple(getattr(ts, name) for name in ("int8", "int16", "int32", "int64", "uint8"))
REAL = (ts.float16, ts.bfloat16, ts.float32, ts.float64)
COMPLEX = (ts.complex64, ts.complex128)
#: Those that are moved and not added up, as by PyTorch.
MOVED = tuple(getattr(ts, name) for name in ("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"))
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (2, 0, 3), (1,), (7,), (3, 5), (257, 33), (3, 1, 5, 7))
LAYOUTS = ("plain", "transposed", "stepping", "offset")
REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
MOVES = ("broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter", "all_to_all", "all_to_all_single")
COMBINE = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "AVG": np.add}
BITS = {"BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor}
Case = tuple[str, ts.dtype, tuple[int, ...], str, str]


def reductions(dtype: ts.dtype) -> tuple[str, ...]:
    if dtype in MOVED:
        return ()
    if dtype in COMPLEX:
        return ("SUM", "AVG")
    if dtype is ts.bool:
        return ("SUM", "PRODUCT", "MIN", "MAX", *BITS)
    return ("SUM", "PRODUCT", "MIN", "MAX", *(("AVG",) if dtype in REAL else BITS))


def small() -> Iterator[Case]:
    """Every collective, dtype, reduction, shape and layout, but what has no such layout."""
    dtypes = [*WHOLE, *REAL, *COMPLEX, ts.bool, *MOVED]
    for dtype, shape, layout in itertools.product(dtypes, SHAPES, LAYOUTS):
        if layout == "plain" or (len(shape) > (layout == "transposed") and math.prod(shape)):
            yield from ((kind, dtype, shape, layout, "") for kind in (*MOVES, "send"))
            yield from ((kind, dtype, shape, layout, op) for kind in REDUCTIONS for op in reductions(dtype))


def large(megabytes: int) -> Iterator[Case]:
    for dtype, layout in (
        (ts.float32, "plain"),
        (ts.bfloat16, "plain"),
        (ts.uint8, "offset"),
        (ts.float32, "stepping"),
    ):
        shape = (megabytes * 10**6 // ts.empty(0, dtype=dtype).element_size() + 1,)
        yield from ((kind, dtype, shape, layout, "") for kind in (*MOVES, "send"))
        yield from ((kind, dtype, shape, layout, "SUM") for kind in REDUCTIONS)


def laid(values: np.ndarray, dtype: ts.dtype, layout: str, device: str) -> ts.Tensor:
    """A tensor of these values."""
    tensor = ts.from_numpy(np.array(values)).to(dtype).to(device)
    if layout == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1)
    if layout == "stepping":
        room = ts.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], dtype=dtype, device=device)[..., ::2]
        return room.copy_(tensor)
    if layout == "offset":
        return ts.zeros(tensor.numel() + 3, dtype=dtype, device=device)[3:].view(tensor.shape).copy_(tensor)
    return tensor


class Trial:
    """One call on all ranks. What the others hold is known: small whole numbers, in every order of additions exact."""

    def __init__(self, case: Case, device: str, number: int, group: Any = None) -> None:
        self.kind, self.dtype, self.shape, self.layout, self.op = case
        self.device, self.number, self.group = device, number, dist.group.WORLD if group is None else group
        self.n, self.me = dist.get_world_size(self.group), dist.get_rank(self.group)
        self.root, self.later = number % self.n, bool(number // self.n % 2)
        self.root_of = dist.get_global_rank(self.group, self.root)
        listed = self.kind in MOVES[1:] or "scatter" in self.kind
        if listed and math.prod(self.shape) > 10**6:  # all parts together are as large
            self.shape = (self.shape[0] // self.n,)
        self.how: dict[str, Any] = {"group": self.group, "async_op": self.later}
        if self.op:
            self.how["op"] = getattr(dist.ReduceOp, self.op)

    def held(self, rank: int, part: int = 0) -> np.ndarray:
        """What a rank gives to another, or to all."""
        begin = 5 * rank + 3 * part + self.number
        size, some = math.prod(self.shape), (np.arange(begin, begin + 7000) % 7 % 3).astype(np.uint8)
        values = np.tile(some, size // 7000 + 1)[:size].reshape(self.shape)
        return values % 2 if self.dtype is ts.bool else values

    def made(self, values: np.ndarray) -> ts.Tensor:
        return laid(values, self.dtype, self.layout, self.device)

    def room(self, *lead: int) -> ts.Tensor:
        """Where something comes to; with ``lead`` it is so many times as long."""
        return self.made(np.ones((*lead, *self.shape), np.uint8).reshape(self._long(*lead)))

    def _long(self, *lead: int) -> tuple[int, ...]:
        if not lead:
            return self.shape
        return (lead[0] * self.shape[0], *self.shape[1:]) if self.shape else lead

    def joined(self, parts: list[np.ndarray]) -> np.ndarray:
        return np.stack(parts).reshape(self._long(len(parts)))

    def combined(self, parts: list[np.ndarray]) -> np.ndarray:
        combine = (COMBINE | BITS)[self.op]
        kept = parts[0].astype(np.int16 if self.dtype is not ts.bool else np.uint8)
        for part in parts[1:]:
            kept = combine(kept, part)
        return kept / self.n if self.op == "AVG" else kept

    def start(self) -> None:
        """The call; it may end later."""
        self.work, self.pairs = (getattr(self, self.kind, None) or self.scattered)()

    def finish(self) -> None:
        """Wait for it, and look at what came."""
        if self.later and self.work is not None:
            assert self.work.wait()
        for got, expected in self.pairs:
            self.same(got, expected)

    def same(self, got: ts.Tensor, expected: np.ndarray) -> None:
        if self.op == "AVG":
            wanted = ts.from_numpy(np.asarray(expected)).to(self.dtype)
        else:
            wanted = ts.from_numpy(np.asarray(expected)).to(self.dtype)
        told = f"{self.kind} {self.op} of {self.dtype} {self.shape} {self.layout}, root {self.root}, later {self.later}"
        found = got.cpu()
        assert found.shape == wanted.shape, f"{told}: {found.shape} for {wanted.shape}"
        assert ts.equal(plain(found), plain(wanted)), f"{told}: {found} for {wanted}"

    def all_reduce(self) -> Any:
        x = self.made(self.held(self.me))
        work = dist.all_reduce(x, **self.how)
        return work, [(x, self.combined([self.held(k) for k in range(self.n)]))]

    def reduce(self) -> Any:
        x = self.made(self.held(self.me))
        work = dist.reduce(x, self.root_of, **self.how)
        every = [self.held(k) for k in range(self.n)]
        return work, [(x, self.combined(every) if self.me == self.root else self.held(self.me))]

    def broadcast(self) -> Any:
        x = self.made(self.held(self.me))
        return dist.broadcast(x, self.root_of, **self.how), [(x, self.held(self.root))]

    def all_gather(self) -> Any:
        parts = [self.room() for _ in range(self.n)]
        work = dist.all_gather(parts, self.made(self.held(self.me)), **self.how)
        return work, [(part, self.held(k)) for k, part in enumerate(parts)]

    def all_gather_into_tensor(self) -> Any:
        whole = self.room(self.n)
        work = dist.all_gather_into_tensor(whole, self.made(self.held(self.me)), **self.how)
        return work, [(whole, self.joined([self.held(k) for k in range(self.n)]))]

    def gather(self) -> Any:
        parts = [self.room() for _ in range(self.n)] if self.me == self.root else None
        work = dist.gather(self.made(self.held(self.me)), parts, self.root_of, **self.how)
        return work, [(part, self.held(k)) for k, part in enumerate(parts or [])]

    def scatter(self) -> Any:
        given = [self.made(self.held(self.me, k)) for k in range(self.n)] if self.me == self.root else None
        x = self.room()
        work = dist.scatter(x, given, self.root_of, **self.how)
        return work, [(x, self.held(self.root, self.me))]

    def scattered(self) -> Any:
        """Sums of parts, given as a list or in one tensor."""
        x, parts = self.room(), [self.held(self.me, k) for k in range(self.n)]
        if self.kind == "reduce_scatter":
            work = dist.reduce_scatter(x, [self.made(part) for part in parts], **self.how)
        else:
            work = dist.reduce_scatter_tensor(x, self.made(self.joined(parts)), **self.how)
        return work, [(x, self.combined([self.held(k, self.me) for k in range(self.n)]))]

    def all_to_all(self) -> Any:
        given, parts = [self.made(self.held(self.me, k)) for k in range(self.n)], [self.room() for _ in range(self.n)]
        work = dist.all_to_all(parts, given, **self.how)
        return work, [(part, self.held(k, self.me)) for k, part in enumerate(parts)]

    def all_to_all_single(self) -> Any:
        whole, given = self.room(self.n), self.made(self.joined([self.held(self.me, k) for k in range(self.n)]))
        work = dist.all_to_all_single(whole, given, **self.how)
        return work, [(whole, self.joined([self.held(k, self.me) for k in range(self.n)]))]

    def send(self) -> Any:
        """To the next one, from the one before."""
        if self.n == 1:
            return None, []
        x, before = self.room(), (self.me - 1) % self.n
        to, source = (dist.get_global_rank(self.group, k) for k in ((self.me + 1) % self.n, before))
        sent = dist.isend(self.made(self.held(self.me)), to, self.group)
        came = dist.irecv(x, source, self.group)
        assert sent is not None and came is not None and sent.wait() and came.wait()
        return None, [(x, self.held(before))]


def plain(tensor: ts.Tensor) -> ts.Tensor:
    """In a dtype of NumPy's."""
    if tensor.dtype in MOVED:
        return tensor.contiguous().view(ts.uint8) if tensor.element_size() == 1 else tensor.to(ts.int64)
    return tensor


def main() -> None:
    device = sys.argv[1]
    megabytes, share, seed = [*map(int, sys.argv[2:]), *(0, 1, 0)[len(sys.argv) - 2 :]]
    dist.init_process_group()
    if device == "cuda":
        ts.cuda.set_device(dist.get_rank())
        device = f"cuda:{dist.get_rank()}"
    cases = list(large(megabytes) if megabytes else small())
    random.Random(seed).shuffle(cases)
    cases = cases[: -(-len(cases) // share)]
    for number, case in enumerate(cases):
        trial = Trial(case, device, number)
        trial.start()
        trial.finish()
    if dist.get_rank() == 0:
        of = f"{len({kind for kind, *_ in cases})} collectives, {len({dtype for _, dtype, *_ in cases})} dtypes"
        print(f"{len(cases)} cases of {of}, seed {seed}, {device}, {megabytes} MB", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
