"""Names that programs take when they are imported or define something, and that fail, if at all, when they are used."""

from __future__ import annotations

import importlib.util
import sys

import pytest
import tesserack as ts


def test_members_of_what_is_missing_may_be_defaults(program):
    lines = program.run("""
        import torch, torch.distributed as dist
        from torch.testing._internal.common_utils import TestCase
        from torch.testing._internal.jit_utils import make_global
        from torch.utils.mobile_optimizer import optimize_for_mobile

        def reduce(x, group=dist.group.WORLD, op=dist.ReduceOp.SUM, kind=torch.onnx.OperatorExportTypes.ONNX):
            return x

        class Own(torch.utils.file_baton.FileBaton):
            pass

        modes = torch.onnx.OperatorExportTypes
        print(reduce(3), hasattr(modes, "ONNX"))
        for use in (lambda: modes.ONNX(), lambda: bool(modes.ONNX), lambda: make_global(), lambda: Own("x")):
            try:
                use()
            except NotImplementedError as error:
                print("Tesserack does not have it" in str(error))
    """)
    assert lines[0] == "3 False" and lines[1:] == ["True"] * 4


def test_names_that_are_there(program):
    assert program.run("""
        import torch
        from torch.utils.data.dataloader import ExceptionWrapper, _DatasetKind, _utils
        from torch.nn.parallel._functions import Broadcast, Gather, ReduceAddCoalesced, Scatter
        from torch.nn.modules.conv import _ConvTransposeMixin
        from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CppExtension, CUDAExtension

        one, two = Scatter.apply(["cpu", "cpu"], None, 0, torch.arange(4.0, requires_grad=True))
        print(Gather.apply("cpu", 0, one, two).tolist(), len(Broadcast.apply(["cpu", "cpu"], one, two)))
        print([t.tolist() for t in ReduceAddCoalesced.apply("cpu", 1, one, two)])
        print(torch.autograd.kineto_available(), torch.profiler.itt.is_available())
        print(torch.autograd.profiler.kineto_available(), torch.profiler.kineto_available())
        print(callable(torch.cuda.Stream.wait_stream), torch.fx.Tracer().check_mutable_operations)
        turned = torch.IntStorage.from_buffer(b"\\0\\0\\1\\0", "big")
        print(torch.ByteStorage.from_buffer(b"ab").tolist(), turned.tolist())
        torch.testing.FileCheck().check("a").check_not("c").check("b").run("a b c")
    """) == [
        "[0.0, 1.0, 2.0, 3.0] 4",
        "[[2.0, 4.0]]",
        "True False",
        "True True",
        "True False",
        "[97, 98] [256]",
    ]


@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="setuptools builds extensions")
def test_extensions_are_built_or_say_why_not(program):
    program.write("plain.cpp", """
        #include <Python.h>
        #include "tesserack/abi.h"
        static PyModuleDef module = {PyModuleDef_HEAD_INIT, "plain", nullptr, TS_ABI_MAJOR, nullptr};
        PyMODINIT_FUNC PyInit_plain() { return PyModule_Create(&module); }
    """)  # fmt: skip
    program.write("theirs.cpp", "#include <torch/extension.h>\n")
    setup = """
        import sys
        from setuptools import setup
        from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

        kind = {{"CppExtension": CppExtension, "CUDAExtension": CUDAExtension}}["{kind}"]
        sys.argv[1:] = ["build_ext", "--inplace"]
        setup(
            name="{name}",
            ext_modules=[kind("{name}", ["{name}.cpp"], extra_compile_args={{"cxx": ["-O0"]}})],
            cmdclass={{"build_ext": BuildExtension.with_options(use_ninja=False)}},
        )
    """
    program.run(setup.format(kind="CppExtension", name="plain"))
    assert program.run("import plain; print(plain.__name__)") == ["plain"]
    for kind, name, reason in (("CppExtension", "theirs", "torch/extension.h"), ("CUDAExtension", "plain", "CUDA")):
        path = program.write("setup.py", setup.format(kind=kind, name=name))
        done = program.start("-m", "tesserack", "run", str(path))
        assert done.returncode and reason in done.stderr and "cannot be built" in done.stderr


