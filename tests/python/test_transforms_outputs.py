"""What transforms of functions ask of the functions' outputs."""

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.func import hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap


def test_functions_that_return_nothing_are_refused(device):
    x = ts.rand(3, device=device)
    for nothing in ((), []):
        for call in (
            lambda f: jacrev(f)(x),
            lambda f: jacfwd(f)(x),
            lambda f: vjp(f, x),
            lambda f: jvp(f, (x,), (x,)),
            lambda f: linearize(f, x),
        ):
            with pytest.raises(RuntimeError, match="at least one tensor"):
                call(lambda _, given=nothing: given)


def test_strict_products_ask_every_output_to_depend_on_the_primals(device):
    x, other = ts.rand(3, device=device), ts.rand(3, device=device)
    other.requires_grad_()
    for function in (lambda x: (x.sin(), other.sin()), lambda x: (x, x.argmax()), lambda x: x.detach()):
        with pytest.raises(RuntimeError, match="strict=True"):
            jvp(function, (x,), (x,), strict=True)
    _, pushed = jvp(lambda x: (x * other, x.sum()), (x,), (ts.ones_like(x),), strict=True)
    assert pushed[0].tolist() == other.tolist() and pushed[1].item() == 3
    assert jvp(lambda x: other.detach(), (x,), (x,))[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("whole", [ts.Tensor.long, lambda x: x > 0, lambda x: (x.sin(), x.argmax())])
def test_what_is_pulled_back_is_differentiable(device, whole):
    x = ts.rand(3, device=device)
    for call in (lambda: vjp(whole, x), lambda: jacrev(whole)(x)):
        with pytest.raises(RuntimeError, match="has_aux"):
            call()
    alone = ts.ones(2, device=device)
    assert not jacrev(lambda _: alone)(x).any() and not vjp(lambda _: alone, x)[1](alone)[0].any()
    _, pull, beside = vjp(lambda x: (x.sin(), whole(x)), x, has_aux=True)
    assert ts.equal(pull(ts.ones_like(x))[0], x.cos()) and beside is not None
    pushed = jvp(whole, (x,), (ts.ones_like(x),))[1]  # which has zeros for them
    assert not (pushed[1] if isinstance(pushed, tuple) else pushed).any()


def test_jacobians_are_of_real_numbers(device):
    x, z = ts.rand(3, device=device), ts.ones(3, dtype=ts.complex64, device=device)
    for jacobian in (jacrev, jacfwd, hessian):
        with pytest.raises(RuntimeError, match=r"real arguments, got .*complex64 at position 0"):
            jacobian(lambda v: v * 2)(z)
    for jacobian in (jacrev, jacfwd):
        with pytest.raises(RuntimeError, match="real outputs"):
            jacobian(lambda v: ts.complex(v, v))(x)
    for size in (0, -1):
        with pytest.raises(ValueError, match="chunk_size to be greater than 0"):
            jacrev(ts.sin, chunk_size=size)
    assert jacrev(ts.sin, chunk_size=2)(x).shape == (3, 3)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (lambda x: x * 2, "got a Tensor"),
        (lambda x: (x, 0, 0), "got a tuple of 3"),
        (lambda x: (x, (0, 0)), "as the outputs are, one"),
        (lambda x: ((x, x), (0,)), "as the outputs are, 2"),
    ],
)
def test_a_rule_for_batches_says_which_dims_are_theirs(given, match):
    class Doubled(ts.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return given(x)

    with pytest.raises(RuntimeError, match=match):
        vmap(Doubled.apply)(ts.ones(3))


def test_stacked_parameters_are_alike():
    models = [nn.Linear(2, 3) for _ in range(2)]
    models[1].bias.requires_grad_(False)
    with pytest.raises(RuntimeError, match="bias to require gradients in all models"):
        stack_module_state(models)


def test_results_that_are_the_same_for_all_need_be_no_tensors():
    x = ts.arange(6.0).reshape(2, 3)
    assert vmap(lambda v: "text", out_dims=None)(x) == "text"
    first, second = vmap(lambda v: (v * 2, {"n": 3}), out_dims=(1, None))(x)
    assert first.tolist() == (x * 2).t().tolist() and second == {"n": 3}
    assert vmap(lambda v: (v.sum().item() > -1 and v, None), out_dims=(0, None))(x)[1] is None  # entry by entry

    def writes(v):
        v.add_(1)
        return None, "text"

    assert vmap(writes, out_dims=(None, None))(x) == (None, "text") and x[0, 0] == 1
    with pytest.raises(ValueError, match="BatchedTensor when out_dim is None"):
        vmap(lambda v: v, out_dims=None)(x)
    with pytest.raises(ValueError, match="tensors only, got str"):
        vmap(lambda v: (v, "text"))(x)
