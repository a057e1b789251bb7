"""PyTorch's files of whole objects: modules, optimizers, arrays, anything that pickles.

Written is what PyTorch writes: an archive with a pickle whose tensors are PyTorch's, so that it opens there as far as
the classes in it do. Read is what the caller trusts: with ``weights_only=False`` Python's unpickler runs what the file
says, as PyTorch's does; otherwise Tesserack's interpreter reads it, which runs nothing.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from types import FunctionType
from typing import Any, BinaryIO, ClassVar

import tesserack as ts
from tesserack import Tensor, serialization
from tesserack._native import Operator, dtype, layout, memory_format
from tesserack._tensor.pending import bits_of
from tesserack._tensor.pickling import set_state, state_of
from tesserack._tensor.subclass import has_no_memory, make_wrapper_subclass
from tesserack.nested._saving import jagged_parts, strided_parts
from tesserack.nested._tensor import NestedTensor
from tesserack.nn.modules._state_dict import StateDict
from tesserack.nn.quantized.tensor import QuantizedType, qscheme
from tesserack.serialization._files import destination, read_exactly
from tesserack.serialization._safe import declared, get_safe_globals, only_weights, today
from tesserack.serialization._torch_file import DAMAGES, read_archive_with, read_legacy_with, rest_of
from tesserack.serialization._torch_names import STORAGES, StorageKind, call_named, quantized_name
from tesserack.serialization._torch_writer import StorageTable, deep_recursion, write_records
from tesserack.sparse._parts import parts_of
from tesserack.storage import TypedStorage, UntypedStorage
from tesserack.storage._typed import class_for
from tesserack.utils.homes import public_name

__all__ = ["WeightsOnlyError", "load", "save", "use_names"]

_PROTOCOL = 2
_tables: list[Callable[[str], Collection[str]]] = []
_Find = Callable[[Any, str, str], Any]


def use_names(names_of: Callable[[str], Collection[str]]) -> None:
    """Say which names PyTorch's modules have: what is ours under them is written as PyTorch's."""
    _tables[:] = [names_of]


def _names(module: str) -> Collection[str]:
    return _tables[0](module) if _tables else ()


class WeightsOnlyError(serialization.SerializationError, pickle.UnpicklingError):
    """A file holds objects of classes that were not declared safe."""


class _Name:
    """A name of PyTorch's to write, whatever stands under it here."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __call__(self, *args: Any) -> Any:
        """Never called: pickle asks that what rebuilds an object could be."""
        raise TypeError(f"{self.module}.{self.name} is only written")


class EmptyFileError(WeightsOnlyError, EOFError):
    """A file of no bytes."""


class _Stored:
    """A storage in the archive."""

    def __init__(self, identity: tuple[Any, ...]) -> None:
        self.identity = identity


_PythonPickler: Any = pickle._Pickler  # its ways of writing can be added to
_PLAIN_TYPES = {*_PythonPickler.dispatch} - {FunctionType, type} | {_Name}  # of which other picklers are not asked


