"""Programs of several processes, by ``torch.distributed``'s names: groups of ranks, collectives, stores of keys.

Start a program on several ranks with ``tesserack launch``; each calls ``init_process_group()``.
"""

from tesserack.distributed import _operators as _operators  # torch.ops._c10d_functional
from tesserack.distributed._coalesced import all_gather_coalesced, all_reduce_coalesced
from tesserack.distributed._coalesced import broadcast_coalesced as _broadcast_coalesced  # noqa: F401
from tesserack.distributed._coalesced import coalescing_manager as _coalescing_manager  # noqa: F401
from tesserack.distributed._collectives import (
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    supports_complex,
)
from tesserack.distributed._debug import DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env
from tesserack.distributed._engine import Engine
from tesserack.distributed._errors import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    QueueEmptyError,
)
from tesserack.distributed._file_store import FileStore
from tesserack.distributed._grad_bucket import GradBucket
from tesserack.distributed._group import ProcessGroup
from tesserack.distributed._group_calls import (
    AllreduceCoalescedOptions,
    AllreduceOptions,
    BarrierOptions,
    BroadcastOptions,
    BuiltinCommHookType,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from tesserack.distributed._letters import P2POp, batch_isend_irecv, irecv, isend, recv, send
from tesserack.distributed._objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from tesserack.distributed._recorder import dump_trace
from tesserack.distributed._reduce_op import ReduceOp, reduce_op
from tesserack.distributed._reduce_op import _make_nccl_premul_sum as _make_nccl_premul_sum
from tesserack.distributed._rendezvous import register_rendezvous_handler, rendezvous
from tesserack.distributed._stores import HashStore, PrefixStore, Store
from tesserack.distributed._tcp_store import TCPStore
from tesserack.distributed._work import Work
from tesserack.distributed._world import DEFAULT_TIMEOUT as default_pg_timeout
from tesserack.distributed._world import (
    Backend,
    GroupMember,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_initialized,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)
from tesserack.distributed._world import get_default_group as _get_default_group  # noqa: F401
from tesserack.distributed._world import get_default_store as _get_default_store  # noqa: F401
from tesserack.distributed._world import rank_not_in_group as _rank_not_in_group  # noqa: F401
from tesserack.distributed._world import set_timeout as _set_pg_timeout  # noqa: F401
from tesserack.distributed.device_mesh import DeviceMesh, init_device_mesh

# Names that PyTorch gives the same functions.
all_gather_single = _all_gather_base = all_gather_into_tensor
reduce_scatter_single = _reduce_scatter_base = reduce_scatter_tensor

__all__ = [
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "Backend",
    "BarrierOptions",
    "BroadcastOptions",
    "BuiltinCommHookType",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "Engine",
    "FileStore",
    "GatherOptions",
    "GradBucket",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "QueueEmptyError",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "default_pg_timeout",
    "destroy_process_group",
    "dump_trace",
    "gather",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_initialized",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "rendezvous",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "set_debug_level",
    "set_debug_level_from_env",
    "split_group",
    "supports_complex",
]
