"""Structures as JSON, and their tensors under names: what :func:`tesserack.save` makes of an object, and back."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.pending import bits_of, physical, with_bits
from tesserack.serialization._safetensors import has_code

__all__ = ["Packer", "hint_for", "unpack", "view_of"]

_MAX_DEPTH = 200
_MAX_NDIM = 64
_MAX_NUMEL = 2**48  # more than any memory; strides of 0 may show many elements of a few
_ALIGNMENT = 16
_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


class Packer:
    """Turns an object into a JSON tree, and gathers its tensors under names."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}  # to be written; also kept alive, so that no address is used twice
        self.shares = False  # whether some are parts of others
        self._nodes: dict[Any, dict[str, Any]] = {}
        self._open: set[int] = set()

    def whole(self, value: Any) -> Any:
        """The JSON node of ``value``, with what shares memory said."""
        tree = self.pack(value, ())
        self._share()
        return tree

    def pack(self, value: Any, path: tuple[Any, ...]) -> Any:
        """The JSON node of ``value``: literals stand for themselves, everything else is a one-entry object."""
        if value is None or isinstance(value, (bool, str)):
            return value if value is None or isinstance(value, bool) else str(value)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"float": repr(float(value))}
        if isinstance(value, Tensor):
            return self._tensor(value, path)
        if isinstance(value, complex):
            return {"complex": [repr(value.real), repr(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": value.hex()}
        if isinstance(value, (Mapping, list, tuple)):
            return self._container(value, path)
        if type(value) is ts.dtype or isinstance(value, ts.layout):
            return {"name": str(value).rpartition(".")[2]}
        if isinstance(value, ts.device):
            return {"device": str(value)}
        if isinstance(value, (set, frozenset)):
            return self._set(value, path)
        if type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            return self.pack(value.item(), path)
        raise TypeError(f"save: cannot store {type(value).__name__}{_at(path)}; {hint_for(value)}")

    def _container(self, value: Any, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        if id(value) in self._open:
            raise ValueError(f"save: the {type(value).__name__}{_at(path)} contains itself")
        if len(path) >= _MAX_DEPTH:
            raise ValueError(f"save: nested more than {_MAX_DEPTH} levels deep")
        self._open.add(id(value))
        if isinstance(value, Mapping):
            items = [[self._key(key, path), self.pack(item, (*path, key))] for key, item in value.items()]
            versions = getattr(value, "_metadata", None)
            if isinstance(versions, Mapping):
                node = {"state_dict": [items, self.pack(versions, (*path, "_metadata"))]}
            else:
                node = {"counter" if isinstance(value, Counter) else "dict": items}
        else:
            kind = "list" if isinstance(value, list) else "tuple"
            node = {kind: [self.pack(item, (*path, i)) for i, item in enumerate(value)]}
        self._open.discard(id(value))
        return node

    def _set(self, value: Any, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        kind = "frozenset" if isinstance(value, frozenset) else "set"
        return {kind: [self._key(item, path) for item in sorted(value, key=repr)]}  # in no order of chance

    def _key(self, key: Any, path: tuple[Any, ...]) -> Any:
        plain = key is None or isinstance(key, (bool, int, float, str))
        if not plain and not (isinstance(key, tuple) and all(isinstance(part, (int, str)) for part in key)):
            raise TypeError(
                f"save: cannot store a dict key or set element of type {type(key).__name__}{_at(path)}; use str or int"
            )
        return self.pack(key, path)

    def _sparse(self, tensor: Tensor, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        from tesserack.sparse._parts import parts_of

        parts = parts_of(tensor.detach())
        held = [self._tensor(part, (*path, k)) for k, part in enumerate((*parts.indices, parts.values))]
        return {"sparse": [str(parts.layout).rpartition(".")[2], held, list(tensor.shape), parts.coalesced]}

    def _nested(self, tensor: Any, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        from tesserack.nested._saving import strided_parts

        if tensor.layout is ts.strided:
            parts: Any = strided_parts(tensor)
        else:
            parts = (tensor._plain(), tensor._offsets, tensor._lengths)
        held = [None if part is None else self._tensor(part, (*path, k)) for k, part in enumerate(parts)]
        return {"nested": ["strided", held] if tensor.layout is ts.strided else ["jagged", held, tensor._ragged_idx]}

    def _distributed(self, tensor: Any, path: tuple[Any, ...]) -> dict[str, list[Any]]:
        from tesserack.distributed.tensor._saving import outline

        return {"dtensor": [self._tensor(tensor._local_tensor, path), outline(tensor)]}

    def _tensor(self, tensor: Tensor, path: tuple[Any, ...]) -> dict[str, Any]:
        if "_local_tensor" in tensor.__dict__:
            return self._distributed(tensor, path)
        if tensor.is_quantized:
            raise TypeError(
                f"save: cannot store a quantized tensor{_at(path)} in safetensors; use format='torch', or store its "
                "dequantize()"
            )
        if tensor.is_nested:
            return self._nested(tensor, path)
        if tensor.layout is not ts.strided:
            return self._sparse(tensor, path)
        if not tensor.numel() and not has_code(tensor.dtype):
            name = self._new_name("empty")
            self.tensors[name] = ts.empty(0, dtype=ts.uint8)
            dtype = str(tensor.dtype).rpartition(".")[2]
            return {"view": [name, dtype, list(tensor.shape), list(tensor.stride()), 0, ""]}
        identity = _identity(tensor)
        if identity not in self._nodes:
            name = self._new_name(".".join(map(str, path)).encode("utf-8", "replace").decode() or "tensor")
            self._nodes[identity] = {_kind(tensor): name}
            self.tensors[name] = tensor
        return self._nodes[identity]

    def _new_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{wanted}#{count}"
        return name

    # --- what shares memory ---------------------------------------------------------------------------------------

    def _share(self) -> None:
        """Have tensors that lie over one another in memory written once, and said to be views of that."""
        memories: dict[Any, list[_Placed]] = {}
        for node in self._nodes.values():
            ((kind, name),) = node.items()
            tensor = self.tensors[name]
            if tensor.numel() and tensor._storage_ptr():
                key = str(tensor.device), tensor._storage_ptr()
                memories.setdefault(key, []).append(_Placed(node, kind, name, tensor))
        for placed in memories.values():
            for overlapping in _clusters(placed):
                if len(overlapping) > 1 or overlapping[0].repeats or not has_code(overlapping[0].tensor.dtype):
                    self._make_views(overlapping)

    def _make_views(self, placed: list[_Placed]) -> None:
        """One entry for the memory of some tensors: the tensor that is all of it, or else its bytes."""
        self.shares = True
        start, end = placed[0].start, max(each.end for each in placed)
        base = next((each for each in placed if each.may_hold(placed, start, end)), None)
        if base is None:
            start -= start % _ALIGNMENT
            name = self._new_name(f"{placed[0].name}#memory")
            lying = physical(placed[0].tensor.detach())
            count = lying._storage_nbytes() // lying.element_size()
            self.tensors[name] = lying.as_strided((count,), (1,), 0).view(ts.uint8)[start:end]
        else:
            name = base.name
        for each in placed:
            if each is not base:
                del self.tensors[each.name]
                each.node.clear()
                each.node["view"] = [name, *each.seen_from(start)]


class _Placed:
    """A tensor and where in its memory it lies, in bytes."""

    def __init__(self, node: dict[str, Any], kind: str, name: str, tensor: Tensor) -> None:
        self.node, self.kind, self.name, self.tensor = node, kind, name, tensor
        size, shape, strides = tensor.element_size(), tensor.shape, tensor.stride()
        last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        self.start = tensor.storage_offset() * size
        self.end = self.start + (last + 1) * size
        self.repeats = tensor.numel() > last + 1

    def may_hold(self, others: list[_Placed], start: int, end: int) -> bool:
        """Whether all the others can be said to be views of this one."""
        whole = (self.start, self.end) == (start, end) and self.tensor.is_contiguous() and not self.repeats
        plain = self.kind == "tensor" and self.tensor.dtype is not ts.bool and not bits_of(self.tensor)
        plain = plain and has_code(self.tensor.dtype)
        return whole and plain and all((o.start - start) % o.tensor.element_size() == 0 for o in others)

    def seen_from(self, start: int) -> list[Any]:
        """Dtype, shape, strides, offset and what is pending, in memory that begins at ``start``."""
        dtype, offset = str(self.tensor.dtype).rpartition(".")[2], (self.start - start) // self.tensor.element_size()
        return [dtype, list(self.tensor.shape), list(self.tensor.stride()), offset, bits_of(self.tensor)]


def _clusters(placed: list[_Placed]) -> list[list[_Placed]]:
    """Those that overlap, together."""
    found: list[list[_Placed]] = []
    end = -1
    for each in sorted(placed, key=lambda p: (p.start, -p.end)):
        if each.start < end:
            found[-1].append(each)
        else:
            found.append([each])
        end = max(end, each.end)
    return found


def _identity(tensor: Tensor) -> Any:
    """Equal for tensors that show the same elements of the same memory."""
    layout = tuple(tensor.shape), tuple(tensor.stride()), str(tensor.dtype), tensor.is_conj(), tensor.is_neg()
    if tensor.numel() and tensor.device.type == "cpu":
        return tensor.data_ptr(), layout
    handle = tensor._storage_ptr()
    return (str(tensor.device), handle, tensor.storage_offset(), layout) if handle else id(tensor)


def _kind(tensor: Tensor) -> str:
    """complex128 and complex32 have no place in the safetensors format: such a tensor is stored as pairs."""
    return "pairs" if tensor.dtype in (ts.complex128, ts.complex32) else "tensor"


def _at(path: tuple[Any, ...]) -> str:
    return " at " + "".join(f"[{key!r}]" for key in path) if path else ""


def hint_for(value: Any) -> str:
    """What to do about a value that cannot be stored."""
    if hasattr(value, "state_dict"):
        return "save its state_dict()"
    if isinstance(value, ts.dtype):
        return "dtypes of quantized tensors are kept by format='torch'"
    if type(value).__module__ == "numpy":
        return "convert it with tesserack.from_numpy(...)"
    return "expected tensors, dicts, lists, tuples, numbers, strings, bytes or None"


# --- back --------------------------------------------------------------------------------------------------------


def unpack(node: Any, tensor: Callable[..., Tensor]) -> Any:
    if not isinstance(node, dict):
        if isinstance(node, list):
            raise ValueError("unexpected list")
        return node
    ((kind, content),) = node.items()
    if kind == "tensor":
        return tensor(content)
    if kind == "pairs":
        return tensor(content, pairs=True)
    if kind == "view":
        return tensor(None, view=content)
    if kind == "name":
        found = getattr(ts, content)
        if not isinstance(found, (ts.dtype, ts.layout)):
            raise ValueError(f"unknown name {content!r}")
        return found
    if kind == "device":
        return _device(content)
    if kind in ("set", "frozenset"):
        return {"set": set, "frozenset": frozenset}[kind](unpack(item, tensor) for item in content)
    if kind == "counter":
        return Counter({unpack(key, tensor): unpack(item, tensor) for key, item in content})
    if kind == "sparse":
        from tesserack.sparse._saving import rebuild_checked

        layout, held, size, coalesced = content
        parts = [unpack(part, tensor) for part in held]
        known = layout in _LAYOUTS[1:]
        data = (*parts, tuple(size), coalesced) if layout == "sparse_coo" else (*parts, tuple(size))
        return rebuild_checked(getattr(ts, layout) if known else None, data)
    if kind == "nested":
        from tesserack.nested._saving import rebuild_jagged, rebuild_strided

        layout, held, *ragged = content
        parts = [unpack(part, tensor) for part in held]
        if layout == "strided":
            return rebuild_strided(*parts)
        names = dict(zip(("values", "offsets", "lengths"), parts, strict=True))
        return rebuild_jagged({**names, "_ragged_idx": ragged[0]})
    if kind == "dtensor":
        from tesserack.distributed.tensor._saving import rebuilt

        return rebuilt(unpack(content[0], tensor), *content[1])
    if kind == "dict":
        return {unpack(key, tensor): unpack(item, tensor) for key, item in content}
    if kind == "state_dict":
        items, versions = content
        made = OrderedDict((unpack(key, tensor), unpack(item, tensor)) for key, item in items)
        made._metadata = unpack(versions, tensor)  # type: ignore[attr-defined]
        return made
    if kind == "list":
        return [unpack(item, tensor) for item in content]
    if kind == "tuple":
        return tuple(unpack(item, tensor) for item in content)
    if kind == "float":
        return float(content)
    if kind == "complex":
        return complex(float(content[0]), float(content[1]))
    if kind == "bytes":
        return bytes.fromhex(content)
    raise ValueError(f"unknown kind {kind!r}")


def _device(name: str) -> Any:
    """A device if it is here, else its name."""
    try:
        return ts.device(name)
    except (RuntimeError, ValueError):
        return name


def view_of(base: Tensor, described: Any) -> Tensor:
    """What was said to be a view of the memory of another tensor; checked. ``ValueError`` unless it lies in that."""
    _, dtype_name, shape, strides, offset, bits = described
    dtype = getattr(ts, dtype_name)
    numbers = [*shape, *strides, offset]
    if not isinstance(dtype, ts.dtype) or len(shape) != len(strides) or len(shape) > _MAX_NDIM:
        raise ValueError(f"a view of {dtype_name} with shape {shape} and strides {strides}")
    if any(type(n) is not int or not 0 <= n < 2**62 for n in numbers) or math.prod(shape) > _MAX_NUMEL:
        raise ValueError(f"a view with shape {shape}, strides {strides} and offset {offset}")
    raw = base.reshape(-1).view(ts.uint8)
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if math.prod(shape) else -1
    count = raw.numel() // dtype.itemsize
    if last >= count:
        raise ValueError(f"a view that ends at element {last} of a memory of {count}")
    if dtype is ts.bool and bool((raw > 1).any()):
        raise ValueError("bytes other than 0 and 1 as bool")
    made = raw[: count * dtype.itemsize].view(dtype).as_strided(shape, strides, offset)
    if not isinstance(bits, str) or not {*bits.split(",")} <= {"", "conj", "neg"}:
        raise ValueError(f"unknown marks {bits!r}")
    return with_bits(made, bits) if bits else made