class _Pickler(_PythonPickler):  # type: ignore[misc]
    """Writes tensors, dtypes and layouts as PyTorch does, and what it does not know as another pickler would."""

    def __init__(self, file: BinaryIO, protocol: int, legacy: bool, theirs: Any = None) -> None:
        super().__init__(file, protocol)
        self.table = StorageTable()
        self._legacy = legacy
        self._theirs = theirs  # the pickler of another module
        if theirs is not None and hasattr(theirs, "dispatch_table"):
            self.dispatch_table = theirs.dispatch_table

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is _Stored:
            return obj.identity
        whole = isinstance(obj, TypedStorage) or (isinstance(obj, UntypedStorage) and obj._part is None)
        return self._storage(obj) if whole and obj.device.type != "meta" else None

    def _storage(self, storage: Any) -> Any:
        """What a storage itself is written as: the one in which tensors of its memory lie."""
        typed = isinstance(storage, TypedStorage)
        numbers = storage._numbers() if typed else storage._whole(ts.uint8)
        stored = self.table.place(numbers)
        name = class_for(storage.dtype).__name__ if typed else ""
        known = _Name("torch", name) if name in STORAGES else _Name("torch.storage", "UntypedStorage")
        count = numbers.numel() if name in STORAGES else storage.nbytes()
        identity = ("storage", known, str(stored.key), str(storage.device), count)
        return (*identity, None) if self._legacy else identity

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._tensor(obj)
        if isinstance(obj, ts.device):
            return _Name("torch", "device"), (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, layout):
            return _Name("torch.serialization", "_get_layout"), ("torch." + str(obj).rpartition(".")[2],)
        if type(obj) is StateDict:
            return OrderedDict, (), {"_metadata": getattr(obj, "_metadata", {})}, None, iter(obj.items())
        known = self._theirs is None or type(obj) in _PLAIN_TYPES or isinstance(obj, (dtype, memory_format, Operator))
        return NotImplemented if known else self._theirs.reducer_override(obj)

    def _tensor(self, value: Tensor) -> Any:
        if value.is_quantized:
            return self._quantized(value)
        state = state_of(value)
        if isinstance(state, dict):
            state = {name: item for name, item in state.items() if not name.startswith("_backward")}
        kind = type(value)
        if "_local_tensor" in vars(value):
            return value.__reduce_ex__(_PROTOCOL)  # a DTensor: this rank's part, and plain data
        if kind is ts.nn.Parameter:
            arguments = (value.data, value.requires_grad, _no_hooks())
            if state:
                return _Name("torch._utils", "_rebuild_parameter_with_state"), (*arguments, state)
            return _Name("torch._utils", "_rebuild_parameter"), arguments
        function, arguments = self._parts(value)
        if value.is_nested or (kind is Tensor and not state):
            return function, arguments
        return _Name("torch._tensor", "_rebuild_from_type_v2"), (function, kind, arguments, state)

    def _parts(self, value: Tensor) -> tuple[_Name, tuple[Any, ...]]:
        """What rebuilds a tensor of any layout."""
        if value.is_nested:
            return self._nested(value)
        if value.is_meta:
            described = (value.dtype, value.shape, value.stride(), value.requires_grad)
            return _Name("torch._utils", "_rebuild_meta_tensor_no_storage"), described
        if type(value) is not Tensor and value.layout is ts.strided and has_no_memory(value):
            place = (tuple(value.shape), value.stride(), value.storage_offset())
            wrapper = (type(value), value.dtype, *place, value.layout, value.device, value.requires_grad)
            return _Name("torch._utils", "_rebuild_wrapper_subclass"), wrapper
        return self._values(value) if value.layout is ts.strided else self._sparse(value)

    def _values(self, value: Tensor) -> tuple[_Name, tuple[Any, ...]]:
        pending = dict.fromkeys(bits_of(value).split(",") if bits_of(value) else (), True)
        stored = self.table.place(value.detach())
        placed, kind = stored.tensor, stored.kind
        name = _Name("torch", kind) if kind else _Name("torch.storage", "UntypedStorage")
        identity = ("storage", name, str(stored.key), str(value.device), stored.numel)
        storage = _Stored((*identity, None) if self._legacy else identity)
        shape, stride = tuple(placed.shape), tuple(placed.stride())
        values: tuple[Any, ...] = (storage, placed.storage_offset(), shape, stride, value.requires_grad, _no_hooks())
        if stored.retyped:
            values = (*values, value.dtype)
        if pending:
            values = (*values, pending)
        return _Name("torch._utils", "_rebuild_tensor_v3" if stored.retyped else "_rebuild_tensor_v2"), values

    def _quantized(self, value: Any) -> tuple[_Name, tuple[Any, ...]]:
        stored = self.table.place(value.integers())
        if stored.retyped:  # others see that memory as something else
            stored = self.table.place(value.int_repr())
        placed = stored.tensor
        kind, scheme, *numbers = value.saved()
        identity = ("storage", _Name("torch", kind), str(stored.key), str(placed.device), stored.numel)
        place = (placed.storage_offset(), tuple(placed.shape), tuple(placed.stride()))
        arguments = (*place, (scheme, *numbers), False, _no_hooks())
        storage = _Stored((*identity, None) if self._legacy else identity)
        return _Name("torch._utils", "_rebuild_qtensor"), (storage, *arguments)

    def _sparse(self, value: Tensor) -> tuple[_Name, tuple[Any, ...]]:
        parts = parts_of(value.detach())
        data = (*parts.indices, parts.values, ts.Size(value.shape))
        if parts.layout is ts.sparse_coo:
            data += (parts.coalesced,)
        return _Name("torch._utils", "_rebuild_sparse_tensor"), (parts.layout, data)

    def _nested(self, value: Any) -> tuple[_Name, tuple[Any, ...]]:
        if value.layout is ts.strided:
            return _Name("torch._utils", "_rebuild_nested_tensor"), strided_parts(value)
        return _Name("torch.nested._internal.nested_tensor", "_rebuild_njt"), (jagged_parts(value),)

    def _write_name(self, name: _Name) -> None:
        self.write(pickle.GLOBAL + f"{name.module}\n{name.name}\n".encode())

    def _write_word(self, word: Any) -> None:
        self._write_name(_Name("torch", str(word).rpartition(".")[2]))

    def _write_operator(self, operator: Operator) -> None:
        reduced = _places_of_operators().get(id(operator)) or operator.__reduce__()
        if isinstance(reduced, _Name):
            self._write_name(reduced)
        elif isinstance(reduced, str):
            self.save_global(operator, reduced)
        else:
            self.save_reduce(*reduced, obj=operator)

    def _write_function(self, function: FunctionType) -> None:
        module = function.__module__ or ""
        theirs = public_name(module).replace("tesserack", "torch", 1)
        if module.partition(".")[0] == "tesserack" and function.__qualname__ in _names(theirs):
            self._write_name(_Name(theirs, function.__qualname__))
        else:
            self._write_other_function(function)

    def _write_other_function(self, function: FunctionType) -> None:
        inherited: Any = super()
        inherited.dispatch[FunctionType](self, function)  # another module's pickler may write it whole

    own_ways: ClassVar[dict[type, Callable[..., None]]] = {
        _Name: _write_name,
        dtype: _write_word,
        memory_format: _write_word,
        QuantizedType: _write_word,
        qscheme: _write_word,
        Operator: _write_operator,
        FunctionType: _write_function,
    }
    dispatch: ClassVar[dict[type, Callable[..., None]]] = {**_PythonPickler.dispatch, **own_ways}


