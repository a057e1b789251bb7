"""What programs set between two calls, by names of ``torch``: graphs give what plain Python gives."""

from __future__ import annotations

PROGRAM = """
import collections, contextvars, functools, math, os, types
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
import torch._dynamo, torch.distributed as dist, torch.utils.deterministic

x = torch.tensor([1.0, -2.0, 3.0])
m = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
same, twice = lambda t, *_: t, lambda t, *_: t * 2


def check(name, f, set, *values):
    for options in ({}, {"backend": "eager"}):
        compiled = torch.compile(f, **options)
        for value in (*values, *values):
            set(value)
            for _ in range(3):
                expected, found = f(x), compiled(x)
                if not (torch.equal(expected, found) and expected.dtype == found.dtype):
                    print(name, options, value, expected, found)


def attribute(owner, key, f, *values):
    before = getattr(owner, key, None)
    check(key, f, functools.partial(setattr, owner, key), *(values or (before, twice)))
    setattr(owner, key, before)


# Functions, classes and numbers on modules of torch
attribute(torch, "relu", lambda x: torch.relu(x))
attribute(F, "relu", lambda x: F.relu(x))
attribute(F, "gelu", lambda x: nn.functional.gelu(x))
attribute(F, "linear", lambda x: m(x), F.linear, lambda x, w, b=None: x * 3)
attribute(nn.Linear, "forward", lambda x: m(x), nn.Linear.forward, lambda self, x: x * 3)
attribute(torch.Tensor, "relu", lambda x: x.relu())
attribute(torch.Tensor, "mine", lambda x: x.mine(), same, twice)
attribute(torch, "flag", lambda x: x * torch.flag, 1.0, 2.0)
attribute(nn, "flag", lambda x: x * 2 if nn.flag else x, True, False)
attribute(nn, "Linear", lambda x: x * isinstance(m[0], nn.Linear), nn.Linear, nn.ReLU)
attribute(torch, "pi", lambda x: x * torch.pi, 3.0, 4.0)
attribute(torch, "finfo", lambda x: x + torch.finfo(x.dtype).eps, torch.finfo, lambda d: types.SimpleNamespace(eps=1.0))
attribute(torch.cuda, "is_available", lambda x: x * torch.cuda.is_available(), lambda: True, lambda: False)
attribute(torch.backends.cudnn, "benchmark", lambda x: x * torch.backends.cudnn.benchmark, True, False)
attribute(torch.backends.mkldnn, "enabled", lambda x: x * torch.backends.mkldnn.enabled, True, False)
attribute(torch._dynamo.config, "suppress_errors", lambda x: x * torch._dynamo.config.suppress_errors, True, False)
deterministic = torch.utils.deterministic
filled = lambda x: x * deterministic.fill_uninitialized_memory
attribute(deterministic, "fill_uninitialized_memory", filled, True, False)
given = lambda module, x: x * module.flag
torch.flag = 1.0
check("a module given", lambda x: given(torch, x), lambda v: setattr(torch, "flag", v), 1.0, 2.0)

# Switches
check("default dtype", lambda x: torch.ones(3) + x, torch.set_default_dtype, torch.float64, torch.float32)
check("grad mode", lambda x: x * torch.is_grad_enabled(), torch.set_grad_enabled, False, True)
check("threads", lambda x: x * torch.get_num_threads(), torch.set_num_threads, 1, 2)
precision = lambda x: x * len(torch.get_float32_matmul_precision())
check("precision", precision, torch.set_float32_matmul_precision, "high", "highest")
asked = lambda x: x * torch.are_deterministic_algorithms_enabled()
check("deterministic", asked, torch.use_deterministic_algorithms, True, False)
anomaly = lambda x: x * torch.is_anomaly_enabled()
check("anomaly", anomaly, lambda v: torch.autograd.set_detect_anomaly(v), True, False)
check("autocast", lambda x: m(x).float(), torch.set_autocast_cpu_enabled, True, False)
kind = lambda x: x * (torch.get_autocast_dtype("cpu") is torch.bfloat16)
check("autocast dtype", kind, lambda v: torch.set_autocast_dtype("cpu", v), torch.float16, torch.bfloat16)
check("warnings", lambda x: x * torch.is_warn_always_enabled(), torch.set_warn_always, True, False)
flash = lambda x: x * torch.backends.cuda.flash_sdp_enabled()
check("attention", flash, torch.backends.cuda.enable_flash_sdp, False, True)
shown = lambda x: x * len(repr(torch.tensor(1.234567)))
check("printing", shown, lambda v: torch.set_printoptions(precision=v), 2, 6, 4)
check("seed", lambda x: x * (torch.initial_seed() % 7), torch.manual_seed, 1, 5)
state = lambda x: x * float(torch.get_rng_state().float().mean())
check("random state", state, torch.manual_seed, 1, 5)


def group(up):
    if up and not dist.is_initialized():
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    elif not up and dist.is_initialized():
        dist.destroy_process_group()


check("process group", lambda x: x * dist.is_initialized(), group, True, False)

# What the program itself holds
hooks = []


def hook(on):
    if on:
        hooks.append(nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 2))
    while not on and hooks:
        hooks.pop().remove()


check("global hooks", lambda x: m(x), hook, True, False)
check("environment", lambda x: x * int(os.environ["STALE"]), lambda v: os.environ.update(STALE=v), "1", "2")
variable = contextvars.ContextVar("variable", default=1)
check("context variable", lambda x: x * variable.get(), variable.set, 1, 2)
attribute(m[0].weight, "tag", lambda x: x * m[0].weight.tag, 1, 2)
attribute(m[0].weight, "grad", lambda x: x * (m[0].weight.grad is None), None, torch.ones(3, 3))
table = collections.OrderedDict(a=1, b=2)
check("order of keys", lambda x: x * next(iter(table.values())), table.move_to_end, "a", "b")
queue = collections.deque([1, 2])
check("deque", lambda x: x * queue[0], queue.rotate, 1, 0)
array = np.ones(3, np.float32)
check("array", lambda x: x * torch.from_numpy(array), array.fill, 1, 2)
raw = bytearray(1)
check("bytes", lambda x: x * raw[0], lambda v: raw.__setitem__(0, v), 1, 2)
attribute(math, "tau", lambda x: x * math.tau, 6.0, 7.0)
print("done")
"""


def test_graphs_see_what_programs_set(program):
    assert program.run(PROGRAM) == ["done"]
