"""Data-parallel training over processes: ``torch.nn.parallel.DistributedDataParallel``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack import distributed as dist
from tesserack.distributed._coalesced import broadcast_coalesced
from tesserack.distributed._grad_bucket import GradBucket
from tesserack.distributed._world import resolve
from tesserack.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    compressed,
    fp16_compress_hook,
)
from tesserack.distributed.algorithms.join import Join, Joinable, JoinHook
from tesserack.nn.modules.module import Module
from tesserack.nn.parallel._bucket import held
from tesserack.nn.parallel._buckets import FIRST_BUCKET_BYTES, Reducer, has_spare_processor, tensors_of
from tesserack.nn.parallel._mixed_precision import _MixedPrecision, called, cast_buffers

__all__ = ["DistributedDataParallel"]

BROADCAST_BYTES = 250 << 20


def _moved(value: Any, device: Any) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return type(value)((key, _moved(each, device)) for key, each in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(each, device) for each in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(each, device) for each in value)
    return value


class _JoinHook(JoinHook):
    """What a rank does for the others once its data has ended."""

    def __init__(self, wrapped: DistributedDataParallel, divide_by_initial: bool) -> None:
        self._ddp = wrapped
        self._before: list[tuple[Any, Any]] = []  # parameters and their gradients, as this rank left them
        wrapped._divide_by_initial = divide_by_initial

    def main_hook(self) -> None:
        """Another rank's iteration: its broadcast of buffers, its reductions."""
        source, buffers, gradients = self._ddp._agree(-1, False, False)
        if buffers:
            self._ddp._sync_buffers(source)
        self._ddp._divide_by(self.going)
        if gradients:
            self._keep()
            self._ddp.reducer.reduce_zeros()

    def _keep(self) -> None:
        """The others' gradients are for optimizers that step here for all; none of them is left behind."""
        if self._before:
            return
        for bucket in self._ddp.reducer.buckets:
            for p in bucket.parameters:
                grad = p.grad.clone() if p.grad is not None and self._ddp.gradient_as_bucket_view else p.grad
                self._before.append((p, grad))
                p.grad = None

    def post_hook(self, is_last_joiner: bool) -> None:
        """All end with the parameters of a rank that went on to the end."""
        for parameter, grad in self._before:
            parameter.grad = grad
        made = resolve(self._ddp.process_group)
        assert made is not None
        last = ts.tensor([made.rank() if is_last_joiner else -1])
        dist.all_reduce(last, dist.ReduceOp.MAX, self._ddp.process_group)
        tensors = [held(t) for t in (*self._ddp.module.parameters(), *self._ddp.module.buffers())]
        broadcast_coalesced(self._ddp.process_group, tensors, BROADCAST_BYTES, int(last.item()))