def _no_hooks() -> Any:
    return OrderedDict()


@functools.cache
def _places_of_operators() -> dict[int, _Name]:
    """How the operators that PyTorch has too are written, by identity."""
    found: dict[int, _Name] = {}
    for module in ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft"):
        ours = importlib.import_module(module.replace("torch", "tesserack", 1))
        for name in sorted({*_names(module), *(ours.__all__ if module == "torch.nn.functional" else ())}):
            if type(value := getattr(ours, name, None)) is Operator:
                found.setdefault(id(value), _Name(module, name))
    return found


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = _PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """``torch.save``: any object that pickles, in an archive that PyTorch opens too, or in the older form.

    What ``pickle_module`` has ways of its own to pickle is pickled so.
    """
    legacy = not _use_new_zipfile_serialization
    text = io.BytesIO()
    with deep_recursion():
        pickler = _pickler_of(pickle_module)(text, pickle_protocol, legacy, _reducer_of(pickle_module))
        pickler.dump(obj)
    with destination(f) as sink:
        write_records(sink, text.getvalue(), pickler.table, legacy)
    if not isinstance(f, (str, os.PathLike)) and hasattr(f, "flush"):
        f.flush()  # who knows the file by its name reads it before it is closed


def _pickler_of(module: Any) -> type[_Pickler]:
    """Our pickler, over that of another module if it is written in Python too."""
    theirs = getattr(module, "Pickler", None)
    if not (isinstance(theirs, type) and issubclass(theirs, _PythonPickler)):
        return _Pickler
    ways: Any = theirs
    return type("_Pickler", (_Pickler, theirs), {"dispatch": {**ways.dispatch, **_Pickler.own_ways}})


