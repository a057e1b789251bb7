"""Random draws by rejection, and implicit gradients, on any device: loops over the elements still to be decided.

Every draw comes from the device's Philox stream through ``rand`` and ``randn``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import wrap_torch_function
from tesserack.autograd import Function
from tesserack.autograd._underived import underived
from tesserack.distributions._simplex_gradient import LARGEST_TOTAL, Shares
from tesserack.distributions.utils import kept_within
from tesserack.library.whole_operator import is_looked_on, whole_operator
from tesserack.ops.random import substitutes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["_sample_dirichlet", "_standard_gamma", "binomial", "poisson"]


def _decide(shape: Any, like: Tensor, attempt: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """Fills a flat tensor by attempts: ``attempt(indices)`` gives values and which of them are accepted."""
    out = ts.zeros(math.prod(shape), dtype=like.dtype, device=like.device)
    left = ts.arange(out.numel(), device=like.device)
    while left.numel():
        values, accepted = attempt(left)
        out[left[accepted]] = values[accepted]
        left = left[~accepted]
    return out


def _rand(count: int, like: Tensor, generator: Any = None) -> Tensor:
    """Uniform numbers in (0, 1)."""
    uniforms = ts.rand(count, dtype=like.dtype, device=like.device, generator=generator)
    return uniforms.clamp(min=ts.finfo(like.dtype).tiny)


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return ts.empty_like(x)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0], output)


# Numbers that do not change with what they were drawn by.
_UNCHANGING = (lambda ctx, grad: (ts.zeros_like(grad), None), lambda ctx, inputs, output: None)


@whole_operator(
    "tesserack_random::log_gamma_variates",
    "(Tensor alpha, Generator? generator) -> Tensor",
    _like_first,
    (lambda ctx, grad: (grad * _log_gamma_gradient(*ctx.saved_tensors), None), _save),
)
def _log_gamma_variates(alpha: Tensor, generator: Any) -> Tensor:
    """Logarithms of gamma variates (Marsaglia and Tsang 2000); below one, by alpha + 1 and a power of a uniform."""
    boosted = alpha < 1
    shape = ts.where(boosted, alpha + 1, alpha)
    d = shape - 1 / 3
    c = 1 / (3 * d.sqrt())

    def attempt(index: Tensor) -> tuple[Tensor, Tensor]:
        x = ts.randn(index.numel(), dtype=alpha.dtype, device=alpha.device, generator=generator)
        v = (1 + c[index] * x) ** 3
        positive = v > 0
        log_v = v.clamp(min=ts.finfo(alpha.dtype).tiny).log()
        log_u = _rand(index.numel(), alpha, generator).log()
        accepted = positive & (log_u < 0.5 * x * x + d[index] * (1 - v + log_v))
        # Without a shape there are no variates, and an infinite one is its own: neither would ever be accepted.
        return d[index].log() + log_v, accepted | ~((d[index] > 0) & d[index].isfinite())

    drawn = _decide(alpha.shape, alpha, attempt)
    return ts.where(boosted, drawn + _rand(alpha.numel(), alpha, generator).log() / alpha, drawn)


def _series_gradient(alpha: Tensor, x: Tensor) -> Tensor:
    """d log x / d alpha at a fixed probability, by the power series of the lower incomplete gamma function.

    With P = sum t_n, t_n = x^(alpha + n) e^-x / Gamma(alpha + n + 1), and the density p, it is -(dP / dalpha) / (x p),
    a sum over n of -(log x - psi(alpha + n + 1)) x^n / (alpha (alpha + 1) ... (alpha + n)).
    """
    log_x = x.clamp(min=ts.finfo(x.dtype).tiny).log()
    term = 1 / alpha
    psi = ts.digamma(alpha) + term
    total = ts.zeros_like(x)
    for n in range(1, 400):
        step = term * (psi - log_x)
        total = total + step
        term = term * x / (alpha + n)
        psi = psi + 1 / (alpha + n)
        if n % 16 == 0 and bool((step.abs() <= 1e-15 * total.abs()).all()):
            break
    return total


def _normal_quantile_gradient(alpha: Tensor, x: Tensor) -> Tensor:
    """The same for large alpha, from the normal quantile r + log(v / r) / r of the saddlepoint approximation.

    r = sign(l - 1) sqrt(2 alpha (l - 1 - log l)) and v = sqrt(alpha) (l - 1), with l = x / alpha (Barndorff-Nielsen
    1986). The quotient of its derivatives by alpha and by log x; near l = 1 a Taylor series in log l.
    """
    log_l = x.log() - alpha.log()
    near = log_l.abs() < 0.02
    safe = ts.where(near, ts.full_like(log_l, 0.5), log_l)
    e = safe.expm1()
    root = safe.sign() * ts.sqrt(2 * (e - safe))  # r / sqrt(alpha)
    slope = e / root  # d root / d log l
    correction = (e / root).log() / root
    correction_slope = ((safe.exp() / e - slope / root) - correction * slope) / root
    # z = sqrt(alpha) root + correction / sqrt(alpha), and d log l / d alpha = -1 / alpha at fixed x.
    by_log = alpha.sqrt() * slope + correction_slope / alpha.sqrt()
    direct = 0.5 * root / alpha.sqrt() - 0.5 * correction / alpha**1.5
    far_value = 1 / alpha - direct / by_log
    # Series of the same parts about log l = 0.
    t = ts.where(near, log_l, ts.zeros_like(log_l))
    root = t * (1 + t / 6 + t**2 / 36 + t**3 / 270 + t**4 / 2592)
    slope = 1 + t / 3 + t**2 / 12 + t**3 * (4 / 270) + t**4 * (5 / 2592)
    correction = 1 / 3 - t / 36 - t**2 * (17 / 3240) + t**3 / 9720
    correction_slope = -1 / 36 - t * (17 / 1620) + t**2 / 3240
    by_log = alpha.sqrt() * slope + correction_slope / alpha.sqrt()
    direct = 0.5 * root / alpha.sqrt() - 0.5 * correction / alpha**1.5
    return ts.where(near, 1 / alpha - direct / by_log, far_value)


@whole_operator("tesserack_random::log_gamma_gradient", "(Tensor alpha, Tensor log_x) -> Tensor", _like_first)
def _log_gamma_gradient(alpha: Tensor, log_x: Tensor) -> Tensor:
    """d log x / d alpha of gamma variates x at a fixed probability, worked out in float64."""
    a, x = alpha.double(), log_x.double().exp()
    large = a > 30
    small_part = _series_gradient(ts.where(large, ts.ones_like(a), a), ts.where(large, ts.ones_like(x), x))
    # Where x itself underflows, the series' first term, with log x as it is.
    tiny = x < 1e-280
    first = (ts.digamma(a + 1) - log_x.double()) / a
    small_part = ts.where(tiny, first, small_part)
    filler = ts.full_like(a, 50.0)
    large_part = _normal_quantile_gradient(ts.where(large, a, filler), ts.where(large, x, filler))
    return ts.where(large, large_part, small_part).to(alpha.dtype)


class _StandardLogGamma(Function):
    """Logarithms of gamma variates of shape ``alpha`` and rate one, with their implicit gradient.

    Figurnov, Mohamed and Mnih 2018, Implicit Reparameterization Gradients.
    """

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, generator: Any) -> Tensor:
        out = _log_gamma_drawn(alpha.detach(), generator)
        ctx.save_for_backward(alpha, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        alpha, out = ctx.saved_tensors
        with ts.no_grad():
            slope = _log_gamma_gradient(alpha.detach(), out.detach())
        return grad * slope, None


@whole_operator(
    "tesserack_random::substituted_gamma", "(Tensor alpha, Generator? generator) -> Tensor", _like_first, _UNCHANGING
)
def _substituted_gamma(alpha: Tensor, generator: Any) -> Tensor:
    drawn: Tensor = substitutes.samplers["gamma"](alpha, generator)
    return drawn


def _log_gamma_drawn(alpha: Tensor, generator: Any) -> Tensor:
    flat = alpha.reshape(-1)
    wide = flat if flat.dtype == ts.float64 else flat.float()
    return _log_gamma_variates(wide, generator).to(alpha.dtype).reshape(alpha.shape)  # type: ignore[no-any-return]


def _log_gamma(alpha: Tensor, generator: Any) -> Tensor:
    if is_looked_on(alpha):  # the operator has its gradient, also in programs that were saved
        return _log_gamma_drawn(alpha, generator)
    return _StandardLogGamma.apply(alpha, generator)  # type: ignore[no-any-return]


class _SubstitutedGamma(Function):
    """Gamma variates of shape ``alpha`` by a substitute, and their logarithms, which have the gradient."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, generator: Any) -> tuple[Tensor, Tensor]:
        out = _substituted_gamma(alpha.detach(), generator)
        log_out = out.log()
        ctx.save_for_backward(alpha, log_out)
        ctx.mark_non_differentiable(out)
        return out, log_out

    @staticmethod
    def backward(ctx: Any, _: Any, grad: Tensor) -> tuple[Tensor, None]:
        alpha, log_out = ctx.saved_tensors
        with ts.no_grad():
            slope = _log_gamma_gradient(alpha.detach().double(), log_out.detach())
        return (grad * slope).to(alpha.dtype), None


