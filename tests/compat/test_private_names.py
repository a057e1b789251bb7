"""Names that programs and packages take from modules which do not list them: with an underscore, or imported there."""

from __future__ import annotations

LAYERS = """
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _LazyNormBase, _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd, _pair, _triple
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AvgPoolNd, _LPPoolNd, _MaxPoolNd
from torch.nn.modules.transformer import _get_activation_fn, _get_clones, _get_seq_len
from torch.nn.init import _no_grad_trunc_normal_

kinds = (
    _BatchNorm, _NormBase, _ConvNd, _ConvTransposeNd, _DropoutNd, _AdaptiveAvgPoolNd, _AvgPoolNd, _LPPoolNd, _MaxPoolNd,
)
layers = (
    nn.BatchNorm2d(2), nn.InstanceNorm2d(2), nn.ConvTranspose1d(2, 2, 1), nn.Dropout2d(), nn.AdaptiveAvgPool3d(1),
    nn.AvgPool1d(2), nn.LPPool2d(2, 2), nn.MaxPool1d(2),
)
for layer in layers:
    print(type(layer).__name__, *[kind.__name__ for kind in kinds if isinstance(layer, kind)])
relu = _get_activation_fn("relu")
print(_pair(3), _triple((1, 2, 3)), len(_get_clones(nn.Linear(2, 2), 3)), relu(torch.tensor(-1.0)).item())
print(_get_seq_len(torch.ones(2, 5, 3), True), issubclass(nn.LazyBatchNorm1d, _LazyNormBase))
print(bool((_no_grad_trunc_normal_(torch.empty(100), 0.0, 1.0, -0.5, 0.5).abs() <= 0.5).all()))
"""

PIECES = """
import torch
from torch._utils import _flatten_dense_tensors, _get_device_index, _take_tensors, _unflatten_dense_tensors
from torch._utils import _get_available_device_type, _get_device_module
from torch.nn import functional as F
from torch.optim.optimizer import Optimizer, _get_value, _use_grad_for_differentiable
from torch.types import _dtype, _size
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass
from torch.utils.data._utils.collate import collate, default_collate_fn_map

a, b = torch.arange(6.0).reshape(2, 3), torch.ones(4)
flat = _flatten_dense_tensors([a, b])
print(flat.tolist(), [t.shape for t in _unflatten_dense_tensors(flat, [a, b])])
print([len(chunk) for chunk in _take_tensors([a, b, b], 32)], _get_device_index("cpu", allow_cpu=True))
print(F._Reduction.get_enum("sum"), F._Reduction.legacy_get_string(False, None, emit_warning=False))
print(F._canonical_mask(torch.tensor([True, False]), "mask", None, "", torch.float32).tolist())
q = torch.arange(4.0).reshape(2, 1, 2)
print([t.shape for t in F._in_projection_packed(q, q, q, torch.ones(6, 2))], isinstance(torch.float32, _dtype))
print(torch._C._nn.gelu(torch.zeros(2)).tolist(), torch._C._nn._parse_to("cpu", torch.float64, non_blocking=True)[1:3])
for check, kind in ((torch._check, RuntimeError), (torch._check_value, ValueError), (torch._check_index, IndexError)):
    check(True)
    try:
        check(False, lambda: "told")
    except kind as error:
        print(type(error).__name__, error)


class Halving(Optimizer):
    def __init__(self, params):
        super().__init__(params, {"differentiable": False})

    @_use_grad_for_differentiable
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(0.5)


w = torch.nn.Parameter(torch.ones(1))
Halving([w]).step()
print(w.item(), _get_value(torch.tensor(2.5)))


class Word(str):
    pass


with _disable_current_modes():
    print(is_traceable_wrapper_subclass(w), torch._disable_dynamo(lambda x: x)(1))
print(torch._C.default_generator.initial_seed() == torch.initial_seed())
print(_get_available_device_type(), _get_device_module("cuda").is_available(), _get_device_module("cpu").device_count())
try:
    _get_device_module("nosuch")
except RuntimeError as error:
    print(error)
default_collate_fn_map[Word] = lambda batch, collate_fn_map=None: "+".join(batch)
print(torch.utils.data.default_collate([{"x": 1, "w": Word("a")}, {"x": 2, "w": Word("b")}]))
print(collate([(1, 2.5), (3, 4.5)], collate_fn_map={int: lambda b, **_: sum(b), float: lambda b, **_: max(b)}))
"""