def _reducer_of(module: Any) -> Any:
    """A pickler of another module, of the kind that is asked how an object is reduced."""
    theirs: Any = getattr(module, "Pickler", None)
    return theirs(io.BytesIO()) if hasattr(theirs, "reducer_override") and module is not pickle else None


# --- reading -------------------------------------------------------------------------------------------------------


_REBUILDING = {  # how the names begin that files call
    "torch._utils": "_rebuild_",
    "torch.nested._internal.nested_tensor": "_rebuild_",
    "torch.serialization": "_get_layout",
}


class _Hint:
    """What PyTorch's compiler notes beside the sizes of nested tensors."""

    def __setstate__(self, noted: Any) -> None:
        """Nothing is kept of it."""


_Base: Any = object  # to be mixed with an unpickler


class _Finds(_Base):  # type: ignore[misc]
    """Ways of an unpickler: the names by which PyTorch rebuilds tensors; others by ``find``."""

    def __init__(
        self, data: bytes, storages: Callable[[Any], Any], find: _Find | None, start: int = 0, **options: Any
    ) -> None:
        super().__init__(io.BytesIO(data[start:]), **options)
        self._storages = storages
        self._find = find

    def persistent_load(self, identity: Any) -> Any:
        if type(identity) is tuple and len(identity) == 4 and identity[0] in ("module", b"module"):
            return identity[1]  # a class, in files of the older form with the text of its source
        return self._storages(identity)

    def find_class(self, module: str, name: str) -> Any:
        if name in STORAGES and module in ("torch", "torch.storage"):
            return StorageKind(name)
        if module == "torch._tensor" and name == "_rebuild_from_type_v2":
            return _rebuild_from_type
        if module == "torch._utils" and name == "_rebuild_parameter_with_state":
            return _rebuild_parameter
        if module == "torch._utils" and name == "_rebuild_wrapper_subclass":
            return _rebuild_wrapper
        if (module, name) == ("torch.nested._internal.nested_tensor", "NestedTensor"):
            return NestedTensor
        if (module, name) == ("torch._dynamo.decorators", "_DimRange"):
            return _Hint
        if module in _REBUILDING and name.startswith(_REBUILDING[module]):
            return call_named(f"{module}.{name}")
        if module == "torch" and isinstance(getattr(ts, name, None), (dtype, layout, memory_format)):
            return getattr(ts, name)
        if module == "torch" and (found := quantized_name(name)) is not None:
            return found
        if (module, name) == ("tesserack.distributed.tensor._saving", "rebuilt"):
            return super().find_class(module, name)  # it checks what it is given
        if self._find is not None:
            return self._find(self, module, name)
        return super().find_class(module, name)

    def find_any(self, module: str, name: str) -> Any:
        """What stands under a name in the process."""
        return super().find_class(module, name)


class _Unpickler(_Finds, pickle.Unpickler):
    """Python's unpickler with these ways."""


