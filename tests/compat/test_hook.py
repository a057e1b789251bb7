"""``import torch`` means Tesserack: names, types, pickles, scopes, what is missing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import tesserack as ts
from tesserack import compat
from tesserack.compat._sources import missing_in
from tesserack.compat._version import TorchVersion

HAS_TORCH = importlib.util.find_spec("torch") is not None


def test_names_types_and_texts_are_those_of_torch(program):
    lines = program.run(
        """
        import importlib.metadata, importlib.util, sys
        import torch
        import torch.nn as nn
        import torch.nn.functional as F
        from torch.nn.modules.conv import ConvTranspose2d, Conv2d
        from torch.optim.adamw import AdamW
        from torch.utils.data import DataLoader
        import torch.optim.lr_scheduler as lr
        layer = nn.Linear(2, 3)
        print(torch.__name__, torch.__version__ >= (2, 0), importlib.util.find_spec("torch").name)
        print(importlib.metadata.version("torch") == str(torch.__version__), sys.modules["torch"] is torch)
        print(type(layer), type(layer.weight), type(torch.ones(1)), ConvTranspose2d, AdamW, lr.StepLR)
        print(torch.float32, torch.strided, torch.channels_last, torch.Size([2]), torch.ones(1).type())
        print(torch.dtype, torch.device, torch.Size, torch.Generator)
        print(isinstance(layer, torch.nn.Module), isinstance(layer.weight, torch.Tensor), F is torch.nn.functional)
        print(nn.__dict__["Linear"] is nn.Linear, "SGD" in dir(torch.optim), vars(torch)["ones"] is torch.ones)
        print(torch.finfo(torch.float32).dtype, torch.tensor([1], dtype=torch.int8), sys.argv[1:])
        print(torch.ones(2).max(0))
        """,
        arguments=("--epochs", "3"),
    )
    assert lines[:2] == ["torch True torch", "True True"]
    assert lines[2] == (
        "<class 'torch.nn.modules.linear.Linear'> <class 'torch.nn.parameter.Parameter'> <class 'torch.Tensor'> "
        "<class 'torch.nn.modules.conv.ConvTranspose2d'> <class 'torch.optim.adamw.AdamW'> "
        "<class 'torch.optim.lr_scheduler.StepLR'>"
    )
    assert lines[3] == "torch.float32 torch.strided torch.channels_last torch.Size([2]) torch.FloatTensor"
    assert lines[4] == "<class 'torch.dtype'> <class 'torch.device'> <class 'torch.Size'> <class 'torch._C.Generator'>"
    assert lines[5:7] == ["True True True", "True True True"]
    assert lines[7] == "float32 tensor([1], dtype=torch.int8) ['--epochs', '3']"
    assert lines[8] == "torch.return_types.max("


def test_pickles_name_torch_and_load_without_the_hook(program):
    lines = program.run(
        """
        import copy, pickle
        import torch
        from torch import nn
        class Net(nn.Sequential):
            pass
        layer = copy.deepcopy(Net(nn.ReLU()))
        text = pickle.dumps(nn.ReLU)
        print(b"torch.nn.modules.activation" in text, pickle.loads(text) is nn.ReLU)
        for value in (torch.float32, torch.device("cuda:1"), torch.device("cpu"), torch.Size([2]), torch.channels_last):
            print(pickle.loads(pickle.dumps(value)), copy.deepcopy(value) == value)
        """
    )
    assert lines[0] == "True True"
    assert lines[1:] == [
        "torch.float32 True",
        "cuda:1 True",
        "cpu True",
        "torch.Size([2]) True",
        "torch.channels_last True",
    ]


def test_devices_can_be_named_without_a_card_and_not_used(program):
    lines = program.run(
        """
        import torch
        print(torch.device("cuda"), torch.device("cuda", 1), repr(torch.device("mps:0")), torch.device("xpu").index)
        print(torch.device("cuda") == torch.device("cuda"), torch.device("cuda") == torch.device("cuda:0"))
        for use in (lambda d: torch.ones(1, device=d), lambda d: torch.ones(1).to(d), lambda d: d.__enter__(),
                    lambda d: torch.ones(1).cuda(), lambda d: torch.nn.Linear(1, 1).to(d)):
            try:
                use(torch.device("cuda"))
            except RuntimeError as error:
                print("cuda" in str(error))
        try:
            torch.device("nosuch")
        except RuntimeError:
            print("no such name")
        print(torch.cuda.is_available(), torch.cuda.device_count(), torch.ones(1).is_cuda)
        torch.cuda.manual_seed_all(1), torch.cuda.empty_cache(), torch.cuda.synchronize()
        print(torch.cuda.memory_allocated(), torch.cuda.is_bf16_supported(), torch.version.cuda)
        """
    )
    assert lines[0] == "cuda cuda:1 device(type='mps', index=0) None" and lines[1] == "True False"
    assert lines[2:8] == [*["True"] * 5, "no such name"]
    assert lines[8:] == ["False 0 False", "0 False None"]


def test_missing_names_import_and_fail_when_used(program):
    lines = program.run(
        """
        import torch
        import torch.ao.pruning
        from torch.ao.pruning import WeightNormSparsifier as Options
        from torch.sparse import no_such_thing_at_all
        """.replace("from torch.sparse import no_such_thing_at_all", "")
        + """
        def annotated(model: torch.ao.pruning.BaseSparsifier | None, other: Options) -> Options: ...
        class Derived(Options): ...
        print(isinstance(1, Options), hasattr(torch, "no_such_name"), getattr(torch, "no_such_name", 5))
        try:
            from torch import no_such_name
        except ImportError:
            print("import error")
        try:
            import torch.no_such_module
        except ModuleNotFoundError:
            print("module not found")
        for use in (lambda: Options(1), lambda: Derived(), lambda: Options.wrap(), lambda: bool(Options)):
            try:
                use()
            except AttributeError as error:
                print(type(error).__name__, "torch.ao.pruning.WeightNormSparsifier" in str(error),
                      "program.py:" in str(error))
        """
    )
    assert lines[:3] == ["False False 5", "import error", "module not found"]
    assert lines[3:] == ["MissingNameError True True"] * 4


def test_modules_that_torch_redirects_import_and_fail_when_used(program):
    lines = program.run("""
        import torch
        from torch.distributed._tensor.experimental import implicit_replication
        try:
            implicit_replication()
        except NotImplementedError as error:
            print(str(error).partition(":")[0])
        try:
            import torch.distributed._tensor.nosuch
        except ModuleNotFoundError as error:
            print(error)
    """)
    assert lines == [
        "torch.distributed._tensor.experimental.implicit_replication",
        "No module named 'torch.distributed._tensor.nosuch'",
    ]


def test_checkpoints_are_found_where_they_were_before(program):
    lines = program.run("""
        import torch.distributed.checkpoint as dcp
        from torch.distributed._shard.checkpoint import FileSystemReader, FileSystemWriter, save_state_dict
        from torch.distributed._shard.checkpoint.planner import LoadItemType
        from torch.distributed._shard.checkpoint.storage import WriteResult
        print(FileSystemReader is dcp.FileSystemReader, save_state_dict is dcp.save_state_dict)
        print(LoadItemType is dcp.planner.LoadItemType, WriteResult is dcp.storage.WriteResult)
    """)
    assert lines == ["True True", "True True"]


def test_the_report_names_every_cause_at_once(program):
    path = program.write(
        "program.py",
        """
        import torch
        from torch.ao.pruning import WeightNormSparsifier
        x = torch.ones(3)
        torch.ao.pruning.BaseSparsifier.step
        torch.onnx.no_such_thing
        y = x.crow_indices_of_nothing()
        z = x.to_padded_tensor(0.0)
        """,
    )
    done = program.start("-m", "tesserack", "run", "--report", str(path))
    assert done.returncode == 1
    report = done.stderr
    assert "missing  torch.ao.pruning" in report and "touched  torch.ones" in report
    assert "missing  torch.Tensor.to_padded_tensor" in report, report
    assert "program.py:3" in report


def test_missing_in_reads_sources():
    assert missing_in("import torch\ntorch.ones(1)\nx = torch.nn.Linear(1, 1)") == []
    found = missing_in("import torch\n\ntorch.ao.pruning.BaseSparsifier\n")
    assert found == [("torch.ao.pruning", 3)]
    assert missing_in("no python(") == [] and missing_in("import numpy") == []


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch beside tesserack")
def test_a_scope_leaves_the_real_torch_to_others(program):
    program.write("inside/__init__.py", "import torch\nfrom torch.nn import functional as F\nimport torch.optim")
    program.write("outside/__init__.py", "import torch\nfrom torch.nn import functional as F\nimport torch.optim")
    lines = program.run(
        """
        import tesserack
        with tesserack.compat.enable(scope=["inside"]):
            import inside, outside, torch
            print(issubclass(inside.torch.Tensor, tesserack.Tensor), issubclass(outside.torch.Tensor, tesserack.Tensor))
            print(inside.torch.optim is torch.optim, outside.torch is torch, inside.F.__name__)
            print(str(tesserack.float32), str(torch.float32))
        """,
        "--no-torch",
    )
    assert lines == ["True False", "False True torch.nn.functional", "tesserack.float32 torch.float32"]


def test_dtypes_print_as_the_package_that_asks(program):
    program.write("inside.py", "import torch\ndef text(): return str(torch.float32), repr(torch.Size([1]))")
    lines = program.run(
        """
        import tesserack
        with tesserack.compat.enable(scope="inside"):
            import inside
            print(inside.text(), tesserack.float32)
        print(inside.text())
        """,
        "--no-torch",
    )
    assert lines[0] == "('torch.float32', 'torch.Size([1])') tesserack.float32"
    assert lines[1] == "('tesserack.float32', 'tesserack.Size([1])')"


def test_disable_restores_what_enable_changed(program):
    lines = program.run(
        """
        import sys
        import tesserack as ts
        before = (str(ts.float32), ts.nn.Linear.__module__, ts.Tensor.__module__)
        with ts.compat.enable():
            import torch, torch.nn
            torch.nn.Linear
            try:
                ts.compat.enable()
            except RuntimeError as error:
                print(error)
        print(before == (str(ts.float32), ts.nn.Linear.__module__, ts.Tensor.__module__))
        print("torch" in sys.modules, ts.compat.is_enabled())
        try:
            ts.device("cuda")
        except ts.BackendUnavailableError:
            print("unavailable")
        """,
        "--no-torch",
    )
    assert lines == [
        "compat: it is enabled already; call tesserack.compat.disable() first",
        "True",
        "False False",
        "unavailable",
    ]


def test_setting_a_name_reaches_where_it_lives(program):
    lines = program.run(
        """
        import torch
        import torch.nn.functional as F
        import tesserack
        def mine(x, *rest): return "mine"
        F.relu = mine
        print(F.relu(1), tesserack.nn.functional.relu is mine)
        torch.backends.cudnn.benchmark = True
        with torch.backends.cudnn.flags(benchmark=False):
            print(torch.backends.cudnn.benchmark)
        print(torch.backends.cudnn.benchmark, torch.backends.cudnn.is_available(), torch.backends.mps.is_available())
        torch.backends.cuda.matmul.allow_tf32 = True
        print(torch.backends.cuda.matmul.allow_tf32)
        torch._inductor.config.triton.anything = 1
        """
    )
    assert lines == ["mine True", "False", "True False False", "True"]


def test_what_is_patched_for_a_while_is_itself_again(program):
    lines = program.run(
        """
        from unittest.mock import patch
        import torch, torch.distributed, torch.nn.functional, torch.optim, torch.utils.data
        for module in (torch, torch.nn, torch.nn.functional, torch.distributed, torch.optim, torch.cuda, torch.utils):
            names = [n for n in dir(module) if n[0] != "_" and getattr(module, n) is getattr(module, n)]
            before = {n: getattr(module, n) for n in names}
            changed = []
            for n in names:
                with patch.object(module, n):
                    pass
                if getattr(module, n) is not before[n]:
                    changed.append(n)
            print(module.__name__, len(names) > 10, changed)
        with patch("torch.cuda") as cuda:
            print(torch.cuda is cuda)
        print(torch.cuda.is_available(), torch.device("cpu"))
        with patch("torch.Tensor.device", torch.device("meta")):
            print(torch.ones(1).device)
        print(torch.ones(1).device, isinstance(torch.Tensor, type))
        try:
            import torch.Tensor
        except ModuleNotFoundError as error:
            print(error.name)
        """
    )
    names = ("", ".nn", ".nn.functional", ".distributed", ".optim", ".cuda", ".utils")
    assert lines == [f"torch{name} True []" for name in names] + [
        "True", "False cpu", "meta", "cpu True", "torch.Tensor",
    ]  # fmt: skip


def test_versions_compare_as_versions():
    v = TorchVersion("2.13.0+tesserack")
    assert v >= "2.9.1" and v > (2, 9) and v < "3" and v == "2.13" and v != "2.12.1" and not v <= "2.9"
    assert v.split("+")[0] == "2.13.0" and {v: 1}


def test_report_outside_of_run():
    assert not compat.is_enabled()
    assert compat.report().lines()[0].startswith("torch names touched")
    compat.disable()
    assert ts.compat.torch.ones is ts.ones


def test_a_name_asked_for_within_try_is_not_there(program):
    lines = program.run("""
        import torch
        try:
            from torch.utils.benchmark import FuzzedTensor
        except ImportError:
            FuzzedTensor = "own way"
        try:
            torch.no_such_thing_in_torch
        except AttributeError:
            print("told")
        print(FuzzedTensor)
    """)
    assert lines == ["told", "own way"]


def test_private_names_packages_take(program):
    lines = program.run("""
        import torch
        from torch.distributions.utils import _standard_normal
        from torch.hub import _get_torch_home
        from torch.nn.modules.module import _IncompatibleKeys
        from torch.nn.modules.utils import _pair, _reverse_repeat_tuple
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter
        print(torch.torch is torch, _pair(3), _reverse_repeat_tuple((1, 2), 2))
        print(isinstance(iter([]), _MultiProcessingDataLoaderIter))
        print(torch._C._nn._parse_to("cpu", torch.float64, True), torch._C._nn._parse_to(torch.ones(1)))
        layer = torch.nn.Linear(2, 1)
        with torch.nn.utils.stateless._reparametrize_module(layer, {"weight": torch.zeros(1, 2)}):
            print(layer.weight)
        print(torch.nn.utils._per_sample_grad.call_for_per_sample_grads(layer)(torch.ones(3, 2)).shape)
        direct = {c.__name__ for c in torch.optim.Optimizer.__subclasses__()}
        print(sorted({"Adadelta", "Adagrad", "NAdam", "RMSprop", "SparseAdam"} - direct))
    """)
    assert lines == [
        "True (3, 3) (2, 2, 1, 1)",
        "False",
        "(device(type='cpu'), torch.float64, True, None) (device(type='cpu'), torch.float32, False, None)",
        "tensor([[0., 0.]])",
        "torch.Size([3, 1])",
        "[]",
    ]


def test_operators_by_schema_name(program):
    lines = program.run("""
        import torch
        aten = torch.ops.aten
        x = torch.ones(2, 3)
        print(aten.add.Tensor(x, x).sum().item(), aten.sum.dim_IntList(x, [1]).tolist(), aten.add.Tensor)
        print(aten.add.Tensor is aten.add.Tensor, aten.add.Tensor.overloadpacket is aten.add, aten.sum(x).item())
        try:
            aten.no_such_operator.default(x)
        except NotImplementedError as error:
            print(error)
    """)
    assert lines[0] == "12.0 [3.0, 3.0] aten.add.Tensor" and lines[1] == "True True 6.0"
    assert "no_such_operator" in lines[2]


def test_operators_defined_piece_by_piece(program):
    lines = program.run("""
        import torch
        torch.library.register_fake("mylib::later", lambda x: torch.empty_like(x))
        lib = torch.library.Library("mylib", "DEF")
        lib.define("later(Tensor x) -> Tensor")
        lib.impl("later", lambda x: x * 3, "CPU")
        torch.library.define("mylib::half", "(Tensor x) -> Tensor")

        @torch.library.impl("mylib::half", "default")
        def half(x):
            return x / 2

        x = torch.ones(2)
        print(torch.ops.mylib.later(x).tolist(), torch.ops.mylib.half.default(x).tolist())
        print(torch.ops.mylib.later(x.to("meta")).shape)
        print(hasattr(torch.ops.mylib, "other"))
        for name, result in (("nothing", "None"), ("none_either", " NoneType"), ("empty", "()")):
            lib.define(f"{name}(Tensor(a!) x) ->{result}")
            lib.impl(name, lambda x: x.zero_() and None, "CPU")
            y = torch.ones(1)
            print(getattr(torch.ops.mylib, name)(y), y.item())
    """)
    assert lines == ["[3.0, 3.0] [0.5, 0.5]", "torch.Size([2])", "False", *["None 0.0"] * 3]


def test_tensors_in_groups_for_foreach(program):
    lines = program.run("""
        import torch
        from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype as group
        a, b = torch.ones(1), torch.ones(2, dtype=torch.float64)
        found = group([[a, b, a], [b, b, b], []], with_indices=True)
        print([(str(dtype), [len(part) for part in parts], places) for (_, dtype), (parts, places) in found.items()])
        print(torch.utils.data.DataLoader.__name__, torch.utils.checkpoint.checkpoint.__name__)
    """)
    assert lines == [
        "[('torch.float32', [2, 2, 0], [0, 2]), ('torch.float64', [1, 1, 0], [1])]",
        "DataLoader checkpoint",
    ]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("options", [(), ("--device", "cpu", "--as-cuda", "--torch-random")])
def test_processes_that_a_program_starts_see_the_same(program, method, options):
    source = f"""
        import torch, multiprocessing
        from torch import nn

        def work(given):
            name, layer = given
            seen = torch.__version__, type(layer).__module__, torch.cuda.is_available()
            return name, *seen, layer(torch.ones(2)).tolist()

        if __name__ == "__main__":
            layer = nn.Linear(2, 1)
            with multiprocessing.get_context({method!r}).Pool(1) as pool:
                (told,) = pool.map(work, [("x", layer)])
            torch.manual_seed(0)
            print(told == work(("x", layer)), told[1])
    """
    assert program.run(source, *options) == ["True 2.13.0+tesserack"]


@pytest.mark.skipif(importlib.util.find_spec("joblib") is None, reason="needs joblib")
def test_workers_of_joblib_see_the_same(program):
    lines = program.run(
        """
        import torch
        from joblib import Parallel, delayed

        def work(x):
            return torch.__version__, (x + 1).tolist()

        if __name__ == "__main__":
            print(Parallel(n_jobs=2)(delayed(work)(torch.ones(1) * k) for k in range(2)))
        """
    )
    assert lines == ["[('2.13.0+tesserack', [1.0]), ('2.13.0+tesserack', [2.0])]"]


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="needs pytest-xdist")
def test_workers_of_xdist_see_the_same(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import torch\n\n\ndef test_version(worker_id):\n"
        "    assert torch.__version__.endswith('tesserack') and worker_id == 'gw0'\n"
    )
    words = [sys.executable, "-m", "tesserack", "run", "-m", "pytest", "-n", "1", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_processes_started_after_the_end_see_none():
    import multiprocessing.spawn as spawn

    import tesserack as ts

    before = spawn.get_preparation_data
    with ts.compat.enable():
        assert "tesserack" in spawn.get_preparation_data("child")
    assert spawn.get_preparation_data is before and "tesserack" not in before("child")


def test_small_modules_that_programs_import(program):
    lines = program.run(
        """
        import pickle
        import torch
        from torch.fx import PH
        from torch.fx.immutable_collections import immutable_dict, immutable_list
        from torch.nn.common_types import _size_2_t
        from torch.torch_version import TorchVersion
        from torch.utils import collect_env, swap_tensors
        from torch.utils.weak import WeakTensorKeyDictionary
        from torch.utils.module_tracker import ModuleTracker

        print(TorchVersion(torch.__version__) >= (2, 0), "PyTorch version: 2.13" in collect_env.get_pretty_env_info())
        a, b = torch.nn.Parameter(torch.ones(2)), torch.zeros(3)
        a.grad, a.note = torch.full((2,), 5.0), "a"
        swap_tensors(a, b)
        print(a.tolist(), b.tolist(), a.requires_grad, b.requires_grad, a.grad, b.grad.tolist(), b.note)
        kept = immutable_list([1, {2: 3}])
        try:
            kept.append(2)
        except NotImplementedError as error:
            print("mutation" in str(error), pickle.loads(pickle.dumps(kept)) == kept)
        print(hash(immutable_dict(a=1)) == hash(immutable_dict(a=1)), _size_2_t)
        """
    )
    assert lines == [
        "True True",
        "[0.0, 0.0, 0.0] [1.0, 1.0] False True None [5.0, 5.0] a",
        "True True",
        "True int | tuple[int, int]",
    ]


def test_star_imports_take_what_those_of_torch_take(program):
    """Of modules shown from several of ours too; modules are not among them."""
    lines = program.run(
        """
        from torch.profiler import *
        from torch.nn import *
        from torch import *

        print(profile.__name__, schedule.__name__, Linear.__name__, tensor([1.0]), float32, "nn" in globals())
        """
    )
    assert lines == ["profile schedule Linear tensor([1.]) torch.float32 False"]


def test_profiles_call_operators_by_the_names_of_torch(program):
    lines = program.run(
        """
        import torch
        from torch.autograd import profiler
        from torch.profiler import ProfilerActivity, profile, record_function

        with profile(activities=[ProfilerActivity.CPU]) as prof, record_function("step"):
            torch.nn.Linear(2, 3)(torch.ones(1, 2))
        found = {event.key: event.count for event in prof.key_averages()}
        print(found["aten::linear"], found["step"])
        with profiler.profile() as older:
            torch.ones(2).mul(2)
        print("aten::mul" in str(older))
        """
    )
    assert lines == ["1 1", "True"]


FAILING = [  # a program, how its traceback begins, what it ends with, and the status
    ("def f():\n    raise KeyError('x')\nf()", '  File "{path}", line 3, in <module>', "KeyError: 'x'", 1),
    ("x = (1,", '  File "{path}", line 1', "SyntaxError: '(' was never closed", 1),
    ("raise KeyboardInterrupt", '  File "{path}", line 1, in <module>', "KeyboardInterrupt", 130),
]


@pytest.mark.parametrize(("source", "first", "last", "status"), FAILING)
def test_a_traceback_begins_in_the_program(program, source, first, last, status):
    path = program.write("failing.py", source)
    done = program.start("-m", "tesserack", "run", str(path))
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Traceback")]
    assert (lines[0], lines[-1], done.returncode) == (first.format(path=path), last, status)