def test_bases_of_layers_and_what_layers_are_built_with(program):
    assert program.run(LAYERS) == [
        "BatchNorm2d _BatchNorm _NormBase",
        "InstanceNorm2d _NormBase",
        "ConvTranspose1d _ConvNd _ConvTransposeNd",
        "Dropout2d _DropoutNd",
        "AdaptiveAvgPool3d _AdaptiveAvgPoolNd",
        "AvgPool1d _AvgPoolNd",
        "LPPool2d _LPPoolNd",
        "MaxPool1d _MaxPoolNd",
        "(3, 3) (1, 2, 3) 3 0.0",
        "5 True",
        "True",
    ]


def test_pieces_of_training_code(program):
    assert program.run(PIECES) == [
        "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 1.0, 1.0, 1.0] [torch.Size([2, 3]), torch.Size([4])]",
        "[1, 2] -1",
        "2 sum",
        "[-inf, 0.0]",
        "[torch.Size([2, 1, 2]), torch.Size([2, 1, 2]), torch.Size([2, 1, 2])] True",
        "[0.0, 0.0] (torch.float64, True)",
        "RuntimeError told",
        "ValueError told",
        "IndexError told",
        "0.5 2.5",
        "False 1",
        "True",
        "None False 1",
        "Device 'nosuch' does not have a corresponding module registered as 'torch.nosuch'.",
        "{'x': tensor([1, 2]), 'w': 'a+b'}",
        "[4, 4.5]",
    ]


IMPORTED = """
import math, typing
import torch
from torch.autograd.function import InplaceFunction
from torch.functional import einsum, split
from torch.nn.functional import Optional, Tensor, handle_torch_function, has_torch_function, warnings
from torch.nn.modules.transformer import LayerNorm, Linear
from torch.optim.lr_scheduler import Optimizer
from torch.optim.optimizer import ParamsT, overload
from torch.quasirandom import SobolEngine
from torch.utils.data.dataloader import _utils
from torch._C import _LinAlgError
from torch._utils import ExceptionWrapper

print(torch.math is math, torch.nn.init.math is math, Optional is typing.Optional, overload is typing.overload)
print(Tensor is torch.Tensor, Linear is torch.nn.Linear, Optimizer is torch.optim.Optimizer)
print(einsum("i,i->", torch.ones(3), torch.ones(3)).item(), [len(s) for s in split(torch.ones(5), 2)])
print(_utils.collate.default_collate([1, 2]).tolist(), issubclass(InplaceFunction, torch.autograd.Function))
print(hasattr(torch.nn.functional, "nosuch"), hasattr(torch.nn, "_checks"), has_torch_function((torch.ones(1),)))
try:
    torch.linalg.cholesky(-torch.eye(2))
except _LinAlgError as error:
    wrapper = ExceptionWrapper(where="in a worker")
try:
    wrapper.reraise()
except torch.linalg.LinAlgError as error:
    print("in a worker" in str(error), "Traceback" in str(error))
"""

STEPS = """
import torch
from torch.optim import _functional as F
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

torch.manual_seed(0)
start, grads = torch.randn(2, 3), [torch.randn(2, 3) for _ in range(4)]


def by_class(kind, **options):
    w = torch.nn.Parameter(start.clone())
    optimizer = kind([w], **options)
    for grad in grads:
        w.grad = grad.clone()
        optimizer.step()
    return w.detach()


w, step, mean, square = start.clone(), torch.tensor(0.0), torch.zeros(2, 3), torch.zeros(2, 3)
w.grad = kept = torch.ones(2, 3)
for grad in grads:
    adamw([w], [grad], [mean], [square], [], [step], amsgrad=False, beta1=0.8, beta2=0.9, lr=0.1, weight_decay=0.2,
          eps=1e-6, maximize=False, foreach=False)
expected = by_class(torch.optim.AdamW, betas=(0.8, 0.9), lr=0.1, weight_decay=0.2, eps=1e-6)
print(torch.equal(w, expected), step.item(), bool(mean.abs().sum() > 0), w.grad is kept)
w, buffers = start.clone(), [None]
for grad in grads:
    sgd([w], [grad], buffers, weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=True, maximize=True)
expected = by_class(torch.optim.SGD, weight_decay=0.1, momentum=0.9, lr=0.1, nesterov=True, maximize=True)
print(torch.equal(w, expected), buffers[0].shape, F.sgd is sgd)
"""


def test_what_modules_import_from_elsewhere(program):
    assert program.run(IMPORTED) == [
        "True True True True",
        "True True True",
        "3.0 [2, 2, 1]",
        "[1, 2] True",
        "False False False",
        "True True",
    ]


