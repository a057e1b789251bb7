"""Helpers around the library: :mod:`tesserack.utils.data` feeds batches, :mod:`tesserack.utils.hooks` removes hooks,
:mod:`tesserack.utils.checkpoint` computes activations again instead of keeping them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tesserack.utils import checkpoint, data, hooks

__all__ = ["checkpoint", "data", "hooks"]

# Imported when first used: what the package begins with lies here too.
_LAZY = (
    *(
        "_pytree",
        "benchmark",
        "checkpoint",
        "cpp_extension",
        "data",
        "deterministic",
        "dlpack",
        "flop_counter",
        "hooks",
    ),
    *("hooks", "model_zoo", "module_tracker", "tensorboard", "weak"),
)


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"tesserack.utils.{name}")
    raise AttributeError(f"module 'tesserack.utils' has no attribute {name!r}")
