"""Backends written in Python: a class with the slots of ``abi.h`` as methods, and functions as kernels."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from tesserack import _native
from tesserack._native import _Operand as Operand
from tesserack._native import _Program as Program
from tesserack.backends._activity import activity_tuple
from tesserack.backends._info import DTYPES, USUAL_DTYPES

__all__ = ["LAYOUTS", "Backend", "Operand", "Program"]

Function = TypeVar("Function", bound=Callable[..., Any])

#: Layouts a kernel may ask for, as bits of ``ts_kernel.layouts``.
LAYOUTS = {"strided": 0, "contiguous": 1, "channels_last": 2}

_MAX_DEVICES = 4096
_MAX_CHANGING = 64
_PROPERTIES = {
    "name": "",
    "total_memory": 0,
    "free_memory": 0,
    "dtypes": None,
    "max_ndim": 0,
    "compute_units": 0,
    "max_allocation": 0,
    "alignment": 0,
    "flags": 0,
    "instructions": (0, 0, 0, 0),
}
#: What a kernel may take beyond the least, as bits of ``ts_kernel.flags``.
_TAKES = {"prologue": 1, "epilogue": 2, "device_random": 4}
_FLAGS = {"host_memory": 1, "atomics": 2, "asynchronous": 4, "simulated": 8}


def dtype_bits(dtypes: Iterable[Any] | None) -> int:
    """The set of dtypes as ``abi.h`` writes it; None stands for all but complex ones and 8-bit floats."""
    names = USUAL_DTYPES if dtypes is None else [str(dtype).rpartition(".")[2] for dtype in dtypes]
    unknown = {*names} - {*DTYPES}
    if unknown:
        raise ValueError(f"dtypes: expected dtypes of Tesserack, got {', '.join(sorted(unknown))}")
    return sum(1 << DTYPES.index(name) for name in set(names))


def instruction_words(names: Iterable[str]) -> tuple[int, ...]:
    """A set of scalar instructions as ``ts_properties.instructions`` holds it."""
    known = _native._instructions()
    unknown = {*names} - {*known}
    if unknown:
        raise ValueError(f"instructions: expected names of scalar instructions, got {', '.join(sorted(unknown))}")
    bits = sum(1 << known.index(name) for name in {*names})
    return tuple(bits >> 64 * word & 2**64 - 1 for word in range(4))


def _changing_bits(kernel: str, changing: Iterable[int | str] | bool) -> int:
    """A bit for each parameter of the kernel that changes from call to call."""
    known = _native._kernel_signature(kernel) or {"parameters": [], "changing": []}
    if isinstance(changing, bool):
        changing = known["changing"] if changing else ()
    bits = 0
    for k in changing:
        if isinstance(k, str):
            if k not in known["parameters"]:
                raise ValueError(
                    f"kernel: expected changing parameters of {kernel!r} among {known['parameters']}, got {k!r}"
                )
            k = known["parameters"].index(k)
        if not 0 <= (k := operator.index(k)) < _MAX_CHANGING:
            raise ValueError(f"kernel: expected changing parameters among 0 to {_MAX_CHANGING - 1}, got {k}")
        bits |= 1 << k
    return bits


class Backend:
    """A device written in Python. Subclass it, give it a name and memory, and register kernels.

    A subclass sets ``name`` (the device name), ``vendor`` (a globally unique string such as ``"com.acme.npu"``) and
    ``version``, and writes ``alloc``, ``copy_from_host``, ``copy_to_host`` and ``copy_within``. The package names an
    instance in its metadata, as an entry point of the group ``tesserack.backends``.

    A storage handle is any object. Every tensor a kernel sees is an :class:`Operand`: a handle, a byte offset, sizes
    and strides.

    Optional slots are methods that a subclass may add. Where they stay None the core does without:

    - ``free(device, handle, nbytes, stream)``: memory goes back; without it the handle is just dropped.
    - ``host_pointer(device, handle) -> address or None``: where the host may read and write the storage.
    - ``copy_peer(device, dst, dst_offset, src_backend, src_device, src, src_offset, nbytes, stream)``: a copy from
      another backend; may decline with NotImplemented.
    - ``stream_create(device, priority) -> stream``, ``stream_destroy(device, stream)``,
      ``stream_query(device, stream) -> bool`` (an event tells otherwise) and
      ``stream_wait_event(device, stream, event)``.
    - ``event_create(device, timing) -> event``, ``event_destroy(device, event)``,
      ``event_record(device, event, stream)``, ``event_query(device, event) -> bool``,
      ``event_synchronize(device, event)`` and ``event_elapsed(device, begin, end) -> milliseconds``.
    - ``set_num_threads(n)``, ``get_num_threads() -> n``: of work on the host.
    - ``open(device)``: called once before anything else is done with a device.
    - ``host_alloc(nbytes) -> address``, ``host_free(address, nbytes)``,
      ``copy_from_pinned(device, dst, dst_offset, address, nbytes, stream)`` and
      ``copy_to_pinned(device, address, src, src_offset, nbytes, stream)``, all four: memory of the host for
      ``Tensor.pin_memory``, and copies that may be under way when they return.
    - ``capture_begin(device, stream)``, ``capture_end(device, stream) -> recording``,
      ``capture_replay(device, recording, stream)`` and ``capture_destroy(device, recording)``: what the stream is given
      between the first two is written down instead of done, and done by every replay. Without them the core records
      kernel calls itself.
    - ``host_register(address, nbytes)`` and ``host_unregister(address, nbytes)``: memory that was there before becomes
      such as ``host_alloc`` gives, for the same copies; it may decline with NotImplemented.
    - ``trim(device)``: memory that the backend itself keeps for reuse goes back to the device, as ``empty_cache`` asks.
    - ``profile_start(device)``, ``profile_collect(device) -> activities``, which waits for the device and tells what it
      did since as :class:`tesserack.backends.Activity`, each once, ``profile_stop(device)``, and, both or neither,
      ``profile_push(device, name, stream)`` and ``profile_pop(device, stream)``: what ``tesserack.profiler`` shows of
      devices. Kernels see the number that an activity belongs to as the field ``number``.
    - ``export_memory(device, handle) -> bytes``, a name by which other processes of the machine find the memory,
      ``import_memory(device, name) -> handle`` and ``release_imported(device, handle)``, all three: tensors then go to
      other processes without a copy. ``export_memory`` may decline with NotImplemented.
    - ``identify(device) -> {"uuid": 16 bytes, "bus": "0000:3b:00.0", "numa_node": 0}``; what is not known is left out.
    - ``link(device, peer) -> {"direct": True, "bandwidth": bytes a second}``: from one of its devices to another.
    - ``recover(device)``: after a slot raised ``tesserack.DeviceLostError``: the device is usable again, without
      anything that was on it, none of whose handles it sees again.
    - ``claim(device, graph) -> parts`` and ``compile_part(device, part) -> function``, both: graphs that the device
      compiles itself, see :mod:`tesserack.backends.compiler`. With ``serialize_part(device, function) -> bytes`` and
      ``deserialize_part(device, data) -> function``, both or neither, what was compiled is kept for other processes.
    - ``shutdown()``: the process ends.

    >>> from tesserack.backends import Backend
    >>> class Acme(Backend):
    ...     name, vendor, version = "acme", "com.acme", "1.0"
    >>> acme = Acme()
    >>> @acme.kernel("fill")
    ... def fill(out, value):
    ...     out.handle[:] = value
    >>> acme.kernels()
    ['fill']
    """

    name: str = ""
    vendor: str = ""
    version: str = "0"
    #: True where ``alloc`` and ``free`` are pooled already: the core then adds no cache.
    own_allocator: bool = False
    #: True where the handles of storages, streams and events are ints other than 0, such as addresses, not objects.
    #: Kernels may then return a :class:`tesserack.backends.LaunchPlan`.
    raw_handles: bool = False
    #: True where one recording spans streams: whatever waits for an event of a stream that is recorded is recorded too,
    #: and a replay does side by side what no event orders (``TS_CAPTURE_STREAMS`` of ``abi.h``).
    capture_streams: bool = False
    #: Address of a ``ts_communicator`` of ``abi.h``, which must live as long as the process; 0: there is none.
    communicator_table: int = 0
    #: What ``tesserack.<name>`` has beyond what it has for every backend, by name.
    namespace: Mapping[str, Any] = MappingProxyType({})

    def __init__(self) -> None:
        self._kernels: dict[str, tuple[Any, ...]] = {}
        self._device_kernels: dict[tuple[int, str], tuple[Any, ...]] = {}  # by device and operator
        if not self.name or not self.vendor:
            raise ValueError(
                f"Backend: expected {type(self).__name__} to set name and vendor, got {self.name!r} and {self.vendor!r}"
            )

    # --- kernels --------------------------------------------------------------------------------------------------

    def kernel(
        self,
        *names: str,
        dtypes: Iterable[Any] | None = None,
        layout: str = "strided",
        when: Callable[..., bool] | None = None,
        changing: Iterable[int | str] | bool = (),
        takes: Iterable[str] = (),
        devices: Iterable[int] | None = None,
    ) -> Callable[[Function], Function]:
        """Register the decorated function as the kernel of the operators named.

        It is called with the outputs, the inputs and the parameters, in this order, and fills the outputs. Tensors are
        :class:`Operand` objects, tensors without storage plain numbers, absent ones None. Keyword-only parameters named
        ``op``, ``opcode``, ``compute_dtype``, ``program``, ``prologue``, ``epilogue``, ``deterministic``,
        ``precision`` (of products of float32: "highest", "high" or "medium"), ``stream``, ``device`` or ``number`` (of
        the call, while somebody profiles; else 0) receive these;
        ``outputs``, ``inputs`` or ``params`` receive the tensors or parameters as a tuple instead of one by one. It
        returns None, or NotImplemented to decline: the core then decomposes the operator, or runs it on the cpu and
        counts that. Or it returns a :class:`tesserack.backends.LaunchPlan`, which the core runs now and for later calls
        of its kind.

        A name is not checked here, since the operator may be defined later. One that nothing asks for is never called:
        ``tesserack doctor``, the conformance kit and ``capabilities(name)["unused"]`` tell which, and what may have
        been meant.

        Args:
            names: kernels of the required set, or operators by full name ("softmax", "mean.dim") to override.
            dtypes: those it takes; by default all that the device computes with, but for complex and float8 ones.
            layout: "strided", "contiguous" or "channels_last" (or contiguous); the core copies what lies otherwise.
            when: a predicate, called with the same arguments; false declines.
            changing: parameters that are numbers and differ from call to call, such as a seed and an offset, by index
                or, where the core knows the kernel, by name; True: all that the operator's declaration marks so
                (``tesserack.dispatch.lowering``). Launch plans patch them in, and one plan serves all their values.
            takes: what it takes beyond the least: "prologue" (of reduce and scan, a program of the inputs),
                "epilogue" (of matmul, a program of the product) or "device_random" (of random_bits, key and position in
                an input).
            devices: indices of the devices that have the kernel; all by default. What is registered for some of them
                goes before what is registered for all.

        Raises:
            ValueError: for an unknown layout or capability, no name, or a changing parameter that the kernel has not
                or that is beyond the 64th.
            TypeError: for a keyword-only parameter that is no field of a call.
        """
        if not names:
            raise ValueError('kernel: expected the names of operators, as in @backend.kernel("matmul")')
        if layout not in LAYOUTS:
            raise ValueError(f"kernel: expected a layout among {', '.join(LAYOUTS)}, got {layout!r}")
        bits = 0 if dtypes is None else dtype_bits(dtypes)  # 0: as the device
        beyond = {*takes}
        if beyond - _TAKES.keys():
            raise ValueError(f"kernel: expected takes among {', '.join(_TAKES)}, got {sorted(beyond)!r}")
        flags = sum(_TAKES[name] for name in beyond)
        patched = {name: _changing_bits(name, changing) for name in names}
        only = None if devices is None else [operator.index(device) for device in devices]

        def register(function: Function) -> Function:
            fields = _fields(function)
            for name in names:
                record = (function, when, fields, bits, LAYOUTS[layout], patched[name], flags)
                if only is None:
                    self._kernels[name] = record
                for device in only or ():
                    self._device_kernels[device, name] = record
                _native._kernel_changed(self.name, name)
            return function

        return register

    def kernels(self) -> list[str]:
        """Names of the kernels registered so far."""
        return sorted({*self._kernels, *(name for _, name in self._device_kernels)})

    def _find_kernel(self, op: str, device: int = 0) -> tuple[Any, ...] | None:
        return self._device_kernels.get((device, op)) or self._kernels.get(op)

    # --- runtime --------------------------------------------------------------------------------------------------

    def probe(self) -> int | tuple[int, str]:
        """How many devices there are, and if none, why: ``0, "no driver"``. Cheap; asked once."""
        return 1

    def properties(self, device: int) -> dict[str, Any]:
        """What the device says about itself.

        Keys: ``name``, ``total_memory``, ``free_memory``, ``max_allocation`` (bytes; 0 unknown), ``dtypes``
        (dtypes it computes with; all but complex by default), ``max_ndim`` (0 any), ``compute_units``, ``alignment``
        (bytes), ``instructions`` (names of the scalar instructions that it has: the core writes programs with these
        alone; all but the latest by default), and the flags ``host_memory``, ``atomics``, ``asynchronous``,
        ``simulated``. The core asks each device when it opens it.
        """
        return {"name": self.name}

    def alloc(self, device: int, nbytes: int, stream: Any) -> Any:
        """A handle to ``nbytes`` of memory, any object but None. ``MemoryError`` when there is no more."""
        raise NotImplementedError(f"backend {self.name!r} does not define alloc(device, nbytes, stream)")

    def copy_from_host(self, device: int, dst: Any, dst_offset: int, src: memoryview, stream: Any) -> None:
        """Copy the bytes of ``src`` to a storage. ``src`` is lent until this returns: copy it before queueing."""
        raise NotImplementedError(f"backend {self.name!r} does not define copy_from_host")

    def copy_to_host(self, device: int, dst: memoryview, src: Any, src_offset: int, stream: Any) -> None:
        """Fill ``dst`` with bytes of a storage. ``dst`` must not be kept."""
        raise NotImplementedError(f"backend {self.name!r} does not define copy_to_host")

    def copy_within(
        self, device: int, dst: Any, dst_offset: int, src: Any, src_offset: int, nbytes: int, stream: Any
    ) -> None:
        """Copy bytes between two storages of the device, or between places of one that do not overlap."""
        raise NotImplementedError(f"backend {self.name!r} does not define copy_within")

    def synchronize(self, device: int, stream: Any) -> None:
        """Wait until everything given to the stream is done; None is the default stream."""

    # Optional slots, described above.
    free: Any = None
    host_pointer: Any = None
    copy_peer: Any = None
    stream_create: Any = None
    stream_destroy: Any = None
    stream_query: Any = None
    stream_wait_event: Any = None
    event_create: Any = None
    event_destroy: Any = None
    event_record: Any = None
    event_query: Any = None
    event_synchronize: Any = None
    event_elapsed: Any = None
    set_num_threads: Any = None
    get_num_threads: Any = None
    shutdown: Any = None
    open: Any = None
    host_alloc: Any = None
    host_free: Any = None
    copy_from_pinned: Any = None
    copy_to_pinned: Any = None
    capture_begin: Any = None
    capture_end: Any = None
    capture_replay: Any = None
    capture_destroy: Any = None
    trim: Any = None
    profile_start: Any = None
    profile_collect: Any = None
    profile_stop: Any = None
    profile_push: Any = None
    profile_pop: Any = None
    export_memory: Any = None
    import_memory: Any = None
    release_imported: Any = None
    identify: Any = None
    link: Any = None
    recover: Any = None
    host_register: Any = None
    host_unregister: Any = None
    claim: Any = None
    compile_part: Any = None
    serialize_part: Any = None
    deserialize_part: Any = None

    # --- for the native table -------------------------------------------------------------------------------------

    def _probe(self) -> tuple[int, str]:
        try:
            answer = self.probe()
            count, reason = answer if isinstance(answer, tuple) else (answer, "")
            count = operator.index(count)
        except Exception as error:
            return 0, f"probe() raised {type(error).__name__}: {error}"
        if not 0 <= count <= _MAX_DEVICES:
            return 0, f"probe() told {count} devices, expected 0 to {_MAX_DEVICES}"
        return count, str(reason)

    def _properties(self, device: int) -> tuple[Any, ...]:
        given = dict(self.properties(device))
        flags = sum(bit for name, bit in _FLAGS.items() if given.pop(name, False))
        unknown = given.keys() - _PROPERTIES.keys()
        if unknown:
            raise ValueError(f"properties: unknown keys {', '.join(sorted(unknown))}")
        merged = {**_PROPERTIES, **given, "flags": flags}
        merged["dtypes"] = dtype_bits(merged["dtypes"])
        if "instructions" in given:
            merged["instructions"] = instruction_words(given["instructions"])
        return tuple(merged.values())

    @property
    def _profile_collect(self) -> Any:
        if self.profile_collect is None:
            return None
        return lambda device: [activity_tuple(activity) for activity in self.profile_collect(device)]

    @property
    def _identify(self) -> Any:
        if self.identify is None:
            return None

        def identify(device: int) -> tuple[bytes, str, int]:
            told = {"uuid": bytes(16), "bus": "", "numa_node": -1, **self.identify(device)}
            return told["uuid"], told["bus"], told["numa_node"]

        return identify

    @property
    def _link(self) -> Any:
        if self.link is None:
            return None

        def link(device: int, peer: int) -> tuple[bool, int]:
            told = {"direct": False, "bandwidth": 0, **self.link(device, peer)}
            return told["direct"], told["bandwidth"]

        return link

    @property
    def _claim(self) -> Any:
        if self.claim is None:
            return None
        from tesserack.backends.compiler import PartGraph, groups_of

        def claim(device: int, *told: Any) -> list[int]:
            graph = PartGraph.of(*told)
            return groups_of(self.claim(device, graph), graph)

        return claim

    @property
    def _compile_part(self) -> Any:
        if self.compile_part is None:
            return None
        from tesserack.backends.compiler import PartGraph

        def compile_part(device: int, *told: Any) -> tuple[Any, ...] | None:
            return _part(self.compile_part(device, PartGraph.of(*told)))

        return compile_part

    @property
    def _deserialize_part(self) -> Any:
        if self.deserialize_part is None:
            return None
        return lambda device, data: _part(self.deserialize_part(device, data))


def _part(function: Any) -> tuple[Any, ...] | None:
    """The record of a part's function."""
    return None if function is NotImplemented else (function, None, _fields(function), 0, 0, 0, 0)


def _fields(function: Callable[..., Any]) -> tuple[str, ...]:
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
