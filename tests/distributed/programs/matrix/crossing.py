"""Random sequences of calls over groups that overlap, from several threads: ``crossing.py SEED SEQUENCES THREADS``.

Runs on each rank. Every call is compared with NumPy; what ends later is waited for in an order of each rank's own.
"""

import itertools
import os
import random
import sys
import threading
import traceback
from typing import Any

import matrix
from tesserack import distributed as dist

CASES = [case for case in matrix.small() if len(case[2]) != 2 or case[2] == (3, 5)]  # no large ones


def groups_of(n: int) -> list[Any]:
    """The whole world, every pair and all but one."""
    members = [range(n), *itertools.combinations(range(n), 2), *itertools.combinations(range(n), n - 1)]
    return [dist.new_group(each) for each in dict.fromkeys(map(tuple, members)) if len(each) > 1 or n == 1]


def sequence(seed: int, groups: list[Any]) -> None:
    """Two to six calls, the same on all ranks; of each the members of its group take part."""
    shared, own = random.Random(seed), random.Random(f"{seed} {dist.get_rank()}")
    started: list[matrix.Trial] = []
    for _ in range(shared.randint(2, 6)):
        group, case, values = shared.choice(groups), shared.choice(CASES), shared.randrange(1000)
        if group is not dist.GroupMember.NON_GROUP_MEMBER:
            started.append(matrix.Trial(case, "cpu", values, group))
            started[-1].start()
        if started and own.random() < 0.3:
            started.pop(own.randrange(len(started))).finish()
    own.shuffle(started)
    for trial in started:
        trial.finish()


def main() -> None:
    seed, count, threads = map(int, sys.argv[1:])
    dist.init_process_group()
    of_threads = [groups_of(dist.get_world_size()) for _ in range(threads)]

    def work(thread: int) -> None:
        for at in range(seed + thread, seed + count, threads):
            try:
                sequence(at, of_threads[thread])
            except BaseException:
                print(f"sequence {at}:", file=sys.stderr)
                traceback.print_exc()
                os._exit(1)  # others wait for this rank

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"{count} sequences from seed {seed} in {threads} threads", flush=True)
    dist.destroy_process_group()


main()
