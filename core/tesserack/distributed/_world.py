"""The default group and those made of it."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from tesserack.distributed._backends import COMMUNICATOR, DEFAULT_BACKEND, Backend, automatic, is_known
from tesserack.distributed._errors import DistNetworkError
from tesserack.distributed._gathering import gather
from tesserack.distributed._group import ProcessGroup
from tesserack.distributed._recorder import prepare
from tesserack.distributed._rendezvous import Meeting, launched, started_by_mpi, store_for
from tesserack.distributed._stores import HashStore, PrefixStore

__all__ = [
    "Backend",
    "GroupMember",
    "at_end",
    "destroy_process_group",
    "get_backend",
    "get_backend_config",
    "get_default_backend_for_device",
    "get_default_group",
    "get_default_store",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_process_group",
    "is_available",
    "is_backend_available",
    "is_initialized",
    "is_open",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "rank_not_in_group",
    "resolve",
    "set_timeout",
    "split_group",
    "world_groups",
]

DEFAULT_TIMEOUT = timedelta(minutes=30)


class _World:
    """What is there once: the default group, and groups by name."""

    def __init__(self) -> None:
        self.default: ProcessGroup | None = None
        self.groups: dict[str, ProcessGroup] = {}
        self.numbers = itertools.count(1)
        self.starts = itertools.count()


_world = _World()
at_end: list[Callable[[], None]] = []  # called when all groups are left: what is kept of them goes


def world_groups() -> dict[str, ProcessGroup]:
    """This process's groups by name, the default one first."""
    return dict(_world.groups)


def names_of_groups() -> tuple[str, ...]:
    """The same as long as there are the same groups: each start has a name of its own."""
    return tuple(_world.groups)


class GroupMember:
    """Of :func:`new_group`: what processes get that are not in the group."""

    WORLD: Any = None
    NON_GROUP_MEMBER = object()


def rank_not_in_group(group: Any) -> bool:
    """Whether a group, None for that of all, is what :func:`new_group` gave a process that is not in it."""
    return group is GroupMember.NON_GROUP_MEMBER


class _GroupNames(type):
    @property
    def WORLD(cls) -> Any:
        """The default group; None before there is one."""
        return _world.default


class group(metaclass=_GroupNames):
    """``group.WORLD`` is the default group."""


def is_available() -> bool:
    """Always True: ranks of one machine need nothing but this package."""
    return True


def is_initialized() -> bool:
    """Whether there is a default group."""
    return _world.default is not None


def is_backend_available(backend: str) -> bool:
    """Whether a communicator of this name is known, of an installed plugin too."""
    return is_known(backend.lower())


def get_default_group() -> ProcessGroup:
    """The default group. ``ValueError`` before ``init_process_group``."""
    if _world.default is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _world.default


def get_default_store() -> Any:
    """The store that the default group's ranks met at. ``ValueError`` before ``init_process_group``."""
    return get_default_group().store


def get_pg_count() -> int:
    """How many groups this process has made since the default one, that one among them."""
    return len(_world.groups)


def is_open(group: Any) -> bool:
    """Whether a group was made and not destroyed since."""
    return isinstance(group, ProcessGroup) and _world.groups.get(group.group_name) is group


def resolve(given: Any) -> ProcessGroup | None:
    """The group that an argument names: None is the default one. None is returned to those outside the group."""
    if given is None or given is GroupMember.WORLD:
        return get_default_group()
    if given is GroupMember.NON_GROUP_MEMBER:
        return None
    if isinstance(given, str):
        return _world.groups[given]
    if hasattr(given, "get_group"):  # a mesh of one dim
        return resolve(given.get_group())
    if not isinstance(given, ProcessGroup):
        raise TypeError(f"expected a process group, got {type(given).__name__}")
    return given


def set_timeout(timeout: timedelta, group: Any = None) -> None:
    """Bound the waits of a group's calls from here on; each of its ranks calls this. ``ValueError`` outside of it."""
    made = resolve(group)
    if made is None:
        raise ValueError("Invalid process group specified")
    made.timeout = _seconds(timeout)


def _engine_name(backend: str) -> str:
    """The communicator of ``"cpu:gloo,cuda:nccl"``: the last that is named, which is the card's."""
    name = backend.split(",")[-1].rpartition(":")[2].strip().lower() or DEFAULT_BACKEND
    if not is_known(name):
        known = ", ".join(sorted(Backend.makers))
        hint = "; pip install tesserack-mpi brings mpi" if name == "mpi" else ""
        raise ValueError(f"init_process_group: expected one of the communicators {known}, got {backend!r}{hint}")
    return name


def _is_alone(backend: str) -> bool:
    """Whether a rank is run without the others, which never come."""
    name = _engine_name(backend)
    return name == "fake" or (Backend.makers[name] is automatic and os.environ.get(COMMUNICATOR, "").lower() == "fake")