def test_steps_of_optimizers_as_functions(program):
    assert program.run(STEPS) == ["True 4.0 True True", "True torch.Size([2, 3]) True"]


CONTAINERS = """
import torch
import torch._functorch.vmap as vmap_module
from torch._C._functorch import _add_batch_dim, _remove_batch_dim, get_unwrapped, is_batchedtensor, maybe_get_level
from torch.nn.modules.module import _global_forward_hooks, _global_parameter_registration_hooks
from torch.utils._contextlib import _DecoratorContextManager, context_decorator
from torch.utils._pytree import tree_flatten

seen = []

def row(x):
    hidden = _add_batch_dim(torch.arange(6.).reshape(2, 3), 1, maybe_get_level(x))
    seen.append((is_batchedtensor(x), is_batchedtensor(hidden), tuple(hidden.shape), maybe_get_level(torch.ones(1))))
    seen.append(torch._C._are_functorch_transforms_active())
    return x + _remove_batch_dim(hidden, 1, 3, 0).sum() - 15

print(torch.vmap(row)(torch.ones(3)), seen, torch._C._are_functorch_transforms_active())
spec = tree_flatten((1, [2, 3]))[1]
print(vmap_module._broadcast_to_and_flatten((0, 1), spec), vmap_module._broadcast_to_and_flatten((0, 1, 2), spec))
try:
    vmap_module._maybe_remove_batch_dim("f", 3, 1, 2, 0)
except ValueError as error:
    print(error)

class Times(_DecoratorContextManager):
    entered = 0
    def __enter__(self):
        Times.entered += 1
    def __exit__(self, *exc):
        return None

@Times()
def twice(x):
    return 2 * x

def counted(n):
    total = 0
    for k in range(n):
        total += (yield k) or 0
    return total

counted = context_decorator(lambda: Times(), counted)

def outer():
    return (yield from counted(2))

print(twice(1), twice(2), Times.entered, list(counted(2)), Times.entered)
generator = outer()
next(generator); generator.send(5)
try:
    generator.send(6)
except StopIteration as end:
    print(end.value)
with torch.nn.modules.module.register_module_parameter_registration_hook(lambda m, n, p: None):
    print(len(_global_parameter_registration_hooks), len(_global_forward_hooks))
print(isinstance(torch.futures.Future(), torch.Future), torch.quint4x2, torch.per_channel_symmetric)
"""


def test_what_containers_of_tensors_take(program):
    assert program.run(CONTAINERS) == [
        "tensor([1., 1., 1.]) [(True, True, (2,), -1), True] False",
        "[0, 1, 1] None",
        "vmap(f, ...): `f` must only return Tensors, got type <class 'int'>. "
        "Did you mean to set out_dims= to None for output?",
        "2 4 2 [0, 1] 6",
        "11",
        "1 0",
        "True torch.quint4x2 torch.per_channel_symmetric",
    ]


NODES = """
import torch
from torch._C import _WeakTensorRef, is_grad_enabled
from torch._C._autograd import _saved_tensors_hooks_is_enabled
from torch._C._functions import AccumulateGrad, UndefinedGrad

x = torch.ones(2, requires_grad=True)
node = (x * 2).grad_fn
print(isinstance(node.next_functions[0][0], AccumulateGrad), isinstance(node, AccumulateGrad))
y = UndefinedGrad()(x * 2)
print(y.tolist(), torch.autograd.grad(y.sum(), x, allow_unused=True))
with torch.no_grad(), torch.autograd.graph.disable_saved_tensors_hooks("no"):
    print(is_grad_enabled(), _saved_tensors_hooks_is_enabled())
print(is_grad_enabled(), _saved_tensors_hooks_is_enabled())
before = torch.autograd._profiler_enabled()
with torch.autograd.profiler.profile():
    print(before, torch.autograd._profiler_enabled())
kept = _WeakTensorRef(x)
print(kept.expired())
del x, y, node
leaf = torch.ones(1, requires_grad=True)
accumulator = (leaf * 2).grad_fn.next_functions[0][0]
leaf.register_hook(lambda grad: torch._C._will_engine_execute_node(accumulator))
for call in (lambda: torch.autograd.grad(leaf * 2, leaf), lambda: torch._C._will_engine_execute_node(leaf)):
    try:
        call()
    except RuntimeError as error:
        print("autograd.grad()" in str(error))
print(kept.expired(), torch.jit._wait(torch.jit._fork(torch.add, torch.ones(1), 1)).item())
"""


