"""Public classes are pickled by a path that another process imports, natively and under the hook."""

from __future__ import annotations

import pytest
import tesserack as ts

# Prints what pickle refuses, and writes the pickles of all other classes of public modules.
WALK = """
    import importlib, pickle, pkgutil, sys, warnings
    warnings.simplefilter("ignore")
    import tesserack

    hooked = "torch" in sys.modules or any(type(f).__module__ == "tesserack.compat._hook" for f in sys.meta_path)
    if hooked:
        import torch
        from tesserack.compat import _names
        modules = list(_names._table())
    else:
        found = pkgutil.walk_packages(tesserack.__path__, "tesserack.")
        modules = ["tesserack", *(m.name for m in found if not any(p.startswith("_") for p in m.name.split(".")))]
        modules = [name for name in modules if not name.startswith(("tesserack.compat.shims", "tesserack.testing"))]
    pickled = {}
    for name in modules:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        for each in sorted(_names.names(name)) if hooked else dir(module):
            kind = getattr(module, each, None)
            ours = isinstance(kind, type) and str(kind.__module__).startswith(("torch", "tesserack"))
            if not ours or type(kind).__name__ == "_MissingMeta" or each.startswith("_"):
                continue
            try:
                pickled[f"{name}.{each}"] = pickle.dumps(kind)
            except Exception as error:
                print(f"{name}.{each}: {error}")
    with open("classes", "wb") as file:
        pickle.dump(pickled, file)
    print(len(pickled) > 300)
"""
READ = """
    import pickle
    with open("classes", "rb") as file:
        pickled = pickle.load(file)
    for name, text in pickled.items():
        try:
            kind = pickle.loads(text)
            assert isinstance(kind, type) and type(kind).__name__ != "_MissingMeta", kind
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
"""


def test_classes_are_found_by_their_paths_natively(program):
    for number, source in enumerate((WALK, READ)):
        done = program.start(str(program.write(f"{number}.py", source)))
        assert done.returncode == 0, done.stderr
        assert done.stdout.split("\n")[:-1] == (["True"] if number == 0 else [])


def test_classes_are_found_by_their_paths_under_the_hook(program):
    assert program.run(WALK) == ["True"]
    assert program.run(READ) == []


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_loaders_start_by_every_method_under_the_hook(program, method):
    assert program.run(f"""
        import torch
        from torch.utils.data import DataLoader, Dataset, get_worker_info

        class Numbers(Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, i):
                return torch.tensor([i, get_worker_info().num_workers])

        if __name__ == "__main__":
            loader = DataLoader(Numbers(), batch_size=2, num_workers=1, multiprocessing_context="{method}")
            print([batch.tolist() for batch in loader])
    """) == ["[[[0, 1], [1, 1]], [[2, 1], [3, 1]]]"]  # fmt: skip


def test_objects_of_modules_that_only_pytorch_has_are_pickled(program):
    assert program.run("""
        import pickle, torch
        step = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))])
        layers = torch.nn.ChannelShuffle(2), torch.nn.RNN(2, 2)
        try:
            import torch.optim.adamw
            print(torch.optim.adamw.AdamW is torch.optim.AdamW)
        except ImportError:
            print("refused")
        for each in (step, *layers):
            print(type(pickle.loads(pickle.dumps(each))) is type(each), type(each).__module__)
    """) == [
        "True",
        "True torch.optim.adamw",
        "True torch.nn.modules.channelshuffle",
        "True torch.nn.modules.rnn",
    ]


def test_names_of_packages_above_do_not_stand_for_others(program):
    """``torch.export.load`` is not ``torch.load``, nor is a layer trained for quantization the plain one."""
    assert program.run("""
        import torch
        from torch.export import load
        from torch.nn.qat import Conv2d
        from torch.ao.nn.qat import Conv2d as moved
        print(load is torch.load, Conv2d is torch.nn.Conv2d, moved is torch.nn.Conv2d)
        from torch.nn.intrinsic import ConvReLU2d
        print(ConvReLU2d is torch.ao.nn.intrinsic.ConvReLU2d)
    """) == ["False False False", "True"]


def test_classes_that_pytorch_does_not_list_are_found_by_their_paths(program):
    """Each is read in a process that has imported nothing else, and where nothing may be guarded by a try."""
    program.write(
        "made.py",
        """
        import pickle, sys, torch, torch.utils.hooks
        from torch.utils.data.graph_settings import SHARDING_PRIORITIES
        handle = type(torch.ones(2, requires_grad=True).register_hook(print))
        print(handle is torch.utils.hooks.HookHandle, issubclass(handle, torch.utils.hooks.RemovableHandle))
        pickle.dump([handle], open("0", "wb"))
        pickle.dump([SHARDING_PRIORITIES], open("1", "wb"))
    """,
    )
    done = program.start("-m", "tesserack", "run", "made.py")
    assert done.stdout == "True True\n", done.stderr
    for name, kind in enumerate(("HookHandle", "SHARDING_PRIORITIES")):
        assert program.run(f"import pickle; print(pickle.load(open('{name}', 'rb'))[0].__name__)") == [kind]


def test_streams_say_where_they_are(program):
    lines = program.run("""
        import importlib, torch
        for card in (torch.cuda, torch.mtia, torch.xpu):
            for name in ("Stream", "Event"):
                kind = getattr(card, name)
                print(getattr(importlib.import_module(kind.__module__), name) is kind, kind.__module__ == card.__name__)
    """)
    assert lines == ["True True"] * 6
    assert ts.cpu.Stream.__module__ == "tesserack.cpu"