def test_quantized_tensors_are_made_and_read(program):
    """The numbers are those of PyTorch for these."""
    assert program.run("""
        import pickle, torch
        x = torch.tensor([[-1.0, 0.05, 0.26], [3.0, 0.15, 99.0]])
        one = torch.quantize_per_tensor(x, 0.1, 10, torch.quint8)
        print(one.int_repr().tolist(), one.q_scale(), one.q_zero_point(), one.qscheme(), one.dtype, one.is_quantized)
        scales, points = torch.tensor([0.1, 0.2, 0.5]), torch.tensor([0, 1, -2])
        each = torch.quantize_per_channel(x, scales, points, 1, torch.qint8)
        print(each.int_repr().tolist(), each.q_per_channel_axis(), each.dequantize()[1].tolist()[2])
        print(torch.dequantize([one])[0].shape, pickle.loads(pickle.dumps(torch.qint8)) is torch.qint8)
        print(*[isinstance(kind, torch.dtype) for kind in (torch.quint8, torch.qint32, torch.per_tensor_affine)])
        uses = [lambda: one + 1, lambda: one.abs(), lambda: each.q_scale()]
        for wrong in [*uses, lambda: torch.quantize_per_tensor(x, 1, 0, 3), lambda: torch.quint8.is_signed]:
            try:
                wrong()
            except (RuntimeError, TypeError, NotImplementedError) as error:
                print(type(error).__name__)
    """) == [
        "[[0, 10, 13], [40, 12, 255]] 0.1 10 torch.per_tensor_affine torch.quint8 True",
        "[[-10, 1, -1], [30, 2, 127]] 1 64.5",
        "torch.Size([2, 3]) True",
        "True True False",
        *("NotImplementedError", "NotImplementedError", "RuntimeError", "RuntimeError", "RuntimeError"),
    ]


def test_events_add_up(program):
    assert program.run("""
        from torch.autograd.profiler_util import EventList, FunctionEvent, Interval, MemRecordsAcc
        calls = [("a", 0, 100), ("b", 10, 40), ("c", 15, 20), ("b", 50, 60), ("e", 200, 300), ("e", 200, 300)]
        events = EventList([FunctionEvent(i, name, 0, *time, stack=[]) for i, (name, *time) in enumerate(calls)])
        events._build_tree()
        print([(event.name, [child.id for child in event.cpu_children]) for event in events])
        averages = {each.key: each for each in events.key_averages()}
        print([(key, each.count, each.cpu_time_total, each.self_cpu_time_total) for key, each in averages.items()])
        print(events.total_average().count, events.self_cpu_time_total, averages["b"].cpu_time_str)
        print(events.table(sort_by="self_cpu_time_total").splitlines()[3].split()[0], Interval(1, 3).elapsed_us())
        class At(int):
            start_ns = int.__int__
        records = MemRecordsAcc([(At(time),) for time in (5, 1, 9)])
        print([int(at) for at, in records.in_interval(1, 5)])
    """) == [
        "[('a', [1, 3]), ('b', [2]), ('c', []), ('b', []), ('e', [])]",
        "[('a', 1, 100, 60), ('b', 2, 40, 35), ('c', 1, 5, 5), ('e', 1, 100, 100)]",
        "5 200 20.000us",
        "e 2",
        "[1, 5]",
    ]


def test_recorded_events_are_of_the_classes_that_pytorch_names(program):
    assert program.run("""
        import torch
        from torch.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg
        x = torch.ones(2, 2)
        with torch.autograd.profiler.profile(record_shapes=True) as older:
            x @ x
        with torch.profiler.profile() as prof:
            x @ x
        for events, averages in ((older.function_events, older.key_averages()), (prof.events(), prof.key_averages())):
            print(isinstance(events, EventList), isinstance(events[0], FunctionEvent), events[-1].name)
            print(isinstance(averages, EventList), isinstance(averages[0], FunctionEventAvg))
        print(isinstance(older.total_average(), FunctionEventAvg), FunctionEvent.__module__)
    """) == [*["True True aten::matmul", "True True"] * 2, "True torch.autograd.profiler_util"]


def test_steps_of_data_parallel_take_indices_of_cards(program):
    source = """
        import torch
        from torch.nn.parallel._functions import Broadcast, Gather, ReduceAddCoalesced, Scatter
        x = torch.arange(4.0, requires_grad=True)
        calls = [(Broadcast, [0], x), (Scatter, [0], None, 0, x), (ReduceAddCoalesced, 0, 1, x), (Gather, 0, 0, x)]
        print(all(issubclass(kind, torch.autograd.Function) for kind, *_ in calls))
        for kind, *given in calls:
            try:
                found = kind.apply(*given)
                print(found[0].device.type, found[0].requires_grad)
            except RuntimeError as error:
                print(type(error).__name__, "cuda" in str(error))
        first, second = Scatter.apply(["cpu", "cpu"], None, 0, x)
        (Gather.apply("cpu", 0, second, first) * torch.arange(4)).sum().backward()
        print(x.grad.tolist())
    """
    kept = "[2.0, 3.0, 0.0, 1.0]"
    if ts.backends.why_unavailable("cuda"):
        assert program.run(source) == ["True", *["BackendUnavailableError True"] * 4, kept]
    if ts.backends.why_unavailable("reference") is None:
        assert program.run(source, "--device", "reference", "--as-cuda") == ["True", *["cuda True"] * 4, kept]


