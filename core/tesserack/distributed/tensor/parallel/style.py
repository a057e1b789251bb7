"""How a module is parallelized over a mesh of one dim: which parameters are cut, and how what comes and goes lies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

from tesserack import Tensor, nn
from tesserack.distributed.device_mesh import DeviceMesh
from tesserack.distributed.tensor._api import DTensor
from tesserack.distributed.tensor._factories import distribute_module, distribute_tensor
from tesserack.distributed.tensor.placement_types import Placement, Replicate, Shard

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
]


class ParallelStyle(ABC):
    """How a module is parallelized; :func:`parallelize_module` applies it."""

    src_data_rank: int | None = 0

    @abstractmethod
    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any: ...

    _told: tuple[str, ...] = ()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={getattr(self, name)}" for name in self._told)
        return f"{type(self).__name__}({told})"


def _as_dtensor(given: Any, mesh: DeviceMesh, layouts: tuple[Placement, ...]) -> DTensor:
    if isinstance(given, DTensor):
        return given
    if not isinstance(given, Tensor):
        raise ValueError(f"parallelize_module: expected a tensor as the module's input, got {type(given).__name__}")
    return DTensor.from_local(given, mesh, layouts)


def _placed(given: DTensor, mesh: DeviceMesh, wanted: tuple[Placement, ...]) -> DTensor:
    counted = tuple(Shard(p.dim % given.ndim) if p.is_shard() else p for p in wanted)  # type: ignore[attr-defined]
    return given if given.placements == counted else given.redistribute(mesh, wanted)


def _replace(module: Any, name: str, mesh: DeviceMesh, placement: Placement, source: int | None) -> None:
    """Cut a parameter of the module."""
    param = getattr(module, name)
    placed = distribute_tensor(param.detach(), mesh, [placement], src_data_rank=source)
    module.register_parameter(name, nn.Parameter(placed, requires_grad=param.requires_grad))


class _Cut(ParallelStyle):
    """A linear layer or an embedding whose weight is cut."""

    _told = ("input_layouts", "output_layouts", "use_local_output")
    _cuts: Mapping[Any, Mapping[str, Placement]]  # of each kind of module, of each of its parameters
    _wanted: Mapping[Any, Placement]  # how the input is to lie
    _input: Placement
    _output: Placement

    def __init__(
        self,
        *,
        input_layouts: Placement | None = None,
        output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ) -> None:
        self.input_layouts = (input_layouts or self._input,)
        self.output_layouts = (output_layouts or self._output,)
        self.use_local_output = use_local_output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        kind = next((kind for kind in self._cuts if isinstance(module, kind)), None)
        if kind is None:
            raise NotImplementedError(f"{type(self).__name__} currently only support nn.Linear and nn.Embedding!")
        self.desired_input_layouts = (self._wanted[kind],)

        def cut(name: str, part: Any, mesh: DeviceMesh) -> None:
            for each, placement in self._cuts[kind].items():
                if part._parameters.get(each) is not None:
                    _replace(part, each, mesh, placement, self.src_data_rank)

        return distribute_module(module, device_mesh, cut, self._prepare_input, self._prepare_output)

    def _prepare_input(self, module: Any, inputs: Any, mesh: DeviceMesh) -> Any:
        given = _as_dtensor(inputs[0], mesh, self.input_layouts)
        return _placed(given, mesh, self.desired_input_layouts)

    def _prepare_output(self, module: Any, outputs: Any, mesh: DeviceMesh) -> Any:
        placed = _placed(outputs, mesh, self.output_layouts)
        return placed.to_local() if self.use_local_output else placed


class ColwiseParallel(_Cut):
    """A linear layer cut by its outputs, or an embedding by its columns: of a replicated input each rank gives its part
    of the last dim. ``input_layouts`` says how the input lies, ``output_layouts`` how the output is to lie, and
    ``use_local_output`` gives plain tensors."""

    _input, _output = Replicate(), Shard(-1)
    _cuts = {nn.Linear: {"weight": Shard(0), "bias": Shard(0)}, nn.Embedding: {"weight": Shard(1)}}  # noqa: RUF012
    _wanted = {nn.Linear: Replicate(), nn.Embedding: Replicate()}  # noqa: RUF012


class RowwiseParallel(_Cut):
    """A linear layer cut by its inputs, whose outputs are summed over the ranks, or an embedding by its rows: an input
    that is cut along its last dim gives a replicated output. Options are those of :class:`ColwiseParallel`."""

    _input, _output = Shard(-1), Replicate()
    _cuts = {nn.Linear: {"weight": Shard(1), "bias": Replicate()}, nn.Embedding: {"weight": Shard(0)}}  # noqa: RUF012
    _wanted = {nn.Linear: Shard(-1), nn.Embedding: Replicate()}  # noqa: RUF012


class SequenceParallel(ParallelStyle):
    """A normalisation or dropout over parts of the sequence: parameters are replicated, the input is cut along
    ``sequence_dim`` (a plain tensor is taken to be this rank's part), and so is the output."""

    _told = ("sequence_dim", "use_local_output")

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        self.sequence_sharding = (Shard(sequence_dim),)
        self.sequence_dim, self.use_local_output = sequence_dim, use_local_output

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        return distribute_module(
            module, device_mesh, self._replicate, self._prepare_input, partial(self._prepare_output)
        )

    @staticmethod
    def _replicate(name: str, module: Any, mesh: DeviceMesh) -> None:
        for each, param in list(module.named_parameters(recurse=False)):
            placed = DTensor.from_local(param.detach(), mesh, [Replicate()])
            module.register_parameter(each, nn.Parameter(placed, requires_grad=param.requires_grad))

    def _prepare_input(self, module: Any, inputs: Any, mesh: DeviceMesh) -> Any:
        return _placed(_as_dtensor(inputs[0], mesh, self.sequence_sharding), mesh, self.sequence_sharding)

    def _prepare_output(self, module: Any, outputs: Any, mesh: DeviceMesh) -> Any:
        return outputs.to_local() if self.use_local_output else outputs


Layouts = Placement | tuple[Placement | None, ...] | None


def _several(layouts: Layouts) -> tuple[Placement | None, ...] | None:
    return (layouts,) if isinstance(layouts, Placement) else layouts


def _prepared(value: Any, mesh: DeviceMesh, layout: Placement | None, wanted: Placement | None, local: bool) -> Any:
    """One input or output that lies as ``layout`` says, as ``wanted`` has it; untouched without a layout."""
    if layout is None:
        return value
    if not isinstance(value, Tensor):
        raise AssertionError(f"expecting a tensor to be placed as {layout}, got {type(value).__name__}")
    given = _as_dtensor(value, mesh, (layout,))
    if wanted is not None and layout != wanted:
        given = given.redistribute(mesh, (wanted,))
    return given.to_local() if local else given


class PrepareModuleInput(ParallelStyle):
    """A module's inputs as DTensors: ``input_layouts`` says how each lies (None: not to be touched),
    ``desired_input_layouts`` how it is to lie, and the same for keywords by their names."""

    _told = (
        "input_layouts",
        "desired_input_layouts",
        "input_kwarg_layouts",
        "desired_input_kwarg_layouts",
        "use_local_output",
    )

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_output: bool = False,
    ) -> None:
        self.input_layouts, self.desired_input_layouts = _several(input_layouts), _several(desired_input_layouts)
        self.use_local_output = use_local_output
        if self.input_layouts is not None:
            if self.desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(self.input_layouts) != len(self.desired_input_layouts):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")
        self.with_kwargs = input_kwarg_layouts is not None
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        if self.with_kwargs and len(self.input_kwarg_layouts) != len(self.desired_input_kwarg_layouts):
            raise AssertionError("input_kwarg_layouts and desired_input_kwarg_layouts should have same length!")

    def _positional(self, inputs: Any, mesh: DeviceMesh) -> Any:
        if self.input_layouts is None or self.desired_input_layouts is None:
            return inputs
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        if len(given) != len(self.input_layouts):
            raise ValueError(
                f"module inputs and input_layouts should have same length! got {len(given)} and "
                f"{len(self.input_layouts)}"
            )
        layouts = zip(given, self.input_layouts, self.desired_input_layouts, strict=True)
        return tuple(_prepared(value, mesh, layout, wanted, self.use_local_output) for value, layout, wanted in layouts)

    def _keywords(self, given: Mapping[str, Any], mesh: DeviceMesh) -> dict[str, Any]:
        lies, wanted = self.input_kwarg_layouts, self.desired_input_kwarg_layouts
        return {
            name: _prepared(value, mesh, lies.get(name), wanted.get(name), self.use_local_output)
            for name, value in given.items()
        }

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        if self.with_kwargs:
            module.register_forward_pre_hook(
                lambda m, inputs, words: (self._positional(inputs, device_mesh), self._keywords(words, device_mesh)),
                with_kwargs=True,
            )
        else:
            module.register_forward_pre_hook(lambda m, inputs: self._positional(inputs, device_mesh))
        return module


