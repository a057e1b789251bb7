"""Single steps of recurrent networks."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import init
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """What the cells share: ``weight_ih`` (chunks * hidden_size, input_size), ``weight_hh`` and two biases."""

    input_size: int
    hidden_size: int
    bias: bool
    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(ts.empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(ts.empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(ts.empty((rows,), device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in +-1/sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def _batched(self, input: Tensor, states: tuple[Tensor, ...] | None, count: int) -> tuple[Tensor, Any]:
        """Input and states with a batch dim."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        for state in states or ():
            if state.ndim not in (1, 2):
                raise ValueError(f"{name}: Expected hidden to be 1D or 2D, got {state.ndim}D instead")
        batched = input if input.ndim == 2 else input.unsqueeze(0)
        if states is None:
            zeros = ts.zeros((batched.shape[0], self.hidden_size), dtype=input.dtype, device=input.device)
            return batched, (zeros,) * count
        return batched, tuple(state if input.ndim == 2 else state.unsqueeze(0) for state in states)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"


class RNNCell(RNNCellBase):
    """``tanh(x @ weight_ih.T + bias_ih + h @ weight_hh.T + bias_hh)``, or relu: one step of :class:`RNN`.

    Takes (batch, input_size) or (input_size), and a state of hidden_size, zeros if None.

    >>> from tesserack import nn, ones
    >>> tuple(nn.RNNCell(3, 4)(ones(2, 3)).shape)
    (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        cell = ts.rnn_tanh_cell if self.nonlinearity == "tanh" else ts.rnn_relu_cell
        batched, states = self._batched(input, None if hx is None else (hx,), 1)
        output = cell(batched, *states, *self._weights())
        return output if input.ndim == 2 else output.squeeze(0)


class LSTMCell(RNNCellBase):
    """One step of :class:`LSTM`: (batch, input_size) or (input_size), with a pair (h, c), to the next pair.

    >>> from tesserack import nn, ones
    >>> h, c = nn.LSTMCell(3, 4)(ones(2, 3))
    >>> tuple(h.shape), tuple(c.shape)
    ((2, 4), (2, 4))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        batched, states = self._batched(input, None if hx is None else tuple(hx), 2)
        h, c = ts.lstm_cell(batched, states, *self._weights())
        return (h, c) if input.ndim == 2 else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of :class:`GRU`: (batch, input_size) or (input_size), and a state, to the next state.

    >>> from tesserack import nn, ones
    >>> tuple(nn.GRUCell(3, 4)(ones(3)).shape)
    (4,)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        batched, states = self._batched(input, None if hx is None else (hx,), 1)
        output = ts.gru_cell(batched, *states, *self._weights())
        return output if input.ndim == 2 else output.squeeze(0)
