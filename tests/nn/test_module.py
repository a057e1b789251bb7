"""Module: registration, attributes, walking, moving, calling, repr."""

import copy
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.compat.shims.__future__ import set_overwrite_module_params_on_conversion


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(4, 2, bias=False))
        self.scale = nn.Parameter(ts.ones(2))
        self.register_buffer("count", ts.zeros(1))
        self.register_buffer("scratch", ts.zeros(1), persistent=False)

    def forward(self, x):
        return self.body(self.first(x)) * self.scale


def names(pairs):
    return [name for name, _ in pairs]


def test_walking_gives_dotted_names_in_registration_order():
    net = Net()
    assert names(net.named_parameters()) == ["scale", "first.weight", "first.bias", "body.1.weight"]
    assert names(net.named_parameters(recurse=False)) == ["scale"]
    assert names(net.named_parameters(prefix="net"))[0] == "net.scale"
    assert names(net.named_buffers()) == ["count", "scratch"]
    assert names(net.named_modules()) == ["", "first", "body", "body.0", "body.1"]
    assert names(net.named_children()) == ["first", "body"]
    assert [type(m) for m in net.modules()] == [Net, nn.Linear, nn.Sequential, nn.ReLU, nn.Linear]
    assert len(list(net.parameters())) == 4 and len(list(net.buffers())) == 2 and len(list(net.children())) == 2


def test_shared_modules_and_parameters_are_listed_once():
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    assert names(net.named_parameters()) == ["0.weight", "0.bias"]
    assert len(names(net.named_parameters(remove_duplicate=False))) == 4
    assert names(net.named_modules()) == ["", "0"]
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    tied = nn.Module()
    tied.a = nn.Parameter(ts.ones(1))
    tied.b = tied.a
    assert names(tied.named_parameters()) == ["a"] and tied.a is tied.b


def test_registered_members_are_ordinary_attributes():
    net = Net()
    assert net.scale is net._parameters["scale"] and net.first is net._modules["first"]
    assert net.__dict__["scale"] is net.scale
    assert {"scale", "first", "count", "forward", "training"} <= set(dir(net))
    assert not any(name[:1].isdigit() for name in dir(net.body))


def test_editing_the_registry_itself_shows_in_the_attribute():
    net = Net()
    other = nn.Parameter(ts.zeros(2))
    net._parameters["scale"] = other
    assert net.scale is other
    assert net._parameters.pop("scale") is other
    assert not hasattr(net, "scale")
    net._buffers.update(count=None)
    assert net.count is None
    net._modules.clear()
    assert not hasattr(net, "first") and not hasattr(net, "body")


def test_a_name_can_pass_from_one_kind_to_another():
    m = nn.Module()
    m.x = 3
    m.x = nn.Parameter(ts.ones(1))
    assert names(m.named_parameters()) == ["x"]
    m.x = nn.Linear(1, 1)
    assert names(m.named_children()) == ["x"] and names(m.named_parameters(recurse=False)) == []
    m.x = nn.Buffer(ts.ones(1), persistent=False)
    assert names(m.named_buffers()) == ["x"] and list(m.state_dict()) == []
    del m.x
    assert not hasattr(m, "x") and names(m.named_buffers()) == []
    m.x = "plain"
    assert m.__dict__["x"] == "plain"


def test_registered_names_refuse_values_of_another_kind():
    net = Net()
    with pytest.raises(TypeError, match="parameter 'scale'"):
        net.scale = ts.ones(2)
    with pytest.raises(TypeError, match="module 'first'"):
        net.first = 3
    with pytest.raises(TypeError, match="buffer 'count'"):
        net.count = "no"
    net.count = ts.ones(3)
    assert names(net.named_buffers())[0] == "count" and net.count.shape[0] == 3
    net.scale = None
    net.first = None
    assert net.scale is None and "scale" in net._parameters and net.first is None
    assert names(net.named_parameters()) == ["body.1.weight"]
    net.scale = nn.Parameter(ts.ones(2))
    assert "scale" in names(net.named_parameters())


MEMBERS: dict[str, Callable[[], Any]] = {
    "register_parameter": lambda: nn.Parameter(ts.ones(1)),
    "register_buffer": lambda: ts.ones(1),
    "add_module": lambda: nn.Linear(1, 1),
}


