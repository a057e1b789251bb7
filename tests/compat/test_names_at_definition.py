"""Names that programs take when they are imported or define something, and that fail, if at all, when they are used."""

from __future__ import annotations

import importlib.util

import pytest


def test_members_of_what_is_missing_may_be_defaults(program):
    lines = program.run("""
        import torch, torch.distributed as dist
        from torch.testing._internal.common_utils import TestCase, run_tests
        from torch.testing._internal.common_device_type import instantiate_device_type_tests
        from torch.utils.mobile_optimizer import optimize_for_mobile

        def reduce(x, group=dist.group.WORLD, op=dist.ReduceOp.SUM, kind=torch.onnx.OperatorExportTypes.ONNX):
            return x

        class Own(torch.utils.file_baton.FileBaton):
            pass

        print(reduce(3), hasattr(dist.group, "WORLD"))
        for use in (lambda: dist.group.WORLD(), lambda: bool(dist.ReduceOp.SUM), lambda: run_tests(), lambda: Own("x")):
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
        print(callable(torch.cuda.Stream.wait_stream), torch.fx.Tracer().check_mutable_operations)
        turned = torch.IntStorage.from_buffer(b"\\0\\0\\1\\0", "big")
        print(torch.ByteStorage.from_buffer(b"ab").tolist(), turned.tolist())
        torch.testing.FileCheck().check("a").check_not("c").check("b").run("a b c")
    """) == [
        "[0.0, 1.0, 2.0, 3.0] 4",
        "[[2.0, 4.0]]",
        "True False",
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
