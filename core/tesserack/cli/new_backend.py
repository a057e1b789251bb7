"""``tesserack new-backend NAME``: the package of a new device, which passes the level *boots* as it is written."""

from __future__ import annotations

import argparse
import keyword
import sys
from pathlib import Path
from string import Template

__all__ = ["configure", "run", "write"]

TEMPLATES = Path(__file__).resolve().parent / "templates"
VERSION = "0.1.0"
# Folders of templates are named for what they are; these stand for names that depend on the backend's.
_RENAMED = {"gitignore": ".gitignore", "test_conformance.py": "tests/test_conformance.py"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("name", metavar="NAME", help='the device\'s name, as in device="NAME"')
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--native", action="store_true", help="C++ behind abi.h instead of Python over NumPy")
    kind.add_argument("--kernelgen", action="store_true", help="kernels of tesserack-kernelgen in a dialect of C")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="the folder to write, new or empty (default: ./tesserack-NAME)"
    )
    parser.add_argument("--vendor", help="a globally unique string (default: org.example.NAME)")


def run(arguments: argparse.Namespace) -> int:
    """Write the package and say what to do next; 2 if the name or the folder is taken."""
    name: str = arguments.name
    output = arguments.output or Path(f"tesserack-{name}")
    try:
        kinds = {"native": arguments.native, "kernelgen": arguments.kernelgen}
        written = write(name, output, vendor=arguments.vendor, **kinds)
    except (OSError, ValueError) as error:
        print(f"new-backend: {error}", file=sys.stderr)
        return 2
    print(f"wrote {len(written)} files to {output}; next:")
    where = output if output.is_absolute() else f"./{output}"
    print(f"  pip install {where}\n  tesserack conform {name} --level boots --quick")
    print("  (conform needs the extra: pip install 'tesserack[test]')")
    return 0


def write(
    name: str, output: Path, *, native: bool = False, kernelgen: bool = False, vendor: str | None = None
) -> list[Path]:
    """Write the package of a backend called ``name`` into ``output``; returns the files.

    It is in Python over NumPy, or ``native`` in C++, or with the kernels of tesserack-kernelgen.

    Raises:
        ValueError: if the name cannot be a device's, or another backend that is installed has it.
        FileExistsError: if the folder has something in it.
    """
    check_name(name)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise FileExistsError(f"--output: expected a new or empty folder, got {output}; choose another one")
    kind = "native" if native else "kernelgen" if kernelgen else "python"
    values = _values(name, vendor or f"org.example.{name}")
    written = []
    for folder in (TEMPLATES / "common", TEMPLATES / kind):
        for template in sorted(folder.rglob("*.in")):
            target = output / _target(template.relative_to(folder), name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(Template(template.read_text("utf-8")).substitute(values), "utf-8")
            written.append(target)
    return written


def check_name(name: str) -> None:
    """``ValueError`` unless a new backend may be called so."""
    from tesserack import backends

    if not (name.isascii() and name.isidentifier() and name == name.lower() and name[0] != "_"):
        raise ValueError(f"NAME: expected lower-case letters, digits and underscores, such as 'acme', got {name!r}")
    if keyword.iskeyword(name):
        raise ValueError(f"NAME: {name!r} is a word of Python's; choose another one")
    if name == "meta":
        raise ValueError("NAME: 'meta' is built in; choose another one")
    owner = backends.installed().get(name)
    if owner is not None:
        raise ValueError(f"NAME: {name!r} is taken by {owner}, which is installed; choose another one")


def _values(name: str, vendor: str) -> dict[str, str]:
    from tesserack import __version__

    major_minor = ".".join(__version__.split(".")[:2])
    return {
        "name": name,
        "Name": "".join(part.capitalize() for part in name.split("_")),
        "vendor": vendor,
        "version": VERSION,
        "core_version": major_minor,
    }


def _target(template: Path, name: str) -> Path:
    """Where a template goes: ``package/__init__.py.in`` becomes ``src/tesserack_NAME/__init__.py``.

    Below ``src``, so that Python started in the project's folder finds the installed package, and with it the library.
    """
    plain = template.with_suffix("")
    if plain.parts[0] == "package":
        return Path("src", f"tesserack_{name}", *plain.parts[1:])
    return Path(_RENAMED.get(str(plain), str(plain)))