@pytest.mark.parametrize("second", MEMBERS)
@pytest.mark.parametrize("first", MEMBERS)
def test_a_name_holds_a_member_of_one_kind(first: str, second: str) -> None:
    module = nn.Module()
    getattr(module, first)("x", MEMBERS[first]())
    if first == second:
        getattr(module, second)("x", MEMBERS[second]())  # another one of its kind takes its place
    else:
        with pytest.raises(KeyError, match="already exists"):
            getattr(module, second)("x", MEMBERS[second]())
    held = [len(module._parameters), len(module._buffers), len(module._modules)]
    assert sum(held) == 1 and held[list(MEMBERS).index(first)] == 1


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m: m.register_parameter("a.b", None), KeyError, "contain"),
        (lambda m: m.register_parameter("", None), KeyError, "empty"),
        (lambda m: m.register_parameter(3, None), TypeError, "string"),
        (lambda m: m.register_parameter("training", None), KeyError, "already exists"),
        (lambda m: m.register_parameter("w", ts.ones(1)), TypeError, "Parameter"),
        (lambda m: m.register_buffer("w", 3), TypeError, "Tensor"),
        (lambda m: m.register_buffer("forward", ts.ones(1)), KeyError, "already exists"),
        (lambda m: m.add_module("w", 3), TypeError, "Module"),
        (lambda m: m.add_module("x.y", nn.ReLU()), KeyError, "contain"),
        (lambda m: m.train("yes"), ValueError, "bool"),
        (lambda m: m.missing, AttributeError, "'Module' object has no attribute 'missing'"),
        (lambda m: m(1), NotImplementedError, "forward"),
        (lambda m: delattr(m, "missing"), AttributeError, "missing"),
        (lambda m: m.get_submodule("a.b"), AttributeError, "has no attribute `a`"),
        (lambda m: m.get_parameter("w"), AttributeError, "has no attribute `w`"),
        (lambda m: m.get_parameter("training"), AttributeError, "`training` is not an nn.Parameter .*True"),
        (lambda m: m.get_buffer("training"), AttributeError, "`training` is not a buffer"),
    ],
)
def test_mistakes_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call(nn.Module())


def test_members_before_init_are_refused():
    class Early(nn.Module):
        def __init__(self, value):
            self.x = value

    for value in (nn.Parameter(ts.ones(1)), nn.ReLU()):
        with pytest.raises(AttributeError, match=r"before Module.__init__\(\)"):
            Early(value)
    with pytest.raises(TypeError, match="no arguments"):
        nn.Module(3)


def test_an_error_inside_a_property_is_shown_itself():
    class Broken(nn.Module):
        @property
        def size(self):
            return self.absent

    with pytest.raises(AttributeError, match="'absent'"):
        Broken().size


def test_subclass_getattr_can_extend_the_lookup():
    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    assert Wrapper(nn.Linear(2, 5)).out_features == 5


def test_non_leaf_parameters_are_refused():
    leaf = nn.Parameter(ts.ones(1))
    made = nn.Parameter(ts.ones(1))
    assert made.grad_fn is None
    with pytest.raises(TypeError, match="Parameter"):
        nn.Module().register_parameter("w", leaf * 2)


def test_train_eval_apply_requires_grad():
    net = Net()
    assert net.training and net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    seen = []
    assert net.apply(lambda m: seen.append(type(m).__name__)) is net
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Net"]
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_zero_grad(device):
    net = nn.Linear(2, 1).to(device)
    net(ts.ones(3, 2, device=device)).sum().backward()
    assert net.weight.grad.tolist() == [[3.0, 3.0]]
    net.zero_grad(set_to_none=False)
    assert net.weight.grad.tolist() == [[0.0, 0.0]]
    net.zero_grad()
    assert net.weight.grad is None


def test_to_keeps_parameter_objects_and_converts_gradients(device):
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    weight = net[0].weight
    net(ts.ones(3, 2)).sum().backward()
    for dtype in (ts.float64, ts.bfloat16, ts.float16, ts.float32):
        assert net.to(dtype) is net
        assert net[0].weight is weight and weight.dtype == dtype and weight.grad.dtype == dtype
        assert net[1].running_mean.dtype == dtype and net[1].num_batches_tracked.dtype == ts.int64
        assert isinstance(weight, nn.Parameter) and weight.requires_grad and weight.is_leaf
    assert net.double()[0].weight.dtype == ts.float64
    assert net.half()[0].weight.dtype == ts.float16
    assert net.bfloat16()[0].weight.dtype == ts.bfloat16
    assert net.float()[0].weight.dtype == ts.float32
    net.to(device)
    assert {str(t.device) for t in net.state_dict().values()} == {str(ts.zeros(1, device=device).device)}
    assert net.to(device, ts.float64)[0].weight.dtype == ts.float64
    assert net.to(ts.ones(1, device=device))[0].weight.dtype == ts.float32
    assert {t.device.type for t in net.cpu().state_dict().values()} == {"cpu"}


