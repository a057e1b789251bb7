"""Memory handed on while a conjugation or negation is pending: storages, files, processes, kernels of others."""

from __future__ import annotations

import copy
import io
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import tesserack as ts

VALUES = [[1 + 2j, 3 - 4j], [5j, 6 + 0j]]


def given() -> ts.Tensor:
    return ts.tensor(VALUES, dtype=ts.complex128)


CASES = {
    "conj": lambda x: x.conj(),
    "imag": lambda x: x.conj().imag,
    "neg": lambda x: x._neg_view(),
    "mH": lambda x: x.mH,
}


@pytest.fixture(params=CASES, ids=str)
def view(request: pytest.FixtureRequest) -> ts.Tensor:
    return CASES[request.param](given())


def test_pickles_keep_what_is_pending(view: ts.Tensor) -> None:
    for protocol in (2, 4, 5):
        again = pickle.loads(pickle.dumps(view, protocol))
        assert (again.is_conj(), again.is_neg()) == (view.is_conj(), view.is_neg())
        assert again.tolist() == view.tolist()


def test_copies(view: ts.Tensor) -> None:
    deep, same = copy.deepcopy(view), copy.copy(view)
    assert deep.tolist() == same.tolist() == view.tolist()
    same.fill_(2)
    assert view.tolist() == [[2.0, 2.0], [2.0, 2.0]] and deep.tolist() != view.tolist()


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_files(view: ts.Tensor, format: str) -> None:
    file = io.BytesIO()
    ts.save({"view": view, "base": view._base}, file, format=format)
    again = ts.load(io.BytesIO(file.getvalue()))
    assert again["view"].tolist() == view.tolist() and again["base"].tolist() == view._base.tolist()


def test_storages_show_memory_as_it_is(view: ts.Tensor) -> None:
    assert view.untyped_storage().tolist() == view._base.untyped_storage().tolist()
    assert view.untyped_storage().data_ptr() == view._base.untyped_storage().data_ptr()


def test_shared_memory() -> None:
    x = given()
    y = x.conj()
    y.share_memory_()
    assert y.tolist() == given().conj().tolist() and x.is_shared()
    cls, arguments = y.__class__, ForkingPickler.dumps(y)
    again = pickle.loads(arguments)
    assert isinstance(again, cls) and again.is_conj() and again.tolist() == y.tolist()
    again.mul_(1j)
    assert x.tolist() == (given().conj() * 1j).conj().tolist()


def test_numpy_and_buffers(view: ts.Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"Use tensor.resolve_(conj|neg)\(\).numpy\(\)"):
        view.numpy()
    with pytest.raises(BufferError, match=r"resolve_(conj|neg)\(\)"):
        memoryview(view)
    with pytest.raises(BufferError, match=r"resolve_(conj|neg)\(\)"):
        np.from_dlpack(view)
    array = view.numpy(force=True)
    assert array.tolist() == view.tolist()
    assert ts.tensor([view[0], view[1]]).tolist() == view.tolist()
    assert ts.from_dlpack(view.__dlpack__(copy=True)).tolist() == view.tolist()


def test_numbers() -> None:
    y = ts.tensor([3 + 4j]).conj()
    assert (y.item(), complex(y), y.imag.item(), float(y.imag), y.imag.tolist()) == (3 - 4j, 3 - 4j, -4, -4, [-4])
    index = ts.tensor(-2)._neg_view()
    assert (int(index), [10, 11, 12][index], ts.arange(5)[index].item(), ts.zeros(4)[index:].shape[0]) == (2, 12, 2, 2)
    assert ts.arange(6).reshape(2, 3).select(1, index).tolist() == [2, 5]
    assert ts.narrow(ts.arange(5), 0, index, 2).tolist() == [2, 3]


def test_custom_operators_get_plain_memory() -> None:
    seen: list[Any] = []

    @ts.library.custom_op("pendingtest::twice", mutates_args=())
    def twice(x: ts.Tensor) -> ts.Tensor:
        seen.append((x.is_conj(), x.is_neg()))
        return ts.from_numpy(x.numpy() * 2)

    for case in CASES.values():
        assert twice(case(given())).tolist() == (case(given()) * 2).tolist()
    assert set(seen) == {(False, False)}


def test_custom_operators_write_through() -> None:
    @ts.library.custom_op("pendingtest::turn_", mutates_args={"x"})
    def turn_(x: ts.Tensor) -> None:
        x.numpy()[...] *= 1j

    x = given()
    turn_(x.conj())
    assert x.tolist() == (given().conj() * 1j).conj().tolist()


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_read_only_memory_stays() -> None:
    array = np.array(VALUES)
    array.flags.writeable = False
    x = ts.from_numpy(array)
    for write in (lambda y: y.mul_(2), lambda y: y.zero_(), lambda y: y.copy_(given()), lambda y: ts.add(y, y, out=y)):
        with pytest.raises(RuntimeError):
            write(x.conj())
    assert x.tolist() == VALUES


def test_an_error_leaves_the_memory() -> None:
    x = given()
    with pytest.raises(RuntimeError):
        x.conj().add_(ts.ones(3))
    assert x.tolist() == VALUES


def test_data_and_parameters() -> None:
    x = given()
    parameter = ts.nn.Parameter(x.conj())
    assert parameter.is_conj() and parameter.tolist() == x.conj().tolist()
    parameter.data = x
    assert not parameter.is_conj() and parameter.tolist() == VALUES
    parameter.data = x.conj()
    assert parameter.is_conj() and parameter.data.tolist() == x.conj().tolist()
    assert parameter.detach().is_conj()


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_optimizers_take_gradients_with_a_bit(name: str) -> None:
    plain, pending = (ts.nn.Parameter(given()) for _ in range(2))
    for parameter, grad in ((plain, given().conj_physical()), (pending, given().conj())):
        parameter.grad = grad
        getattr(ts.optim, name)([parameter], lr=0.1).step()
    assert ts.allclose(plain, pending) and plain.tolist() != VALUES


def test_keys_of_plugins_stand_below() -> None:
    """What a plugin registers after Autograd meets plain memory alone."""
    keys = ts._native._keys()
    assert keys.index("Autograd") < keys.index("Negative") < keys.index("Conjugate")
