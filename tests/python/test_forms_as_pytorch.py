"""Small behaviours that programs written for PyTorch rely on: forms of calls, refusals, warnings and layouts."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts


@pytest.fixture
def warned_always() -> Any:
    ts.set_warn_always(True)
    yield
    ts.set_warn_always(False)


def test_a_device_remembers_its_index() -> None:
    numbered = ts.device("cpu:0")
    assert numbered.index == 0 and str(numbered) == "cpu:0" and repr(numbered) == "device(type='cpu', index=0)"
    assert ts.device("cpu").index is None and ts.ones(1, device=numbered).device.index is None
    assert ts.device("cpu", 0).index == 0 and numbered == ts.device("cpu")
    with pytest.raises(RuntimeError):
        ts.device("cpu:00")


def test_the_default_generator_is_equal_to_itself() -> None:
    assert ts.default_generator == ts.default_generator and ts.Generator() != ts.Generator()
    assert len({ts.default_generator, ts.default_generator}) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: x.map_(y, lambda a, b: a),
        lambda x, y: x.map2_(x, y, lambda a, b, c: a),
        lambda x, y: y.apply_(lambda a: a),
    ],
)
def test_functions_of_python_leave_no_history(call: Callable[..., Any]) -> None:
    with pytest.raises(RuntimeError, match="require grad"):
        call(ts.ones(2), ts.ones(2, requires_grad=True))


@pytest.mark.parametrize("mode", [1, "x", None])
def test_switches_take_bools(mode: Any) -> None:
    with pytest.raises(TypeError):
        ts.use_deterministic_algorithms(mode)
    with pytest.raises(TypeError):
        ts.use_deterministic_algorithms(True, warn_only=mode)
    with pytest.raises(TypeError):
        ts.set_deterministic_debug_mode(2.0)  # type: ignore[arg-type]
    assert not ts.are_deterministic_algorithms_enabled()


def test_new_shares_what_it_is_given() -> None:
    x, y = ts.ones(1), ts.arange(3.0)
    assert x.new(y.storage()).data_ptr() == y.data_ptr() == x.new(y).data_ptr() and x.new(y) is not y
    assert y.storage()._cdata == y.storage()._cdata != x.storage()._cdata
    with pytest.raises(TypeError):
        x.new(ts.tensor([1]))
    with pytest.raises(RuntimeError):
        x.new(ts.tensor([1]).storage())


def test_types_of_one_dtype() -> None:
    assert ts.ones(1).int().type(ts.Tensor).dtype is ts.get_default_dtype()
    with pytest.raises(TypeError, match="acceptable base type"):
        type("Derived", (ts.FloatTensor,), {})


def test_gradient_takes_the_wider_dtype() -> None:
    x, places = ts.tensor([0.0, 1.0, 4.0]), ts.tensor([0.0, 1.0, 3.0], dtype=ts.float64)
    assert ts.gradient(x, spacing=[places])[0].dtype is ts.float64
    assert ts.gradient(x, spacing=[places.float()])[0].dtype is ts.float32
    assert ts.gradient(x.long(), spacing=[places])[0].dtype is ts.float64


@pytest.mark.parametrize(
    "call",
    [
        lambda x, out: ts.exp(x, out=out),
        lambda x, out: ts.add(x, x, out=out),
        lambda x, out: ts.pow(x, 2, out=out),
        lambda x, out: ts.clamp(x, 0, out=out),
        lambda x, out: ts.lerp(x, x, 0.5, out=out),
        lambda x, out: ts.nan_to_num(x, out=out),
    ],
)
@pytest.mark.parametrize("room", [0, 48])
def test_a_resized_output_is_laid_out_as_the_result(call: Callable[..., Any], room: int, device: Any) -> None:
    x = ts.arange(24.0, device=device).reshape(2, 3, 4).permute(2, 0, 1)
    out = ts.empty(room, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = call(x, out)
    assert result is out and out.stride() == x.stride() and ts.equal(out, call(x, None))


def test_arange_says_that_it_resized() -> None:
    with pytest.warns(UserWarning, match="resized"):
        ts.arange(3, out=ts.empty(5))


def test_memory_that_cannot_be_written_to(warned_always: None) -> None:
    np = pytest.importorskip("numpy")
    array = np.arange(3)
    array.flags.writeable = False
    for make in (ts.from_numpy, ts.as_tensor):
        with pytest.warns(UserWarning, match="non-writable"):
            make(array)
    with pytest.warns(UserWarning, match="not writable"):
        ts.frombuffer(b"abc", dtype=ts.uint8)
    with pytest.raises(ValueError, match="buffer protocol"):
        ts.frombuffer([1, 2], dtype=ts.uint8)  # type: ignore[arg-type]


def test_data_of_another_layout_is_refused() -> None:
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        ts.ones(2, 2).data = ts.eye(2).to_sparse()


def test_gradcheck_uses_the_jvp_of_functions() -> None:
    class Twice(ts.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent * factor

    x = ts.rand(3, dtype=ts.float64, requires_grad=True)
    factor = 2
    assert ts.autograd.gradcheck(Twice.apply, x, check_forward_ad=True)
    factor = 3
    with pytest.raises(RuntimeError, match="forward mode"):
        ts.autograd.gradcheck(Twice.apply, x, check_forward_ad=True)


def test_dual_levels_are_numbered() -> None:
    from tesserack.autograd import forward_ad

    assert forward_ad._current_level == -1
    with forward_ad.dual_level():
        assert forward_ad._current_level == 0


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_ties_and_nan_share_the_gradient_of_a_segment(reduce: str) -> None:
    nan = float("nan")
    x = ts.tensor([1.0, 1.0, 1.0, nan, 3.0, 2.0], requires_grad=True)
    ts.segment_reduce(x, reduce, lengths=ts.tensor([1, 2, 2, 1]), initial=1).sum().backward()
    last = [1.0] if reduce == "max" else [0.0]
    assert x.grad is not None and x.grad.tolist() == [1.0, 0.5, 0.5, 1.0, 0.0, *last]


def test_products_of_a_segment_at_nan() -> None:
    nan = float("nan")
    x = ts.tensor([nan, 3.0, 2.0, 5.0], requires_grad=True)
    ts.segment_reduce(x, "prod", lengths=ts.tensor([2, 2])).sum().backward()
    assert x.grad is not None and x.grad[0] == 3 and x.grad[1].isnan() and x.grad[2:].tolist() == [5.0, 2.0]


@pytest.mark.parametrize("shape", [[1] * 65, [1] * 70 + [2, 3]])
def test_random_numbers_of_many_dims(shape: list[int], device: Any) -> None:
    ts.manual_seed(0)
    drawn = ts.rand(shape, device=device)
    ts.manual_seed(0)
    assert drawn.dim() == len(shape) and ts.equal(drawn.reshape(-1), ts.rand(drawn.numel(), device=device))
    assert ts.randn(shape, device=device).dim() == ts.randint(0, 5, shape, device=device).dim() == len(shape)
    assert ts.empty(shape, device=device).bernoulli_(0.5).dim() == len(shape)


def test_callbacks_of_futures() -> None:
    future: ts.futures.Future[int] = ts.futures.Future()
    called: list[int] = []

    def fails(_: Any) -> None:
        called.append(len(called))
        raise ValueError("of the callback")

    after = future.then(fails)
    future.add_done_callback(fails)
    future.set_result(5)
    future.add_done_callback(fails)
    assert future.wait() == 5 and called == [0, 1, 2]
    with pytest.raises(RuntimeError, match="ValueError: of the callback") as told:
        after.wait()
    assert isinstance(told.value.__cause__, ValueError)
    with pytest.raises(RuntimeError, match="pickle"):
        pickle.dumps(future)
    for call in (lambda: ts.futures.collect_all([None]), lambda: ts.jit.wait(None)):  # type: ignore[list-item]
        with pytest.raises(RuntimeError, match="None"):
            call()


def test_text_of_wrapped_contents_and_keywords_of_subclasses() -> None:
    class Named(ts.Tensor):
        pass

    made = ts.Tensor._make_subclass(Named, data=ts.ones(2), require_grad=True)
    assert type(made) is Named and made.requires_grad
    assert made.__repr__(tensor_contents="held elsewhere") == "Named(held elsewhere, requires_grad=True)"
    assert repr(ts.ones(1)) == ts.ones(1).__repr__() == "tensor([1.])"


def test_streams_of_dlpack_are_numbers() -> None:
    with pytest.raises(TypeError, match="stream"):
        ts.ones(1).__dlpack__(stream=object())


def test_typed_tensors_of_storages_share_them() -> None:
    storage = ts.FloatStorage(3)
    ts.FloatTensor(storage).fill_(2)
    assert storage.tolist() == [2.0, 2.0, 2.0]


def test_new_of_no_dims() -> None:
    x = ts.ones(3)
    assert x.new(x[0].size()).dim() == 0 and x.new(()).shape == x.new().shape == (0,)


@pytest.mark.parametrize("call", [lambda x: x.transpose_(0, 1), lambda x: x.unsqueeze_(0), lambda x: x.squeeze_()])
def test_inference_tensors_keep_their_shape_outside(call: Callable[..., Any]) -> None:
    with ts.inference_mode():
        x = ts.ones(1, 2)
        call(x)
        x = ts.ones(1, 2)
    with pytest.raises(RuntimeError, match="inference tensor"):
        call(x)
    assert x.shape == (1, 2)


def test_parameters_keep_the_class_they_are_made_of() -> None:
    class Named(ts.Tensor):
        pass

    made: Any = ts.nn.Parameter(ts.ones(2).as_subclass(Named))
    assert type(made) is Named and isinstance(made, ts.nn.Parameter) and made.is_leaf and made.requires_grad
    assert repr(made) == "Parameter(Named([1., 1.], requires_grad=True))" and type(-made) is Named
    module = ts.nn.Module()
    module.weight = made
    again = copy.deepcopy(module)
    assert [type(p) for p in again.parameters()] == [Named] and isinstance(again.weight, ts.nn.Parameter)
    assert type(ts.nn.Parameter(ts.nn.Parameter(ts.ones(1)))) is ts.nn.Parameter


def test_tangents_carry_no_tangents() -> None:
    from tesserack.autograd import forward_ad

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(ts.ones(2), ts.ones(2))
        with pytest.raises(RuntimeError, match="has a forward gradient"):
            forward_ad.make_dual(ts.ones(2), dual)


def test_complex_numbers_are_looked_for() -> None:
    assert 1 + 2j in ts.tensor([1 + 2j, 3]) and 2j not in ts.tensor([1 + 2j, 3])
    assert 1 + 0j in ts.ones(2) and 1 + 2j not in ts.ones(2)


MASKED: list[Callable[..., Any]] = [
    lambda x, m: x.masked_fill(m, 3.0),
    lambda x, m: x.masked_fill_(m, 3.0),
    lambda x, m: x.masked_scatter(m, x),
    lambda x, m: x.masked_scatter_(m, x.clone()),
    lambda x, m: x.masked_select(m),
    lambda x, m: x.index_put_((m,), ts.tensor(3.0, device=x.device)),
]


@pytest.mark.parametrize("write", MASKED)
def test_masks_of_bytes_are_refused(write: Callable[..., Any], device: ts.device) -> None:
    x, mask = ts.ones(3, device=device), ts.tensor([1, 0, 1], device=device)
    with pytest.raises(RuntimeError, match=r"[bB]ool"):
        write(x, mask.to(ts.uint8))
    assert x.tolist() == [1, 1, 1]
    write(x, mask.bool())


def test_numbers_that_the_dtype_does_not_hold_are_refused(device: ts.device) -> None:
    """As factors of an operand; and quotients of whole numbers are not added to such."""
    whole, real = ts.ones(2, dtype=ts.int32, device=device), ts.ones(2, device=device)
    for call in (ts.add, ts.sub, ts.rsub, ts.Tensor.add_, ts.Tensor.sub_):
        with pytest.raises(RuntimeError, match="floating point"):
            call(whole, whole, alpha=1.5)
        with pytest.raises(RuntimeError, match="complex"):
            call(real, real, alpha=1j)
    for call in (ts.addcdiv, ts.Tensor.addcdiv_):
        with pytest.raises(RuntimeError):
            call(whole, whole, whole)
    with pytest.raises(RuntimeError, match="Integer division"):
        ts.addcdiv(real, whole, whole)
    with pytest.raises(RuntimeError, match="cast"):
        whole.add_(1.5)
    assert whole.tolist() == [1, 1] and real.tolist() == [1, 1]
    assert ts.add(whole.bool(), whole.bool(), alpha=2).tolist() == [True, True]


def test_sizes_and_options_in_their_other_forms(device: ts.device) -> None:
    x = ts.tensor([2.0, 1.0], device=device)
    assert x.new(size=(2, 3)).shape == (2, 3)
    assert ts.sort(x, stable=None)[0].tolist() == [1, 2]
    assert ts.sort(x, dim=0, stable=None, descending=True)[1].tolist() == [0, 1]
    out = ts.ones(5, device=device)
    assert ts.empty((2, 3), out=out) is out
    assert out.shape == (2, 3)
    with pytest.raises(RuntimeError, match="dtype"):
        ts.empty(2, out=ts.ones(2, device=device), dtype=ts.float64)
    image = ts.ones(2, 3, 4, 5, device=device)
    assert ts.ones(1, device=device).resize_as_(image, memory_format=ts.channels_last).stride() == (60, 1, 15, 3)
    assert image.to(memory_format=ts.channels_last).dim_order() == (0, 2, 3, 1)
    with pytest.raises(RuntimeError, match="4"):
        ts.ones(1, device=device).resize_as_(ts.ones(2, 3, device=device), memory_format=ts.channels_last)


@pytest.mark.parametrize("name", ["hstack", "vstack", "dstack", "column_stack", "cat", "stack"])
def test_what_is_no_tensor_is_not_joined(name: str, device: ts.device) -> None:
    join, x = getattr(ts, name), ts.ones(2, device=device)
    for wrong in ([1, 2], [x, 2.0], 1, [x, None]):
        with pytest.raises(TypeError):
            join(wrong)
    with pytest.raises((RuntimeError, ValueError)):
        join([])
