"""Private helpers, and attributes of functions, that packages of models take while they are imported or run."""

from __future__ import annotations

import subprocess
import sys

HELPERS = """
import io
import torch
from torch._subclasses.fake_tensor import is_fake
from torch.cuda import _initialized
from torch.jit.annotations import List
from torch.optim.lr_scheduler import _enable_get_lr_call
from torch.serialization import default_restore_location, location_tag
from torch.utils.data._utils.collate import collate_tensor_fn, np_str_obj_array_pattern

assert not _initialized and not torch.cuda._initialized and torch.jit.annotations.List is List
keys, values = torch.utils._pytree._dict_flatten({"a": 1, "b": 2})[::-1]
assert torch.utils._pytree._dict_unflatten(values, keys) == {"a": 1, "b": 2}
pairs, _ = torch.utils._pytree._dict_flatten_with_keys({"a": 1})
assert pairs[0][0].get({"a": 3}) == 3 and pairs[0][1] == 1
x = torch.tensor([1.23456])
assert not is_fake(x) and torch._prims_common.is_contiguous_or_false(x)
with torch._tensor_str.printoptions(precision=2):
    assert torch._tensor_str._str_intern(x) == "tensor([1.23])"
assert repr(x) == "tensor([1.2346])" and torch._tensor_str.PRINT_OPTS.threshold == 1000
file = io.BytesIO()
torch.save(x, file)
file.seek(0)
assert torch.equal(torch.load(file, map_location=lambda s, _: default_restore_location(s, "cpu")), x)
assert location_tag(x.storage()) == "cpu" and collate_tensor_fn([x, x]).shape == (2, 1)
assert np_str_obj_array_pattern.search("<U3") and torch.utils.data._utils.worker._worker_info is None
schedule = torch.optim.lr_scheduler.StepLR(torch.optim.SGD([x.requires_grad_()], 0.1), 1)
with _enable_get_lr_call(schedule):
    schedule.get_lr()
assert torch.distributions.transforms._clipped_sigmoid(torch.tensor([-200.0, 200.0])).tolist() == [
    torch.finfo(torch.float32).tiny, 1 - torch.finfo(torch.float32).eps
]
assert torch.jit._unwrap_optional(3) == 3 and torch.autograd._is_checkpoint_valid()
assert torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX == "_extra_state"
rebuilt = torch._tensor._rebuild_from_type_v2(lambda: x, torch.Tensor, (), {"tag": 1})
assert rebuilt.tag == 1
print("done")
"""

TRACING = """
import torch

def f(x):
    seen.append((torch._C._get_tracing_state() is not None, torch._C._is_tracing()))
    return x * 2

seen = []
f(torch.ones(2))
torch.jit.trace(f, torch.ones(2), check_trace=False)
print(seen)
"""

ATTRIBUTES = """
import functools
import torch
from torch import nn
from torch.nn import functional as F

for function in (F.relu, F.relu6, F.leaky_relu, F.sigmoid, F.tanh):
    function.__default_init__ = nn.init.kaiming_uniform_
    assert function.__default_init__ is nn.init.kaiming_uniform_
    del function.__default_init__
    assert not hasattr(function, "__default_init__")
assert torch.meshgrid.__kwdefaults__ == {"indexing": None}

@functools.wraps(F.sigmoid)
def wrapped(x):
    return F.sigmoid(x)

print(wrapped.__name__, torch.sigmoid(torch.zeros(1)).item())
"""

TRITON = """
import torch

@torch.library.triton_op("tested::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return torch.library.wrap_triton(lambda x: x * 2)(x)

@twice.register_fake
def _(x):
    return torch.empty_like(x)

print(twice(torch.ones(2)).tolist(), torch.ops.tested.twice(torch.ones(2)).tolist())
"""


def test_helpers(program):
    assert program.run(HELPERS) == ["done"]


def test_whether_a_trace_is_under_way(program):
    assert program.run(TRACING)[-1] == "[(False, False), (True, True)]"


def test_functions_take_attributes(program):
    assert program.run(ATTRIBUTES) == ["sigmoid 0.5"]


def test_operators_of_triton(program):
    assert program.run(TRITON) == ["[2.0, 2.0] [2.0, 2.0]"]