class _Replaced(Function):
    """``exact`` as the value, ``smooth`` for the gradient."""

    @staticmethod
    def forward(ctx: Any, smooth: Tensor, exact: Tensor) -> Tensor:
        return exact.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


@wrap_torch_function(lambda alpha, generator=None: (alpha,))
def _standard_gamma(alpha: Tensor, generator: Any = None) -> Tensor:
    """Gamma variates of shapes ``alpha`` and rate one, differentiable by ``alpha`` once.

    They may underflow to zero. It waits for the device.

    >>> import tesserack as ts
    >>> tuple(_standard_gamma(ts.ones(3, 2)).shape)
    (3, 2)
    """
    _checked_real("_standard_gamma", alpha)
    if "gamma" not in substitutes.samplers:
        return ts.exp(_log_gamma(alpha, generator))
    drawn, log_drawn = _SubstitutedGamma.apply(alpha, generator)
    return _Replaced.apply(log_drawn.exp().to(alpha.dtype), drawn.to(alpha.dtype))  # type: ignore[no-any-return]


@wrap_torch_function(lambda concentration, generator=None: (concentration,))
def _sample_dirichlet(concentration: Tensor, generator: Any = None) -> Tensor:
    """Dirichlet variates along the last dim, differentiable once: gamma variates over their sum.

    By logarithms, as those of small concentrations would all underflow. The gradient is implicit for each share, and,
    where the concentrations add up to more than 500, for each gamma variate, which is as right and noisier.
    """
    _checked_real("_sample_dirichlet", concentration)
    if concentration.requires_grad and bool((concentration.detach().sum(-1) <= LARGEST_TOTAL).all()):
        return Shares.apply(concentration, _shares(concentration.detach(), generator))  # type: ignore[no-any-return]
    return _shares(concentration, generator)


def _shares(concentration: Tensor, generator: Any) -> Tensor:
    if "gamma" not in substitutes.samplers:
        shares = ts.softmax(_log_gamma(concentration, generator), -1)
        return kept_within(shares, ts.finfo(shares.dtype).tiny, 1 - ts.finfo(shares.dtype).eps / 2)
    dtype = concentration.dtype
    drawn, log_drawn = _SubstitutedGamma.apply(concentration.double(), generator)
    largest = 1 - ts.finfo(dtype).eps / 2
    shares = (drawn / drawn.sum(-1, keepdim=True)).to(dtype).clamp(ts.finfo(dtype).tiny, largest)
    return _Replaced.apply(ts.softmax(log_drawn, -1).to(dtype), shares)  # type: ignore[no-any-return]


def _search_poisson(rate: Tensor, generator: Any) -> Tensor:
    """Poisson variates by adding up probabilities until a uniform number is passed: for small rates."""
    u = _rand(rate.numel(), rate, generator)
    p = (-rate).exp()
    k = ts.zeros_like(rate)
    total = p
    for n in range(1, 200):
        beyond = u > total
        if not bool(beyond.any()):
            break
        k = k + beyond
        p = p * rate / n
        total = total + p
    return k


def _reject_poisson(rate: Tensor, generator: Any) -> Tensor:
    """Poisson variates by transformed rejection (Hörmann 1993, algorithm PTRS): for rates from ten on."""
    b = 0.931 + 2.53 * rate.sqrt()
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def attempt(index: Tensor) -> tuple[Tensor, Tensor]:
        mu = rate[index]
        u = _rand(index.numel(), rate, generator) - 0.5
        v = _rand(index.numel(), rate, generator)
        us = 0.5 - u.abs()
        k = ((2 * a[index] / us + b[index]) * u + mu + 0.43).floor()
        quick = (us >= 0.07) & (v <= v_r[index])
        refused = (k < 0) | ((us < 0.013) & (v > us))
        left = (v * inverse_alpha[index] / (a[index] / (us * us) + b[index])).log()
        right = k * mu.log() - mu - ts.lgamma(k.clamp(min=0) + 1)
        return k, quick | (~refused & (left <= right))

    return _decide(rate.shape, rate, attempt)


def _split(
    value: Tensor, large: Tensor, small_draw: Callable[[Tensor], Tensor], large_draw: Callable[[Tensor], Tensor]
) -> Tensor:
    """Draws by one method where ``large``, by another elsewhere; both take flat indices."""
    out = ts.empty_like(value)
    for index, draw in ((ts.nonzero(~large).flatten(), small_draw), (ts.nonzero(large).flatten(), large_draw)):
        if index.numel():
            out[index] = draw(index)
    return out


def _checked_real(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        got = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise RuntimeError(f"{name}: expected a floating tensor, got {got}")


class _Drawn(Function):
    """Numbers that do not change with what they were drawn by."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, drawn: Tensor) -> Tensor:
        return drawn.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ts.zeros_like(grad), None


def _as_drawn(source: Tensor, drawn: Tensor) -> Tensor:
    return _Drawn.apply(source, drawn) if source.requires_grad else drawn


@whole_operator("tesserack_random::poisson", "(Tensor rate, Generator? generator) -> Tensor", _like_first, _UNCHANGING)
def _draw_poisson(rate: Tensor, generator: Any) -> Tensor:
    flat = rate.reshape(-1).double()
    if not bool((flat >= 0).all()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    if substitute := substitutes.samplers.get("poisson"):
        drawn: Tensor = substitute(rate, generator).to(rate.dtype)
        return drawn
    large = flat >= 10
    drawn = _split(
        flat, large, lambda i: _search_poisson(flat[i], generator), lambda i: _reject_poisson(flat[i], generator)
    )
    return drawn.to(rate.dtype).reshape(rate.shape)


@wrap_torch_function(lambda input, generator=None: (input,))
def poisson(input: Tensor, generator: Any = None) -> Tensor:
    """Poisson variates of the non-negative rates ``input``, in their shape and dtype.

    ``RuntimeError`` for a rate that is negative or NaN. It waits for the device.

    >>> import tesserack as ts
    >>> ts.poisson(ts.zeros(3))
    tensor([0., 0., 0.])
    """
    _checked_real("poisson", input)
    return _as_drawn(input, _draw_poisson(input.detach(), generator))


def _search_binomial(n: Tensor, p: Tensor, generator: Any) -> Tensor:
    """Binomial variates by adding up probabilities: for n p below ten, p at most a half."""
    u = _rand(n.numel(), n, generator)
    odds = p / (1 - p)
    mass = (n * ts.log1p(-p)).exp()
    k = ts.zeros_like(n)
    total = mass
    for i in range(200):
        beyond = (u > total) & (k < n)
        if not bool(beyond.any()):
            break
        k = k + beyond
        mass = mass * odds * (n - i).clamp(min=0) / (i + 1)
        total = total + mass
    return k


def _reject_binomial(n: Tensor, p: Tensor, generator: Any) -> Tensor:
    """Binomial variates by transformed rejection (Hörmann 1993, algorithm BTRS): n p from ten on, p at most a half."""
    spread = (n * p * (1 - p)).sqrt()
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    center = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    alpha = (2.83 + 5.1 / b) * spread
    log_odds = (p / (1 - p)).log()
    m = ((n + 1) * p).floor()

    def attempt(index: Tensor) -> tuple[Tensor, Tensor]:
        nn, mm, bb, aa = n[index], m[index], b[index], a[index]
        u = _rand(index.numel(), n, generator) - 0.5
        v = _rand(index.numel(), n, generator)
        us = 0.5 - u.abs()
        k = ((2 * aa / us + bb) * u + center[index]).floor()
        inside = (k >= 0) & (k <= nn)
        quick = (us >= 0.07) & (v <= v_r[index])
        kk = k.clamp(min=0).minimum(nn)
        left = (v * alpha[index] / (aa / (us * us) + bb)).log()
        peak = ts.lgamma(mm + 1) + ts.lgamma(nn - mm + 1)
        right = peak - ts.lgamma(kk + 1) - ts.lgamma(nn - kk + 1) + (kk - mm) * log_odds[index]
        return k, inside & (quick | (left <= right))

    return _decide(n.shape, n, attempt)


@whole_operator(
    "tesserack_random::binomial",
    "(Tensor count, Tensor prob, Generator? generator) -> Tensor",
    lambda count, prob, _: prob.new_empty(ts.broadcast_shapes(count.shape, prob.shape)),
)
def _draw_binomial(count: Tensor, prob: Tensor, generator: Any) -> Tensor:
    trials, chances = ts.broadcast_tensors(count, prob)
    n, chance = trials.reshape(-1).double(), chances.reshape(-1).double()
    if not bool(((n >= 0) & (chance >= 0) & (chance <= 1)).all()):
        raise RuntimeError("binomial: expected counts from 0 on and probabilities in [0, 1]")
    if substitute := substitutes.samplers.get("binomial"):
        found: Tensor = substitute(trials, chances, generator).to(prob.dtype)
        return found
    flipped = chance > 0.5
    p = ts.where(flipped, 1 - chance, chance)
    drawn = _split(
        n,
        n * p >= 10,
        lambda i: _search_binomial(n[i], p[i], generator),
        lambda i: _reject_binomial(n[i], p[i], generator),
    )
    return ts.where(flipped, n - drawn, drawn).to(prob.dtype).reshape(chances.shape)


@wrap_torch_function(lambda count, prob, generator=None: (count, prob))
def binomial(count: Tensor, prob: Tensor, generator: Any = None) -> Tensor:
    """Binomial variates of ``count`` trials with probability ``prob``, which broadcast; prob's dtype.

    ``RuntimeError`` for a count that is negative or a probability outside [0, 1]. It waits for the device.
    """
    _checked_real("binomial", prob)
    drawn = _draw_binomial(count.detach(), prob.detach(), generator)
    return underived("binomial", (drawn,), count, prob)[0]