class _Anything:
    """Stands for every object of a pickle of which only the storages matter."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is kept of it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self

    __setstate__ = append = extend = add = __setitem__ = __call__


class _Outline(_Unpickler):
    """Meets the storages of a pickle and makes none of its objects: nothing of it is run."""

    def find_class(self, module: str, name: str) -> Any:
        stored = name in STORAGES and module in ("torch", "torch.storage")
        return StorageKind(name) if stored else _Anything


class _Asking(_Outline):
    """Notes the names that only a declaration lets be found; makes nothing."""

    unsafe: list[str]

    def find_class(self, module: str, name: str) -> Any:
        try:
            _Unpickler.find_class(self, module, name)
        except WeightsOnlyError:
            self.unsafe.append(".".join(today(module, name)))
        return super().find_class(module, name)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The functions and classes that a file of ``torch.save`` names and that ``weights_only=True`` would refuse, each
    once; nothing of the file is run, and no storage read. ``ValueError`` for files of the form before PyTorch 1.6,
    ``pickle.UnpicklingError`` for damaged ones.

    >>> import fractions, io
    >>> file = io.BytesIO(); save({"a": ts.ones(1), "b": fractions.Fraction(1, 2)}, file); _ = file.seek(0)
    >>> get_unsafe_globals_in_checkpoint(file)
    ['fractions.Fraction']
    """
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return get_unsafe_globals_in_checkpoint(file)
    if not all(hasattr(f, name) for name in ("read", "seek", "tell")):
        raise TypeError(f"get_unsafe_globals_in_checkpoint: expected a path or a file, got {type(f).__name__}")
    if not _is_archive(f):
        raise ValueError("get_unsafe_globals_in_checkpoint: expected a file of torch.save's zip form; load and save it")
    unsafe: list[str] = []

    def read(data: bytes, storages: Callable[[Any], Any]) -> Any:
        asking = _Asking(data, _Anything, _find_safe)  # no storage is read
        asking.unsafe = unsafe
        return asking.load()

    try:
        read_archive_with(f, rest_of(f), serialization._placer(None), read)
    except (*DAMAGES, pickle.UnpicklingError) as error:
        raise WeightsOnlyError(f"get_unsafe_globals_in_checkpoint: the file cannot be read: {error}") from None
    return [*dict.fromkeys(unsafe)]


def _rebuild_from_type(function: Any, kind: type, arguments: tuple[Any, ...], state: Any) -> Any:
    made = function(*arguments)
    if made.is_nested:
        return made  # what else its object holds is made of the parts
    if type(made) is not kind:
        made = made.as_subclass(kind)
    set_state(made, state)
    return made


def _rebuild_wrapper(
    kind: type, dtype: Any, size: Any, stride: Any, offset: int, layout: Any, device: Any, requires_grad: bool
) -> Any:
    given = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
    return make_wrapper_subclass(kind, size, strides=stride, storage_offset=offset, **given)


def _rebuild_parameter(data: Tensor, requires_grad: bool, hooks: Any, state: Any) -> Any:
    made = ts.nn.Parameter(data, requires_grad=requires_grad)
    set_state(made, state)
    return made


_BUILTINS = ("set", "frozenset", "list", "dict", "tuple", "complex", "bytearray")
_PLAIN: dict[str, tuple[str, ...]] = {
    "collections": ("OrderedDict", "Counter", "defaultdict"),
    "torch": ("Size", "device", "Tensor"),
    "torch.nn.parameter": ("Parameter", "Buffer"),
    "builtins": _BUILTINS,
    "_codecs": ("encode",),
}


def _find_safe(unpickler: _Unpickler, module: str, name: str) -> Any:
    """Names that were declared safe, and those of plain data."""
    with contextlib.suppress(LookupError):
        return declared(module, name)
    module, name = today(module, name)
    if name in _PLAIN.get(module, ()):
        return unpickler.find_any(module, name)
    raise WeightsOnlyError(_refusal(f"it names {module}.{name}"))