def test_to_refuses_integer_dtypes_and_odd_arguments():
    with pytest.raises(TypeError, match="floating-point or complex"):
        nn.Linear(1, 1).to(ts.int64)
    with pytest.raises(TypeError, match="unexpected"):
        nn.Linear(1, 1).to(colour="red")
    for odd in (("cpu", True), (None, True), ("cpu", ts.ones(1)), (ts.float64, ts.float64), (ts.ones(1), ts.float64)):
        with pytest.raises(TypeError, match="as argument 2"):
            nn.Linear(1, 1).to(*odd)
    for fine in ((ts.float64, True), (ts.ones(1), True), ("cpu", None, True), (None, ts.float64, False)):
        nn.Linear(1, 1).to(*fine)


def test_conversions_that_overwrite_parameters():
    """By ``torch.__future__``: views of the old parameters go on showing these, which keep their values."""
    layer = nn.Linear(2, 2)
    layer(ts.ones(2)).sum().backward()
    weight, seen = layer.weight, layer.weight[:]
    set_overwrite_module_params_on_conversion(True)
    try:
        layer.double()
    finally:
        set_overwrite_module_params_on_conversion(False)
    assert layer.weight is not weight and isinstance(layer.weight, nn.Parameter) and layer.weight.dtype == ts.float64
    assert layer.weight.grad.dtype == ts.float64 and layer.weight.grad.tolist() == [[1, 1], [1, 1]]
    assert weight.dtype == ts.float32 and seen._base is weight and ts.equal(seen, weight)
    weight = layer.weight
    assert layer.float().weight is weight


def test_to_empty_keeps_shapes(device):
    net = nn.Linear(3, 2).to_empty(device=device)
    assert tuple(net.weight.shape) == (2, 3) and net.weight.requires_grad


def test_what_dir_lists_is_there():
    net = Net()
    assert {"first", "scale", "count", "weight"} - {*dir(net)} == {"weight"}
    assert [name for name in dir(net) if not hasattr(net, name)] == []


def test_access_by_path():
    net = Net()
    assert net.get_submodule("body.1") is net.body[1] and net.get_submodule("") is net
    assert net.get_parameter("body.1.weight") is net.body[1].weight
    assert net.get_buffer("count") is net.count
    net.set_submodule("body.0", nn.Tanh())
    assert isinstance(net.body[0], nn.Tanh)
    with pytest.raises(ValueError, match="path"):
        net.set_submodule("", nn.Tanh())


def test_deepcopy_is_independent_and_keeps_sharing(device):
    net = Net().to(device)
    net.again = net.first
    other = copy.deepcopy(net)
    assert other.again is other.first and other.first.weight is not net.first.weight
    assert isinstance(other.scale, nn.Parameter) and other.scale.requires_grad
    other._parameters["scale"] = nn.Parameter(ts.zeros(2, device=device))
    assert other.scale.tolist() == [0.0, 0.0] and net.scale.tolist() == [1.0, 1.0]
    x = ts.ones(1, 3, device=device)
    assert ts.equal(copy.deepcopy(net)(x), net(x))


def test_a_dropped_model_is_freed_at_once():
    net = Net()
    net.register_load_state_dict_pre_hook(lambda *args: None)
    alive = weakref.ref(net)
    gc.disable()
    try:
        del net
        assert alive() is None
    finally:
        gc.enable()


def test_forward_can_be_replaced_on_the_instance_and_on_the_class():
    class Plain(nn.Module):
        def forward(self, x):
            return x

    m = Plain()
    m.forward = lambda x: x + 1
    assert m(1) == 2
    Plain.forward = lambda self, x, *, k=0: x + 10 + k
    assert Plain()(1) == 11 and Plain()(1, k=5) == 16


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions take notes from Python 3.11 on")
def test_errors_name_the_module_they_came_from():
    class Bad(nn.Module):
        def forward(self, x):
            raise ValueError("oops")

    net = nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU(), Bad()))
    with pytest.raises(ValueError, match="oops") as caught:
        net(ts.ones(1))
    assert [note for note in caught.value.__notes__ if "in module" in note] == ["in module Sequential.1.1: Bad()"]


