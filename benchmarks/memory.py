"""The most memory a process comes to hold: tensors, workspaces and what is kept, beyond what importing takes."""

from __future__ import annotations

from typing import Any

from inference import build_encoder, without_gradients
from models import build_gpt, build_resnet18, gpt_step, lenet, resnet18
from rows import row
from training import recurrent


def _attention(fw: Any, device: str, requires_grad: bool) -> dict[str, Any]:
    q, k, v = (fw.randn(1, 4, 4096, 64, device=device, requires_grad=requires_grad) for _ in range(3))
    return {"attend": fw.nn.functional.scaled_dot_product_attention, "q": q, "k": k, "v": v}


@row("memory: attention 4x4096x64, causal", "attend(q, k, v, is_causal=True)", limit=1.0, memory=True)
def attention_forward(fw: Any, device: str) -> dict[str, Any]:
    return _attention(fw, device, False)


@row(
    "memory: attention 4x4096x64, causal, with gradients",
    "attend(q, k, v, is_causal=True).sum().backward()",
    limit=1.0,
    memory=True,
)
def attention_backward(fw: Any, device: str) -> dict[str, Any]:
    return _attention(fw, device, True)


@row("memory: ResNet-18, 16 images of 32x32, SGD", "step()", limit=1.0, memory=True)
def resnet18_training(fw: Any, device: str) -> dict[str, Any]:
    return resnet18(fw, device)


@row("memory: LeNet, batch 64, SGD", "step()", limit=1.0, memory=True)
def lenet_training(fw: Any, device: str) -> dict[str, Any]:
    return lenet(fw, device)


@row("memory: LSTM 64-128, 50 steps, batch 32, SGD", "step()", limit=1.0, memory=True)
def lstm_training(fw: Any, device: str) -> dict[str, Any]:
    return recurrent("LSTM")(fw, device)


@row("memory: infer ResNet-18, 1 image of 224x224", "infer()", limit=1.0, memory=True)
def resnet18_inference(fw: Any, device: str) -> dict[str, Any]:
    model = build_resnet18(fw.nn, large=True).to(device)
    return {"infer": without_gradients(fw, model, fw.randn(1, 3, 224, 224, device=device))}


@row("memory: GPT, 4 x 1024 tokens, AdamW", "step()", limit=1.0, memory=True)
def gpt_training(fw: Any, device: str) -> dict[str, Any]:
    model = build_gpt(fw.nn).to(device)
    return {"step": gpt_step(fw, model, fw.randint(0, 1000, (4, 1024), device=device))}


@row("memory: GPT, 4 layers of 128, 12 x 64 tokens, AdamW", "step()", limit=1.0, memory=True)
def gpt_small_training(fw: Any, device: str) -> dict[str, Any]:
    model = build_gpt(fw.nn, 128).to(device)
    return {"step": gpt_step(fw, model, fw.randint(0, 1000, (12, 64), device=device))}


@row("memory: infer GPT, 4 x 1024 tokens", "infer()", limit=1.0, memory=True)
def gpt_inference(fw: Any, device: str) -> dict[str, Any]:
    model = build_gpt(fw.nn).to(device)
    return {"infer": without_gradients(fw, model, fw.randint(0, 1000, (4, 1024), device=device))}


@row("memory: infer TransformerEncoder, 6 layers of 256, 8 x 128", "infer()", limit=1.0, memory=True)
def encoder_inference(fw: Any, device: str) -> dict[str, Any]:
    model = build_encoder(fw.nn).to(device)
    return {"infer": without_gradients(fw, model, fw.randn(8, 128, 256, device=device))}


@row("memory: TransformerEncoder, 6 layers of 256, 8 x 128, recording", "model(x)", limit=1.0, memory=True)
def encoder_recording(fw: Any, device: str) -> dict[str, Any]:
    return {"model": build_encoder(fw.nn).to(device), "x": fw.randn(8, 128, 256, device=device)}
