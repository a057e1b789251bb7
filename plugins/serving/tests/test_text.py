"""Continuous batching against a model that computes everything anew for every token."""

from __future__ import annotations

import random
import runpy
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack_serving.protocol.errors import ServingError
from tesserack_serving.text.cache import PagedCache
from tesserack_serving.text.model import Sampling, TextModel
from tesserack_serving.text.scheduler import Scheduler


@pytest.fixture(scope="module")
def code(repository: Path) -> dict[str, Any]:
    """The module that builds the text model."""
    return runpy.run_path(str(repository / "text" / "model.py"))


def on(device: str, code: dict[str, Any], **options: Any) -> TextModel:
    model = code["build"](**options)
    model.module.to(device).eval()
    return model


@ts.no_grad()
def anew(model: TextModel, prompt: str, count: int, device: str) -> str:
    """The text that follows when everything is computed for every token."""
    tokens = list(model.encode(prompt))
    start = len(tokens)
    while len(tokens) - start < count and len(tokens) < model.context:
        tokens.append(int(model.module(ts.tensor([tokens], device=device))[0, -1].argmax()))
    return model.decode(tokens[start:])


PROMPTS = ["the cat", "a", "once upon a time there was a model of text", "zzz zzz", "b.", "hello world"]


def drain(scheduler: Scheduler) -> dict[str, Any]:
    texts: dict[str, str] = {}
    ends: dict[str, str] = {}
    for _ in range(2000):
        if not scheduler.active:
            assert scheduler.cache.free == scheduler.cache.blocks  # every page came back
            return {key: (text, ends[key]) for key, text in texts.items()}
        for event in scheduler.step():
            assert event.key not in ends
            texts[event.key] = texts.get(event.key, "") + event.text
            if event.finished:
                ends[event.key] = event.finished
    raise AssertionError("it does not end")


@pytest.mark.parametrize("pages, chunk, sequences", [(0, 24, 4), (64, 24, 4), (80, 5, 6), (0, 200, 1)])
def test_texts_are_those_of_the_model_alone(device: str, code: Any, pages: int, chunk: int, sequences: int) -> None:
    model = on(device, code, cache_tokens=pages, chunk=chunk, sequences=sequences)
    scheduler = Scheduler(model, device)
    for prompt in PROMPTS:
        scheduler.add(prompt, prompt, Sampling(max_tokens=40))
    found = drain(scheduler)
    assert found == {prompt: (anew(model, prompt, 40, device), "length") for prompt in PROMPTS}
    assert (scheduler.preemptions > 0) == (pages > 0)


def test_sequences_join_and_leave_at_any_step(device: str, code: Any) -> None:
    model = on(device, code, cache_tokens=96)
    scheduler, rng = Scheduler(model, device), random.Random(0)
    lengths, texts, waiting = (
        {},
        {},
        [f"{prompt} {k}".translate({ord(c): None for c in "0123456789"}) + "a" * k for k, prompt in enumerate(PROMPTS)],
    )
    cancelled = waiting[2]
    while waiting or scheduler.active:
        if waiting and rng.random() < 0.5:
            prompt = waiting.pop()
            lengths[prompt] = rng.randint(1, 12)
            scheduler.add(prompt, prompt, Sampling(max_tokens=lengths[prompt] if prompt != cancelled else 60))
        for event in scheduler.step():
            texts[event.key] = texts.get(event.key, "") + event.text
        if len(texts.get(cancelled, "")) == 2:
            scheduler.cancel(cancelled)
            texts.pop(cancelled)
            lengths.pop(cancelled)
    assert texts == {prompt: anew(model, prompt, count, device) for prompt, count in lengths.items()}
    assert scheduler.cache.free == scheduler.cache.blocks


def test_seeds_make_texts_whatever_else_runs(device: str, code: Any) -> None:
    model = on(device, code)
    options = Sampling(max_tokens=20, temperature=1.5, top_k=8, top_p=0.95, seed=5)
    alone, together = Scheduler(model, device), Scheduler(model, device)
    alone.add("one", "the ", options)
    for k in range(3):
        together.add(str(k), "xyz"[k] * (k + 1), Sampling(max_tokens=15, temperature=2.0))
    together.add("one", "the ", options)
    assert drain(alone)["one"] == drain(together)["one"]
    other = Scheduler(model, device)
    other.add("one", "the ", Sampling(max_tokens=20, temperature=1.5, seed=6))
    assert drain(other)["one"] != drain(alone).get("one")


