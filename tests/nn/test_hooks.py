"""Forward and backward hooks of modules."""

import gc

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn.modules import module as module_file


def test_handles_tell_the_dictionary_of_their_hook():
    layer = nn.Linear(2, 2)
    first, second = (layer.register_forward_hook(lambda *_: None) for _ in range(2))
    assert first.hooks_dict_ref() is second.hooks_dict_ref() and [*first.hooks_dict_ref()] == [first.id, second.id]
    first.remove()
    assert [*second.hooks_dict_ref()] == [second.id]
    del layer
    gc.collect()
    assert second.hooks_dict_ref() is None


def test_forward_hooks_see_and_replace():
    layer = nn.Identity()
    pre = layer.register_forward_pre_hook(lambda m, args: args[0] + 1)
    post = layer.register_forward_hook(lambda m, args, out: (args[0], out * 10))
    assert layer(1) == (2, 20)
    pre.remove()
    assert layer(1) == (1, 10)
    post.remove()
    assert layer(1) == 1
    post.remove()  # a second time does nothing


def test_hooks_run_in_order_and_prepend_goes_first():
    order = []
    layer = nn.Identity()
    for name, prepend in (("a", False), ("b", False), ("c", True)):
        layer.register_forward_hook(lambda *_, name=name: order.append(name), prepend=prepend)
        layer.register_forward_pre_hook(lambda *_, name=name: order.append("pre " + name), prepend=prepend)
    layer(0)
    assert order == ["pre c", "pre a", "pre b", "c", "a", "b"]


def test_hooks_with_keyword_arguments():
    class Add(nn.Module):
        def forward(self, x, *, y=0):
            return x + y

    layer = Add()
    layer.register_forward_pre_hook(lambda m, args, kwargs: (args, {"y": kwargs["y"] * 2}), with_kwargs=True)
    layer.register_forward_hook(lambda m, args, kwargs, out: (out, kwargs), with_kwargs=True)
    assert layer(1, y=3) == (7, {"y": 6})


def test_always_called_hooks_run_after_an_error():
    class Bad(nn.Module):
        def forward(self, x):
            raise ValueError("oops")

    seen = []
    layer = Bad()
    layer.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    layer.register_forward_hook(lambda m, args, out: seen.append("never"))
    with pytest.raises(ValueError, match="oops"):
        layer(1)
    assert seen == [None]


def test_a_hook_may_remove_itself():
    layer = nn.Identity()
    calls = []

    def once(module, args, out):
        calls.append(1)
        handle.remove()

    handle = layer.register_forward_hook(once)
    layer(1), layer(1)
    assert calls == [1]


def test_handle_is_a_context_manager():
    layer = nn.Identity()
    with layer.register_forward_hook(lambda m, args, out: out + 1):
        assert layer(1) == 2
    assert layer(1) == 1


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match="callable"):
        nn.Identity().register_forward_hook(3)


def test_a_bad_answer_of_a_keyword_pre_hook_is_refused():
    layer = nn.Identity()
    layer.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="args, kwargs"):
        layer(1)


def test_global_hooks_see_every_module():
    seen = []
    net = nn.Sequential(nn.Identity(), nn.ReLU())
    with module_file.register_module_forward_hook(lambda m, args, out: seen.append(type(m).__name__)):
        net(ts.ones(1))
    net(ts.ones(1))
    assert seen == ["Identity", "ReLU", "Sequential"]
    with module_file.register_module_forward_pre_hook(lambda m, args: seen.append("pre")):
        net(ts.ones(1))
    assert seen[3:] == ["pre"] * 3


def test_full_backward_hooks_see_gradients(device):
    layer = nn.Linear(2, 1, bias=False).to(device)
    with ts.no_grad():
        layer.weight.copy_(ts.tensor([[2.0, 3.0]]))
    seen = {}
    layer.register_full_backward_pre_hook(lambda m, out: seen.update(pre=out))
    layer.register_full_backward_hook(lambda m, inp, out: seen.update(inp=inp, out=out))
    x = ts.ones(1, 2, device=device, requires_grad=True)
    (layer(x) * 5).sum().backward()
    assert seen["pre"][0].tolist() == [[5.0]] and seen["out"][0].tolist() == [[5.0]]
    assert seen["inp"][0].tolist() == [[10.0, 15.0]] and x.grad.tolist() == [[10.0, 15.0]]


