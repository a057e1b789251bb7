"""Behaviours that packages for PyTorch rely on."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack import compat


def test_storages(program):
    lines = program.run("""
        import sys, torch
        x = torch.arange(4.0).reshape(2, 2).t()
        raw, typed = x.untyped_storage(), x.storage()
        print(sys.getsizeof(raw) >= 16, sys.getsizeof(typed) >= 16, raw[7], raw[6], typed[1], len(raw), len(typed))
        typed[1] = 5.0
        print(x.tolist(), list(typed), typed.untyped() == raw, raw[4:6].tolist())
        print(torch.is_storage(raw), torch.is_storage(typed), isinstance(typed, torch.storage.TypedStorage))
        meta = torch.empty(3, device="meta")
        print(meta.data_ptr(), meta.untyped_storage().data_ptr(), meta.untyped_storage().nbytes())
    """)
    assert lines == [
        "True True 63 128 1.0 16 4",
        "[[0.0, 2.0], [5.0, 3.0]] [0.0, 5.0, 2.0, 3.0] True [0, 0]",
        "True True True",
        "0 0 12",
    ]


def test_old_forms_of_calls(program):
    lines = program.run("""
        import torch
        one = torch.ones(2)
        print(torch.ones(2).addcmul_(2.0, one, one).tolist(), torch.ones(2).addcdiv_(-0.5, one, one).tolist())
        print(torch.ones(2).add_(2, one).tolist(), one.add(2, one).tolist(), one.sub(alpha=3, other=one).tolist())
        print(torch.where(torch.tensor([1, 0], dtype=torch.uint8), one, 0 * one).tolist())
        print(one.type(torch.DoubleTensor).dtype, one.type("torch.LongTensor").dtype, one.type())
        print(torch.norm(torch.arange(5.0)[3:], 2, 0, False, torch.empty(())).item())
        x = torch.ones(1, requires_grad=True)
        (x * 3).backward([torch.ones(1)])
        print(x.grad.tolist(), torch.device("cuda:1"), torch.float32)
    """)
    assert lines == [
        "[3.0, 3.0] [0.5, 0.5]",
        "[3.0, 3.0] [3.0, 3.0] [-2.0, -2.0]",
        "[1.0, 0.0]",
        "torch.float64 torch.int64 torch.FloatTensor",
        "5.0",
        "[3.0] cuda:1 torch.float32",
    ]


def test_scales_that_are_tensors_and_functions_that_are_no_more(program):
    lines = program.run("""
        import torch
        one = torch.ones(2)
        print(torch.add(one, torch.tensor(2.0), one).tolist(), one.sub(torch.tensor(3), one).tolist())
        print(torch.add(torch.tensor(True), torch.tensor(True), True))
        for name in ("add", "sub", "addcmul"):
            more = {"tensor1": one, "tensor2": one} if name == "addcmul" else {"other": one}
            print(getattr(torch, name)(input=one, **more).tolist(), torch.sub(x1=one, x2=one).tolist())
        for name in ("eig", "lstsq", "solve", "symeig", "matrix_rank"):
            for call in (getattr(torch, name), getattr(one, name, getattr(torch, name))):
                try:
                    call(torch.eye(2))
                except RuntimeError as error:
                    print(f"torch.linalg.{name.replace('symeig', 'eigh')}" in str(error))
    """)
    named = ["[2.0, 2.0] [0.0, 0.0]", "[0.0, 0.0] [0.0, 0.0]", "[2.0, 2.0] [0.0, 0.0]"]
    assert lines == ["[3.0, 3.0] [-2.0, -2.0]", "tensor(True)", *named, *["True"] * 10]


def test_old_forms_end_with_the_hook(program):
    lines = program.run("""
        import tesserack as ts
        ts.compat.disable()
        for call in (lambda: ts.ones(2).add_(2, ts.ones(2)), lambda: ts.empty(2, device="meta").data_ptr()):
            try:
                print(call())
            except (TypeError, RuntimeError) as error:
                print(type(error).__name__)
    """)
    assert lines == ["TypeError", "RuntimeError"]


def test_optimizers_that_skip_their_bases_init(program):
    lines = program.run("""
        import torch

        class Plain(torch.optim.Optimizer):
            def __init__(self, params):
                self.defaults, self.state = {}, {}
                self.param_groups = [{"params": list(params), "lr": 0.5}]

            def step(self):
                for group in self.param_groups:
                    for p in group["params"]:
                        p.data.add_(-group["lr"], p.grad)

        x = torch.ones(2, requires_grad=True)
        optimizer = Plain([x])
        (x * 2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        schedule.step()
        print(x.tolist(), round(optimizer.param_groups[0]["lr"], 6))
    """)
    assert lines == ["[0.0, 0.0] 0.05"]


def test_functions_in_python_ask_objects_that_override(program):
    lines = program.run("""
        import pickle, torch
        from torch.nn import functional as F

        class Named:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                return "F.mse_loss" if func is F.mse_loss else func.__name__

        x = Named()
        print(F.mse_loss(x, x), torch.unique(x), torch.stft(x, 4), torch.fft.fft(x), F.grid_sample(x, x))
        print(torch.relu(x), torch.cat([x, x]), torch.einsum("i,i", x, x))
        print(pickle.loads(pickle.dumps(F.mse_loss)) is F.mse_loss, F.mse_loss.__module__)
        print(F.mse_loss(torch.zeros(2), torch.ones(2)).item())
    """)
    assert lines == [
        "F.mse_loss unique stft fft grid_sample",
        "relu cat einsum",
        "True torch.nn.functional",
        "1.0",
    ]


def test_every_backend_says_whether_it_is_there(program):
    lines = program.run("""
        import torch
        for name in "cudnn cusparselt kleidiai mkl mkldnn mps nnpack openmp opt_einsum".split():
            assert getattr(torch.backends, name).is_available() in (True, False), name
        for name in "cuda mps xpu mtia cpu accelerator".split():
            assert getattr(torch, name).is_available() in (True, False), name
        print("all")
    """)
    assert lines == ["all"]


def test_tensors_answer_for_every_device(program):
    lines = program.run("""
        import torch
        x = torch.ones(1)
        names = "cpu cuda mps xpu ipu mtia maia xla vulkan mkldnn sparse sparse_csr quantized nested meta".split()
        print([name for name in names if getattr(x, "is_" + name)])
        import tesserack
        tesserack.compat.disable()
        print(hasattr(x, "is_maia"))
    """)
    assert lines == ["['cpu']", "False"]


def test_scales_that_came_first(program):
    lines = program.run("""
        import torch, warnings
        warnings.simplefilter("error")
        eye, one = torch.eye(2), torch.ones(2)
        try:
            torch.addcmul(one, 2, one, one)
        except UserWarning as warning:
            print("deprecated" in str(warning))
        warnings.simplefilter("ignore")
        print(torch.add(one, 2, one).tolist(), torch.sub(one, 2, one).tolist())
        print(torch.addcdiv(one, 2, one, one).tolist())
        print(torch.addmm(2, eye, eye, eye).tolist(), torch.addmm(2, eye, 3, eye, eye).tolist())
        print(eye.addmm(2, eye, eye).tolist(), eye.addmm(2, 3, eye, eye).tolist(), torch.addmv(2, one, 3, eye, one))
        print(torch.addmm(eye, eye, eye, beta=2).tolist(), torch.addr(2, eye, one, one).tolist())
    """)
    assert lines == [
        "True",
        "[3.0, 3.0] [-1.0, -1.0]",
        "[3.0, 3.0]",
        "[[3.0, 0.0], [0.0, 3.0]] [[5.0, 0.0], [0.0, 5.0]]",
        "[[3.0, 0.0], [0.0, 3.0]] [[5.0, 0.0], [0.0, 5.0]] tensor([5., 5.])",
        "[[3.0, 0.0], [0.0, 3.0]] [[3.0, 1.0], [1.0, 3.0]]",
    ]


def test_storages_by_name_and_warnings_of_backward(program):
    lines = program.run("""
        import torch, warnings
        print(torch.storage._dtype_to_storage_type_map()[torch.int8], torch.IntStorage([1]).type())
        one = torch.ones(1, dtype=torch.complex64)
        print(torch.addcmul(one, 1j, one, one).tolist())
        torch.set_warn_always(True)
        x = torch.ones(1, requires_grad=True)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (x * x).backward(create_graph=True)
            (x * x).backward()
        print([str(w.message).partition(":")[0] for w in caught])
    """)
    assert lines == ["CharStorage torch.IntStorage", "[(1+1j)]", "['Using backward() with create_graph=True']"]


def test_norm_takes_out_by_position_and_refuses_what_does_not_hold_it():
    x, out = ts.ones(3) * 1.5, ts.zeros(())
    assert compat.torch.norm(x, 2, None, False, out) is out and out.item() == x.norm().item()
    with pytest.raises(RuntimeError, match="can't be cast"):
        compat.torch.norm(x, out=ts.zeros((), dtype=ts.int64))
