"""Models that only infer: nothing is recorded, and the weights stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from models import build_gpt, build_resnet18, transformer_flops
from rows import Cost, row


def without_gradients(fw: Any, model: Any, x: Any) -> Callable[[], Any]:
    model.eval()

    def infer() -> Any:
        with fw.no_grad():
            return model(x)

    return infer


@row("infer ResNet-18, 1 image of 32x32", "infer()", limit=0.8)
def resnet18_one(fw: Any, device: str) -> dict[str, Any]:
    model = build_resnet18(fw.nn).to(device)
    return {"infer": without_gradients(fw, model, fw.randn(1, 3, 32, 32, device=device))}


@row("infer ResNet-18, 1 image of 224x224", "infer()", limit=0.7)
def resnet18_large(fw: Any, device: str) -> dict[str, Any]:
    model = build_resnet18(fw.nn, large=True).to(device)
    return {"infer": without_gradients(fw, model, fw.randn(1, 3, 224, 224, device=device))}


def build_encoder(nn: Any) -> Any:
    """nn.TransformerEncoder as it comes, but for its width."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 6)


_GPT_WEIGHTS = 4 * 12 * 256**2 + 256 * 1000  # that one token is multiplied with: each is read once


@row("infer GPT, a single token", "infer()", limit=0.3, cost=Cost(read=4 * _GPT_WEIGHTS))
def gpt_one(fw: Any, device: str) -> dict[str, Any]:
    model = build_gpt(fw.nn).to(device)
    return {"infer": without_gradients(fw, model, fw.randint(0, 1000, (1, 1), device=device))}


_GPT_FLOPS = transformer_flops(4, 128, 256, 4, head=1000)


@row("infer GPT, 4 x 128 tokens", "infer()", limit=0.8, cost=Cost(flops=_GPT_FLOPS))
def gpt_many(fw: Any, device: str) -> dict[str, Any]:
    model = build_gpt(fw.nn).to(device)
    return {"infer": without_gradients(fw, model, fw.randint(0, 1000, (4, 128), device=device))}


_ENCODER_FLOPS = transformer_flops(8, 128, 256, 6, causal=False)


@row("infer TransformerEncoder, 6 layers of 256, 8 x 128", "infer()", limit=0.7, cost=Cost(flops=_ENCODER_FLOPS))
def encoder(fw: Any, device: str) -> dict[str, Any]:
    model = build_encoder(fw.nn).to(device)
    return {"infer": without_gradients(fw, model, fw.randn(8, 128, 256, device=device))}


@row("TransformerEncoder, 6 layers of 256, 8 x 128, recording", "model(x)", limit=0.7)
def encoder_recording(fw: Any, device: str) -> dict[str, Any]:
    model = build_encoder(fw.nn).to(device)
    return {"model": model, "x": fw.randn(8, 128, 256, device=device)}