def _own_meeting(backend: str, timeout: timedelta) -> Meeting | None:
    """Where the communicator itself knows the ranks, as MPI does: asked where it is meant, and where mpiexec has
    started the program without the address of a master."""
    name = os.environ.get(COMMUNICATOR, "") if backend == DEFAULT_BACKEND else ""
    name = name or _engine_name(backend)
    if not is_known(name) or not hasattr(Backend.makers[name], "meet"):
        if "MASTER_ADDR" in os.environ or not started_by_mpi() or not is_known("mpi"):
            return None
        name = "mpi"
    maker: Any = Backend.makers[name]
    return Meeting(*maker.meet(timeout.total_seconds()))


def _make(meeting: Meeting, ranks: Sequence[int], backend: str, name: str, timeout: timedelta) -> ProcessGroup:
    store = PrefixStore(name, meeting.store)
    engine = Backend.makers[_engine_name(backend)](store, "engine", meeting.rank, meeting.size, timeout.total_seconds())
    make: Callable[..., ProcessGroup] = getattr(engine, "make_group", ProcessGroup)
    made = make(engine, store, ranks, name, backend, timeout)
    _world.groups[name] = made
    return made


def _seconds(timeout: Any) -> timedelta:
    if timeout is None:
        return DEFAULT_TIMEOUT
    if not isinstance(timeout, timedelta):
        raise TypeError(f"expected timeout to be a datetime.timedelta, got {type(timeout).__name__}")
    return timeout


def get_default_backend_for_device(device: Any) -> str:
    """The communicator for tensors of a device: ``local``, which takes those of cards through the host."""
    return "local"


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Join the other ranks of the program.

    ``init_method`` is ``env://`` (the default: ``MASTER_ADDR``, ``MASTER_PORT``, ``RANK``, ``WORLD_SIZE``, which
    launchers set), ``tcp://host:port`` or ``file:///path``; or a ``store`` is given with ``rank`` and ``world_size``.
    ``timeout`` bounds every wait, of this call too. Raises ``ValueError`` where something is missing, ``DistError``
    where ranks do not come or a host does not resolve.

    >>> import tesserack as ts
    >>> ts.distributed.init_process_group(store=HashStore(), rank=0, world_size=1)
    >>> ts.distributed.get_rank(), ts.distributed.get_world_size()
    (0, 1)
    >>> ts.distributed.destroy_process_group()
    """
    if _world.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    chosen, bound = Backend(backend or DEFAULT_BACKEND), _seconds(timeout)
    alone = _is_alone(chosen)
    if alone and store is None:
        store = HashStore()
        told = launched(os.environ) or (-1, -1)
        rank, world_size = (rank if rank >= 0 else told[0]), (world_size if world_size >= 0 else told[1])
    meeting = _own_meeting(chosen, bound) if store is None and init_method is None else None
    # Programs may begin, end and begin again over one store: keys of each start are its own.
    start = next(_world.starts)
    name = f"world{start}"
    if meeting is None:  # engines that meet by themselves have met

        def find(left: timedelta) -> Meeting:
            return store_for(init_method, store, rank, world_size, left)

        meeting = find(bound) if alone else _gathered(find, name, bound, start > 0 and store is None)
    _world.default = GroupMember.WORLD = _make(meeting, range(meeting.size), chosen, name, bound)
    _world.default.group_desc = group_name or "default_pg"
    prepare(world_groups)


def _gathered(find: Callable[[timedelta], Meeting], name: str, bound: timedelta, again: bool) -> Meeting:
    """Where all ranks have come. ``again``: the master that answers may be that of the group which was left before,
    and go with it; then the next one is looked for."""
    end = time.monotonic() + bound.total_seconds()
    while True:
        meeting = find(timedelta(seconds=max(0.1, end - time.monotonic())))
        try:
            gather(PrefixStore(name, meeting.store), meeting.rank, meeting.size, bound)
        except DistNetworkError:
            if not again or meeting.rank == 0 or time.monotonic() > end:
                raise
        else:
            return meeting


def destroy_process_group(group: Any = None) -> None:
    """Leave a group; without one, all of them. ``AssertionError`` where there is none, as in PyTorch; ``ValueError``
    for a group that was left before."""
    if group is None and _world.default is None:
        raise AssertionError(
            "destroy_process_group: expected init_process_group before it; Process group cannot be None"
        )
    made = resolve(group)
    if made is None:
        return
    if not is_open(made):
        raise ValueError("destroy_process_group: Invalid process group specified: it was destroyed before")
    everything = made is _world.default
    for each in list(_world.groups.values()) if everything else [made]:
        _world.groups.pop(each.group_name, None)
        each.close()
    if everything:
        for forget in at_end:
            forget()
        _world.default = GroupMember.WORLD = None
        _world.numbers = itertools.count(1)


@atexit.register
def _leave() -> None:
    """Threads end before the interpreter does."""
    for each in _world.groups.values():
        with contextlib.suppress(Exception):
            each.engine.leave()


def _after_fork() -> None:
    for each in _world.groups.values():
        each.engine.forked()
    atexit.unregister(_leave)  # a child is no rank, and leaves nothing


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def get_rank(group: Any = None) -> int:
    """This process's number in a group, -1 outside of it."""
    made = resolve(group)
    return -1 if made is None else made.rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks a group has, -1 outside of it."""
    made = resolve(group)
    return -1 if made is None else made.size()


def get_backend(group: Any = None) -> Backend:
    """The name of a group's communicator, as it was asked for."""
    made = resolve(group)
    if made is None:
        raise ValueError("Invalid process group specified")
    return Backend(made.backend_name)


