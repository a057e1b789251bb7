"""``torch.load``: what the environment says of trust, and what programs declare safe."""

from __future__ import annotations

import pytest

FORCED = """
    import io, os, pickle, warnings
    import torch

    class Net(torch.nn.Module):
        pass

    def loaded(old, **options):
        file = io.BytesIO()
        torch.save(Net(), file, _use_new_zipfile_serialization=not old)
        file.seek(0)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                kind = type(torch.load(file, **options)).__name__
            except (RuntimeError, pickle.UnpicklingError) as error:
                kind = "refused"
        names = [os.path.basename(each.filename) for each in told if "FORCE_NO" in str(each.message)]
        return kind, *names

    for old in (False, True):
        print([loaded(old, weights_only=asked) for asked in (None, True, False)])
    print(loaded(False, pickle_module=pickle))
"""


@pytest.mark.parametrize(
    ("environment", "expected", "by_pickle"),
    [
        ({}, [("refused",), ("refused",), ("Net",)], ("Net",)),
        ({"NO_": "1"}, [("Net", "program.py"), ("refused",), ("Net",)], ("Net", "program.py")),
        ({"NO_": "Yes"}, [("Net", "program.py"), ("refused",), ("Net",)], ("Net", "program.py")),
        ({"NO_": "0", "": "no"}, [("refused",), ("refused",), ("Net",)], ("Net",)),
        ({"": "true"}, [("refused",)] * 3, ("refused",)),
        ({"": "1", "NO_": "1"}, [("refused",)] * 3, ("refused",)),
    ],
)
def test_the_environment_forces_files_to_be_trusted_or_not(program, environment, expected, by_pickle):
    variables = {f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD": value for name, value in environment.items()}
    assert program.run(FORCED, **variables) == [str(expected)] * 2 + [str(by_pickle)]


def test_a_program_may_set_it_too(program):
    first = "    import os\n    os.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = 'y'\n"
    assert program.run(first + FORCED)[0] == "[('Net', 'program.py'), ('refused',), ('Net',)]"


DECLARED = """
    import collections, io, os, pickle
    import torch

    def attempt(value, safe, protocol, old=False):
        file = io.BytesIO()
        options = {} if protocol is None else {"pickle_protocol": protocol}
        torch.save(value, file, _use_new_zipfile_serialization=not old, **options)
        file.seek(0)
        with torch.serialization.safe_globals(safe):
            try:
                return torch.load(file)
            except pickle.UnpicklingError as error:
                return "refused"

    for protocol, old in ((2, False), (None, False), (4, False), (2, True)):
        whole = [slice(1, 2), range(3), [int, KeyError]]
        print(attempt(whole, [], protocol, old), attempt(whole, [slice, range, int, KeyError], protocol, old))
        named = attempt(range(2), [(range, "builtins.range")], protocol, old)
        print(named, attempt(os.system, [os.system], protocol, old))
    file = io.BytesIO()
    torch.save([range(2), slice(1), chr], file)
    file.seek(0)
    print(sorted(torch.serialization.get_unsafe_globals_in_checkpoint(file)))
"""


def test_what_is_declared_is_found_by_names_of_python_2(program):
    """``torch.save`` writes protocol 2, in which ``slice`` is ``__builtin__.slice`` and ``range`` its ``xrange``."""
    whole = "[slice(1, 2, None), range(0, 3), [<class 'int'>, <class 'KeyError'>]]"
    assert program.run(DECLARED) == [f"refused {whole}", "range(0, 2) refused"] * 4 + [
        "['builtins.chr', 'builtins.range', 'builtins.slice']"
    ]
