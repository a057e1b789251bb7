"""Whole training steps, of small models and of two that are mostly arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import Cost, row


def _training_step(fw: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Callable[[], Any]:
    loss_function = fw.nn.CrossEntropyLoss()

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@row("MLP 64-128-128-10, batch 64, Adam", "step()", limit=0.25)
def mlp(fw: Any, device: str) -> dict[str, Any]:
    nn = fw.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    x = fw.randn(64, 64, device=device)
    y = fw.randint(0, 10, (64,), device=device)
    return {"step": _training_step(fw, model, fw.optim.Adam(model.parameters()), x, y)}


@row("digits CNN, batch 64, Adam", "step()")
def digits_cnn(fw: Any, device: str) -> dict[str, Any]:
    nn = fw.nn
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    ).to(device)
    x = fw.randn(64, 1, 8, 8, device=device)
    y = fw.randint(0, 10, (64,), device=device)
    return {"step": _training_step(fw, model, fw.optim.Adam(model.parameters()), x, y)}


def _residual_block(nn: Any) -> Any:
    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, channels_in: int, channels: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(channels)
            self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(channels)
            self.relu = nn.ReLU()
            self.shortcut = nn.Identity()
            if stride != 1 or channels_in != channels:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
                )

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
            return self.relu(y + self.shortcut(x))

    return Block


def build_resnet18(nn: Any, large: bool = False) -> Any:
    """ResNet-18 for images of 32 x 32 in ten classes; if large, that of the paper, for 224 x 224 in a thousand."""
    block = _residual_block(nn)
    first = nn.Conv2d(3, 64, 7, 2, 3, bias=False) if large else nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    layers = [first, nn.BatchNorm2d(64), nn.ReLU(), *([nn.MaxPool2d(3, 2, 1)] if large else [])]
    channels_in = 64
    for channels, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [block(channels_in, channels, stride), block(channels, channels, 1)]
        channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000 if large else 10))


@row("ResNet-18, 16 images of 32x32, SGD", "step()")
def resnet18(fw: Any, device: str) -> dict[str, Any]:
    model = build_resnet18(fw.nn).to(device)
    x = fw.randn(16, 3, 32, 32, device=device)
    y = fw.randint(0, 10, (16,), device=device)
    return {"step": _training_step(fw, model, fw.optim.SGD(model.parameters(), 0.01, momentum=0.9), x, y)}


@row("ResNet-18, 4 images of 224x224, SGD", "step()", limit=0.8)
def resnet18_large(fw: Any, device: str) -> dict[str, Any]:
    model = build_resnet18(fw.nn, large=True).to(device)
    x = fw.randn(4, 3, 224, 224, device=device)
    y = fw.randint(0, 1000, (4,), device=device)
    return {"step": _training_step(fw, model, fw.optim.SGD(model.parameters(), 0.01, momentum=0.9), x, y)}


@row("LeNet, batch 64, SGD", "step()", limit=0.45)
def lenet(fw: Any, device: str) -> dict[str, Any]:
    nn = fw.nn
    model = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    ).to(device)
    x = fw.randn(64, 1, 28, 28, device=device)
    y = fw.randint(0, 10, (64,), device=device)
    return {"step": _training_step(fw, model, fw.optim.SGD(model.parameters(), 0.01, momentum=0.9), x, y)}


def _transformer_block(nn: Any) -> Any:
    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.norm2(x))

    return Block


def build_gpt(nn: Any, width: int = 256, layers: int = 4) -> Any:
    """A causal transformer over a vocabulary of 1000, without positions."""
    block = _transformer_block(nn)
    return nn.Sequential(
        nn.Embedding(1000, width),
        *[block(width, 4) for _ in range(layers)],
        nn.LayerNorm(width),
        nn.Linear(width, 1000),
    )


def transformer_flops(batch: int, length: int, width: int, layers: int, head: int = 0, causal: bool = True) -> int:
    """Of the products in a forward pass; a training step takes three times as many."""
    scores = 2 * length * width  # queries by keys, and those by values
    weights = 12 * width**2 * layers + width * head
    return 2 * batch * length * (weights + layers * (scores // 2 if causal else scores))


def gpt_step(fw: Any, model: Any, tokens: Any) -> Callable[[], Any]:
    """One training step on tokens (batch, length)."""
    loss_of = fw.nn.CrossEntropyLoss()
    optimizer = fw.optim.AdamW(model.parameters())

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


_TOKENS_256 = 3 * transformer_flops(4, 128, 256, 4, head=1000)
_TOKENS_128 = 3 * transformer_flops(12, 64, 128, 4, head=1000)


@row("transformer, 4 layers of 256, 4 x 128 tokens, AdamW", "step()", cost=Cost(flops=_TOKENS_256))
def transformer(fw: Any, device: str) -> dict[str, Any]:
    model = build_gpt(fw.nn).to(device)
    return {"step": gpt_step(fw, model, fw.randint(0, 1000, (4, 128), device=device))}


@row("GPT, 4 layers of 128, 12 x 64 tokens, AdamW", "step()", limit=0.5, cost=Cost(flops=_TOKENS_128))
def gpt_small(fw: Any, device: str) -> dict[str, Any]:
    model = build_gpt(fw.nn, 128).to(device)
    return {"step": gpt_step(fw, model, fw.randint(0, 1000, (12, 64), device=device))}


@row("AdamW step, 50 x 20,000", "optimizer.step()", limit=0.6)
def adamw(fw: Any, device: str) -> dict[str, Any]:
    parameters = [fw.nn.Parameter(fw.randn(20_000, device=device)) for _ in range(50)]
    for parameter in parameters:
        parameter.grad = fw.randn(20_000, device=device)
    return {"optimizer": fw.optim.AdamW(parameters)}
