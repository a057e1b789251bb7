"""What transforms of functions ask of the functions' outputs."""

import pytest
import tesserack as ts
from tesserack.func import jacfwd, jacrev, jvp, linearize, vjp


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
