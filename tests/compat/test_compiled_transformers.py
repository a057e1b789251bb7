"""Models of transformers, small and random, as compiled modules: graphs, bits as eager's, and never stale."""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None, reason="transformers is not installed: pip install transformers"
)

MODELS = """
    import copy, logging, warnings
    warnings.simplefilter("ignore")
    import torch
    import transformers as T
    T.logging.set_verbosity_error()
    from tesserack.jit._compile.compiled import _all

    small = dict(vocab_size=64, bos_token_id=0, eos_token_id=1, pad_token_id=2)
    llama = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, **small)
    bert = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, **small)
    MAKE = {
        "bert": lambda: T.BertForSequenceClassification(T.BertConfig(**bert)),
        "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **small)),
        "llama": lambda: T.LlamaForCausalLM(T.LlamaConfig(num_key_value_heads=1, **llama)),
        "t5": lambda: T.T5ForConditionalGeneration(T.T5Config(d_model=16, num_layers=1, num_heads=2, d_kv=8, d_ff=32,
                                                              decoder_start_token_id=0, **small)),
        "vit": lambda: T.ViTForImageClassification(T.ViTConfig(hidden_size=16, num_hidden_layers=2, image_size=16,
                                                   num_attention_heads=2, intermediate_size=32, patch_size=8)),
    }

    def given(name, k, labels=True):
        torch.manual_seed(k)
        if name == "vit":
            return dict(pixel_values=torch.randn(2, 3, 16, 16), **(dict(labels=torch.tensor([0, 1])) if labels else {}))
        ids = torch.randint(3, 64, (2, 8))
        if not labels:
            return dict(input_ids=ids, decoder_input_ids=ids) if name == "t5" else dict(input_ids=ids)
        return dict(input_ids=ids, labels=torch.tensor([0, 1]) if name == "bert" else ids)

    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, dict):
            value = [*value.values()]
        elif not isinstance(value, (list, tuple)):
            value = [*getattr(value, "__dict__", {}).values()] if not isinstance(value, type) else []
        return [t for item in value for t in tensors(item)]

    def same(a, b):
        a, b = tensors(a), tensors(b)
        return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))

    def graphs(model):
        found = next(c for c in _all if c.roots[0] is model)
        return len(found.places), found.reasons
"""

EVALUATED = (
    MODELS
    + """
    for name, make in MAKE.items():
        model = make().eval()
        compiled = torch.compile(model)
        for k in range(5):
            with torch.no_grad():
                x = given(name, k, labels=False)
                a, b = model(**x), compiled(**x)
                assert type(a) is type(b) and same(a, b), name
        print(name, *graphs(model), *(type(b.cache).__name__ for _ in [0] if "cache" in b))
        count = graphs(model)[0]
        changes = [
            lambda: setattr(model.config, "output_hidden_states", True),
            lambda: setattr(model.config, "use_cache", False),
            lambda: [m.register_forward_hook(lambda m, x, y: y * 2) for m in model.modules()
                     if type(m) is torch.nn.LayerNorm],
            lambda: model.train(),
            lambda: model.double(),
        ]
        for change in changes:
            change()
            with torch.no_grad():
                x = given(name, 9, labels=False)
                if name == "vit":
                    x = {k: v.to(next(model.parameters()).dtype) for k, v in x.items()}
                for k in range(2):
                    torch.manual_seed(k)
                    a = model(**x)
                    torch.manual_seed(k)
                    assert same(a, compiled(**x)), name
"""
)

TRAINED = (
    MODELS
    + """
    from tesserack.jit._compile.compiled import config
    config["again_closely"] = 2  # else a second kind of calls is Python's until it is met often
    for name in MAKE:
        torch.manual_seed(0)
        plain = MAKE[name]().train()
        if name == "gpt2":
            plain.loss_type = "ForCausalLM"  # which it warns of where it is not said
        other = copy.deepcopy(plain)
        compiled = torch.compile(other)
        steps = []
        for model in (plain, compiled):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            schedule = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=10)
            losses = []
            for k in range(10):
                x = given(name, k)
                with torch.autocast("cpu", torch.bfloat16, enabled=k % 2 == 1):
                    loss = model(**x).loss
                losses.append(loss)
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step(), schedule.step()
            steps.append(losses)
        assert same(*steps), name
        assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), other.parameters())), name
        print(name, *graphs(other))
"""
)


def test_evaluation(program):
    told = program.run(EVALUATED)
    assert told == ["bert 1 []", "gpt2 1 [] DynamicCache", "llama 1 [] DynamicCache", "t5 1 [] EncoderDecoderCache",
                    "vit 1 []"], told  # fmt: skip


def test_training(program):
    """Ten steps with dropout, under autocast every other time."""
    told = program.run(TRAINED)
    assert told == [f"{name} 2 []" for name in ("bert", "gpt2", "llama", "t5", "vit")], told