def test_draws_follow_the_chances() -> None:
    from tesserack_serving.text.sampling import choose

    chances = ts.tensor([0.5, 0.3, 0.15, 0.05])
    rows = chances.log().expand(4000, 4)
    rng = [random.Random(k) for k in range(4000)]

    def shares(**options: Any) -> list[float]:
        found = choose(rows, [Sampling(temperature=1.0, **options)] * 4000, rng)
        return [found.count(k) / 4000 for k in range(4)]

    assert all(abs(a - b) < 0.04 for a, b in zip(shares(), [0.5, 0.3, 0.15, 0.05], strict=True))
    assert all(abs(a - b) < 0.04 for a, b in zip(shares(top_k=2), [0.625, 0.375, 0, 0], strict=True))
    assert all(abs(a - b) < 0.04 for a, b in zip(shares(top_p=0.6), [0.625, 0.375, 0, 0], strict=True))
    assert shares(top_p=0.0) == [1, 0, 0, 0]


def test_a_stop_text_ends_it_and_is_not_said(device: str, code: Any) -> None:
    model = on(device, code)
    whole = anew(model, "the cat", 30, device)
    stop = whole[10:13]
    scheduler = Scheduler(model, device)
    scheduler.add("a", "the cat", Sampling(max_tokens=30, stop=(stop,)))
    assert drain(scheduler)["a"] == (whole[: whole.index(stop)], "stop")


def test_the_end_token_ends_it(device: str, code: Any) -> None:
    whole = anew(on(device, code), "the cat", 30, device)
    model = on(device, code, end=code["WORDS"].index(whole[4]))
    scheduler = Scheduler(model, device)
    scheduler.add("a", "the cat", Sampling(max_tokens=30))
    assert drain(scheduler)["a"] == (whole[: whole.index(whole[4])], "stop")


def test_half_a_character_is_held_back() -> None:
    words = ["\N{REPLACEMENT CHARACTER}", "a"]
    model = TextModel(lambda *_: None, list, lambda t: "é" if [*t] == [0, 0] else "".join(words[k] for k in t), 16)
    scheduler = Scheduler(model, "cpu")
    scheduler.model.encode = lambda prompt: [1]
    scheduler.add("a", "a", Sampling())
    sequence = scheduler.waiting.popleft()
    scheduler.running.append(sequence)
    assert [scheduler._continue(sequence, 0).text, scheduler._continue(sequence, 0).text] == ["", "é"]


@pytest.mark.parametrize("prompt", ["", "a" * 64, "€"])
def test_prompts_that_do_not_fit_are_refused(code: Any, prompt: str) -> None:
    scheduler = Scheduler(on("cpu", code), "cpu")
    with pytest.raises(ServingError) as found:
        scheduler.add("a", prompt, Sampling())
    assert found.value.status == 400 and not scheduler.active


BAD = [
    {"max_tokens": 0},
    {"temperature": -1},
    {"temperature": float("nan")},
    {"top_p": 1.5},
    {"seed": "x"},
    {"stop": 3},
]


@pytest.mark.parametrize("given", BAD)
def test_bad_options_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ServingError, match=next(iter(given))):
        Sampling.from_parameters(given)


def test_grouped_heads_share_keys(device: str) -> None:
    from tesserack.nn import functional as F
    from tesserack_serving.text.cache import Chunk, Pass

    ts.manual_seed(0)
    q, k, v = (ts.randn(1, heads, 9, 4, device=device) for heads in (4, 2, 2))
    cache = PagedCache(4, 4, device)
    first, second = cache.take(3), cache.take(1)
    assert first is not None and second is not None and cache.take(1) is None
    batch = Pass(cache, [Chunk([0] * 2, 0, second), Chunk([0] * 7, 0, first)])
    found = batch.attend(q, k, v)
    k, v = (t.repeat_interleave(2, 1) for t in (k, v))
    parts = [
        F.scaled_dot_product_attention(q[:, :, s], k[:, :, s], v[:, :, s], is_causal=True)
        for s in (slice(0, 2), slice(2, 9))
    ]
    assert ts.allclose(found, ts.cat(parts, 2), atol=1e-5)
