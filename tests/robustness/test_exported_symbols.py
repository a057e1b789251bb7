"""What the libraries show to the other extensions of a process."""

import shutil
import subprocess
from pathlib import Path

import pytest
import tesserack


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm of binutils lists a library's symbols")
def test_the_core_lends_no_symbol_of_the_compilers_library() -> None:
    """Linked statically and shown, its locales are shared with other copies: printing a number there crashes."""
    native = Path(tesserack._native.__file__)
    for library in (native, native.parent / "lib" / "libtesserack.so"):
        listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
        names = [line.split()[-1] for line in listed.stdout.splitlines()]
        assert names and not [name for name in names if name.startswith(("_ZNSt6locale", "_ZNSt5ctype", "_ZSt4cout"))]
