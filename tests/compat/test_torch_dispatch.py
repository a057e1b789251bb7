"""Tensors without memory, whose class answers for them: what is kept of them, and what cannot be read."""

from __future__ import annotations

import copy
import pickle
import typing

import numpy as np
import pytest
import tesserack as ts
from tesserack.compat.shims.utils import _python_dispatch as dispatch


class Scaled(ts.Tensor):
    """``values * scale``."""

    @staticmethod
    def __new__(cls, values, scale, requires_grad=False):
        made = ts.Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), dtype=values.dtype, device=values.device,
            requires_grad=requires_grad,
        )  # fmt: skip
        made.values, made.scale = values, scale
        return made

    def __tensor_flatten__(self):
        return ["values"], self.scale

    @classmethod
    def __tensor_unflatten__(cls, inner, scale, size, stride):
        return cls(inner["values"], scale)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func.__name__.split(".")[0] in ("detach", "clone", "view"):
            x, *rest = args
            return cls(func(x.values, *rest, **(kwargs or {})), x.scale)
        plain = [a.values * a.scale if isinstance(a, cls) else a for a in args]
        return func(*plain, **(kwargs or {}))


class Silent(ts.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def test_wrappers_on_a_device(device):
    x = Scaled(ts.ones(2, 3, device=device), 4.0)
    assert x.device == ts.ones(1, device=device).device and x.is_contiguous() and x.data_ptr() == 0
    assert (x + 1).tolist() == [[5.0] * 3] * 2 and type(x + 1) is ts.Tensor
    assert (
        x.sum().item() == 24 and x.view(3, 2).scale == 4 and (ts.ones(2, 3, device=device) @ x.view(3, 2)).sum() == 48
    )
    grown = Scaled(ts.ones(2, device=device), 3.0, requires_grad=True)
    (grown * 5).sum().backward()
    assert grown.grad.tolist() == [5.0, 5.0]


def test_copies_keep_the_class_and_what_it_holds():
    x = Scaled(ts.arange(4.0), 2.0)
    for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(made) is Scaled and made.scale == 2 and (made + 0).tolist() == [0, 2, 4, 6]
    assert copy.deepcopy(x).values.data_ptr() != x.values.data_ptr()
    parameter = ts.nn.Parameter(x)
    assert type(parameter) is Scaled and isinstance(parameter, ts.nn.Parameter) and not isinstance(x, ts.nn.Parameter)
    with pytest.raises(RuntimeError, match="Parameter: expected detach"):
        ts.nn.Parameter(Loses(ts.ones(2)))


def test_copies_of_what_has_no_memory_are_made_by_clone():
    class Plain(Scaled):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return args[0].values.clone()

    with pytest.raises(RuntimeError, match="expected clone"):
        copy.deepcopy(Plain(ts.ones(2), 1.0))
    x = Scaled(ts.ones(2), 2.0, requires_grad=True)
    made = copy.deepcopy(x)
    assert type(made) is Scaled and made.requires_grad and made.is_leaf


class Counted(ts.Tensor):
    """Over memory, of a class that is told of every call."""

    calls: typing.ClassVar[list[str]] = []
    records: typing.ClassVar[list[bool]] = []

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(str(func.overloadpacket.__name__))
        made = super().__torch_dispatch__(func, types, args, kwargs)
        cls.records.append(bool(getattr(made, "requires_grad", False)))
        return made


def test_instances_come_to_their_class_however_they_are_made():
    for x in (Counted(2), ts.ones(2).as_subclass(Counted), ts.Tensor._make_subclass(Counted, ts.ones(2))):
        Counted.calls.clear()
        _ = ts.zeros_like(x), x.new_ones(3), x.neg()
        assert Counted.calls == ["zeros_like", "new_ones", "neg"]


def test_the_operator_itself_records_no_second_gradient():
    x = ts.ones(2, requires_grad=True)
    y = ts.Tensor._make_subclass(Counted, x, True)
    Counted.records.clear()
    y.neg().sum().backward()
    assert not any(Counted.records) and y.grad.tolist() == [-1, -1]


def test_modes_are_shown_the_copy_that_becomes_a_gradient():
    made = []

    class Mode(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert all(any(a is m for m in made) for a in args if isinstance(a, ts.Tensor)), func
            made.append(func(*args, **(kwargs or {})))
            return made[-1]

    with Mode():
        x = ts.ones(3, requires_grad=True)
        (x * x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


class Loses(Scaled):
    @staticmethod
    def __new__(cls, values):
        return Scaled.__new__(cls, values, 1.0)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return ts.ones(2)


def test_parts_of_a_wrapper():
    x = Scaled(ts.ones(2), 3.0)
    assert dispatch.is_traceable_wrapper_subclass(x) and not dispatch.is_traceable_wrapper_subclass(ts.ones(1))
    doubled = dispatch.transform_subclass(x, lambda name, inner: inner * 2)
    assert (doubled + 0).tolist() == [6, 6]


def test_nothing_reads_memory_that_is_not_there():
    whole = ts.Tensor._make_wrapper_subclass(Silent, (3, 4), dtype=ts.float32)
    bare = ts.Tensor._make_subclass(ts.Tensor, whole)  # its class has gone
    reads = [
        lambda x: ts.add(x, 1), lambda x: ts.ones(3, 4).copy_(x), lambda x: x.item(), lambda x: x.tolist(), np.asarray,
        repr,
        lambda x: x.untyped_storage()[0], memoryview, lambda x: ts.from_dlpack(x), lambda x: ts.cat([x, ts.ones(3, 4)]),
        lambda x: ts.add(ts.ones(3, 4), 1, out=x), lambda x: x[0], lambda x: x.data + 1,
        lambda x: ts.optim.SGD([x], 0.1).step() or x.exp(), lambda x: ts.linalg.inv(x.view(2, 6)),
        lambda x: ts.fft.fft(x),
    ]  # fmt: skip
    for read in reads:
        for x in (whole, bare):
            with pytest.raises((RuntimeError, TypeError, BufferError, ValueError, IndexError)):
                read(x)
    with pytest.raises(RuntimeError, match=r"add: expected a tensor with memory.*no longer an instance of its class"):
        bare + 1


def test_errors_name_what_was_expected():
    with pytest.raises(TypeError, match="Tensor must define __torch_dispatch__"):
        ts.Tensor._make_wrapper_subclass(ts.Tensor, (2,))
    with pytest.raises(TypeError, match="expected a stride for each"):
        ts.Tensor._make_wrapper_subclass(Silent, (2, 3), strides=(1,))
    with pytest.raises(RuntimeError, match="not negative"):
        ts.Tensor._make_wrapper_subclass(Silent, (-1,))
    with pytest.raises(NotImplementedError, match="a mode defines __torch_dispatch__"), dispatch.TorchDispatchMode():
        ts.ones(2) + 1
    assert (ts.ones(2) + 1).tolist() == [2, 2]  # the mode has gone with its context


def test_attention_of_aten_refuses_dropout():
    from tesserack.compat.shims import ops

    q = ts.ones(1, 1, 2, 4)
    attention = ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    assert attention(q, q, q)[0].shape == q.shape
    with pytest.raises(RuntimeError, match=r"expected dropout_p 0, got 0.5.*scaled_dot_product_attention"):
        attention(q, q, q, 0.5)


def test_a_mode_answers_by_a_method_of_its_own():
    class Wrong(dispatch.TorchDispatchMode):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with pytest.raises(RuntimeError, match="normal method"), Wrong():
        pass
    assert (ts.ones(1) + 1).item() == 2  # nothing was entered


def test_modes_of_one_thread_are_not_anothers():
    import threading

    seen: list[str] = []

    class Record(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Record():
        thread = threading.Thread(target=lambda: ts.ones(2).exp())
        thread.start()
        thread.join()
    assert seen == []


COPIED = """
import copy
import torch
from torch.fx import Graph, GraphModule

for operator in (torch.ops.aten.add, torch.ops.aten.add.Tensor):
    print(copy.copy(operator) is operator, copy.deepcopy([operator])[0] is operator)
graph = Graph()
graph.output(graph.call_function(torch.ops.aten.add.Tensor, (graph.placeholder("x"), 1)))
copied = copy.deepcopy(GraphModule({}, graph))
print([node.target is torch.ops.aten.add.Tensor for node in copied.graph.nodes], copied(torch.ones(1)).item())
"""


def test_copies_of_operators_are_themselves(program):
    assert program.run(COPIED) == ["True True", "True True", "[False, True, False] 2.0"]