def _refusal(reason: str) -> str:
    return (
        f"Weights only load failed: {reason}; if the file is trusted, declare what it names by "
        "torch.serialization.add_safe_globals([...]) or load it with weights_only=False"
    )


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """``torch.load``. ``weights_only=False`` runs what the file says: only for files that are trusted.

    ``pickle_module`` is whose ``Unpickler`` runs it, and ``pickle_load_args`` are its options.
    """
    weights_only = only_weights(weights_only, pickle_module)
    map_location = _restoring(map_location)
    if isinstance(f, (str, os.PathLike)) and os.fspath(f).endswith(".index.json"):
        return _load_plain(f, map_location, mmap=mmap)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            if _is_archive(file) or _is_old(file):
                return _load_file(file, map_location, pickle_module, weights_only, pickle_load_args)
        return _load_plain(f, map_location, mmap=mmap)
    if not all(hasattr(f, name) for name in ("read", "seek", "tell")):
        raise AttributeError(
            f"load: expected a path or a file with methods read, seek and tell, got {type(f).__name__}; read the "
            "contents of a pipe into io.BytesIO first"
        )
    return _load_file(f, map_location, pickle_module, weights_only, pickle_load_args)


def _load_file(file: Any, map_location: Any, pickle_module: Any, weights_only: bool, options: Any) -> Any:
    archive, find = _is_archive(file), None
    if not archive and not _is_old(file):
        return _load_plain(file, map_location)
    if weights_only:
        if not get_safe_globals():
            return _load_plain(file, map_location, encoding=options.get("encoding"))
        find, pickle_module = _find_safe, None
    kind = _unpickler_of(pickle_module)
    options = {"encoding": "utf-8", **options}  # of the strings of Python 2
    return (_load_objects if archive else _load_old_objects)(file, map_location, find, kind, options)


def _unpickler_of(module: Any) -> type[Any]:
    """Our unpickler, over that of another module if one is given."""
    theirs = getattr(module, "Unpickler", pickle.Unpickler)
    if theirs is pickle.Unpickler:
        return _Unpickler
    return type("_Unpickler", (_Finds, theirs), {})


def _load_plain(file: Any, map_location: Any, **options: Any) -> Any:
    try:
        return serialization.load(file, map_location, **options)
    except serialization.ObjectsRefusedError as error:
        raise WeightsOnlyError(_refusal(str(error))) from None
    except serialization.SerializationError as error:
        kind = EmptyFileError if " is empty" in str(error) else WeightsOnlyError
        raise kind(str(error)) from None


def _restoring(map_location: Any) -> Any:
    """As PyTorch has it, what ``map_location`` does not move goes back to the device it was saved from."""
    if map_location is None:
        return _restore
    if isinstance(map_location, Mapping):
        return lambda t, location: t.to(map_location[location]) if location in map_location else _restore(t, location)
    if isinstance(map_location, (str, ts.device)) or not callable(map_location):
        return map_location

    def place(tensor: Tensor, location: str) -> Any:
        placed = map_location(tensor, location)
        return _restore(tensor, location) if placed is None else placed

    return place


def _restore(tensor: Tensor, location: str) -> Tensor:
    try:
        device = ts._native._resolve_device(location)
    except (RuntimeError, ValueError):
        return tensor  # a card that is not here
    return tensor.to(device)


def _begins(file: BinaryIO, mark: bytes) -> bool:
    here = file.tell()
    head = read_exactly(file, len(mark))
    file.seek(here)
    return head == mark


def _is_archive(file: BinaryIO) -> bool:
    return _begins(file, b"PK\x03\x04")


def _is_old(file: BinaryIO) -> bool:
    return _begins(file, serialization.LEGACY_MARK)


def _load_objects(file: Any, map_location: Any, find: _Find | None, kind: type[Any], options: Any) -> Any:
    def read(data: bytes, storages: Callable[[Any], Any]) -> Any:
        return kind(data, storages, find, **options).load()

    return read_archive_with(file, rest_of(file), serialization._placer(map_location), read)


def _load_old_objects(file: Any, map_location: Any, find: _Find | None, kind: type[Any], options: Any) -> Any:
    def read(data: bytes, storages: Callable[[Any], Any], start: int) -> Any:
        return kind(data, storages, find, start, **options).load()

    def outline(data: bytes, storages: Callable[[Any], Any], start: int) -> Any:
        return _Outline(data, storages, None, start, **options).load()

    return read_legacy_with(file, rest_of(file), serialization._placer(map_location), read, outline)