def test_repr():
    assert repr(nn.Linear(2, 3)) == "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(nn.Module()) == "Module()"
    assert repr(nn.Sequential(nn.Sequential(nn.ReLU()), nn.Identity())) == (
        "Sequential(\n  (0): Sequential(\n    (0): ReLU()\n  )\n  (1): Identity()\n)"
    )

    class Described(nn.Module):
        def extra_repr(self):
            return "one\ntwo"

    assert repr(Described()) == "Described(\n  one\n  two\n)"


def test_parameter(device):
    data = ts.ones(2, device=device)
    w = nn.Parameter(data)
    assert isinstance(w, ts.Tensor) and w.requires_grad and w.is_leaf
    with ts.no_grad():
        w.add_(1)
    assert data.tolist() == [2.0, 2.0]
    assert type(w * 1) is ts.Tensor
    assert repr(w).startswith("Parameter containing:\ntensor([2., 2.]")
    assert not nn.Parameter(ts.ones(1, dtype=ts.int64), requires_grad=False).requires_grad
    with pytest.raises(RuntimeError, match=r"floating"):
        nn.Parameter(ts.ones(1, dtype=ts.int64))
    with pytest.raises(TypeError, match="Tensor"):
        nn.Parameter([1.0])
    assert nn.Parameter().numel() == 0
    w.note = "kept"
    assert w.note == "kept"


def test_to_memory_format(device):
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Linear(4, 5))
    filters = net[0].weight
    expected = filters.tolist()
    assert net.to(device, memory_format=ts.channels_last) is net and net[0].weight is filters
    assert filters.is_contiguous(memory_format=ts.channels_last) and not filters.is_contiguous()
    assert filters.tolist() == expected and {p.device for p in net.parameters()} == {ts.ones(1, device=device).device}
    net.to(memory_format=ts.contiguous_format)
    assert filters.is_contiguous() and filters.tolist() == expected
    net.to(ts.float64, memory_format=ts.channels_last)
    assert filters.dtype == ts.float64 and filters.is_contiguous(memory_format=ts.channels_last)


def test_to_a_layout_that_does_not_fit_moves_nothing():
    net = nn.Sequential(nn.Linear(4, 5), nn.Conv3d(2, 3, 3))
    with pytest.raises(RuntimeError, match="layout of 4 dimensions"):
        net.to(ts.float64, memory_format=ts.channels_last)
    assert {p.dtype for p in net.parameters()} == {ts.float32}
    assert net.to(memory_format=ts.channels_last_3d)[1].weight.is_contiguous(memory_format=ts.channels_last_3d)


def test_what_is_applied_in_place_is_seen_by_the_backward_pass():
    layer = nn.Linear(2, 2)
    layer.weight.grad = ts.ones(2, 2, requires_grad=True)
    products = [layer.weight * layer.weight, layer.weight.grad * layer.weight.grad]
    before = layer.weight
    layer._apply(lambda tensor: tensor.add_(1.0))
    assert layer.weight is before and layer.weight._version > 0
    for product in products:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.sum().backward()


def test_a_buffer_in_the_place_of_a_plain_attribute_is_refused():
    module = nn.Module()
    module.count = 5
    with pytest.raises(KeyError, match="count"):
        module.count = nn.Buffer(ts.ones(1))
    del module.count
    module.count = nn.Parameter(ts.ones(1))
    module.count = nn.Buffer(ts.ones(1))
    assert [*module.state_dict()] == ["count"] and not [*module.parameters()]


def test_a_buffer_reaches_a_register_buffer_of_two_parameters():
    class Counting(nn.Module):
        def register_buffer(self, name, value):
            seen.append(name)
            super().register_buffer(name, value)

    seen = []
    module = Counting()
    module.count = nn.Buffer(ts.ones(1))
    assert seen == ["count"] and module.count.item() == 1


class Twice(Net):
    """What its parent registered, registered once more; and a class attribute of the name of a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", ts.zeros(3))
        self.register_parameter("scale", nn.Parameter(ts.ones(5)))
        self.register_buffer("scratch", None)


def test_a_subclass_registers_again_what_its_parent_has():
    net = Twice()
    assert net.count.shape == (3,) and net.scale.shape == (5,) and net.scratch is None
    assert names(net.named_buffers()) == ["count"] and names(net.named_parameters())[0] == "scale"
    net.register_buffer("count", ts.zeros(4), persistent=False)
    assert "count" not in net.state_dict() and net.count.shape == (4,)
    with pytest.raises(KeyError, match="already exists"):
        net.register_buffer("forward", ts.zeros(1))
