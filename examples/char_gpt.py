"""A small GPT that learns to spell like the Python reference manual, character by character.

    python examples/char_gpt.py --epochs 10
    tesserack serve examples/char_gpt.py:text --weights runs/char_gpt.safetensors    # with tesserack-serving

The text is the help that every Python carries (``help("if")`` prints parts of it), 460,000 characters or so.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pydoc_data.topics import topics
from typing import Any

import tesserack as ts
from common import finish, parse_arguments
from tesserack import nn, optim
from tesserack.nn import functional as F
from tesserack.utils.progress import Progress

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 96, 128, 4, 3, 32


Attend = Callable[[ts.Tensor, ts.Tensor, ts.Tensor], ts.Tensor]


def causal(q: ts.Tensor, k: ts.Tensor, v: ts.Tensor) -> ts.Tensor:
    """Attention to all that came before. A server has one of its own, which remembers keys and values."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    """Attention to what came before, then a small network, each added to what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: ts.Tensor, attend: Attend = causal) -> ts.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.out(attend(q, k, v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    """Scores of the next character at every place."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters)

    def forward(self, tokens: ts.Tensor, places: ts.Tensor | None = None, attend: Attend = causal) -> ts.Tensor:
        if places is None:
            places = ts.arange(tokens.shape[1], device=tokens.device)
        x = self.embed(tokens) + self.place(places)
        for block in self.blocks:
            x = block(x, attend)
        return self.head(self.norm(x))


def batch(text: ts.Tensor, count: int) -> tuple[ts.Tensor, ts.Tensor]:
    """Pieces of the text from random places, and the same moved on by a character."""
    starts = ts.randint(0, len(text) - CONTEXT - 1, (count, 1), device=text.device)
    places = starts + ts.arange(CONTEXT, device=text.device)
    return text[places], text[places + 1]


def loss_of(model: nn.Module, x: ts.Tensor, y: ts.Tensor) -> ts.Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def text() -> Any:
    """The model as ``tesserack serve`` takes it; its state comes with ``--weights``."""
    from tesserack_serving import TextModel

    characters = sorted({*"\n".join(topics.values())})
    number = {character: k for k, character in enumerate(characters)}
    return TextModel(
        GPT(len(characters)),
        encode=lambda prompt: [number[character] for character in prompt],
        decode=lambda tokens: "".join(characters[token] for token in tokens),
        context=CONTEXT,
    )


@ts.no_grad()
def write(model: nn.Module, prompt: ts.Tensor, count: int, temperature: float = 0.7) -> ts.Tensor:
    """The prompt, continued by drawing character after character."""
    for _ in range(count):
        scores = model(prompt[None, -CONTEXT:])[0, -1] / temperature
        prompt = ts.cat((prompt, ts.multinomial(scores.softmax(0), 1)))
    return prompt


def main() -> int:
    args = parse_arguments("Train a small GPT on the Python reference manual.", epochs=10, quick=1)
    manual = "\n".join(topics.values())
    characters = sorted(set(manual))
    number = {character: k for k, character in enumerate(characters)}
    text = ts.tensor([number[c] for c in manual], device=args.device)
    held_out = len(text) // 20
    train, test = text[:-held_out], text[-held_out:]
    model = GPT(len(characters)).to(args.device)
    print(f"{len(manual):,} characters, {len(characters)} of them different")
    print(str(ts.summary(model, text[None, :CONTEXT])).splitlines()[-3])
    steps = 8 if args.quick else 100
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=args.epochs * steps)
    history: dict[str, list[float]] = {"loss": [], "test loss": []}
    with Progress(args.epochs * steps, unit="steps") as bar:
        for epoch in range(args.epochs):
            total = ts.zeros((), device=args.device)
            for _ in range(steps):
                loss = loss_of(model, *batch(train, BATCH))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                total += loss.detach()
                bar.advance(loss=loss.detach())
            with ts.no_grad():
                history["test loss"].append(loss_of(model, *batch(test, 4 * BATCH)).item())
            history["loss"].append(total.item() / steps)
            bits = history["test loss"][-1] / math.log(2)
            bar.write(f"epoch {epoch + 1}/{args.epochs}  test {bits:.2f} bits a character")
    prompt = ts.tensor([number[c] for c in "The statement "], device=args.device)
    print("".join(characters[k] for k in write(model, prompt, 40 if args.quick else 300).tolist()))
    finish("char_gpt", args, model, history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