class PrepareModuleOutput(ParallelStyle):
    """A module's outputs as DTensors that lie as ``output_layouts`` says, brought to ``desired_output_layouts``; plain
    tensors with ``use_local_output``."""

    _told = ("output_layouts", "desired_output_layouts", "use_local_output")

    def __init__(
        self, *, output_layouts: Layouts, desired_output_layouts: Layouts, use_local_output: bool = True
    ) -> None:
        self.output_layouts, self.desired_output_layouts = _several(output_layouts), _several(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts or ()) != len(self.desired_output_layouts or ()):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _prepare(self, outputs: Any, mesh: DeviceMesh) -> Any:
        given = outputs if isinstance(outputs, tuple) else (outputs,)
        lies, wanted = self.output_layouts or (), self.desired_output_layouts or ()
        if len(given) != len(lies):
            raise ValueError(
                f"module outputs and output_layouts should have same length! got {len(given)} and {len(lies)}"
            )
        each = zip(given, lies, wanted, strict=True)
        made = tuple(_prepared(value, mesh, layout, to, self.use_local_output) for value, layout, to in each)
        return made[0] if len(made) == 1 else made

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        module.register_forward_hook(lambda m, inputs, outputs: self._prepare(outputs, device_mesh))
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """:class:`PrepareModuleInput` and :class:`PrepareModuleOutput` of one module."""

    def __init__(
        self,
        *,
        input_layouts: Layouts = None,
        desired_input_layouts: Layouts = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None,
        use_local_input: bool = False,
        output_layouts: Layouts,
        desired_output_layouts: Layouts,
        use_local_output: bool = True,
    ) -> None:
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts,
            desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts,
            desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.prepare_module_input}, {self.prepare_module_output})"