KEYWORDS = """
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx


@torch.library.custom_op("keywords::mul", mutates_args=())
def mul(x: Tensor, *, scalar: float) -> Tensor:
    return x * scalar


@mul.register_fake
def _(x, *, scalar):
    return torch.empty_like(x)


def setup(ctx, inputs, keyword_only_inputs, output):
    ctx.count, ctx.scalar = len(inputs), keyword_only_inputs["scalar"]


mul.register_autograd(lambda ctx, grad: grad * ctx.scalar * ctx.count, setup_context=setup)
mul.register_vmap(lambda info, in_dims, x, *, scalar: (x * scalar, in_dims[0]))
x = torch.ones(3, requires_grad=True)
mul(x, scalar=2.0).sum().backward()
print(x.grad.tolist(), torch.ops.keywords.mul(torch.ones(2), scalar=3.0).tolist())
for mode in ("real", "fake"):
    print(make_fx(lambda x: mul(x, scalar=2.0), tracing_mode=mode)(torch.ones(3))(torch.ones(2)).tolist())
print(torch.vmap(lambda x: mul(x, scalar=2.0))(torch.ones(2, 3)).shape)
print(torch.compile(lambda x: mul(x, scalar=2.0))(torch.ones(2)).tolist())
torch.library.opcheck(mul, (torch.ones(3, requires_grad=True),), {"scalar": 2.0})

library = torch.library.Library("keywords2", "DEF")
library.define("add(Tensor x, *, int n) -> Tensor")
library.impl("add", lambda x, *, n: x + n, "CPU")
print(torch.ops.keywords2.add(torch.ones(2), n=4).tolist())
"""


def test_custom_operators_with_arguments_by_keyword_alone(program):
    assert program.run(KEYWORDS) == [
        "[2.0, 2.0, 2.0] [3.0, 3.0]",
        "[2.0, 2.0]",
        "[2.0, 2.0]",
        "torch.Size([2, 3])",
        "[2.0, 2.0]",
        "[5.0, 5.0]",
    ]


MORE = """
import torch
from torch import Tensor
import torch.onnx


@torch.library.custom_op("more::twice", mutates_args="unknown", tags=("kept",))
def twice(x: Tensor, n: int, y: Tensor) -> Tensor:
    x.add_(1)
    return x * n


x = torch.ones(2)
print(twice(x, 2, torch.zeros(2)).tolist(), x.tolist(), twice.schema, twice.tags)


@torch.library.custom_op("more::scaled", mutates_args=())
def scaled(x: Tensor, *, by: Tensor) -> Tensor:
    return x * by


scaled.register_vmap(lambda info, in_dims, x, *, by: (x * by, in_dims[0]))
print(torch.vmap(lambda x, by: scaled(x, by=by))(torch.ones(2, 2), torch.arange(4.0).reshape(2, 2)).tolist())
torch.set_printoptions(linewidth=320, precision=5, profile="long")
print(torch.tensor([1.23456789]))
print(torch.onnx.operators.shape_as_tensor(torch.ones(2, 3)).tolist())
leaves, spec = torch.utils._pytree.tree_flatten((x.shape, {"a": x.shape}))
print(leaves, torch.utils._pytree.tree_unflatten(leaves, spec))


class Sized(torch.nn.Module):
    def forward(self, x):
        return x * 2, x.shape


print(torch.export.export(Sized(), (torch.ones(2, 3),)).module()(torch.ones(2, 3))[1])
compiled = torch.compile(lambda x: (x * 2, x.shape))
print([type(compiled(torch.ones(2, 3))[1]).__name__ for _ in range(4)])
"""


def test_further_names_of_packages(program):
    assert program.run(MORE) == [
        "[4.0, 4.0] [2.0, 2.0] more::twice(Tensor(a!) x, int n, Tensor(b!) y) -> Tensor ['kept']",
        "[[0.0, 1.0], [2.0, 3.0]]",  # entry by entry: rules are given tensors by position alone
        "tensor([1.23457])",
        "[2, 3]",
        "[2, 2] (torch.Size([2]), {'a': torch.Size([2])})",
        "torch.Size([2, 3])",
        "['Size', 'Size', 'Size', 'Size']",
    ]


def test_programs_come_from_standard_input(tmp_path):
    words = [sys.executable, "-m", "tesserack", "run", "-", "a", "--b"]
    source = "import sys, torch\nprint(__name__, sys.argv, torch.ones(2).tolist())"
    done = subprocess.run(words, input=source, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.stdout == "__main__ ['-', 'a', '--b'] [1.0, 1.0]\n", done.stderr


SCOPED = """
import torch

with torch.library._scoped_library("aten", "IMPL") as library:
    library.impl("sum", lambda x, **options: x, "CPU")
    print(torch.ones(2).sum().tolist())
print(torch.ones(2).sum().tolist())


class Wrapped(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError


made = torch.Tensor._make_wrapper_subclass(Wrapped, (2, 3), (1, 2), 0, None, torch.float64)
print(type(made).__name__, made.shape, made.stride(), made.dtype)
"""


def test_libraries_in_scopes_and_wrappers_by_position(program):
    assert program.run(SCOPED) == ["[1.0, 1.0]", "2.0", "Wrapped torch.Size([2, 3]) (1, 2) torch.float64"]
