"""The GPT of char_gpt.py on several processes, none of which has room for all of it: ``fully_shard``.

    tesserack launch --nproc-per-node 2 --no-torch examples/gpt_ranks.py --steps 40 --checkpoint runs/gpt
    python examples/gpt_ranks.py --alone --steps 40        # one process on whole batches: the same losses

Each rank keeps its part of parameters, gradients and the optimizer's state; the rest comes while a block computes. With
``--checkpoint`` a run goes on from what any number of ranks has saved there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics

import tesserack as ts
from char_gpt import GPT, Block, batch, loss_of
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed import checkpoint
from tesserack.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from tesserack.distributed.fsdp import MixedPrecisionPolicy, fully_shard

BATCH = 24


class Training:
    """What a checkpoint holds: the model and its optimizer under plain names, and the number of steps."""

    def __init__(self, model: nn.Module, optimizer: ts.optim.Optimizer) -> None:
        self.model, self.optimizer, self.step = model, optimizer, 0

    def state_dict(self) -> dict[str, object]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict) -> None:
        own = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
        set_state_dict(self.model, self.optimizer, **own)
        self.step = state["step"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small GPT whose parameters are divided over processes.")
    parser.add_argument("--steps", type=int, default=40, help="how many batches (default: 40)")
    parser.add_argument("--alone", action="store_true", help="one process, without a launcher")
    parser.add_argument("--half", action="store_true", help="compute in bfloat16")
    parser.add_argument("--checkpoint", type=Path, help="folder to go on from, and to save into at the end")
    return parser.parse_args()


def divided(characters: int, half: bool) -> nn.Module:
    """The model without memory at first: every rank makes its own parts only."""
    with ts.device("meta"):
        model = GPT(characters)
    policy = MixedPrecisionPolicy(ts.bfloat16, ts.float32) if half else MixedPrecisionPolicy()
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    return model


def main() -> None:
    args = arguments()
    if args.alone:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    manual = "\n".join(topics.values())
    number = {character: k for k, character in enumerate(sorted(set(manual)))}
    text = ts.tensor([number[c] for c in manual])
    ts.manual_seed(0)
    model = divided(len(number), args.half)
    optimizer = ts.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    training = Training(model, optimizer)
    if args.checkpoint and (args.checkpoint / ".metadata.json").exists():
        checkpoint.load({"training": training}, checkpoint_id=args.checkpoint)
    first = training.step
    for step in range(first, first + args.steps):
        ts.manual_seed(step)  # every rank draws the whole batch, and takes its part
        x, y = batch(text, BATCH)
        optimizer.zero_grad()
        loss = loss_of(model, x[rank::ranks], y[rank::ranks])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        training.step = step + 1
        if (step + 1) % 10 == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            if rank == 0:
                print(f"step {step + 1}  loss {mean.item():.4f}", flush=True)
    if args.checkpoint:
        checkpoint.save({"training": training}, checkpoint_id=args.checkpoint)
    held = sum(p.to_local().numel() for p in model.parameters())
    whole = sum(p.numel() for p in model.parameters())
    if rank == 0:
        print(f"rank 0 of {ranks} holds {held:,} of {whole:,} parameters")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
