"""What a model does, as a graph that TensorBoard draws: its operators, grouped by the modules that call them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack._native import Tensor
from tesserack._tensor.overrides import TorchFunctionMode
from tesserack.nn.modules.module import Module
from tesserack.utils._pytree import tree_leaves
from tesserack.utils.tensorboard._records import field_bytes, field_int

__all__ = ["graph_of", "onnx_graph"]

_PRODUCER = 22


class _Recorder(TorchFunctionMode):
    """Writes down each operator with those whose results it takes."""

    def __init__(self, model: Module) -> None:
        self.nodes: list[bytes] = []
        self.lines: list[str] = []
        self._names: dict[str, int] = {}
        self._made: dict[int, tuple[str, Tensor]] = {}  # by id; the tensors are kept, so that no id is used twice
        self._path = [type(model).__name__]
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            self.add(f"{self._path[0]}/{name.replace('.', '/')}", "Parameter", [], tensor)

    def add(self, name: str, kind: str, inputs: list[str], result: Any) -> None:
        """A node; its results are known by it."""
        number = self._names[name] = self._names.get(name, -1) + 1
        full = f"{name}_{number}" if number else name
        tensors = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        for tensor in tensors:
            self._made[id(tensor)] = (full, tensor)
        shapes = b"".join(field_bytes(7, _shape(tensor)) for tensor in tensors)
        node = field_bytes(1, full) + field_bytes(2, kind) + b"".join(field_bytes(3, one) for one in inputs)
        if shapes:
            node += field_bytes(5, field_bytes(1, "_output_shapes") + field_bytes(2, field_bytes(1, shapes)))
        self.nodes.append(node)
        self.lines.append(f"{full} = {kind}({', '.join(inputs)})")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, Tensor)]
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(result)):
            name = getattr(func, "__name__", "operator")
            self.add("/".join((*self._path, name)), name, self._sources(given), result)
        return result

    def _sources(self, tensors: list[Tensor]) -> list[str]:
        for tensor in tensors:
            if id(tensor) not in self._made:
                self.add("/".join((*self._path, "constant")), "Constant", [], tensor)
        return [self._made[id(tensor)][0] for tensor in tensors]

    def follow(self, model: Module) -> list[Any]:
        """Let nodes stand below the module that is running."""
        handles: list[Any] = []
        for path, module in model.named_modules():
            if path:
                kind = f"{type(module).__name__}[{path.rpartition('.')[2]}]"
                handles.append(module.register_forward_pre_hook(self._entering(kind)))
                handles.append(module.register_forward_hook(lambda *_: self._leave(), always_call=True))
        return handles

    def _entering(self, kind: str) -> Callable[..., None]:
        return lambda *_: self._path.append(kind)

    def _leave(self) -> None:
        self._path.pop()

    def message(self) -> bytes:
        """The GraphDef."""
        return b"".join(field_bytes(1, node) for node in self.nodes) + field_bytes(4, field_int(1, _PRODUCER))


def _shape(tensor: Tensor) -> bytes:
    return b"".join(field_bytes(2, field_int(1, size)) for size in tensor.shape)


def graph_of(model: Module, given: Any, verbose: bool = False) -> bytes:
    """The graph of one run on ``given``, a tensor or a tuple of arguments. ``ValueError`` without any."""
    import tesserack

    if given is None:
        raise ValueError("add_graph: expected input_to_model, with which to run the model once")
    arguments = (given,) if isinstance(given, (Tensor, dict)) else tuple(given)
    recorder = _Recorder(model)
    inputs = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
    for k, tensor in enumerate(inputs):
        recorder.add(f"input/{k}", "IO Node", [], tensor)
    modes = [(module, module.training) for module in model.modules()]
    handles = recorder.follow(model)
    try:
        model.eval()  # so that statistics do not change
        with tesserack.no_grad(), recorder:
            result = model(*arguments)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    for k, tensor in enumerate(leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)):
        recorder.add(f"output/{k}", "IO Node", recorder._sources([tensor]), None)
    if verbose:
        print("\n".join(recorder.lines))
    return recorder.message()


def onnx_graph(path: str) -> bytes:
    """The graph of an ONNX file. Needs the package onnx."""
    import onnx

    graph = onnx.load(path).graph
    nodes = []
    for given in (*graph.input, *graph.output):
        nodes.append(field_bytes(1, given.name) + field_bytes(2, "Variable"))
    for node in graph.node:
        body = field_bytes(1, node.output[0]) + field_bytes(2, node.op_type)
        attributes = ", ".join(str(attribute).replace("\n", " ") for attribute in node.attribute)
        body += b"".join(field_bytes(3, name) for name in node.input)
        nodes.append(body + field_bytes(5, field_bytes(1, "parameters") + field_bytes(2, field_bytes(2, attributes))))
    return b"".join(field_bytes(1, node) for node in nodes)
