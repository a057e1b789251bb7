"""Automatic differentiation: gradients of tensors, custom functions, modes and checks."""

from tesserack._native import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from tesserack.autograd import functional, graph
from tesserack.autograd._anomaly import detect_anomaly, set_detect_anomaly
from tesserack.autograd._run import backward, grad
from tesserack.autograd.function import Function
from tesserack.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

__all__ = [
    "Function",
    "GradcheckError",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "functional",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
]
