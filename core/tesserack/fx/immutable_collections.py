"""Lists and dicts that do not change, as arguments of nodes are: changes would pass the graph's books by."""

from __future__ import annotations

from typing import Any, NoReturn

from tesserack.utils._pytree import register_pytree_node

__all__ = ["immutable_dict", "immutable_list"]


class MutationError(TypeError, NotImplementedError):
    """What was to be changed does not change."""


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise MutationError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or "
        "args of a torch.fx.Node object, instead create a new copy of it and assign the copy to the node: new_args = "
        f"{type(self).__name__.removeprefix('immutable_')}(node.args...); node.args = new_args"
    )


class immutable_list(list[Any]):
    """A list that does not change, and can be a key.

    >>> immutable_list([1, 2]) == [1, 2]
    True
    """

    append = extend = insert = pop = remove = reverse = sort = clear = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict that does not change, and can be a key."""

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return type(self), (tuple(self.items()),)


register_pytree_node(immutable_list, lambda x: ([*x], None), lambda items, _: immutable_list(items))
register_pytree_node(
    immutable_dict, lambda x: ([*x.values()], [*x]), lambda items, keys: immutable_dict(zip(keys, items, strict=True))
)
