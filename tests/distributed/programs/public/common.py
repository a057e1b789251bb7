"""What the programs here share: ranks, data that all know, and comparisons."""

import torch
import torch.distributed as dist


def init() -> tuple[int, int]:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    return dist.get_rank(), dist.get_world_size()


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def close(found, wanted, limit: float = 1e-5, what: object = "") -> None:
    found, wanted = found.detach().double(), wanted.detach().double()
    assert found.shape == wanted.shape, (what, found.shape, wanted.shape)
    off = (found - wanted).abs().max().item() if wanted.numel() else 0.0
    assert off <= limit * max(1.0, wanted.abs().max().item() if wanted.numel() else 1.0), (what, off)


def done(name: str) -> None:
    dist.barrier()
    if dist.get_rank() == 0:
        print("PASS", name, flush=True)
    dist.destroy_process_group()
