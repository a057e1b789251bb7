"""``functorch`` as programs of PyTorch's import it, whether or not PyTorch is installed."""

from __future__ import annotations


def test_old_transforms_and_modules(program):
    lines = program.run("""
        import warnings
        import functorch, torch
        from functorch import combine_state_for_ensemble, make_functional, make_functional_with_buffers
        from functorch.einops import rearrange
        from functorch.experimental import chunk_vmap, replace_all_batch_norm_modules_
        from functorch.experimental.control_flow import cond
        from torch._functorch.eager_transforms import jacfwd

        def warned(call):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                return call(), [w.category.__name__ for w in seen]

        (model, params), told = warned(lambda: make_functional(torch.nn.Linear(2, 3)))
        print(type(model).__name__, model(params, torch.ones(4, 2)).shape == (4, 3), told)
        try:
            make_functional(torch.nn.BatchNorm1d(2))
        except RuntimeError as error:
            print("without buffers" in str(error))
        (call, params, buffers), _ = warned(lambda: make_functional_with_buffers(torch.nn.BatchNorm1d(2)))
        print(len(params), len(buffers), call(params, buffers, torch.ones(4, 2)).shape == (4, 2))
        models = [torch.nn.Linear(2, 3) for _ in range(5)]
        call, params, buffers = combine_state_for_ensemble(models)
        found = torch.vmap(call, (0, 0, None))(params, buffers, torch.ones(4, 2))
        print(torch.allclose(found[3], models[3](torch.ones(4, 2))), params[0].requires_grad)
        print(warned(lambda: functorch.vmap(torch.sum)(torch.ones(2, 3)).tolist()))
        print(chunk_vmap(torch.sum, chunks=2)(torch.ones(5, 2)).tolist())
        print(rearrange(torch.ones(2, 3), "a b -> b a").shape)
        print(torch.equal(jacfwd(torch.sin)(torch.zeros(2)), torch.eye(2)))
    """)
    assert lines == [
        "FunctionalModule True ['FutureWarning']",
        "True",
        "2 3 True",
        "True False",
        "([3.0, 3.0], ['FutureWarning'])",
        "[2.0, 2.0, 2.0, 2.0, 2.0]",
        "torch.Size([3, 2])",
        "True",
    ]


def test_compiled_functions(program):
    lines = program.run("""
        import torch
        from functorch.compile import aot_function, aot_module, make_boxed_func, nop
        from functorch.compile import min_cut_rematerialization_partition

        seen = []

        def compiler(graph, inputs):
            targets = [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]
            seen.append([target for target in targets if "detach" not in target])
            return make_boxed_func(graph.forward)

        def f(d, scale=1):
            return {"y": (d["a"] * d["b"][0]).sin() * scale}

        call = aot_function(f, compiler, compiler, partition_fn=min_cut_rematerialization_partition)
        for _ in range(2):
            a, b = torch.ones(2, requires_grad=True), torch.full((2,), 2.0, requires_grad=True)
            y = call({"a": a, "b": [b]}, scale=3)["y"]
            y.sum().backward()
        want = f({"a": torch.ones(2), "b": [torch.full((2,), 2.0)]}, 3)["y"]
        print(torch.equal(y, want), torch.allclose(a.grad, 6 * torch.tensor(2.0).cos()), len(seen), seen[0])
        layer = torch.nn.Linear(2, 2)
        made = aot_module(layer, nop)
        made(torch.ones(1, 2)).sum().backward()
        print(type(made).__name__, layer.weight.grad.tolist(), len(list(made.parameters())))
    """)
    assert lines == [
        "True True 2 ['aten.mul.Tensor', 'aten.sin.default', 'aten.mul.Tensor']",
        "AOTModule [[1.0, 1.0], [1.0, 1.0]] 2",
    ]


def test_operators_that_run_entry_by_entry(program):
    lines = program.run("""
        import functools, warnings
        import torch
        from functorch.experimental import chunk_vmap

        def warned():
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                torch.vmap(torch.linalg.inv)(torch.eye(3).expand(2, 3, 3))
            return ["performance drop" in str(w.message) for w in seen]

        print(torch._C._debug_only_are_vmap_fallback_warnings_enabled(), warned())
        torch._C._debug_only_display_vmap_fallback_warnings(True)
        print(torch._C._debug_only_are_vmap_fallback_warnings_enabled(), len(warned()) <= 1)
        torch._C._debug_only_display_vmap_fallback_warnings(False)
        print(torch._C._functorch._is_vmap_fallback_enabled(), warned())
        same = chunk_vmap(lambda x: torch.rand(3), randomness="same", chunks=2)(torch.ones(4))
        print(torch.equal(same, same[:1].expand(4, 3)))
        print(torch._vmap_internals._vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3)).tolist())
    """)
    assert lines == ["False []", "True True", "True []", "True", "[3.0, 3.0]"]