def test_nodes_and_states_of_autograd(program):
    assert program.run(NODES) == [
        "True False", "[2.0, 2.0] (None,)", "False False", "True True", "False True", "False", "True", "False",
        "True 2.0",
    ]  # fmt: skip


HELPERS = """
import torch
from torch._functorch.eager_transforms import _slice_argnums
from torch.autograd.functional import _construct_standard_basis_for

print(_slice_argnums((1, 2, 3), -1), _slice_argnums((1, 2, 3), 1, as_tuple=False))
print(torch._VF.unique_dim(torch.tensor([1, 1, 2]), 0, True, True, True))
print(*torch.autograd._calculate_shape(torch.ones(2), torch.ones(3, 2), True))
print(*[t.tolist() for t in _construct_standard_basis_for((torch.ones(2), torch.ones(1)), (2, 1))])
with torch.profiler.profile() as profile:
    record = torch.ops.profiler._record_function_enter_new("named", None)
    torch.ops.profiler._record_function_exit(record)
print([event.count for event in profile.key_averages() if event.key == "named"])
"""


def test_helpers_of_autograd_and_of_transforms(program):
    assert program.run(HELPERS) == [
        "(3,) 2",
        "(tensor([1, 2]), tensor([0, 0, 1]), tensor([2, 1]))",
        "torch.Size([2]) torch.Size([2])",
        "[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]] [[0.0], [0.0], [1.0]]",
        "[1]",
    ]


ARCHIVES = """
import io, os, tempfile
import torch
from torch.serialization import _is_zipfile, _open_zipfile_reader, _open_zipfile_writer

content = {"a": b"12039", "c/d": b""}
with tempfile.TemporaryDirectory() as folder:
    for place in (os.path.join(folder, "name.pt"), io.BytesIO()):
        with _open_zipfile_writer(place) as writer:
            for name, data in content.items():
                writer.write_record(name, data, len(data))
            writer.write_record("s", torch.arange(3.0).untyped_storage(), 12)
        if isinstance(place, io.BytesIO):
            place.seek(0)
            print(_is_zipfile(place), _is_zipfile(io.BytesIO(b"PK")))
        with _open_zipfile_reader(place) as reader:
            print(all(reader.get_record(name) == data for name, data in content.items()), reader.get_all_records())
            print(reader.get_storage_from_record("s", 3, torch.float32).tolist(), writer.archive_name())
            try:
                reader.get_record("b")
            except RuntimeError:
                print("no record")
    try:
        with _open_zipfile_writer(os.path.join(folder, "ended")) as writer:
            writer.write_record("r", bytearray(b"123"), 2)
            try:
                writer.write_record("s", b"12", 3)
            except RuntimeError:
                print("too few")
            raise EOFError
    except EOFError:
        opened = [os.path.realpath(f"/proc/self/fd/{f}") for f in os.listdir("/proc/self/fd")]
        print(writer.get_all_written_records(), any("ended" in path for path in opened))
    kept = os.path.join(folder, "saved")
    torch.save({"x": torch.ones(2)}, kept)
    reader = torch._C.PyTorchFileReader(kept)
    print(reader.has_record("data.pkl"), reader.get_record_size("data/0"))
    try:
        torch._C.PyTorchFileReader(io.BytesIO(b"nothing"))
    except RuntimeError:
        print("no archive")
"""


def test_archives_by_their_records(program):
    read = ["True ['a', 'c/d', 's', 'version']", "[0.0, 1.0, 2.0] {}", "no record"]
    first, second = ([line.format(name) for line in read] for name in ("name", "archive"))
    assert program.run(ARCHIVES) == [*first, "True False", *second, "too few", "['r'] False", "True 8", "no archive"]


def test_what_packages_of_tensor_containers_take(program):
    """Whether tensors share memory, and seeds of NumPy in workers: word by word PyTorch's, as its loader has them."""
    lines = program.run("""
        import torch
        from torch.utils.data import DataLoader, Dataset
        from torch.utils.data._utils.worker import _generate_state

        class Draws(Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, i):
                import numpy
                info = torch.utils.data.get_worker_info()
                mine = numpy.random.RandomState(_generate_state(info.seed - info.id, info.id)).rand()
                return mine == numpy.random.rand()

        x = torch.ones(4)
        print(torch._C._is_alias_of(x, x[1:]), torch._C._is_alias_of(x, x.clone()))
        print(_generate_state(2**40 + 17, 3))
        print([*DataLoader(Draws(), None, num_workers=2)])
    """)
    assert lines[0] == "True False"
    assert lines[1] == "[946516139, 3429289954, 681341045, 323328356]"
    assert lines[2] == "[True, True]"


