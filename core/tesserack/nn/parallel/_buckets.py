"""Gradients joined to buckets, which are reduced over all ranks while backward goes on.

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor, _native
from tesserack import distributed as dist
from tesserack.distributed._coalesced import all_reduce_parts, batches, may_be_part
from tesserack.distributed._grad_bucket import GradBucket
from tesserack.distributed._world import resolve
from tesserack.nn.parallel._bucket import Bucket

__all__ = ["Reducer", "assign_buckets", "has_spare_processor", "reducers", "tensors_of"]

FIRST_BUCKET_BYTES = 1 << 20  # small, so that communication begins early, where it can


def assign_buckets(parameters: Sequence[Tensor], limits: Sequence[int]) -> list[list[Tensor]]:
    """Parameters in the order in which their gradients come, last first; a bucket holds one dtype and device, and as
    many bytes as its limit says, the last one for all that follow."""
    kinds: dict[Any, list[Tensor]] = {}
    for parameter in reversed(parameters):
        kinds.setdefault((parameter.dtype, str(parameter.device)), []).append(parameter)
    found: list[list[Tensor]] = []
    for alike in kinds.values():
        for most in itertools.chain(limits, itertools.repeat(limits[-1])):
            if not alike:
                break
            found.append(next(batches(alike, most)))
            alike = alike[len(found[-1]) :]
    return found


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in what a forward returns."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_of(each)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from tensors_of(each)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_of(getattr(value, name))


def taken_over(parameter: Tensor) -> bool:
    """Whether optimizers step in a parameter's backward; from now on, only where :func:`step_in_backward` is called."""
    if "_in_backward_optimizers" not in parameter.__dict__:
        return False
    parameter.__dict__["_steps_later"] = True
    return True


def step_in_backward(parameter: Any) -> None:
    """A step by a parameter's complete gradient, which is dropped."""
    for optimizer in parameter._in_backward_optimizers:
        optimizer.step()
    parameter.grad = None


class _AtTheEnd(NamedTuple):
    """A reduction that is done by who waits for it, which saves a change of threads."""

    buffer: Tensor
    parts: list[Tensor] | None
    group: Any

    def wait(self) -> None:
        """Do it."""
        if self.parts is None:
            dist.all_reduce(self.buffer, dist.ReduceOp.AVG, self.group)
        else:
            all_reduce_parts(self.parts, dist.ReduceOp.AVG, self.group, False)