def get_backend_config(group: Any = None) -> str:
    """The same as ``"cpu:gloo"`` and its like are written."""
    return str(get_backend(group))


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The world's numbers of a group's ranks."""
    made = resolve(group)
    return [] if made is None else list(made.ranks)


def get_group_rank(group: Any, global_rank: int) -> int:
    """The group's number of a rank of the world."""
    made = resolve(group)
    if made is None:
        raise ValueError("get_group_rank: expected a group that this process belongs to")
    return made.group_rank(global_rank)


def get_global_rank(group: Any, group_rank: int) -> int:
    """The world's number of a rank of a group."""
    made = resolve(group)
    if made is None or not 0 <= group_rank < made.size():
        raise ValueError(f"get_global_rank: Group rank {group_rank} is not part of group {made!r}")
    return made.ranks[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """``LOCAL_RANK``, or what is given instead."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is None:
        raise RuntimeError(
            "LOCAL_RANK is not in the environment. Consider passing fallback_rank to get_node_local_rank"
        )
    return int(fallback_rank)


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks; every rank of the world calls this, in the same order (with ``use_local_synchronization``,
    the members alone). Ranks are numbered in ascending order, or as listed without ``sort_ranks``.
    ``GroupMember.NON_GROUP_MEMBER`` outside of it.
    """
    world = get_default_group()
    members = list(range(world.size()) if ranks is None else ranks)
    if sort_ranks:
        members.sort()
    if len(set(members)) != len(members) or any(not 0 <= r < world.size() for r in members):
        raise ValueError(f"new_group: expected different ranks below {world.size()}, got {list(ranks or ())}")
    if use_local_synchronization:
        name = world.next_split(f"ranks{'-'.join(map(str, members))}")
    else:
        name = f"{world.group_name}/group{next(_world.numbers)}"
    if world.rank() not in members:
        return GroupMember.NON_GROUP_MEMBER
    meeting = Meeting(world.store, members.index(world.rank()), len(members))
    bound = world.timeout if timeout is None else _seconds(timeout)
    made = _make(meeting, members, Backend(backend or world.backend_name), name, bound)
    made.group_desc = group_desc or name
    return made


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]],
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """A group for each list of ranks: the one that this rank is in, and all of them."""
    seen = [rank for ranks in ranks_per_subgroup_list for rank in ranks]
    if not ranks_per_subgroup_list or len(set(seen)) != len(seen):
        raise ValueError("new_subgroups_by_enumeration: expected lists of ranks without a rank in common")
    return _groups_of(ranks_per_subgroup_list, timeout, backend, group_desc=group_desc)


def _groups_of(lists: Sequence[Sequence[int]], *args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
    groups = [new_group(ranks, *args, **kwargs) for ranks in lists]
    mine = next((g for g in groups if g is not GroupMember.NON_GROUP_MEMBER), None)
    return mine, groups


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of ``group_size`` neighbours each, of the world or of a group, whose members alone call this; by default
    those of one machine."""
    size = get_world_size(group)
    width = int(os.environ.get("LOCAL_WORLD_SIZE", size)) if group_size is None else group_size
    if width <= 0 or size < width or size % width:
        raise ValueError(f"new_subgroups: expected a size that divides the world's {size}, got {width}")
    ranks = get_process_group_ranks(group)
    lists = [ranks[first : first + width] for first in range(0, size, width)]
    apart = resolve(group) is not get_default_group()
    return _groups_of(lists, timeout, backend, use_local_synchronization=apart, group_desc=group_desc)


def split_group(
    parent_pg: Any = None,
    split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    """The part of a group that this rank is in; None where it is in none."""
    parent = resolve(parent_pg)
    if parent is None or not split_ranks:
        raise ValueError("split_group: expected a group that this process belongs to, and split_ranks")
    found = None
    for ranks in split_ranks:
        if parent.rank() not in ranks:
            continue
        members = sorted(ranks)
        meeting = Meeting(parent.store, members.index(parent.rank()), len(members))
        name = parent.next_split(f"split{'-'.join(map(str, members))}")
        told = [parent.ranks[r] for r in members]
        found = _make(meeting, told, backend or parent.backend_name, name, timeout or parent.timeout)
    return found
