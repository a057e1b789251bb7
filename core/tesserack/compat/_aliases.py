"""Private names of PyTorch's that packages take, and what they are called here."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable
from typing import Any

__all__ = ["ALIASES", "find", "home"]

_LAYERS = "tesserack.nn.modules"
_TUPLES = "tesserack.compat.shims.nn.modules.utils"
_HELPERS = "tesserack.compat.shims._private_helpers"

# Classes of layers that are made to be quantized.
_FUSED = (
    *("BNReLU2d", "BNReLU3d", "ConvBn1d", "ConvBn2d", "ConvBn3d", "ConvBnReLU1d", "ConvBnReLU2d", "ConvBnReLU3d"),
    *("ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearBn1d", "LinearReLU", "_FusedModule"),
)

_OBSERVERS = (
    *("MinMaxObserver", "MovingAverageMinMaxObserver", "MovingAveragePerChannelMinMaxObserver", "NoopObserver"),
    *("ObserverBase", "PerChannelMinMaxObserver", "PlaceholderObserver", "UniformQuantizationObserverBase"),
)

# Name in PyTorch: module and attribute here. Entries without an attribute are the module itself.
ALIASES = {
    "torch.torch": "torch",
    "torch.Future": "tesserack.utils.futures:Future",
    "torch._C._LinAlgError": "tesserack.ops.linalg:LinAlgError",
    **{
        f"torch._C._distributed_c10d.{name}": f"tesserack.distributed:{name}"
        for name in (
            *("Backend", "FileStore", "HashStore", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore"),
            *("Work", "_broadcast_coalesced", "_make_nccl_premul_sum"),
        )
    },
    **{
        f"torch.distributed.tensor.{module}.{name}": f"tesserack.distributed.tensor._spec:{name}"
        for module in ("_dtensor_spec", "placement_types")
        for name in ("DTensorSpec", "TensorMeta")
    },
    "torch.distributed.tensor._utils.compute_local_shape_and_global_offset": (
        "tesserack.distributed.tensor._spec:local_shape_and_offset"
    ),
    "torch.distributed.distributed_c10d.rendezvous": "tesserack.distributed:rendezvous",
    "torch.distributed.constants.default_pg_timeout": "tesserack.distributed:default_pg_timeout",
    "torch._C.PyTorchFileReader": "tesserack.serialization._archives:PyTorchFileReader",
    "torch._C.PyTorchFileWriter": "tesserack.serialization._archives:PyTorchFileWriter",
    **{
        f"torch.{module}.{name}": f"tesserack.ops.lowrank:{name}"
        for module, names in (("_lobpcg", ("lobpcg",)), ("_lowrank", ("pca_lowrank", "svd_lowrank")))
        for name in names
    },
    "torch._lowrank.get_approximate_basis": "tesserack.ops.lowrank:approximate_basis",
    "torch._VF._add_relu": "tesserack.compat.shims._parts:_add_relu",
    "torch._VF.unique_dim": "tesserack.ops.nonzero_unique:unique_dim",
    "torch.autograd._calculate_shape": "tesserack.compat.shims._autograd_parts:calculate_shape",
    "torch.autograd.functional._construct_standard_basis_for": "tesserack.compat.shims._autograd_parts:standard_basis",
    "torch._C._autograd._saved_tensors_hooks_is_enabled": "tesserack.autograd.graph:hooks_are_enabled",
    "torch._C._autograd.SavedTensor": "tesserack.autograd:SavedTensor",
    "torch._C._profiler.ProfilerActivity": "tesserack.utils.profiler:ProfilerActivity",
    "torch.autograd.profiler_util.EventList": "tesserack.utils.profiler._table:EventList",
    **{
        f"torch.autograd.profiler_util.{name}": f"tesserack.utils.profiler._events:{name}"
        for name in ("FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel")
    },
    "torch.export.decomp_utils.CustomDecompTable": "tesserack.fx.export.exported_program:CustomDecompTable",
    "torch.jit._script.ConstMap": "tesserack.jit._traced:ConstMap",
    "torch.library.CustomOpDef": "tesserack.library:CustomOp",
    "torch._convert_indices_from_coo_to_csr": "tesserack.sparse._parts:coo_to_csr",
    "torch._convert_indices_from_csr_to_coo": "tesserack.sparse._parts:csr_to_coo",
    "torch._utils_internal.get_file_path_2": "os.path:join",
    "torch._utils_internal.resolve_library_path": "os.path:realpath",
    "torch.jit._fork": "tesserack.jit:fork",
    "torch.jit._wait": "tesserack.jit:wait",
    "torch.storage._load_from_bytes": "tesserack.compat.shims._utils:_load_from_bytes",
    "torch._tensor_str._add_suffixes": "tesserack._tensor.printing:add_suffixes",
    "torch._tensor_str._str": "tesserack._tensor.printing:tensor_repr",
    "torch._tensor_str._tensor_str": "tesserack._tensor.printing:contents",
    **{f"torch.ao.nn.intrinsic.modules.fused.{name}": f"tesserack.nn.intrinsic.fused:{name}" for name in _FUSED},
    **{
        f"torch.ao.nn.quantized.modules.functional_modules.{name}": f"tesserack.nn.quantized.functional_modules:{name}"
        for name in ("FXFloatFunctional", "FloatFunctional")
    },
    "torch.ao.nn.quantized.dynamic.modules.linear.Linear": "tesserack.nn.quantized.dynamic:Linear",
    "torch.ao.nn.quantized.modules.linear.LinearPackedParams": "tesserack.nn.quantized.dynamic:LinearPackedParams",
    **{f"torch.ao.quantization.observer.{name}": f"tesserack.nn.quantized.observer:{name}" for name in _OBSERVERS},
    "torch.ao.quantization.qconfig.QConfig": "tesserack.nn.quantized.qconfig:QConfig",
    **{
        f"torch.ao.quantization.stubs.{name}": f"tesserack.nn.quantized.stubs:{name}"
        for name in ("DeQuantStub", "QuantStub", "QuantWrapper")
    },
    "torch.nn.functional._Reduction": "torch.nn._reduction",
    **{
        f"torch.optim.{module}.{name}": f"tesserack.optim._functional:{name}"
        for module in ("adadelta", "adagrad", "adam", "adamax", "adamw", "rmsprop", "sgd")
        for name in (module,)
    },
    "torch.utils.hooks.HookHandle": "tesserack._tensor.handles:HookHandle",
    "torch.utils.data.datapipes.iter.sharding.SHARDING_PRIORITIES": (
        "tesserack.utils.data.datapipes.iter.order:SHARDING_PRIORITIES"
    ),
    "torch.utils.data.dataloader.ExceptionWrapper": "tesserack.compat.shims._utils:ExceptionWrapper",
    "torch.utils.data._utils.ExceptionWrapper": "tesserack.compat.shims._utils:ExceptionWrapper",
    "torch.utils.data.dataloader._utils": "torch.utils.data._utils",
    **{
        f"torch.utils.data.dataloader.{name}": f"tesserack.utils.data.iterators:{name}"
        for name in (
            *("_BaseDataLoaderIter", "_DatasetKind", "_InfiniteConstantSampler"),
            *("_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"),
        )
    },
    "torch.utils.data._utils.pin_memory.pin_memory": "tesserack.utils.data.iterators:pinned",
    "torch.utils.data._utils.worker.WorkerInfo": "tesserack.utils.data.worker_info:WorkerInfo",
    "torch.utils.data._utils.worker._generate_state": "tesserack.utils.data.worker_info:numpy_seed",
    "torch.utils.data._utils.worker.get_worker_info": "tesserack.utils.data.worker_info:get_worker_info",
    "torch.distributions.kl._kl_expfamily_expfamily": "tesserack.distributions._kl_same:_exponential_family",
    "torch.distributions.utils._standard_normal": "tesserack.distributions.utils:standard_normal",
    "torch.distributions.utils._sum_rightmost": "tesserack.distributions.utils:sum_rightmost",
    "torch.hub._get_torch_home": "tesserack.utils.hub:torch_home",
    "torch.nn.init._no_grad_fill_": "tesserack.nn.init:constant_",
    "torch.nn.init._no_grad_normal_": "tesserack.nn.init:normal_",
    "torch.nn.init._no_grad_trunc_normal_": "tesserack.nn.init:trunc_normal_",
    "torch.nn.init._no_grad_uniform_": "tesserack.nn.init:uniform_",
    "torch.nn.init._no_grad_zero_": "tesserack.nn.init:zeros_",
    "torch.nn.modules.batchnorm._LazyNormBase": f"{_LAYERS}.lazy_layers:_LazyNormBase",
    "torch.nn.modules.container._addindent": f"{_LAYERS}.module:indented",
    "torch.nn.modules.conv._ConvTransposeMixin": f"{_LAYERS}.conv_transpose:_ConvTransposeMixin",
    "torch.nn.modules.conv._ConvTransposeNd": f"{_LAYERS}.conv_transpose:_ConvTransposeNd",
    "torch.nn.modules.conv._reverse_repeat_tuple": f"{_TUPLES}:_reverse_repeat_tuple",
    "torch.nn.modules.instancenorm._LazyNormBase": f"{_LAYERS}.lazy_layers:_LazyNormBase",
    **{
        f"torch.nn.modules.module._global_{name}_hooks": f"{_LAYERS}._hooks:{place}"
        for name, place in {
            "backward_pre": "GLOBAL.backward_pre",
            "backward": "GLOBAL.backward",
            "buffer_registration": "BUFFER_REGISTRATION",
            "forward": "GLOBAL.forward",
            "forward_pre": "GLOBAL.forward_pre",
            "module_registration": "MODULE_REGISTRATION",
            "parameter_registration": "PARAMETER_REGISTRATION",
        }.items()
    },
    "torch.nn.modules.module._addindent": f"{_LAYERS}.module:indented",
    "torch.nn.modules.module._IncompatibleKeys": f"{_LAYERS}._state_dict:IncompatibleKeys",
    "torch.nn.modules.pooling._LPPoolNd": f"{_LAYERS}.pooling_more:_LPPoolNd",
    "torch.nn.modules.transformer._detect_is_causal_mask": f"{_LAYERS}.transformer:_is_causal",
    "torch.nn.modules.transformer._generate_square_subsequent_mask": f"{_LAYERS}.transformer:_causal_mask",
    "torch.nn.modules.transformer._get_activation_fn": f"{_LAYERS}.transformer:_activation",
    "torch.nn.modules.transformer._get_clones": f"{_LAYERS}.transformer:_copies",
    "torch.nn.utils.clip_grad._clip_grads_with_norm_": "tesserack.nn.utils:clip_grads_with_norm_",
    "torch.nn.utils.clip_grad._get_total_norm": "tesserack.nn.utils:get_total_norm",
    "torch.nn.utils.stateless._reparametrize_module": "tesserack.nn.utils.stateless:replaced",
    **{
        f"{module}.{name}": f"{_TUPLES}:{name}"
        for module in ("torch.nn.functional", *(f"torch.nn.modules.{m}" for m in ("conv", "padding", "pooling")))
        for name in ("_list_with_default", "_ntuple", "_pair", "_quadruple", "_single", "_triple")
    },
    "torch._prims_common.is_contiguous_or_false": f"{_HELPERS}:is_contiguous_or_false",
    "torch._subclasses.fake_tensor.is_fake": f"{_HELPERS}:is_fake",
    "torch._tensor._rebuild_from_type_v2": f"{_HELPERS}:rebuild_from_type_v2",
    "torch._tensor_str.PRINT_OPTS": "tesserack._tensor.printing:_options",
    "torch._tensor_str._str_intern": "tesserack._tensor.printing:tensor_repr",
    "torch._tensor_str.printoptions": f"{_HELPERS}:printoptions",
    "torch.amp.autocast_mode._cast": "tesserack.amp._autocast:_cast",
    "torch.autograd._is_checkpoint_valid": f"{_HELPERS}:is_checkpoint_valid",
    "torch.cuda.amp.autocast_mode._cast": "tesserack.amp._autocast:_cast",
    "torch.distributed.utils._sync_module_states": f"{_HELPERS}:sync_module_states",
    "torch.distributions.transforms._clipped_sigmoid": f"{_HELPERS}:clipped_sigmoid",
    "torch.fx.graph_module._USER_PRESERVED_ATTRIBUTES_KEY": f"{_HELPERS}:PRESERVED_ATTRIBUTES",
    "torch.hub.tqdm": "tqdm:tqdm",
    "torch.jit._unwrap_optional": f"{_HELPERS}:unwrap_optional",
    "torch.nn.modules.module._EXTRA_STATE_KEY_SUFFIX": f"{_HELPERS}:EXTRA_STATE_SUFFIX",
    "torch.optim.lr_scheduler._enable_get_lr_call": f"{_HELPERS}:enable_get_lr_call",
    "torch.profiler.profiler._default_schedule_fn": f"{_HELPERS}:default_schedule_fn",
    "torch.serialization.default_restore_location": f"{_HELPERS}:default_restore_location",
    "torch.serialization.location_tag": f"{_HELPERS}:location_tag",
    **{
        f"torch.utils._pytree._{name}": f"{_HELPERS}:{name}"
        for name in ("dict_flatten", "dict_flatten_with_keys", "dict_unflatten")
    },
    "torch.utils.data._utils.collate.collate_tensor_fn": "tesserack.utils.data.collate:_collate_tensors",
    "torch.utils.data._utils.collate.np_str_obj_array_pattern": f"{_HELPERS}:NUMPY_TEXT_OR_OBJECT",
    "torch.utils.data._utils.worker._worker_info": "tesserack.utils.data.worker_info:_local.info",
    **{
        f"torch.utils.data._utils.collate.{name}": f"tesserack.utils.data.collate:{name}"
        for name in ("collate", "default_collate", "default_collate_fn_map", "default_convert")
    },
}


def find(name: str, module_of: Callable[[str], Any]) -> Any:
    """What a private name stands for; ``module_of`` gives the module of PyTorch's name, where it is a whole one."""
    module, _, attribute = ALIASES[name].partition(":")
    return operator.attrgetter(attribute)(importlib.import_module(module)) if attribute else module_of(module)


@functools.cache
def _homes() -> dict[str, str]:
    same = ((name.rpartition("."), place) for name, place in ALIASES.items())
    return {place: module for (module, _, name), place in same if place.endswith(f":{name}")}


def home(module: str, name: str) -> str:
    """The private module in which PyTorch defines what a module of ours does; empty if none is known.

    >>> home("tesserack.utils.data.worker_info", "WorkerInfo")
    'torch.utils.data._utils.worker'
    """
    return _homes().get(f"{module}:{name}", "")
