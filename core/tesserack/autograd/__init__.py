"""Automatic differentiation: gradients of tensors, custom functions, modes and checks."""

from tesserack._native import SavedTensor as SavedTensor
from tesserack._native import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from tesserack.autograd import functional, grad_mode, graph
from tesserack.autograd._run import backward, grad
from tesserack.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from tesserack.autograd.function import Function
from tesserack.autograd.grad_mode import _unsafe_preserve_version_counter as _unsafe_preserve_version_counter
from tesserack.autograd.grad_mode import is_multithreading_enabled, set_multithreading_enabled
from tesserack.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from tesserack.autograd.variable import Variable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tesserack.autograd import forward_ad, profiler

__all__ = [
    "Function",
    "GradcheckError",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "is_multithreading_enabled",
    "kineto_available",
    "no_grad",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def kineto_available() -> bool:
    """Always False: PyTorch's profiling library; :mod:`tesserack.autograd.profiler` does without."""
    return False


def __getattr__(name: str) -> object:
    if name in ("forward_ad", "profiler"):  # few programs need them, and profiler dispatch keys in Python
        import importlib

        return importlib.import_module(f"tesserack.autograd.{name}")
    raise AttributeError(f"module 'tesserack.autograd' has no attribute {name!r}")