class DistributedDataParallel(Module, Joinable):
    """A module of which every rank has a copy: gradients are averaged over the ranks while ``backward`` runs.

    Parameters and buffers are those of rank 0 at first. Each rank's loss is over its own part of the batch; after
    ``backward`` all ranks have the same gradients, and so the same parameters after the same optimizer's step.
    Parameters may be DTensors of another dim of a mesh (``device_mesh=mesh["dp"]`` over ``mesh["tp"]``).

    Args:
        module: the module; it may have parameters that need no gradient.
        device_ids, output_device: one device, to which inputs are moved.
        broadcast_buffers, forward_sync_buffers: buffers (running statistics) are those of rank 0 at every forward.
        process_group: the ranks; by default all.
        bucket_cap_mb: how much is reduced at once, 25 by default (the first bucket is 1); ``bucket_cap_mb_list`` says
            it for each bucket, its last number for all that follow.
        find_unused_parameters: parameters may take no part in a loss.
        gradient_as_bucket_view: ``grad`` shows the memory that is reduced, which spares a copy.
        static_graph: every iteration uses the same parameters in the same way.
        mixed_precision: ``_MixedPrecision``: the dtypes in which forward and backward compute, and of reductions and
            buffers, while parameters and gradients keep theirs. Activation checkpoints within do not know of it.
        skip_all_reduce_unused_params: reduce no bucket of which this rank uses no parameter; the same on every rank.

    Raises ``RuntimeError`` for a module without a parameter that requires a gradient, and at the next forward where
    some parameter received no gradient and ``find_unused_parameters`` is False.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> model = DistributedDataParallel(ts.nn.Linear(2, 1))
    >>> model(ts.ones(4, 2)).sum().backward()
    >>> model.module.bias.grad
    tensor([4.])
    >>> ts.distributed.destroy_process_group()
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
        bucket_cap_mb_list: Any = None,
        batched_grad_copy: bool = False,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        Joinable.__init__(self)
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError(
                f"device_ids can only be None or contain a single element, got {list(device_ids)}; "
                "start a rank for each device"
            )
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None and device_mesh.ndim != 1:
            raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
        if device_mesh is not None:
            process_group = device_mesh.get_group()
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        named = [(n, p) for n, p in module.named_parameters() if p.requires_grad and n not in ignored]
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        self.module = module
        self.process_group = process_group if process_group is not None else dist.group.WORLD
        if resolve(self.process_group) is None:
            raise ValueError("DistributedDataParallel: expected a group that this rank belongs to")
        self.device_ids = None if device_ids is None else list(device_ids)
        self.output_device, self.dim = output_device, dim
        self.device = named[0][1].device
        if None not in (broadcast_buffers, forward_sync_buffers) and broadcast_buffers != forward_sync_buffers:
            raise ValueError("DistributedDataParallel: broadcast_buffers and forward_sync_buffers say different things")
        synced = forward_sync_buffers if broadcast_buffers is None else broadcast_buffers
        self.broadcast_buffers, self.find_unused_parameters = synced is not False, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.parameters_to_ignore = ignored
        self.forward_sync_buffers, self.device_mesh = self.broadcast_buffers, device_mesh
        self._divide_by_initial = True
        self._comm_hooks: list[tuple[Any, Any]] = []
        self._meanwhile = self._check_alike(named)
        if init_sync:
            tensors = [held(p) for n, p in module.named_parameters() if n not in ignored]
            tensors += [held(b) for n, b in module.named_buffers() if n not in ignored]
            broadcast_coalesced(self.process_group, tensors, BROADCAST_BYTES)
        caps = bucket_cap_mb_list or [25 if bucket_cap_mb is None else bucket_cap_mb]
        self.bucket_bytes_cap = int(max(caps) * (1 << 20))
        # A small first bucket is for communication that begins early.
        first = [min(FIRST_BUCKET_BYTES, self.bucket_bytes_cap)] if self._meanwhile and not bucket_cap_mb_list else []
        self._limits = [*first, *(int(cap * (1 << 20)) for cap in caps)]
        self.skip_all_reduce_unused_params = skip_all_reduce_unused_params
        self.mixed_precision: _MixedPrecision | None = mixed_precision
        if self.mixed_precision is not None:
            cast_buffers(module, self.mixed_precision.buffer_dtype, ignored)
        self.reducer = self._reducer_of(named)

    def _reducer_of(self, named: Sequence[tuple[str, Tensor]], together: bool = True) -> Reducer:
        made = Reducer(
            named,
            self.process_group,
            self._limits,
            as_views=self.gradient_as_bucket_view,
            find_unused=self.find_unused_parameters,
            static=self.static_graph,
            skip_unused=self.skip_all_reduce_unused_params,
            together=together,
            meanwhile=self._meanwhile,
        )
        narrow = None if self.mixed_precision is None else self.mixed_precision.reduced_in
        if narrow is not None:
            made.hook = lambda bucket: compressed(self.process_group, bucket, narrow)
        return made

    def _check_alike(self, named: Sequence[tuple[str, Tensor]]) -> bool:
        """Compare the ranks' parameters. Whether some rank can reduce while its backward goes on."""
        mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in named]
        found: list[Any] = [None] * dist.get_world_size(self.process_group)
        dist.all_gather_object(found, (mine, has_spare_processor(resolve(self.process_group))), self.process_group)
        for rank, (theirs, _) in enumerate(found):
            if theirs != mine:
                different = next((m, t) for m, t in zip([*mine, None], [*theirs, None], strict=False) if m != t)
                raise RuntimeError(
                    "DistributedDataParallel expects same model across all ranks, but rank "
                    f"{rank} has {different[1]} where this one has {different[0]}"
                )
        return any(spare for _, spare in found)

    def will_sync_module_buffers(self) -> bool:
        """Whether a forward begins with buffers that are the same on every rank."""
        return self.broadcast_buffers and self.require_forward_param_sync and bool(self._buffers_held())

    def _buffers_held(self) -> list[Tensor]:
        return [held(b) for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore]

    def _sync_buffers(self, source: int = 0) -> None:
        if self.will_sync_module_buffers():
            broadcast_coalesced(self.process_group, self._buffers_held(), BROADCAST_BYTES, source)

    def _agree(self, rank: int, buffers: bool, gradients: bool) -> tuple[int, bool, bool]:
        """In a join: the last rank that has data, whose buffers are everybody's, since those of a rank that has ended
        are old; whether they are sent, and whether gradients are reduced."""
        told = ts.tensor([rank, int(buffers), int(gradients)])
        dist.all_reduce(told, dist.ReduceOp.MAX, self.process_group)
        source, sent, reduced = told.tolist()
        return int(source), bool(sent), bool(reduced)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """The module's, of which ``backward`` reduces the gradients."""
        return self.around(self.module, inputs, kwargs)

    def around(self, call: Callable[..., Any], inputs: Any, kwargs: Any) -> Any:
        """What ``call`` makes of a forward's inputs, with all that a forward does before and after it."""
        sync = ts.is_grad_enabled() and self.require_backward_grad_sync
        self._divide_by(Join.notify_join_context(self) if self._join_config.enable else None)
        buffers, source = self.training or ts.is_grad_enabled(), 0
        if self._join_config.enable:
            source, buffers, _ = self._agree(dist.get_rank(self.process_group), buffers, sync)
        if buffers:
            self._sync_buffers(source)
        if self.device_ids:
            inputs, kwargs = _moved(inputs, self._target()), _moved(kwargs, self._target())
        narrow = None if self.mixed_precision is None else self.mixed_precision.param_dtype
        if narrow is None:
            output = call(*inputs, **kwargs)
        else:
            output = called(self.module, call, narrow, self.parameters_to_ignore, inputs, kwargs)
        if sync:
            self.reducer.prepare(list(tensors_of(output)))
        else:
            self.reducer.pass_over()
        return output

    def _divide_by(self, going: int | None) -> None:
        """Gradients are averages over as many ranks: those that still have data, or all (None)."""
        all_ranks = going is None or self._divide_by_initial
        self.reducer.scale = 1.0 if all_ranks else dist.get_world_size(self.process_group) / going  # type: ignore[operator]

    def _target(self) -> Any:
        wanted = (self.device_ids or [self.device])[0]
        return ts.device(self.device.type, wanted) if isinstance(wanted, int) else wanted

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Forwards within leave gradients to themselves; they are added up and go with the next backward outside."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def join(
        self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False
    ) -> Join:
        """A context in which ranks may have different numbers of batches."""
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What :class:`Join` asks for."""
        return _JoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self) -> Any:
        """Where the ranks count who is still there."""
        return self.device

    @property
    def join_process_group(self) -> Any:
        """Who counts."""
        return self.process_group

    def register_comm_hook(self, state: object, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Reduce each bucket by ``hook(state, bucket)``, which returns a future of the buffer that every rank gets."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self.reducer.hook is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._comm_hooks.append((hook, state))
        self.reducer.hook, self.reducer.averages = lambda bucket: hook(state, bucket), False

    def _register_builtin_comm_hook(self, comm_hook_type: Any) -> None:
        fp16 = comm_hook_type == dist.BuiltinCommHookType.FP16_COMPRESS
        self.register_comm_hook(self.process_group, fp16_compress_hook if fp16 else allreduce_hook)

    def _set_static_graph(self) -> None:
        if self.reducer.iterations and not self.static_graph:
            raise RuntimeError(
                "DistributedDataParallel: _set_static_graph() should be called before training loop starts; "
                f"{self.reducer.iterations} iterations have begun"
            )
        self.static_graph = self.reducer.static = True

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        """What there is to tell of the module and its reductions."""
        buckets = [bucket.buffer.numel() * bucket.buffer.element_size() for bucket in self.reducer.buckets]
        return {
            "world_size": dist.get_world_size(self.process_group),
            "rank": dist.get_rank(self.process_group),
            "module_name": type(self.module).__name__,
            "backend_name": str(dist.get_backend(self.process_group)),
            "broadcast_buffers": int(self.broadcast_buffers),
            "bucket_cap_bytes": self.bucket_bytes_cap,
            "find_unused_parameters": int(self.find_unused_parameters),
            "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
            "static_graph": int(self.static_graph),
            "bucket_sizes": ", ".join(map(str, buckets)),
            "num_parameter_tensors": sum(len(bucket.parameters) for bucket in self.reducer.buckets),
            "total_parameter_size_bytes": sum(buckets),
        }

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module: Module, names: Sequence[str]) -> None:
        module._ddp_params_and_buffers_to_ignore = list(names)

    def train(self, mode: bool = True) -> DistributedDataParallel:
        """Set the mode of the module too."""
        super().train(mode)
        return self

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("process_group", "reducer"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.process_group = dist.group.WORLD
        named = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad]
        self.reducer = self._reducer_of(named, together=False)  # some rank may copy a module by itself