def test_names_of_the_optimizer_for_phones(program):
    assert program.run("""
        from torch.utils.mobile_optimizer import LintCode, MobileOptimizerType
        print({MobileOptimizerType.REMOVE_DROPOUT}, MobileOptimizerType.CONV_BN_FUSION.name, LintCode(3))
        try:
            from torch.utils.mobile_optimizer import optimize_for_mobile
        except ImportError:
            print("refused")
    """) == ["{<MobileOptimizerType.REMOVE_DROPOUT: 2>} CONV_BN_FUSION LintCode.DROPOUT", "refused"]


def test_a_folder_that_cannot_run_is_named(program):
    (program.folder / "folder").mkdir()
    done = program.start("-m", "tesserack", "run", "folder")
    assert done.returncode and "__main__.py" in done.stderr and "Traceback" not in done.stderr
    program.write("folder/__main__.py", "print('runs')")
    assert program.start("-m", "tesserack", "run", "folder").stdout == "runs\n"


def test_half_types_in_event_files(program):
    assert program.run("""
        import torch
        from torch.utils.tensorboard import SummaryWriter
        with SummaryWriter("events") as writer:
            for dtype in (torch.bfloat16, torch.float16):
                writer.add_histogram("h", torch.arange(4, dtype=dtype))
                writer.add_scalar("s", torch.ones((), dtype=dtype))
                writer.add_image("i", torch.rand(3, 4, 4).to(dtype))
        print("written")
    """) == ["written"]


def test_parts_of_the_extension_module(program):
    lines = program.run("""
        import torch
        import torch.distributed as dist
        from torch._C._autograd import CreationMeta, SavedTensor
        from torch._C._distributed_c10d import ErrorType, ReduceOp, Store, TCPStore
        from torch._C._dynamo.guards import GlobalStateGuard
        from torch._C._functorch import _wrap_for_grad, get_unwrapped
        from torch._C._profiler import ProfilerActivity, _EventType
        from torch._dynamo.variables import TensorVariable
        from torch.library import CustomOpDef, custom_op
        from torch.testing._internal.hop_db import hop_db

        @custom_op("own::twice", mutates_args=())
        def twice(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        print(ReduceOp is dist.ReduceOp, Store is dist.Store, isinstance(twice, CustomOpDef))
        graph = torch.fx.symbolic_trace(lambda x, y: x if y else -x, concrete_args={"y": True}).graph
        print(any(node.target is torch._assert for node in graph.nodes))
    """)
    assert lines == ["True True True", "True"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="names of files on Linux")
def test_constants_are_those_of_pytorch(program):
    """Of files, folders and variables of the environment."""
    assert program.run("""
        from torch import hub
        from torch.utils import cpp_extension as build
        print(hub.ENV_TORCH_HOME, hub.ENV_XDG_CACHE_HOME, hub.DEFAULT_CACHE_DIR, hub.MODULE_HUBCONF)
        print(hub.VAR_DEPENDENCY, hub.READ_DATA_CHUNK, build.SUBPROCESS_DECODE_ARGS)
        print([build.CLIB_PREFIX, build.CLIB_EXT, build.EXEC_EXT, build.SHARED_FLAG, build.LIB_EXT])
    """) == [
        "TORCH_HOME XDG_CACHE_HOME ~/.cache hubconf.py",
        "dependencies 131072 ()",
        "['lib', '.so', '', '-shared', '.so']",
    ]


def test_helpers_of_files_that_programs_import(program):
    assert program.run("""
        import os, types, warnings, torch
        from torch.serialization import (
            SourceChangeWarning, check_module_version_greater_or_equal, mkdtemp, normalize_storage_type
        )

        warnings.filterwarnings("error", category=SourceChangeWarning)
        with mkdtemp() as folder:
            torch.save(torch.ones(2), os.path.join(folder, "x.pt"))
            print(os.listdir(folder))
        print(os.path.exists(folder), normalize_storage_type(torch.FloatStorage) is torch.FloatStorage)
        package = types.ModuleType("package")
        for version in ("0.3.1", "0.10.0", "0.2", "0.3.x"):
            package.__version__ = version
            try:
                print(check_module_version_greater_or_equal(package, (0, 3, 1)))
            except RuntimeError:
                print("malformed")
    """) == ["['x.pt']", "False True", "True", "True", "malformed", "malformed"]  # fmt: skip
