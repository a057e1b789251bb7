"""Programs of many elements run with instructions joined: the bits are those of the instructions apart."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tesserack as ts
import tesserack.nn.functional as F

SPECIAL = (0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, float("inf"), float("-inf"), float("nan"))
MANY, FEW = 5000, 500  # on either side of the number of elements from which instructions are joined

Ternary = Callable[[ts.Tensor, ts.Tensor, ts.Tensor], ts.Tensor]

FORWARD: dict[str, Ternary] = {
    "clamp": lambda a, b, c: a.clamp(-1, 1),
    "clamp by tensors": lambda a, b, c: ts.clamp(a, b, c),
    "relu6": lambda a, b, c: F.relu6(a),
    "hardtanh": lambda a, b, c: F.hardtanh(a, -0.0, 3.0),
    "leaky_relu": lambda a, b, c: F.leaky_relu(a, 0.1),
    "lerp, near": lambda a, b, c: ts.lerp(a, b, 0.3),
    "lerp, far": lambda a, b, c: ts.lerp(a, b, 0.7),
    "lerp by a tensor": lambda a, b, c: ts.lerp(a, b, c),
    "add, alpha": lambda a, b, c: a.add(b, alpha=3),
    "sub, alpha": lambda a, b, c: a.sub(b, alpha=3),
    "addcmul": lambda a, b, c: ts.addcmul(a, b, c, value=2),
    "addcmul_": lambda a, b, c: a.clone().addcmul_(b, c),
    "gelu, tanh": lambda a, b, c: F.gelu(a, approximate="tanh"),
    "elu": lambda a, b, c: F.elu(a),
    "elu, alpha": lambda a, b, c: F.elu(a, 0.5),
    "frac": lambda a, b, c: a.frac(),
    "angle": lambda a, b, c: a.angle(),
    "nan_to_num": lambda a, b, c: a.nan_to_num(),
    "nan_to_num, values": lambda a, b, c: a.nan_to_num(1.0, 2.0, -3.0),
    "addcdiv": lambda a, b, c: ts.addcdiv(a, b, c),
    "huber_loss": lambda a, b, c: F.huber_loss(a, b, reduction="none", delta=0.7),
    "mse_loss": lambda a, b, c: F.mse_loss(a, b, reduction="none"),
    "softshrink": lambda a, b, c: F.softshrink(a),
    "smooth_l1_loss": lambda a, b, c: F.smooth_l1_loss(a, b, reduction="none"),
}
BACKWARD = ("relu", "relu6", "leaky_relu", "tanh", "sigmoid", "gelu", "silu", "hardtanh", "hardsigmoid", "softplus")


def gradient(name: str) -> Ternary:
    def run(a: ts.Tensor, b: ts.Tensor, c: ts.Tensor) -> ts.Tensor:
        x = a.clone().requires_grad_()
        getattr(F, name)(x).backward(b)
        assert x.grad is not None
        return x.grad

    return run


CASES = FORWARD | {f"gradient of {name}": gradient(name) for name in BACKWARD}


def values(dtype: ts.dtype) -> ts.Tensor:
    special = ts.tensor(SPECIAL)[ts.randint(0, len(SPECIAL), (MANY,))]
    return ts.where(ts.rand(MANY) < 0.3, special, ts.randn(MANY) * 4).to(dtype)


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_as_apart(name: str, dtype: ts.dtype) -> None:
    ts.manual_seed(0)
    a, b, c = (values(dtype) for _ in range(3))
    whole = CASES[name](a, b, c)
    parts = zip(a.split(FEW), b.split(FEW), c.split(FEW), strict=True)
    apart = ts.cat([CASES[name](*part) for part in parts])
    same = (whole == apart) & (whole.signbit() == apart.signbit()) | whole.isnan() & apart.isnan()
    assert bool(same.all()), (whole[~same][:5], apart[~same][:5])


CHAINED = (
    "gelu", "silu", "elu", "celu", "selu", "hardsigmoid", "hardswish", "hardtanh", "sigmoid", "logsigmoid", "softplus",
    "softsign", "mish", "relu6", "leaky_relu", "tanhshrink", "softshrink",
)  # fmt: skip
METHODS = (
    "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "log1p", "sin", "cos", "tan", "atan", "sinh", "asinh", "frac",
    "angle", "nan_to_num", "rsqrt", "lgamma", "digamma", "round", "sign", "square", "sinc",
)  # fmt: skip


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.bfloat16], ids=str)
@pytest.mark.parametrize("name", [*CHAINED, *METHODS])
def test_within_a_longer_program(name: str, dtype: ts.dtype) -> None:
    """What the machine has as one instruction keeps its bits beside others, in programs of few elements and many."""

    def chain(a: ts.Tensor, b: ts.Tensor) -> ts.Tensor:
        y = getattr(F, name)(a) if name in CHAINED else getattr(a, name)()
        return (y + a) * b - 0.5 * y

    ts.manual_seed(0)
    a, b = values(dtype), values(dtype)
    compiled = ts.compile(chain)
    for count in (18, FEW, MANY):
        x, scale = a[-count:].clone(), b[-count:].clone()
        for _ in range(3):
            got = compiled(x, scale)
        want = chain(x, scale)
        same = (got == want) | got.isnan() & want.isnan()
        assert bool(same.all()), (count, x[~same][:5], got[~same][:5], want[~same][:5])


COMPLEX: dict[str, Ternary] = {
    "add": lambda a, b, c: a + b,
    "add to itself": lambda a, b, c: a + a,
    "add, alpha": lambda a, b, c: a.add(b, alpha=3),
    "add, complex alpha": lambda a, b, c: a.add(b, alpha=3 - 1j),
    "add a number": lambda a, b, c: a + 2.5,
    "add a complex number": lambda a, b, c: a + (2.5 - 1j),
    "sub": lambda a, b, c: a - b,
    "neg": lambda a, b, c: -a,
    "mul": lambda a, b, c: a * b,
    "square": lambda a, b, c: a * a,
    "mul by a number": lambda a, b, c: a * 2.5,
    "mul by a complex number": lambda a, b, c: a * (2.5 - 1j),
    "div": lambda a, b, c: a / b,
    "div by a number": lambda a, b, c: a / 3,
    "conjugate product": lambda a, b, c: a * b.conj(),
    "addcmul": lambda a, b, c: ts.addcmul(a, b, c),
    "lerp": lambda a, b, c: ts.lerp(a, b, 0.3),
    "add_": lambda a, b, c: a.clone().add_(b),
    "mul_": lambda a, b, c: a.clone().mul_(b),
    "mul_ by itself": lambda a, b, c: (lambda x: x.mul_(x))(a.clone()),
    "real and complex": lambda a, b, c: a.real * b + c.imag,
}


@pytest.mark.parametrize("dtype", [ts.complex64, ts.complex128], ids=str)
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_one_after_another(name: str, dtype: ts.dtype) -> None:
    """As of numbers with gaps between them, whose parts are taken apart."""
    ts.manual_seed(0)
    of = ts.float32 if dtype == ts.complex64 else ts.float64
    a, b, c = (ts.complex(values(of), values(of)) for _ in range(3))
    apart = []
    for x in (a, b, c):
        wide = ts.zeros(MANY, 2, dtype=dtype)
        wide[:, 0] = x
        apart.append(wide[:, 0])
    for count in (1, 2, 3, 7, 8, 9, FEW, MANY):
        got = ts.view_as_real(COMPLEX[name](a[:count].clone(), b[:count].clone(), c[:count].clone()).resolve_conj())
        want = ts.view_as_real(COMPLEX[name](*(x[:count] for x in apart)).resolve_conj())
        same = (got == want) & (got.signbit() == want.signbit()) | got.isnan() & want.isnan()
        assert bool(same.all()), (count, got[~same][:5], want[~same][:5])
