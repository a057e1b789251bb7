"""The digits on several processes: each trains on its part of every batch, and all end with the same model.

    tesserack launch --nproc-per-node 2 --no-torch examples/digits_ranks.py --epochs 3
    python examples/digits_ranks.py --alone --epochs 3    # one process on whole batches: the same losses

Prints the mean loss of every epoch and how many of the test scans are read right.
"""

from __future__ import annotations

import argparse

import tesserack as ts
from common import load_digits
from tesserack import distributed as dist
from tesserack import nn
from tesserack.nn import functional as F

BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with several processes.")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training scans (default: 3)")
    parser.add_argument("--alone", action="store_true", help="one process, without a launcher")
    args = parser.parse_args()
    if args.alone:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    scans, digits = load_digits("cpu")
    parts = ts.randperm(len(scans), generator=ts.Generator().manual_seed(0)).split([1437, 360])
    images, test_images = (scans[part] for part in parts)
    labels, test_labels = (digits[part] for part in parts)
    ts.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    )
    optimizer = ts.optim.SGD(model.parameters(), lr=0.2)
    order = ts.Generator().manual_seed(0)
    for epoch in range(args.epochs):
        total = ts.zeros(1)
        for batch in ts.randperm(len(images), generator=order).split(BATCH):
            mine = batch[rank::ranks]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images[mine]), labels[mine], reduction="sum")
            # Gradients are averaged over ranks: each weighs its sum so that the average is the batch's mean.
            (loss * ranks / len(batch)).backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch + 1}  loss {total.item() / len(images):.5f}", flush=True)
    right = (model.module(test_images[rank::ranks]).argmax(1) == test_labels[rank::ranks]).sum()
    dist.all_reduce(right)
    if rank == 0:
        print(f"test accuracy {right.item() / len(test_images):.2%} on {ranks} ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
