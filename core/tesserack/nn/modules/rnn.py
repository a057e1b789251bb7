"""Recurrent layers over whole sequences."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import init
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter
from tesserack.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class _Weights(list):  # type: ignore[type-arg]
    """The parameters in order. Once an item is assigned, they are what the module computes with, as in PyTorch."""

    __slots__ = ("owner",)
    owner: RNNBase

    def __setitem__(self, place: Any, value: Any) -> None:
        super().__setitem__(place, value)
        self.owner.__dict__["_given_weights"] = list(self)


class RNNBase(Module):
    """What :class:`RNN`, :class:`LSTM` and :class:`GRU` share: parameters, shapes, packed and single sequences.

    Parameters of layer k are ``weight_ih_lk`` (gates * hidden_size, inputs), ``weight_hh_lk``, ``bias_ih_lk`` and
    ``bias_hh_lk``, with ``_reverse`` for the other direction, and ``weight_hr_lk`` (proj_size, hidden_size) of a
    projection; all start uniform in +-1/sqrt(hidden_size).
    """

    mode: str

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_options(mode, input_size, hidden_size, num_layers, dropout, proj_size, bias, batch_first)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._flat_weights_names: list[str] = []
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse") if bidirectional else ("",):
                self._add_parameters(layer, suffix, device, dtype)
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _add_parameters(self, layer: int, suffix: str, device: Any, dtype: Any) -> None:
        gates = _GATES[self.mode] * self.hidden_size
        inputs = self.input_size if layer == 0 else self._output_size * self._directions
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, inputs), "weight_hh": (gates, self._output_size)}
        if self.bias:
            shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        names = []
        for kind, shape in shapes.items():
            name = f"{kind}_l{layer}{suffix}"
            setattr(self, name, Parameter(ts.empty(shape, device=device, dtype=dtype)))
            names.append(name)
        self._flat_weights_names += names
        self._all_weights.append(names)

    @property
    def _flat_weights(self) -> list[Tensor]:
        own = self.__dict__
        if "_given_weights" in own:
            return own["_given_weights"]  # type: ignore[no-any-return]
        weights = _Weights(own[name] if name in own else getattr(self, name) for name in self._flat_weights_names)
        weights.owner = self
        return weights

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Tensor]) -> None:
        """What is computed with until a weight is assigned by its name, or the module converted, as in PyTorch."""
        self.__dict__["_given_weights"] = weights

    def __setattr__(self, name: str, value: Any) -> None:
        given = self.__dict__.get("_given_weights")
        if given is not None and name in self._flat_weights_names:
            given[self._flat_weights_names.index(name)] = value
        super().__setattr__(name, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        self.__dict__.pop("_given_weights", None)
        return super()._apply(fn, recurse)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing to do: the parameters need not lie together."""

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    # --- shapes ---------------------------------------------------------------------------------------------------

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise ``ValueError`` for another dtype than the parameters', ``RuntimeError`` for another shape."""
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not ts.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 2 if batch_sizes is not None else 3
        if input.ndim != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.ndim}")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}"
            )

    def _batch(self, input: Tensor, batch_sizes: Tensor | None) -> int:
        if batch_sizes is not None:
            return int(batch_sizes[0].item())
        return input.shape[0] if self.batch_first else input.shape[1]

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the hidden state for this input."""
        return self.num_layers * self._directions, self._batch(input, batch_sizes), self._output_size

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple[int, ...], msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        """Raise ``RuntimeError`` unless ``hx`` has the expected shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(tuple(expected_hidden_size), list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Check the input and the hidden state against each other."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """The states in another order of sequences."""
        return hx if permutation is None else hx.index_select(1, permutation)

    # --- forward --------------------------------------------------------------------------------------------------

    def _zeros(self, input: Tensor, batch: int, size: int) -> Tensor:
        shape = (self.num_layers * self._directions, batch, size)
        return ts.zeros(shape, dtype=input.dtype, device=input.device)

    def _initial(self, input: Tensor, batch: int) -> Any:
        return self._zeros(input, batch, self._output_size)

    def _unsqueezed(self, hx: Any) -> Any:
        if hx.ndim != 2:
            raise RuntimeError(f"For unbatched 2-D input, hx should also be 2-D but got {hx.ndim}-D tensor")
        return hx.unsqueeze(1)

    def _check_batched(self, hx: Any) -> None:
        if hx.ndim != 3:
            raise RuntimeError(f"For batched 3-D input, hx should also be 3-D but got {hx.ndim}-D tensor")

    def _squeezed(self, hidden: Any) -> Any:
        return hidden.squeeze(1)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Outputs of the last layer at every step, and the last state of every layer.

        ``input`` is (length, batch, input_size), with ``batch_first`` (batch, length, input_size), one sequence
        (length, input_size), or a :class:`PackedSequence`; ``hx`` the first state, zeros if None.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx)
        if input.ndim not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        single = input.ndim == 2
        if single:
            input = input.unsqueeze(0 if self.batch_first else 1)
            hx = None if hx is None else self._unsqueezed(hx)
        elif hx is not None:
            self._check_batched(hx)
        if hx is None:
            hx = self._initial(input, input.shape[0] if self.batch_first else input.shape[1])
        self.check_forward_args(input, hx, None)
        output, hidden = self._run((input,), hx, (self.batch_first,))
        if single:
            return output.squeeze(0 if self.batch_first else 1), self._squeezed(hidden)
        return output, hidden

    def _forward_packed(self, input: PackedSequence, hx: Any) -> Any:
        data, batch_sizes, order, back = input
        hx = self._initial(data, self._batch(data, batch_sizes)) if hx is None else self.permute_hidden(hx, order)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = self._run((data, batch_sizes), hx, ())
        return PackedSequence(output, batch_sizes, order, back), self.permute_hidden(hidden, back)

    def _run(self, input: tuple[Tensor, ...], hx: Any, layout: tuple[bool, ...]) -> tuple[Tensor, Any]:
        operator: Any = {"LSTM": ts.lstm, "GRU": ts.gru, "RNN_TANH": ts.rnn_tanh, "RNN_RELU": ts.rnn_relu}[self.mode]
        options = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        output, *hidden = operator(*input, hx, self._flat_weights, *options, *layout)
        return output, hidden[0] if len(hidden) == 1 else tuple(hidden)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        shown: Iterator[tuple[str, Any, Any]] = iter(
            [
                ("proj_size", self.proj_size, 0),
                ("num_layers", self.num_layers, 1),
                ("bias", self.bias, True),
                ("batch_first", self.batch_first, False),
                ("dropout", self.dropout, 0),
                ("bidirectional", self.bidirectional, False),
            ]
        )
        return text + "".join(f", {name}={value}" for name, value, usual in shown if value != usual)


def _check_options(
    mode: str,
    input_size: Any,
    hidden_size: Any,
    num_layers: Any,
    dropout: Any,
    proj_size: Any,
    bias: Any,
    batch_first: Any,
) -> None:
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being "
                         f"zeroed, got {dropout!r}")  # fmt: skip
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
            f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    for name, flag in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
    for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
        if not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")
    if num_layers <= 0:
        raise ValueError(f"num_layers must be greater than zero, got {num_layers}")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if proj_size and mode != "LSTM":
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
    if mode not in _GATES:
        raise ValueError(f"Unrecognized RNN mode: {mode}")


class RNN(RNNBase):
    """``h = tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)`` over a sequence; or relu, by
    ``nonlinearity``.

    Takes (length, batch, input_size) and a first state (layers * directions, batch, hidden_size); returns the outputs
    (length, batch, directions * hidden_size) and the last states. Options as those of :class:`LSTM`.

    >>> from tesserack import nn, ones
    >>> output, last = nn.RNN(3, 4)(ones(5, 2, 3))
    >>> tuple(output.shape), tuple(last.shape)
    ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        proj_size: int = 0,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        if proj_size:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.__dict__["nonlinearity"] = nonlinearity
        super().__init__(
            f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
            bidirectional, 0, device, dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent units (Cho et al., arXiv:1406.1078) over a sequence.

    ``r, z = sigmoid(...)``, ``n = tanh(W_in x + b_in + r * (W_hn h + b_hn))``, ``h = (1 - z) * n + z * h``; the rows of
    the weights are those of r, z and n. Shapes as of :class:`RNN`, options as of :class:`LSTM`.

    >>> from tesserack import nn, ones
    >>> output, last = nn.GRU(3, 4, bidirectional=True)(ones(5, 2, 3))
    >>> tuple(output.shape), tuple(last.shape)
    ((5, 2, 8), (2, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        proj_size: int = 0,
    ) -> None:
        if proj_size:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997) over a sequence.

    ``i, f, o = sigmoid(...)``, ``g = tanh(...)``, ``c = f * c + i * g``, ``h = o * tanh(c)``; the rows of the weights
    are
    those of i, f, g and o. ``hx`` and the second result are pairs (h, c). ``proj_size`` puts ``weight_hr @ h`` in the
    place of h. ``num_layers`` layers feed on each other, with ``dropout`` between them in training; ``bidirectional``
    reads backwards as well and joins both outputs; ``batch_first`` exchanges the first two dims of input and output,
    not of the states.

    >>> from tesserack import nn, ones
    >>> output, (h, c) = nn.LSTM(3, 4, num_layers=2, batch_first=True)(ones(2, 5, 3))
    >>> tuple(output.shape), tuple(h.shape), tuple(c.shape)
    ((2, 5, 4), (2, 2, 4), (2, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the cells for this input."""
        return self.num_layers * self._directions, self._batch(input, batch_sizes), self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        self.check_hidden_size(hidden[0], expected, "Expected hidden[0] size {}, got {}")
        expected = self.get_expected_cell_size(input, batch_sizes)
        self.check_hidden_size(hidden[1], expected, "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        return hx if permutation is None else tuple(state.index_select(1, permutation) for state in hx)

    def _initial(self, input: Tensor, batch: int) -> Any:
        return self._zeros(input, batch, self._output_size), self._zeros(input, batch, self.hidden_size)

    def _unsqueezed(self, hx: Any) -> Any:
        if hx[0].ndim != 2 or hx[1].ndim != 2:
            raise RuntimeError(
                f"For unbatched 2-D input, hx and cx should also be 2-D but got "
                f"({hx[0].ndim}-D, {hx[1].ndim}-D) tensors"
            )
        return tuple(state.unsqueeze(1) for state in hx)

    def _check_batched(self, hx: Any) -> None:
        if hx[0].ndim != 3 or hx[1].ndim != 3:
            raise RuntimeError(
                f"For batched 3-D input, hx and cx should also be 3-D but got ({hx[0].ndim}-D, {hx[1].ndim}-D) tensors"
            )

    def _squeezed(self, hidden: Any) -> Any:
        return tuple(state.squeeze(1) for state in hidden)
