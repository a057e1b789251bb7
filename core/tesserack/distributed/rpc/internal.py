"""What goes between processes: functions with arguments, results, errors, tensors beside them.

What comes was pickled by another worker of the program, and is trusted as that is.
"""

from __future__ import annotations

import io
import pickle
import traceback
from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple

from tesserack import Tensor
from tesserack.distributed.rpc._current import current

__all__ = ["PythonUDF", "RPCExecMode", "RemoteException", "as_remote", "deserialize", "raised", "serialize"]


class RPCExecMode(Enum):
    """The ways of a call."""

    SYNC = "sync"
    ASYNC = "async"
    ASYNC_JIT = "async_jit"
    REMOTE = "remote"


class PythonUDF(NamedTuple):
    """A function of the program's, and what it is called with."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class RemoteException(NamedTuple):
    """An error that another worker met: what it says, and its class."""

    msg: str
    exception_type: type[BaseException]


class _Pickler(pickle.Pickler):
    """Tensors are put aside; remote references become forks of theirs."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        """What stands for an object in the bytes; None for one that is pickled."""
        if type(obj) is Tensor:
            self.tensors.append(obj)
            return "tensor", len(self.tensors) - 1
        forked = getattr(type(obj), "_forked", None)
        return None if forked is None else ("rref", forked(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self.tensors = tensors

    def persistent_load(self, pid: Any) -> Any:
        """The object that something stands for."""
        kind, what = pid
        return self.tensors[what] if kind == "tensor" else current().references.adopted(what)


def serialize(obj: Any) -> tuple[bytes, list[Tensor]]:
    """An object as bytes, and its tensors, which are not in them.

    >>> import tesserack as ts
    >>> data, tensors = serialize({"x": ts.ones(2), "n": 3})
    >>> deserialize(data, tensors)
    {'x': tensor([1., 1.]), 'n': 3}
    """
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(obj)
    return file.getvalue(), pickler.tensors


def deserialize(binary_data: bytes, tensor_table: list[Tensor]) -> Any:
    """The object of bytes and tensors."""
    return _Unpickler(io.BytesIO(binary_data), tensor_table).load()


def as_remote(error: BaseException, worker: Any) -> RemoteException:
    """An error as its caller is told of it, of a class that pickles."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    kind = type(error)
    try:
        if pickle.loads(pickle.dumps(kind)) is not kind:
            kind = RuntimeError
    except Exception:
        kind = RuntimeError
    shown = repr(error).replace("\\n", "\n")  # lines of what the program says stay lines
    return RemoteException(f"On {worker!r}:\n{shown}\n{text}", kind)


def raised(told: RemoteException) -> BaseException:
    """The error to raise for one that another worker met: of its class, if that is made from a text."""
    try:
        return told.exception_type(told.msg)
    except BaseException as error:
        return RuntimeError(
            f"Failed to create original exception type. Error msg was {error} Original exception on remote side was "
            f"{told.msg}"
        )
