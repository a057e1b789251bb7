"""The life of Tensor objects: identity, attributes, ownership, garbage collection, copies."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import weakref

import pytest
import tesserack as ts


class Tagged(ts.Tensor):
    pass


def tagged(*sizes: int) -> ts.Tensor:
    return ts.Tensor._make_subclass(Tagged, ts.zeros(*sizes))


def test_a_tensor_has_one_object() -> None:
    x = ts.ones(2, requires_grad=True)
    assert x.add_.__self__ is x
    y = x.detach()
    assert y.add_(1) is y
    assert y.view(2)._base is y
    assert hash(x) == hash(x) and x in {x}


def test_attributes_live_with_the_object() -> None:
    x = ts.zeros(2)
    x.note = "kept"
    assert x.__dict__ == {"note": "kept"}
    del x.note
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'note'"):
        x.note


def test_an_object_with_state_outlives_its_python_references_while_the_core_holds_the_tensor() -> None:
    x = ts.ones(2, requires_grad=True)
    x.grad = tagged(2)
    x.grad.note = 5
    gc.collect()
    assert type(x.grad) is Tagged
    assert x.grad.note == 5


def test_a_flipped_object_can_be_flipped_again() -> None:
    x = ts.ones(2, requires_grad=True)
    grad = tagged(2)
    x.grad = grad
    for _ in range(5):
        del grad
        gc.collect()
        grad = x.grad
        assert type(grad) is Tagged
    seen = weakref.ref(grad)
    del grad
    assert seen() is x.grad
    x.grad = None
    gc.collect()
    assert seen() is None


def test_a_weak_reference_to_a_flipped_object_keeps_its_tensor_usable() -> None:
    x = ts.ones(2, requires_grad=True)
    x.grad = tagged(2)
    seen = weakref.ref(x.grad)
    strong = seen()
    x.grad = None
    assert strong is not None and strong.tolist() == [0.0, 0.0]
    del strong
    assert seen() is None


def test_weak_references_die_with_plain_tensors() -> None:
    x = ts.ones(2)
    seen = weakref.ref(x)
    assert seen() is x
    del x
    assert seen() is None


def test_cycles_through_attributes_are_collected() -> None:
    x = ts.ones(2)
    x.me = x
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_cycles_through_hooks_are_collected() -> None:
    def tangled() -> weakref.ref[ts.Tensor]:
        x = ts.ones(2, requires_grad=True)
        x.register_hook(lambda grad: grad * x.sum())
        return weakref.ref(x)

    seen = tangled()
    gc.collect()
    assert seen() is None


def test_subclasses_in_cycles_are_collected() -> None:
    x = tagged(2)
    x.me = [x]
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_subclass_results_are_of_the_subclass() -> None:
    assert type(tagged(2) + 1) is Tagged
    assert type(tagged(2).add_(1)) is Tagged
    assert repr(tagged(1)) == "Tagged([0.])"


def test_make_subclass_shares_memory() -> None:
    data = ts.zeros(2)
    x = ts.Tensor._make_subclass(Tagged, data, True)
    data.fill_(3)
    assert x.tolist() == [3.0, 3.0] and x.requires_grad and x.is_leaf
    with pytest.raises(TypeError, match="subclass of Tensor"):
        ts.Tensor._make_subclass(int, data)


def test_deepcopy_and_copy() -> None:
    x = ts.ones(2, requires_grad=True)
    x.tag = [1]
    (x * 2).sum().backward()
    deep, shallow = copy.deepcopy(x), copy.copy(x)
    deep.detach().fill_(7)
    assert x.tolist() == [1.0, 1.0]
    assert (
        deep.requires_grad
        and deep.grad is not None
        and deep.grad is not x.grad
        and deep.tag == [1]
        and deep.tag is not x.tag
    )
    assert shallow.data_ptr() == x.data_ptr() and shallow.requires_grad and shallow.tag is x.tag
    pair = [x, x]
    first, second = copy.deepcopy(pair)
    assert first is second
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x * 2)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_tensors_pickle(protocol: int) -> None:
    class_of = {"plain": ts.Tensor, "parameter": ts.nn.Parameter, "buffer": ts.nn.Buffer}
    made = {"plain": ts.arange(6.0), "parameter": ts.nn.Parameter(ts.ones(2)), "buffer": ts.nn.Buffer(ts.ones(2))}
    made["plain"].tag = ["kept"]
    again = pickle.loads(pickle.dumps([made, made["plain"]], protocol))
    assert again[1] is again[0]["plain"] and again[1].tag == ["kept"]
    for name, tensor in made.items():
        assert type(again[0][name]) is class_of[name] and again[0][name].requires_grad == tensor.requires_grad
        assert ts.equal(again[0][name], tensor) and again[0][name].data_ptr() != tensor.data_ptr()
    for dtype in (ts.bool, ts.uint8, ts.int64, ts.float16, ts.bfloat16, ts.float64, ts.complex64, ts.complex128):
        for tensor in (ts.ones(2, 3).to(dtype), ts.zeros(0, 2, dtype=dtype), ts.ones((), dtype=dtype)):
            back = pickle.loads(pickle.dumps(tensor, protocol))
            assert (back.dtype, back.shape, back.tolist()) == (tensor.dtype, tensor.shape, tensor.tolist())
            back.zero_()


def test_pickles_keep_layouts_without_gaps_and_only_what_is_shown() -> None:
    x = ts.arange(24.0).reshape(2, 3, 4)
    for view in (x.transpose(0, 2), x[:, 1], x[..., ::2], x[:1].expand(5, 3, 4), x.permute(2, 0, 1), x[1:]):
        back = pickle.loads(pickle.dumps(view))
        assert back.tolist() == view.tolist()
        # What repeats elements keeps doing so: it is written once.
        kept = view.numel() == x.numel() or 0 in view.stride()
        assert back.stride() == (view.stride() if kept else view.contiguous().stride())
    assert len(pickle.dumps(ts.zeros(100_000)[:2])) < 1000
    meta = pickle.loads(pickle.dumps(ts.empty(2, 3, device="meta").t()))
    assert meta.is_meta and meta.stride() == (1, 3)
    result = (ts.ones(2, requires_grad=True) * 2).detach().requires_grad_()
    assert pickle.loads(pickle.dumps(result)).is_leaf


def test_buffers_travel_out_of_band() -> None:
    x = ts.arange(1000.0)
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(x, 5, buffer_callback=buffers.append)
    assert len(text) < 300 and len(buffers) == 1
    same = pickle.loads(text, buffers=buffers)
    same[0] = 7
    assert x[0].item() == 7
    kept = pickle.loads(text, buffers=[bytes(buffers[0])])
    assert ts.equal(kept, x)
    kept.add_(1)


class Placed(ts.nn.Parameter):
    """Extends what the pickle of its base calls, of which PyTorch gives two parts."""

    def __reduce_ex__(self, protocol):
        rebuild, arguments = super().__reduce_ex__(protocol)
        return rebuild_placed, (rebuild, arguments, "further")


def rebuild_placed(rebuild, arguments, further):
    made = rebuild(*arguments)
    made.further = further
    return made


def test_a_class_extends_the_pickle_of_its_base() -> None:
    made = Placed(ts.arange(3.0))
    made.note = "kept"
    back = pickle.loads(pickle.dumps(made))
    assert type(back) is Placed and back.tolist() == [0.0, 1.0, 2.0] and back.requires_grad
    assert back.__dict__ == {"note": "kept", "further": "further"}
    # Apart from the arguments, where no class asks for two parts: it may hold the tensor itself.
    ring = ts.ones(2)
    ring.itself = ring
    again = pickle.loads(pickle.dumps(ring))
    assert again.itself is again


def test_whole_modules_and_generators_pickle() -> None:
    net = ts.nn.Sequential(ts.nn.Linear(2, 3), ts.nn.BatchNorm1d(3), ts.nn.ReLU()).eval()
    net[0].weight.requires_grad_(False)
    again = pickle.loads(pickle.dumps(net))
    x = ts.randn(4, 2)
    assert ts.equal(net(x), again(x)) and not again.training and not again[0].weight.requires_grad
    assert [name for name, _ in again.named_parameters()] == [name for name, _ in net.named_parameters()]
    generator = ts.Generator().manual_seed(3)
    ts.rand(5, generator=generator)
    twin, copied = pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator)
    expected = ts.rand(4, generator=generator)
    assert ts.equal(ts.rand(4, generator=twin), expected) and ts.equal(ts.rand(4, generator=copied), expected)


@pytest.mark.parametrize(
    "value", [ts.float32, ts.bool, ts.channels_last, ts.strided, ts.Size([2, 3]), ts.add, ts.Tensor.add]
)
def test_small_objects_pickle(value: object) -> None:
    again = pickle.loads(pickle.dumps(value))
    assert again == value or again.__name__ == value.__name__  # type: ignore[attr-defined]


def test_legacy_constructor() -> None:
    assert ts.Tensor(2, 3).shape == (2, 3)
    assert ts.Tensor([1, 2]).dtype is ts.float32
    assert ts.Tensor().shape == (0,)
    assert ts.Tensor(ts.Size([4])).shape == (4,)
    with pytest.raises(TypeError):
        ts.Tensor(2, "a")


def test_constructor_of_a_tensor_shares_its_memory(device: ts.device) -> None:
    """Of subclasses too: the dtype stays, and gradients go through it."""

    class Marked(ts.Tensor):
        pass

    for cls in (ts.Tensor, Marked):
        whole = ts.arange(3, device=device)
        made = cls(whole)
        assert type(made) is cls and made.dtype is ts.int64 and made.device == device
        assert made.data_ptr() == whole.data_ptr() and made is not whole
        made += 1
        assert whole.tolist() == [1, 2, 3]
        leaf = ts.ones(2, device=device, requires_grad=True)
        cls(leaf * 3).sum().backward()
        assert leaf.grad is not None and leaf.grad.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="as_tensor"):
        ts.Tensor(ts.ones(2), device="cpu")


def test_properties_of_a_leaf_and_of_a_result(device: ts.device) -> None:
    x = ts.ones(2, 3, device=device, requires_grad=True)
    y = (x * 2).t()
    assert (x.ndim, x.itemsize, x.nbytes, x.layout) == (2, 4, 24, ts.strided)
    assert x.is_leaf and x.grad_fn is None and not y.is_leaf
    assert y.grad_fn.name() == type(y.grad_fn).__name__ == "TBackward0"
    assert y._base is not None and x._base is None
    assert x.T.shape == x.mT.shape == x.H.shape == (3, 2)
    assert x.device == device and x.is_meta is False
    with pytest.raises(RuntimeError, match="matrices"):
        ts.ones(3).mT
    for name in ("shape", "dtype", "grad_fn"):
        with pytest.raises(AttributeError):
            setattr(x, name, 1)


def test_data_and_grad_can_be_assigned() -> None:
    x = ts.ones(2, requires_grad=True)
    x.data = ts.zeros(3, dtype=ts.float64)
    assert x.shape == (3,) and x.dtype is ts.float64 and x.requires_grad
    x.grad = ts.ones(3, dtype=ts.float64)
    del x.grad
    assert x.grad is None
    for wrong in (ts.ones(2, dtype=ts.float64), ts.ones(3), 5, x):
        with pytest.raises((RuntimeError, TypeError)):
            x.grad = wrong
    with pytest.raises(TypeError, match="expected a Tensor"):
        x.data = [1, 2]


def test_version_counts_in_place_changes() -> None:
    x = ts.ones(4)
    assert x._version == 0
    x[:2].add_(1)
    x.mul_(2)
    assert x._version == x[1]._version == 2
    x.data.add_(1)
    assert x._version == 2


def test_resize_keeps_the_elements_in_front() -> None:
    x = ts.arange(6.0)
    assert x.resize_(2, 2).tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert x.resize_((8,))[:4].tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="require grad"):
        ts.ones(2, requires_grad=True).resize_(3)
    with pytest.raises(RuntimeError, match="64 bits"):
        x.resize_(2**40, 2**30)


def test_number_conversions() -> None:
    assert int(ts.tensor(3.7)) == 3 and float(ts.tensor(2)) == 2.0 and bool(ts.tensor([0.5]))
    assert [10, 20, 30][ts.tensor(1)] == 20
    assert f"{ts.tensor(2.0):.2f}" == "2.00"
    assert ts.tensor(True).item() is True and ts.tensor(7, dtype=ts.uint8).item() == 7
    assert ts.tensor(1.5, dtype=ts.bfloat16).item() == 1.5
    with pytest.raises(RuntimeError, match="more than one value is ambiguous"):
        bool(ts.ones(2))
    with pytest.raises(RuntimeError, match="no values is ambiguous"):
        bool(ts.ones(0))
    with pytest.raises(ValueError, match="only one element"):
        int(ts.ones(2))
    with pytest.raises(TypeError, match="integer tensors"):
        [1, 2][ts.tensor(1.0)]
    with pytest.raises(OverflowError):
        int(ts.tensor(float("inf")))


def test_tolist_of_any_layout() -> None:
    x = ts.arange(6).reshape(2, 3)
    assert x.t().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert ts.tensor(5).tolist() == 5
    assert ts.zeros(2, 0).tolist() == [[], []]
    assert ts.tensor([1.5]).expand(3).tolist() == [1.5, 1.5, 1.5]


def test_iteration_length_membership() -> None:
    x = ts.arange(6).reshape(3, 2)
    assert len(x) == 3 and [row.tolist() for row in x] == x.tolist()
    assert 5 in x and 9 not in x
    assert [row.tolist() for row in reversed(x)] == x.tolist()[::-1]
    with pytest.raises(TypeError, match="0-d"):
        len(ts.tensor(1))
    with pytest.raises(TypeError, match="0-d"):
        iter(ts.tensor(1))
    with pytest.raises(RuntimeError, match="only supports Tensor or scalar"):
        assert "a" in x


def test_sizes_are_tuples() -> None:
    size = ts.ones(2, 3).shape
    assert size == (2, 3) and isinstance(size, tuple) and size.numel() == 6
    assert repr(size) == "tesserack.Size([2, 3])"
    assert type(size[:1]) is type(size + (4,)) is type(size * 2) is ts.Size
    assert type(size + ("a",)) is tuple
    with pytest.raises(TypeError, match="item 1 is 'float'"):
        ts.Size([1, 2.5])


@pytest.mark.skipif("TESSERACK_SANITIZED" in os.environ, reason="the sanitizer keeps freed memory for a while")
def test_a_million_objects_do_not_leak() -> None:
    import resource

    def churn(count: int) -> None:
        x = ts.ones(4)
        for _ in range(count):
            x = x + 1
            x[0]

    churn(2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    churn(500_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # kB