def test_full_backward_hooks_replace_gradients(device):
    layer = nn.Identity()
    layer.register_full_backward_pre_hook(lambda m, out: (out[0] * 2,))
    layer.register_full_backward_hook(lambda m, inp, out: (inp[0] * 10,))
    x = ts.ones(2, device=device, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad.tolist() == [20.0, 20.0]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_full_backward_hook_without_input_gradients(device):
    layer = nn.Linear(2, 1, bias=False).to(device)
    seen = []
    handle = layer.register_full_backward_hook(lambda m, inp, out: seen.append((inp, out[0].tolist())))
    layer(ts.ones(1, 2, device=device)).sum().backward()
    assert seen == [((None,), [[1.0]])]
    handle.remove()
    layer.register_full_backward_hook(lambda m, inp, out: (ts.ones(1),))
    with pytest.raises(RuntimeError, match="requires grad"):
        layer(ts.ones(1, 2, device=device)).sum().backward()


def test_full_backward_hook_with_several_inputs_and_outputs(device):
    class Swap(nn.Module):
        def forward(self, a, b, flag):
            return b * 2, a * 3

    seen = []
    layer = Swap()
    layer.register_full_backward_hook(lambda m, inp, out: seen.append((inp, out)))
    a = ts.ones(1, device=device, requires_grad=True)
    b = ts.ones(1, device=device)
    second = layer(a, b, True)[1]
    second.sum().backward()
    ((inp, out),) = seen
    assert inp[0].tolist() == [3.0] and inp[1] is None and inp[2] is None
    assert out[0] is None and out[1].tolist() == [1.0]


def test_wrong_number_of_replaced_gradients_is_refused(device):
    layer = nn.Identity()
    layer.register_full_backward_hook(lambda m, inp, out: (inp[0], inp[0]))
    x = ts.ones(1, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="expected None or 1"):
        layer(x).sum().backward()


def test_backward_hooks_do_nothing_without_recording():
    layer = nn.Identity()
    layer.register_full_backward_hook(lambda m, inp, out: (_ for _ in ()).throw(AssertionError))
    with ts.no_grad():
        x = ts.ones(1, requires_grad=True)
        assert layer(x) is x


def test_old_backward_hook_sees_the_last_operator(device):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).to(device)
    seen = []
    handle = net[1].register_backward_hook(lambda module, into, out: seen.append((module, into, out)) or (into[0] * 2,))
    x = ts.ones(2, 3, device=device)
    net(x).sum().backward()
    ((module, into, out),) = seen
    assert module is net[1] and into[0].shape == out[0].shape == (2, 4)
    doubled = net[0].bias.grad.clone()
    handle.remove()
    net.zero_grad()
    net(x).sum().backward()
    assert len(seen) == 1 and doubled.tolist() == (net[0].bias.grad * 2).tolist()


def test_kinds_of_backward_hooks_do_not_mix():
    layer = nn.ReLU()
    layer.register_backward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full"):
        layer.register_full_backward_hook(lambda *_: None)


def test_compile_of_a_module_leaves_it_as_it_is():
    layer = nn.Linear(2, 2)
    assert layer.compile(mode="max-autotune") is None
    with pytest.raises(RuntimeError, match="mode"):
        layer.compile(mode="default", options={"a": 1})
    x = ts.ones(1, 2)
    assert layer._call_impl(x).tolist() == layer(x).tolist()


def test_hooks_that_are_always_called_follow_a_pre_hook_that_failed():
    def refuse(module, args):
        raise RuntimeError("refused")

    told = []
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda module, args, result: told.append(result), always_call=True)
    layer.register_forward_pre_hook(refuse)
    with pytest.raises(RuntimeError, match="refused"):
        layer(ts.ones(1, 2))
    assert told == [None]


def test_a_backward_hook_of_a_module_that_gives_a_dictionary_warns():
    class Named(nn.Module):
        def forward(self, x):
            return {"x": x * 2}

    module = Named()
    module.register_full_backward_hook(lambda *_: None)
    with pytest.warns(UserWarning, match="should be a Tensor or a tuple of Tensors but received <class 'dict'>"):
        module(ts.ones(2, requires_grad=True))
