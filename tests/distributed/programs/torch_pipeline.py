"""A perceptron in stages, by every schedule, follows one process. Written for PyTorch, and run as it is."""

import copy

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)

WIDTH, BATCH, STEPS = 8, 16, 50


def perceptron(count):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(count)))


def followed(schedule_class, per_rank, microbatches):
    me, n = dist.get_rank(), dist.get_world_size()
    count = n * per_rank
    alone, model, mine = perceptron(count), perceptron(count), range(me, count, n)
    first = schedule_class in (ScheduleZBVZeroBubble, ScheduleDualPipeV)  # the last stage is on the first rank, too
    mine = [me, count - 1 - me] if first else mine
    stages = [PipelineStage(model[k], k, count, torch.device("cpu")) for k in mine]
    schedule = schedule_class(stages if per_rank > 1 else stages[0], microbatches, loss_fn=F.mse_loss)
    one = torch.optim.AdamW(alone.parameters(), lr=1e-2)
    other = torch.optim.AdamW([p for k in mine for p in model[k].parameters()], lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        x, y = torch.randn(BATCH, WIDTH, generator=generator), torch.randn(BATCH, WIDTH, generator=generator)
        one.zero_grad()
        expected = F.mse_loss(alone(x), y)
        expected.backward()
        one.step()
        other.zero_grad()
        losses = []
        at_end = me == (0 if first else n - 1)
        out = schedule.step(*([x] if me == 0 else []), target=y if at_end else None, losses=losses)
        if at_end:
            assert out.shape == y.shape and len(losses) == microbatches
            assert abs(torch.stack(losses).mean() - expected).item() < 1e-5
        other.step()
    for k in mine:
        for p, q in zip(model[k].parameters(), alone[k].parameters(), strict=True):
            assert (p - q).abs().max().item() < 1e-5, (schedule_class, per_rank, microbatches)


class Language(nn.Module):
    """With a value that goes around the stages between."""

    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(10, WIDTH), nn.Linear(WIDTH, 10)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, tokens):
        x = first = self.emb(tokens)
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.out(x + first)


def cut_by_names():
    me, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = Language()
    alone = copy.deepcopy(model)
    tokens = torch.arange(40).remainder(10).reshape(8, 5)
    marks = {f"layers.{4 * k // n}": SplitPoint.BEGINNING for k in range(1, n)}
    pipe = pipeline(model, mb_args=(tokens[:2],), split_spec=marks)
    assert pipe.num_stages == n
    stage = pipe.build_stage(me, torch.device("cpu"))
    schedule = Schedule1F1B(stage, 4, loss_fn=lambda o, t: F.cross_entropy(o.flatten(0, 1), t.flatten()))
    if me == 0:
        schedule.step(tokens)
    elif me == n - 1:
        schedule.step(target=tokens)
    else:
        schedule.step()
    F.cross_entropy(alone(tokens).flatten(0, 1), tokens.flatten()).backward()
    expected = dict(alone.named_parameters())
    for name, p in stage.submod.named_parameters():
        assert (p.grad - expected[name].grad).abs().max().item() < 1e-6, name


def main():
    dist.init_process_group("gloo")
    followed(ScheduleGPipe, 1, 4)
    followed(Schedule1F1B, 1, 8)
    followed(ScheduleInterleaved1F1B, 2, 4)
    followed(ScheduleLoopedBFS, 2, 4)
    followed(ScheduleInterleavedZeroBubble, 2, 4)
    followed(ScheduleZBVZeroBubble, 2, 4)
    followed(ScheduleDualPipeV, 2, 8)
    cut_by_names()
    if dist.get_rank() == 0:
        print("pipelines follow one process")
    dist.destroy_process_group()


main()
