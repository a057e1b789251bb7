"""Where in a recording somebody speaks, told by the published weights of Silero VAD (MIT licence).

    pip install --no-deps silero-vad
    python examples/voice_activity.py --wav speech.wav

The package brings the model as an ONNX file, of which the weights are taken; none of its code is used or imported.
Without ``--wav`` the program makes two seconds of its own: silence, vowels from a voice made of pulses and formants,
then noise. What onnxruntime makes of them with that file lies in ``voice_activity.json``, to compare with.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tesserack as ts
from tesserack import nn
from tesserack.nn import functional as F

RATE, CHUNK, CONTEXT = 16000, 512, 64
WEIGHTS = Path("data", "silero_vad_16k_op15.onnx")
PUBLISHED = Path(__file__).with_name("voice_activity.json")
TOLERANCE = 1e-5  # between two engines in float32
# Frequencies of the first three resonances of the mouth in "a", "i" and "u".
VOWELS = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240))


class VoiceActivity(nn.Module):
    """The probability of speech in chunks of 512 samples, each with the 64 samples before it; a state goes along."""

    def __init__(self) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False)  # real and imaginary parts of a spectrum
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1)
        self.lstm_cell = nn.LSTMCell(128, 128)
        self.final_conv = nn.Conv1d(128, 1, 1)

    def forward(
        self, samples: ts.Tensor, state: tuple[ts.Tensor, ts.Tensor] | None = None
    ) -> tuple[ts.Tensor, tuple[ts.Tensor, ts.Tensor]]:
        parts = self.stft_conv(F.pad(samples[:, None], (0, CONTEXT), mode="reflect"))
        real, imaginary = parts.chunk(2, dim=1)
        x = (real**2 + imaginary**2).sqrt()
        for layer in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = layer(x).relu()
        state = self.lstm_cell(x.squeeze(-1), state)
        return self.final_conv(state[0].relu()[..., None]).sigmoid().mean((1, 2)), state


def published_weights(path: Path | None) -> Path:
    """The file, or that of the installed package."""
    if path is None:
        found = importlib.util.find_spec("silero_vad")
        if found is None or not found.submodule_search_locations:
            sys.exit("error: the weights come with a package: pip install --no-deps silero-vad")
        path = Path(found.submodule_search_locations[0]) / WEIGHTS
    if not path.exists():
        sys.exit(f"error: there is no file {path}")
    return path


def load(path: Path) -> dict[str, ts.Tensor]:
    """Weights by our layers' names, from an ONNX file; or from another one that has them under these names."""
    if path.suffix != ".onnx":
        return ts.load(path)
    kept = onnx_weights(path.read_bytes())
    names = {"stft_conv.weight": "stft.forward_basis_buffer"}
    for part in ("weight", "bias"):
        names.update({f"conv{k + 1}.{part}": f"encoder.{k}.reparam_conv.{part}" for k in range(4)})
        names.update({f"lstm_cell.{part}_{side}": f"decoder.rnn.{part}_{side}" for side in ("ih", "hh")})
        names[f"final_conv.{part}"] = f"decoder.decoder.2.{part}"
    return {ours: kept[f"model.{theirs}"] for ours, theirs in names.items()}


