"""What the placeholders and results of an exported graph are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

__all__ = [
    "ArgumentSpec",
    "ConstantArgument",
    "CustomObjArgument",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "SymBoolArgument",
    "SymFloatArgument",
    "SymIntArgument",
    "TensorArgument",
    "TokenArgument",
]


@dataclasses.dataclass
class TensorArgument:
    """A tensor, the value of the node of that name."""

    name: str


@dataclasses.dataclass
class TokenArgument:
    """A token that orders effects."""

    name: str


@dataclasses.dataclass
class SymIntArgument:
    """A size that varies, the value of the node of that name."""

    name: str


@dataclasses.dataclass
class SymFloatArgument:
    """A number that varies, the value of the node of that name."""

    name: str


@dataclasses.dataclass
class SymBoolArgument:
    """A truth value that varies, the value of the node of that name."""

    name: str


@dataclasses.dataclass
class CustomObjArgument:
    """An object of a class that the program brings."""

    name: str
    class_fqn: str
    fake_val: Any = None


@dataclasses.dataclass
class ConstantArgument:
    """A value that is always the same."""

    name: str
    value: int | float | bool | str | None


ArgumentSpec = (
    TensorArgument
    | SymIntArgument
    | SymFloatArgument
    | SymBoolArgument
    | ConstantArgument
    | CustomObjArgument
    | TokenArgument
)


class InputKind(Enum):
    """What a placeholder is."""

    USER_INPUT = auto()
    PARAMETER = auto()
    BUFFER = auto()
    CONSTANT_TENSOR = auto()
    CUSTOM_OBJ = auto()
    TOKEN = auto()


class OutputKind(Enum):
    """What a result is."""

    USER_OUTPUT = auto()
    LOSS_OUTPUT = auto()
    BUFFER_MUTATION = auto()
    PARAMETER_MUTATION = auto()
    GRADIENT_TO_PARAMETER = auto()
    GRADIENT_TO_USER_INPUT = auto()
    USER_INPUT_MUTATION = auto()
    TOKEN = auto()


@dataclasses.dataclass
class InputSpec:
    """A placeholder: ``target`` names the parameter, buffer or constant; a buffer is ``persistent`` or not."""

    kind: InputKind
    arg: Any
    target: str | None
    persistent: bool | None = None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        persistent = "" if self.persistent is None else f" persistent={self.persistent}"
        return f"{self.arg.name}: {self.kind.name}{target}{persistent}"


@dataclasses.dataclass
class OutputSpec:
    """A result: ``target`` names the buffer or input whose new value it is."""

    kind: OutputKind
    arg: Any
    target: str | None

    def __str__(self) -> str:
        target = "" if self.target is None else f" target={self.target!r}"
        return f"{self.arg.name}: {self.kind.name}{target}"


@dataclasses.dataclass
class ExportBackwardSignature:
    """Which results are gradients of what."""

    gradients_to_parameters: dict[str, str]
    gradients_to_user_inputs: dict[str, str]
    loss_output: str


@dataclasses.dataclass
class ExportGraphSignature:
    """The placeholders and results of an exported graph, in order.

    Parameters, buffers and constants come first, then what the program is given; new values of buffers and inputs that
    it writes to come before what it returns.
    """

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(str(spec.target) for spec in self.input_specs if spec.kind is kind)

    def _inputs_to(self, kind: InputKind) -> Mapping[str, str]:
        return MappingProxyType({spec.arg.name: str(spec.target) for spec in self.input_specs if spec.kind is kind})

    def _changes(self, kind: OutputKind) -> Mapping[str, str]:
        return MappingProxyType({spec.arg.name: str(spec.target) for spec in self.output_specs if spec.kind is kind})

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """The names of buffers that are in no state dict."""
        return tuple(str(s.target) for s in self.input_specs if s.kind is InputKind.BUFFER and s.persistent is False)

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """The names of tensors that the program holds."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        """The names of objects that the program holds."""
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """What the program is given: names of placeholders, and values that are always the same."""
        specs = (spec for spec in self.input_specs if spec.kind is InputKind.USER_INPUT)
        return tuple(s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in specs)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """What the program returns: names of nodes, and values that are always the same."""
        specs = (s for s in self.output_specs if s.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT))
        return tuple(s.arg.value if isinstance(s.arg, ConstantArgument) else s.arg.name for s in specs)

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        """Parameters by the names of their placeholders."""
        return self._inputs_to(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        """Buffers by the names of their placeholders."""
        return self._inputs_to(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        """Constants by the names of their placeholders."""
        return self._inputs_to(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        """Objects by the names of their placeholders."""
        return self._inputs_to(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        """Buffers by the names of results that are their new values."""
        return self._changes(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        """Parameters by the names of results that are their new values."""
        return self._changes(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        """Inputs by the names of results that are their new values."""
        return self._changes(OutputKind.USER_INPUT_MUTATION)

    @property
    def backward_signature(self) -> ExportBackwardSignature | None:
        """None: a program is its forward pass."""
        return None

    @property
    def assertion_dep_token(self) -> Mapping[int, str] | None:
        """None: nothing is ordered by tokens."""
        return None

    @property
    def input_tokens(self) -> list[str]:
        """None are used."""
        return []

    @property
    def output_tokens(self) -> list[str]:
        """None are used."""
        return []

    def replace_all_uses(self, old: str, new: str) -> None:
        """Have specs name another node."""
        specs: list[Any] = [*self.input_specs, *self.output_specs]
        for spec in specs:
            if spec.arg.name == old:
                spec.arg.name = new

    def __str__(self) -> str:
        lines = ["", "# inputs", *map(str, self.input_specs), "", "# outputs", *map(str, self.output_specs), ""]
        return "\n".join(lines)