PARTS = """
import torch
from torch.nn.utils.prune import _compute_nparams_toprune, _validate_pruning_amount, _validate_pruning_amount_init
from torch.testing._utils import freeze_rng_state, wrapper_set_seed
from torch.utils._import_utils import _check_module_exists, dill_available

assert _compute_nparams_toprune(0.5, 7) == 4 and _compute_nparams_toprune(3, 7) == 3
for refused, kind in ((lambda: _validate_pruning_amount(8, 7), ValueError),
                      (lambda: _validate_pruning_amount_init(1.5), ValueError),
                      (lambda: _validate_pruning_amount_init("a"), TypeError)):
    try:
        refused()
    except kind:
        continue
    raise AssertionError(kind)
before = torch.get_rng_state()
assert torch.equal(wrapper_set_seed(torch.rand, 3), wrapper_set_seed(torch.rand, 3))
assert torch.equal(torch.get_rng_state(), before)
assert _check_module_exists("json") and not _check_module_exists("no_such_module.at_all")

scale, tracker, found = torch.tensor([8.0]), torch.tensor([1], dtype=torch.int32), torch.zeros(1)
torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
assert (scale.item(), tracker.item()) == (16.0, 0)
grads = [torch.ones(2), torch.tensor([float("nan")])]
torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.tensor(0.25))
assert found.item() == 1 and grads[0].tolist() == [0.25, 0.25]
torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
assert scale.item() == 8.0

assert [x.item() for x in torch._foreach_max([torch.tensor([1.0, 3.0]), torch.tensor([[2]])])] == [3.0, 2]
try:
    torch._foreach_pow(2.0, [])
    raise SystemExit("an empty list is taken")
except RuntimeError as error:
    assert "at least one tensor" in str(error)
assert [x.tolist() for x in torch._foreach_pow(2.0, [torch.tensor([3.0, 1.0])])] == [[8.0, 2.0]]
one = [torch.ones(1)] * 2
assert [x.item() for x in torch._foreach_addcdiv(one, one, one, torch.tensor([1.0, 2.0]))] == [2.0, 3.0]
assert [x.item() for x in torch._foreach_addcmul(one, one, one, torch.tensor([0.5, 2.0]))] == [1.5, 3.0]
assert [x.item() for x in torch._foreach_pow(torch.tensor(0.5), [torch.tensor(2.0), torch.tensor(3)])] == [0.25, 0.125]
x, mask, index = torch.arange(4.0), torch.tensor([True, False]), torch.tensor([1, 9])
assert torch._unsafe_masked_index(x, mask, [index], -1.0).tolist() == [1.0, -1.0]
assert torch._unsafe_masked_index_put_accumulate(x, mask, [index], torch.ones(2)).tolist() == [0.0, 2.0, 2.0, 3.0]
y, mean, invstd = torch._native_batch_norm_legit(torch.randn(4, 2), None, None, True, 0.1, 1e-5)
assert y.mean(0).abs().max() < 1e-6 and mean.shape == invstd.shape == (2,)
assert torch._C.has_lapack and torch._C._get_graph_executor_optimize(True)
assert not torch.set_vital("Dataloader", "enabled", "True") and torch.read_vitals() == ""
print("done")
"""


def test_parts_that_pytorchs_own_tests_take(program):
    assert program.run(PARTS) == ["done"]


PROFILES = """
import torch
from torch._C._profiler import _ExperimentalConfig, _RecordFunctionFast
from torch.profiler import profile

with profile(experimental_config=_ExperimentalConfig(verbose=True)) as prof:
    with _RecordFunctionFast("range", [torch.ones(1)], {"stream": 0}):
        torch.ones(2) + 1
print(sorted({e.name for e in prof.profiler.function_events} & {"range", "aten::add"}))
print(prof.profiler.key_averages().table().count("range"))
"""


def test_what_programs_ask_of_the_inner_profile(program):
    assert program.run(PROFILES) == ["['aten::add', 'range']", "1"]


def test_the_table_of_decompositions_by_its_module(program):
    lines = program.run("""
        import torch
        from torch.export import default_decompositions
        from torch.export.decomp_utils import CustomDecompTable

        table = default_decompositions()
        print(isinstance(table, CustomDecompTable), type(table.copy()) is CustomDecompTable)
    """)
    assert lines == ["True True"]