def onnx_weights(file: bytes) -> dict[str, ts.Tensor]:
    """The float32 arrays that a model keeps: field 5 of its graph, which is field 7 of the file."""
    (graph,) = (value for field, value in fields(file) if field == 7)
    kept = {}
    for field, array in fields(graph):
        if field == 5:
            parts = [*fields(array)]
            shape = [value for number, value in parts if number == 1]
            found = dict(parts)
            if found[2] == 1:  # float32; the name is field 8, the bytes are field 9
                kept[found[8].decode()] = ts.frombuffer(bytearray(found[9]), dtype=ts.float32).reshape(shape)
    return kept


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of a protocol buffer's fields: whole numbers and bytes, which is all that ONNX has here."""
    place = 0

    def number() -> int:
        nonlocal place
        value, shift = 0, 0
        while True:
            byte = message[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(message):
        key = number()
        value: Any = number()
        if key & 7 == 2:
            place += value
            value = message[place - value : place]
        elif key & 7:
            sys.exit(f"error: a field of kind {key & 7} in the ONNX file, expected 0 or 2")
        yield key >> 3, value


@ts.inference_mode()
def probabilities(model: VoiceActivity, samples: ts.Tensor) -> ts.Tensor:
    """Of speech, chunk by chunk: samples (n) from -1 to 1 to probabilities (n / 512, rounded up)."""
    samples = F.pad(samples, (CONTEXT, -len(samples) % CHUNK))
    found, state = [], None
    for chunk in samples.unfold(0, CONTEXT + CHUNK, CHUNK):
        probability, state = model(chunk[None], state)
        found.append(probability)
    return ts.cat(found)


def difference(found: list[float]) -> float:
    """The greatest one from what the published model says of the recording that is made up."""
    published = json.loads(PUBLISHED.read_text())["probabilities"]
    return max(abs(a - b) for a, b in zip(found, published, strict=True))


def spans(found: list[float], threshold: float = 0.5) -> list[tuple[float, float]]:
    """Beginnings and ends in seconds of what is above the threshold."""
    above = [False, *(p > threshold for p in found), False]
    edges = [k * CHUNK / RATE for k in range(len(above) - 1) if above[k] != above[k + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def made_up() -> np.ndarray:
    """Half a second each of silence, two times vowels, and noise."""
    rng = np.random.RandomState(0)
    time = np.arange(RATE // 3) / RATE
    vowels = []
    for formants in VOWELS:
        pitch = 120 + 15 * np.sin(2 * np.pi * 3 * time)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        voice = np.zeros_like(time)
        for harmonic in range(1, 30):
            frequency = harmonic * 120
            gain = sum(1 / (1 + ((frequency - f) / 90) ** 2) for f in formants) / harmonic**0.5
            voice += gain * np.sin(harmonic * phase)
        vowels.append(voice * np.hanning(len(time)))
    speech = np.concatenate(vowels)
    silence = 1e-4 * rng.randn(RATE // 2)
    noise = 0.02 * rng.randn(RATE // 2)
    return np.concatenate([silence, 0.5 * speech / abs(speech).max(), noise]).astype("float32")


def read(path: Path) -> np.ndarray:
    """A recording of 16,000 samples a second, one channel of 16 bits."""
    import wave

    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            sys.exit(f"error: expected {RATE} samples a second, one channel of 16 bits, in {path}")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype("float32") / 32768


def main() -> int:
    parser = argparse.ArgumentParser(description="Tell where in a recording somebody speaks.")
    parser.add_argument("--wav", type=Path, help="a recording, 16 kHz, one channel (default: one made up)")
    parser.add_argument("--weights", type=Path, help="an ONNX or safetensors file (default: of the installed package)")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    model = VoiceActivity()
    model.load_state_dict(load(published_weights(args.weights)))
    model.to(args.device).eval()
    samples = ts.from_numpy(read(args.wav) if args.wav else made_up()).to(args.device)
    found = probabilities(model, samples).tolist()
    for k in range(0, len(found), 4):
        print(f"{k * CHUNK / RATE:6.2f} s  {found[k]:.3f}  {'#' * round(40 * found[k])}")
    for begin, end in spans(found):
        print(f"speech from {begin:.2f} s to {end:.2f} s")
    print(f"{sum(p > 0.5 for p in found)} of {len(found)} chunks are speech")
    if args.wav is None and args.weights is None:
        apart = difference(found)
        print(f"the published model's own outputs: {'the same' if apart < TOLERANCE else 'others'}, within {apart:.1e}")
        return 0 if apart < TOLERANCE else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