def has_spare_processor(made: Any) -> bool:
    """Whether something can be reduced while this machine's ranks go on with their backward: through shared memory it
    is they who do it, and a second thread on a rank's processor costs what it saves and a change of threads."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", made.size()))
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return not made.engine.by_ranks or there > here * ts.get_num_threads()


reducers: weakref.WeakSet[Reducer] = weakref.WeakSet()  # whose hooks are on their parameters


class Reducer:
    """Counts the gradients that are there and reduces each bucket once it is full, in the same order on every rank."""

    def __init__(
        self,
        named: Sequence[tuple[str, Tensor]],
        group: Any,
        limits: Sequence[int],
        *,
        as_views: bool,
        find_unused: bool,
        static: bool,
        skip_unused: bool = False,
        together: bool = True,
        meanwhile: bool = True,
    ) -> None:
        self.names = {id(parameter): name for name, parameter in named}
        self.group, self.as_views, self.find_unused, self.static = group, as_views, find_unused, static
        self.skip_unused = skip_unused
        made = resolve(group)
        sharing = made if together else None  # every rank of the group is in here
        self.buckets = [Bucket(ps, sharing) for ps in assign_buckets([p for _, p in named], limits)]
        self._place = {id(p): (b, k) for b, bucket in enumerate(self.buckets) for k, p in enumerate(bucket.parameters)}
        self.hook: Callable[[GradBucket], Any] | None = None
        self.averages = True  # what a hook returns is what it says, whatever the scale
        self.active = False  # a backward is to be reduced
        self._started = self._queued = False
        self._next = 0
        self.iterations = 0  # begun
        self._unused: set[int] = set()
        self._used: set[int] = set()  # got a gradient since the last reduction, by backwards that reduced none too
        self._ready: set[int] = set()
        # Where nothing is reduced before all are there, gradients are brought at the end, one right after the other:
        # what brings one is then still in the processor's caches for the next.
        self._late: list[int] = []
        self._fires: dict[int, int] = {}  # of the first iteration, where every one is alike
        self._counting: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._never: set[int] = set()  # got none in the first iteration, where every one is alike
        self._used_once: set[int] | None = None  # what any rank used then
        self._closed: set[int] = set()  # were taken to be unused at the end of a backward that reduced all
        self._meanwhile = meanwhile  # on all ranks alike: else their collectives would be in another order
        self._in_place = made is not None and made.engine.takes_parts and not as_views
        self.scale = 1.0  # of averages over fewer ranks than the group's
        self._parameters = [p for _, p in named]
        self._stepping: list[Tensor] | None = None  # optimizers are waiting for their gradients, as known at a forward
        self._handles = [p.register_post_accumulate_grad_hook(self._arrived) for _, p in named]
        reducers.add(self)

    def parameters_among(self, ids: set[int]) -> set[int]:
        """Those of our parameters' ids."""
        return ids & self._place.keys()

    @property
    def parameters(self) -> list[Tensor]:
        """All whose gradients are reduced."""
        return self._parameters

    # --- an iteration -----------------------------------------------------------------------------------------------

    def prepare(self, outputs: Sequence[Tensor]) -> None:
        """Before a backward from these tensors. ``RuntimeError`` where the last one's gradients never came."""
        if self.active and self._started:
            raise RuntimeError(self._unfinished())
        self._take_over()
        self.active, self._started, self._queued, self._next = True, False, False, 0
        self.iterations += 1
        self._ready.clear()
        self._late.clear()
        self._left = dict(self._fires)
        for bucket in self.buckets:
            bucket.pending, bucket.future = len(bucket.parameters), None
            bucket.forget()
        self._closed = set()
        if self.static:
            self._unused = self._never
        else:
            self._unused = self._not_reached(outputs) if self.find_unused else set()

    def pass_over(self) -> None:
        """Before a backward that reduces nothing."""
        self._take_over()
        self.active = False
        self._closed = set()

    def _take_over(self) -> None:
        """Optimizers may be applied in backward after the module was wrapped, too."""
        if self._stepping is None:
            self._stepping = [p for p in self._parameters if taken_over(p)]

    def _unfinished(self) -> str:
        order = [id(p) for p in self._parameters]
        numbers = [number for number, key in enumerate(order) if key not in self._ready]
        missing = [self.names[order[number]] for number in numbers]
        which = f"which did not receive grad for rank {dist.get_rank(self.group)}"
        return (
            "Expected to have finished reduction in the prior iteration before starting a new one. If some parameters "
            "take no part in the loss, pass find_unused_parameters=True to DistributedDataParallel; forward must "
            f"return all tensors that the loss is made of. Parameters {which}: {', '.join(missing[:8])}"
            f"{' ...' if len(missing) > 8 else ''}. Parameter indices {which}: {' '.join(map(str, numbers))}"
        )

    def _not_reached(self, outputs: Sequence[Tensor]) -> set[int]:
        """Parameters that no output depends on."""
        left, seen = set(self._place), set()
        stack: list[Any] = [t.grad_fn for t in outputs if t.grad_fn is not None]
        left -= {id(t) for t in outputs}
        while stack and left:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            left.discard(id(getattr(node, "variable", None)))
            stack.extend(following for following, _ in node.next_functions if following is not None)
        return left

    def _arrived(self, parameter: Tensor) -> None:
        key = id(parameter)
        self._used.add(key)
        if not self.active:
            if key in self._closed:
                raise RuntimeError(
                    f"Expected to mark a variable ready only once: {self.names[key]} got a gradient in a second "
                    "backward from one forward; with find_unused_parameters=True the first ends the reduction"
                )
            return
        if not self._queued:
            self._queued = self._started = True
            _native._queue_callback(self._finish)
            for unused in self._unused:
                self._mark(unused)
        if self.static:
            if not self._left:  # the first iteration: how often each comes is not known yet
                self._ready.add(key)
                self._count(key)
                return
            if key in self._never:
                raise RuntimeError(
                    f"Your training graph has changed in this iteration: {self.names[key]} got a gradient, and none in "
                    "the first iteration; that is not compatible with static_graph=True"
                )
            self._left[key] = self._left.get(key, 1) - 1
            if self._left[key] > 0:
                return
        if key in self._ready and not self.static:
            raise RuntimeError(
                f"Expected to mark a variable ready only once: {self.names[key]} got a gradient twice in one backward. "
                "Reentrant checkpoints and parameters shared between forwards do so; try static_graph=True"
            )
        if key in self._ready:
            return
        self._ready.add(key)
        if self._meanwhile or self.hook is not None or _native._post_hook_count(parameter) != 1:
            self._bring(key)
        else:
            self._late.append(key)

    def _count(self, key: int) -> None:
        self._counting[key] = self._counting.get(key, 0) + 1

    def _mark(self, key: int) -> None:
        if key not in self._ready:
            self._ready.add(key)
            self._bring(key)

    def _bring(self, key: int) -> None:
        """A gradient to its place, and the buckets that are full with it to the reduction."""
        at, k = self._place[key]
        bucket = self.buckets[at]
        self._fill(bucket, k)
        bucket.pending -= 1
        while self._next < len(self.buckets) and self.buckets[self._next].pending == 0:
            self._reduce(self._next)
            self._next += 1

    def _fill(self, bucket: Bucket, k: int) -> None:
        parameter = bucket.parameters[k]
        with ts.no_grad():
            if bucket.shared and bucket.is_kept(k):
                if bucket.is_at_home(k) and (self.as_views or self._is_ours(parameter)):
                    bucket.at_home.add(k)
                    return
                bucket.leave()
            if not bucket.shared and self._stays(parameter, bucket.views[k]):
                assert parameter.grad is not None
                bucket.reduced[k] = parameter.grad
                return
            bucket.fill(k)

    def _is_ours(self, parameter: Tensor) -> bool:
        """Whether nobody else looks at a gradient before the end of the backward."""
        return id(parameter) in self._used and _native._post_hook_count(parameter) == 1

    def _stays(self, parameter: Tensor, view: Tensor) -> bool:
        """Whether a gradient may be reduced where it is."""
        return (
            self._in_place
            and self.hook is None
            and parameter.grad is not None
            and self._is_ours(parameter)
            and may_be_part(parameter.grad, view)
        )

    def _reduce(self, at: int) -> None:
        bucket = self.buckets[at]
        if self.skip_unused and all(id(p) in self._unused for p in bucket.parameters):
            return
        with ts.no_grad():
            if self.hook is not None:
                bucket.future = self.hook(GradBucket(at, bucket, at == len(self.buckets) - 1))
            else:
                bucket.future = self._averaged(bucket)

    def _averaged(self, bucket: Bucket) -> Any:
        made = resolve(self.group)
        assert made is not None
        parts = [bucket.reduced.get(k, view) for k, view in enumerate(bucket.views)] if bucket.reduced else None
        if bucket is self.buckets[-1] or not self._meanwhile:
            return _AtTheEnd(bucket.buffer, parts, made)
        if parts is None:
            return dist.all_reduce(bucket.buffer, dist.ReduceOp.AVG, made, async_op=True)
        return all_reduce_parts(parts, dist.ReduceOp.AVG, made, True)

    def _finish(self) -> None:
        """At the end of a backward: wait for all buckets, and give the gradients back."""
        if not self.active or not self._queued:
            return
        self._queued = False
        for key in self._late:
            self._bring(key)
        self._late.clear()
        if self.static and not self._fires:
            self._fires = dict(self._counting) or dict.fromkeys(self._place, 1)
            self._never = set(self._place) - set(self._fires)
            for key in list(self._place):
                self._ready.discard(key)
                self._mark(key)
        elif self.find_unused and not self.static:  # outputs that take no part in the loss
            self._closed = set(self._place) - self._ready
            for key in self._place:
                self._mark(key)
        if self._next < len(self.buckets):
            return  # some gradients are still missing; another backward may bring them, else prepare() tells
        used = self._used_in_all()
        with ts.no_grad():
            self._give_all(used)
        for parameter in self._stepping or ():
            if parameter.grad is not None:
                step_in_backward(parameter)
        self._used.clear()
        self.active = self._started = False

    def _used_in_all(self) -> set[int] | None:
        """Parameters that some rank used; None where all are."""
        if not self.static:
            return self._used_anywhere() if self.find_unused else None
        if self._used_once is None:
            self._used_once = self._used_anywhere()
        return self._used_once

    def _give_all(self, used: set[int] | None) -> None:
        for bucket in self.buckets:
            if bucket.future is None:  # no rank uses any of it
                continue
            bucket.future.wait()
            self._give(bucket, bucket.future.value() if hasattr(bucket.future, "value") else None, used)

    def _give(self, bucket: Bucket, reduced: Any, used: set[int] | None) -> None:
        if isinstance(reduced, (list, tuple)):
            reduced = reduced[0] if reduced else None
        if reduced is not None and reduced.data_ptr() != bucket.buffer.data_ptr():
            bucket.buffer.copy_(reduced.view(-1))
        if self.scale != 1 and self.averages:
            for part in (*bucket.reduced.values(), bucket.buffer):
                part.detach().mul_(self.scale)
        bucket.give(used, self.as_views)

    def _used_anywhere(self) -> set[int]:
        keys = list(self._place)
        here = ts.tensor([key in self._used for key in keys], dtype=ts.uint8)
        dist.all_reduce(here, dist.ReduceOp.MAX, self.group)
        return {key for key, flag in zip(keys, here.tolist(), strict=True) if flag}

    def reduce_zeros(self) -> None:
        """Take part in a reduction of other ranks without gradients of one's own."""
        for at, bucket in enumerate(self.buckets):
            bucket.clear()
            self._reduce(at)
        self._used.clear()
        used = self._used_in_all()
        with ts.no_grad():
            self._give_all(used)  # for an optimizer that updates some parameters for the other ranks, too

    def remove(self) -> None:
        """Take the hooks off."""
        reducers.discard(self)
        for handle in self._handles:
            handle.remove()
        for bucket in self.buckets:
            bucket.forget_homes()
