"""Packages: a zip archive with the code of a program, its objects and other files, from which it runs hermetically.

The names and the format are those of ``torch.package``: packages of either are read by the other, as far as the modules
that a package leaves outside are there.

>>> import io
>>> from tesserack.package import PackageExporter, PackageImporter
>>> file = io.BytesIO()
>>> with PackageExporter(file) as exporter:
...     exporter.save_source_string("model", "def double(x):\\n    return 2 * x\\n")
...     exporter.save_text("notes", "about.txt", "doubles")
>>> importer = PackageImporter(io.BytesIO(file.getvalue()))
>>> importer.import_module("model").double(21), importer.load_text("notes", "about.txt")
(42, 'doubles')
"""

from tesserack.serialization.package.analyze import is_from_package
from tesserack.serialization.package.file_structure_representation import Directory
from tesserack.serialization.package.glob_group import GlobGroup
from tesserack.serialization.package.importer import (
    Importer,
    ObjMismatchError,
    ObjNotFoundError,
    OrderedImporter,
    sys_importer,
)
from tesserack.serialization.package.package_exporter import EmptyMatchError, PackageExporter, PackagingError
from tesserack.serialization.package.package_importer import PackageImporter

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter",
    "PackageExporter", "PackageImporter", "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip
