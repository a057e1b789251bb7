"""torchaudio's operators against plain loops in float64."""

import itertools
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tesserack as ts

pytest.importorskip("tesserack_audio", reason="the package tesserack-audio is not installed")
from tesserack_audio import align, filters, transducer

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("order", "length"), [(1, 10), (3, 700), (5, 257)])
def test_recursive_filters(tesserack_device: object, order: int, length: int) -> None:
    x = RNG.standard_normal((2, 3, length))
    poles = RNG.uniform(-0.9, 0.9, (3, order - 1))
    a = np.stack([np.atleast_1d(np.poly(p)) for p in poles])
    want = np.zeros((2, 3, length + order - 1))
    for t in range(length):
        for k in range(1, order):
            want[:, :, t + order - 1] -= a[:, k] * want[:, :, t + order - 1 - k]
        want[:, :, t + order - 1] += x[:, :, t]
    out = ts.zeros(2, 3, length + order - 1, dtype=ts.float64, device=tesserack_device)
    given = [ts.tensor(v, device=tesserack_device) for v in (x, a[:, ::-1].copy())]
    filters.lfilter_core_loop(*given, out)
    np.testing.assert_allclose(out.cpu().numpy(), want, rtol=1e-9, atol=1e-9)
    with pytest.raises(RuntimeError, match="expected coefficients of 3 channels"):
        filters.lfilter_core_loop(given[0], given[1][:2], out)


def test_filters_of_high_order_keep_their_digits(tesserack_device: object) -> None:
    # Nine poles near 1, and zeros at 1 that take away what they add: of 5e4 that an impulse is answered, 1 is left.
    poles = 0.86 * np.exp(1j * np.linspace(-0.2, 0.2, 9))
    a, b = np.poly(poles).real, np.poly(np.ones(9))
    length = 600
    x = np.zeros(length)
    x[:10] = b
    want = np.zeros(length + 9)
    for t in range(length):
        want[t + 9] = x[t] - sum(a[k] * want[t + 9 - k] for k in range(1, 10))
    out = ts.zeros(1, 1, length + 9, dtype=ts.float64, device=tesserack_device)
    given = (ts.tensor(v, device=tesserack_device) for v in (x[None, None], a[None, ::-1].copy()))
    filters.lfilter_core_loop(*given, out)
    np.testing.assert_allclose(out.cpu().numpy()[0, 0], want, atol=1e-7)


def test_overdrive(tesserack_device: object) -> None:
    wave, temp = RNG.standard_normal((2, 2, 600))
    want, last_in, last_out = np.zeros((2, 600)), np.zeros(2), np.zeros(2)
    for t in range(600):
        last_out = temp[:, t] - last_in + 0.995 * last_out
        last_in = temp[:, t]
        want[:, t] = wave[:, t] * 0.5 + last_out * 0.75
    out = ts.zeros(2, 600, dtype=ts.float64, device=tesserack_device)
    state = [ts.zeros(2, dtype=ts.float64, device=tesserack_device) for _ in range(2)]
    filters.overdrive_core_loop(*(ts.tensor(v, device=tesserack_device) for v in (wave, temp)), *state, out)
    np.testing.assert_allclose(out.cpu().numpy(), want, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state[1].cpu().numpy(), last_out)


def collapsed(path: tuple[int, ...]) -> list[int]:
    return [label for label, _ in itertools.groupby(path) if label != 0]


@pytest.mark.parametrize("labels", [[1, 2], [1, 1], [2]])
def test_forced_alignment_is_the_best_of_all_paths(labels: list[int]) -> None:
    scores = np.log(RNG.dirichlet(np.ones(3), 5))
    paths = [p for p in itertools.product(range(3), repeat=5) if collapsed(p) == labels]
    best = max(paths, key=lambda p: sum(scores[t, c] for t, c in enumerate(p)))
    given = ts.tensor(scores)[None], ts.tensor([labels]), ts.tensor([5]), ts.tensor([len(labels)])
    path, back = align.forced_align(*given, 0)
    assert tuple(path[0].tolist()) == best and ts.equal(back, given[0])


def test_alignment_of_too_many_labels_is_refused() -> None:
    with pytest.raises(RuntimeError, match="targets length is too long for CTC"):
        align.forced_align(ts.zeros(1, 3, 3), ts.tensor([[1, 1, 2]]), ts.tensor([3]), ts.tensor([3]), 0)


def transduced(log_probs: np.ndarray, labels: list[int], steps: int, blank: int) -> float:
    """Minus the logarithm of the sum over all paths, one by one."""
    total, count = 0.0, len(labels)
    for emit in itertools.combinations(range(steps + count - 1), count):
        t = u = 0
        score = 0.0
        for move in range(steps + count - 1):
            score += log_probs[t, u, labels[u]] if move in emit else log_probs[t, u, blank]
            t, u = (t, u + 1) if move in emit else (t + 1, u)
        total += math.exp(score + log_probs[steps - 1, count, blank])
    return -math.log(total)


def test_the_loss_of_transducers_sums_all_paths() -> None:
    logits = RNG.standard_normal((2, 4, 3, 5))
    labels, times, lengths = [[1, 2], [3, 0]], [4, 3], [2, 1]
    probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    want = [transduced(probs[k], labels[k][: lengths[k]], times[k], 4) for k in range(2)]
    given = *(ts.tensor(numbers, dtype=ts.int32) for numbers in (labels, times, lengths)), 4
    costs, grad = transducer.rnnt_loss_forward(ts.tensor(logits), *given, -1.0)
    assert costs.tolist() == pytest.approx(want)
    step = RNG.standard_normal(logits.shape)
    either = [
        transducer.rnnt_loss_forward(ts.tensor(logits + s * step), *given, -1.0)[0].sum().item() for s in (1e-6, -1e-6)
    ]
    assert (grad.numpy() * step).sum() == pytest.approx((either[0] - either[1]) / 2e-6, rel=1e-5)
    assert transducer.rnnt_loss_forward(ts.tensor(logits), *given, 0.01)[1].abs().max().item() <= 0.01
    with pytest.raises(RuntimeError, match="input length mismatch"):
        transducer.rnnt_loss_forward(ts.tensor(logits), given[0], given[1].clamp(max=3), given[2], 4, -1.0)


@pytest.mark.parametrize("which", range(4))
def test_the_loss_of_transducers_names_what_is_of_another_dtype(which: int) -> None:
    numbers = [ts.zeros(1, 2, 2, 3), *(ts.tensor(v, dtype=ts.int32) for v in ([[1]], [2], [1]))]
    assert transducer.rnnt_loss_forward(*numbers, 0, -1.0)[0].item() > 0
    numbers[which] = numbers[which].to(ts.int64)
    name = ("logits", "targets", "logit_lengths", "target_lengths")[which]
    with pytest.raises(RuntimeError, match=rf"rnnt_loss: {name} must be .* type, got .*int64"):
        transducer.rnnt_loss_forward(*numbers, 0, -1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"targets": ts.tensor([[1, 2]], dtype=ts.int16)}, "targets must be int32 or int64 type, got .*int16"),
        ({"log_probs": ts.zeros(1, 4, 3, dtype=ts.int32)}, "log_probs must be float64, float32 or float16"),
        ({"blank": 3}, r"blank must be within \[0, 3\), got 3"),
        ({"blank": -1}, r"blank must be within \[0, 3\), got -1"),
    ],
)
def test_forced_alignment_names_what_is_wrong(change: dict[str, object], said: str) -> None:
    words: dict[str, object] = {"log_probs": ts.zeros(1, 4, 3), "targets": ts.tensor([[1, 2]]), "blank": 0}
    words |= {"input_lengths": ts.tensor([4]), "target_lengths": ts.tensor([2])}
    align.forced_align(**words)
    with pytest.raises(RuntimeError, match=f"forced_align: {said}"):
        align.forced_align(**{**words, **change})


PROGRAM = """
import torch, torchaudio
from torchaudio import functional as F, transforms as T
wave = torch.randn(2, 8000)
out = F.lowpass_biquad(wave, 16000, 1000.0)
assert out.shape == wave.shape and out[:, 1:].diff().abs().mean() < wave.diff().abs().mean()
F.overdrive(wave)
x = wave.clone().requires_grad_()
F.lfilter(x, torch.tensor([1.0, -0.5]), torch.tensor([1.0, 0.0])).sum().backward()
assert T.MelSpectrogram(16000)(x).shape[1] == 128 and x.grad is not None
paths, scores = F.forced_align(torch.randn(1, 6, 4).log_softmax(-1), torch.tensor([[1, 2]]), blank=0)
assert [k for k in dict.fromkeys(paths[0].tolist()) if k] == [1, 2]
logits = torch.randn(1, 4, 3, 5, requires_grad=True)
F.rnnt_loss(logits, torch.tensor([[1, 2]], dtype=torch.int32), torch.tensor([4], dtype=torch.int32),
            torch.tensor([2], dtype=torch.int32)).backward()
print("done", logits.grad.shape)
"""


@pytest.mark.skipif(find_spec("torchaudio") is None, reason="torchaudio is not installed")
def test_torchaudio_runs_whole(tmp_path: Path) -> None:
    program = tmp_path / "sound.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, "-m", "tesserack", "run", program], capture_output=True, text=True)
    assert done.stdout.startswith("done"), done.stderr[-2000:]
