"""Take debug information out of the libraries in wheels, by binutils: ``python images/strip_wheels.py WHEEL...``"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from archives import add_file


def stripped(wheel: Path) -> dict[str, bytes]:
    """The extension modules that were at least a tenth debug information, without it."""
    found = {}
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        for item in archive.infolist():
            # Not what auditwheel has put beside them: where it wrote into a library, strip may damage it.
            if not item.filename.endswith(".so") or ".libs/" in item.filename:
                continue
            path = Path(archive.extract(item, folder))
            subprocess.run(["strip", "--strip-debug", path], check=True)
            if path.stat().st_size < item.file_size * 0.9:
                found[item.filename] = path.read_bytes()
    return found


def main() -> None:
    for wheel in map(Path, sys.argv[1:]):
        for name, data in stripped(wheel).items():
            add_file(wheel, name, data)
            print(f"{name}: {len(data) / (1 << 20):.1f} MB without debug information")


if __name__ == "__main__":
    main()
