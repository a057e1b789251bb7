"""What a program sees beside a card that stands for "cuda": the accelerator, files, tensors that lie apart."""

from __future__ import annotations

import pytest
import tesserack as ts

pytestmark = pytest.mark.skipif(ts.backends.why_unavailable("reference") is not None, reason="no reference card")
CARD = ("--device", "reference", "--as-cuda")


@pytest.mark.parametrize("options", [CARD, ("--device", "cpu", "--as-cuda")])
def test_the_accelerator_is_the_card(program, options):
    lines = program.run(
        """
        import torch
        device = torch.accelerator.current_accelerator()
        print(torch.accelerator.is_available(), torch.accelerator.device_count(), device.type)
        print(torch.ones(2, device=device).device)
        torch.accelerator.synchronize()
        """,
        *options,
    )
    assert lines == ["True 1 cuda", "cuda:0"]


def test_without_a_card_there_is_no_accelerator(program):
    lines = program.run("""
        import torch
        print(torch.accelerator.is_available(), torch.accelerator.current_accelerator())
    """)
    if ts.backends.why_unavailable("cuda"):
        assert lines == ["False None"]


def test_what_is_loaded_lies_where_it_was_saved(program):
    source = """
        import torch, sys
        from torch import nn
        if "save" in sys.argv:
            model = nn.Linear(2, 2).to("cuda")
            torch.save({"model": model.state_dict(), "step": torch.tensor(3)}, "state.pt")
            torch.save(model, "model.pt")
        for options in ({}, {"map_location": "cpu"}, {"map_location": lambda storage, location: storage},
                        {"map_location": {"cuda:0": "cpu"}}, {"map_location": {"cuda:1": "cpu"}}):
            state = torch.load("state.pt", **options)
            model = torch.load("model.pt", weights_only=False, **options)
            print(state["model"]["weight"].device.type, state["step"].device, model.weight.device.type)
    """
    lines = program.run(source, *CARD, arguments=("save",))
    there, here = "cuda cpu cuda", "cpu cpu cpu"
    assert lines == [there, here, here, here, there]
    if ts.backends.why_unavailable("cuda"):  # elsewhere the card is missed, not the file
        assert program.run(source) == [here] * 5


def test_indices_of_another_card_are_refused(program):
    lines = program.run(
        """
        import torch
        x, at = torch.arange(6.0), torch.tensor([1, 2])
        print(x.cuda()[at].tolist(), x.cuda()[at.cuda()].tolist())
        set = x.__setitem__
        for call in (lambda: x[at.cuda()], lambda: set(at.cuda(), 1.0), lambda: set(x.cuda() > 2, 1.0)):
            try:
                call()
            except RuntimeError as error:
                print(error)
        """,
        *CARD,
    )
    assert lines[0] == "[1.0, 2.0] [1.0, 2.0]"
    assert len(lines) == 4 and all("on the same device" in line for line in lines[1:])


def test_data_beside_the_default_device_is_told_what_to_do(program):
    program.write("plain.py", "import torch, numpy as np\ntorch.ones(3) + torch.from_numpy(np.ones(3))\n")
    done = program.start("-m", "tesserack", "run", "--device", "reference", "plain.py")
    assert done.returncode == 1
    assert "found at least two devices" in done.stderr and ".to('reference:0')" in done.stderr
    assert "Traceback" in done.stderr and "add --as-cuda" in done.stderr.splitlines()[-1]


def test_streams_of_the_card(program):
    source = """
        import torch
        side = torch.cuda.Stream()
        now = lambda: torch.cuda.current_stream() == side
        print(side.device.type, isinstance(side, torch.cuda.Stream), isinstance(torch.Stream("cpu"), torch.cuda.Stream))
        with torch.cuda.stream(side) as entered:
            x = torch.ones(3).to("cuda", non_blocking=True) + 1
            before = now()
            with torch.cuda.default_stream():
                within = now() == (torch.cuda.default_stream() == side)  # a card may have but one
            print(entered == side, before, within, now(), torch.cuda.stream(None).__class__ is torch.cuda.StreamContext)
        torch.cuda.current_stream().wait_stream(side)
        x.record_stream(torch.cuda.current_stream())
        begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record(), done.record(), done.synchronize()
        print(now() == (torch.cuda.default_stream() == side), x.sum().item())
        print(done.query(), begun.device.type, begun.elapsed_time(done) >= 0)
    """
    assert program.run(source, *CARD) == ["cuda True False", "True True True True True", "True 6.0", "True cuda True"]
    if ts.backends.why_unavailable("cuda"):
        lines = program.run("""
            import torch
            for kind in (torch.cuda.Stream, torch.cuda.Event):
                try:
                    kind()
                except RuntimeError as error:
                    print("'cuda'" in str(error) and "backend" in str(error))
        """)
        assert lines == ["True", "True"]


def test_what_a_card_tells(program):
    lines = program.run(
        """
        import torch
        told = torch.cuda.get_device_properties(0)
        free, total = torch.cuda.mem_get_info()
        print(told.major, told.minor, told.multi_processor_count >= 0, told.total_memory == total >= free >= 0)
        x = torch.ones(1000, device="cuda")
        stats = torch.cuda.memory_stats()
        print(stats["allocated_bytes.all.current"] == torch.cuda.memory_allocated() >= 4000)
        print(x.type(), x.type(torch.DoubleTensor).device, x.cpu().type("torch.cuda.LongTensor").device)
        print([isinstance(x, kind) for kind in (torch.FloatTensor, torch.cuda.FloatTensor, torch.cuda.LongTensor)])
        """,
        *CARD,
    )
    assert lines == ["0 0 True True", "True", "torch.cuda.FloatTensor cpu cuda:0", "[False, True, False]"]


@pytest.mark.skipif(ts.backends.why_unavailable("opencl") is not None, reason="no device that pins memory")
def test_factories_pin_memory(program):
    lines = program.run(
        """
        import torch
        torch.ones(1, device="cuda")
        for x in (
            torch.empty(2, 3, pin_memory=True), torch.tensor([1.0], pin_memory=True),
            torch.zeros(2, pin_memory=True, requires_grad=True),
            torch.empty_like(torch.ones(2), pin_memory=True),
        ):
            print(x.is_pinned(), x.to("cuda", non_blocking=True).shape, x.requires_grad)
        try:
            torch.ones(2, device="cuda", pin_memory=True)
        except RuntimeError as error:
            print("Only dense CPU tensors can be pinned" in str(error))
        """,
        *("--device", "opencl", "--as-cuda"),
    )
    shapes = (("[2, 3]", False), ("[1]", False), ("[2]", True), ("[2]", False))
    assert lines == [*(f"True torch.Size({shape}) {grad}" for shape, grad in shapes), "True"]
