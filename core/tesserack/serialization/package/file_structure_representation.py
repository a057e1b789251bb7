"""The files of a package as a tree."""

from __future__ import annotations

from collections.abc import Iterable

from tesserack.serialization.package.glob_group import GlobGroup, GlobPattern

__all__ = ["Directory"]


class Directory:
    """A folder of a package, or a file in it; :meth:`PackageImporter.file_structure` gives the topmost."""

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name = name
        self.is_dir = is_dir
        self.children: dict[str, Directory] = {}

    def _add_file(self, file_path: str) -> None:
        *folders, name = file_path.split("/")
        place = self
        for folder in folders:
            place = place.children.setdefault(folder, Directory(folder, True))
        place.children[name] = Directory(name, False)

    def has_file(self, filename: str) -> bool:
        """Whether something lies under this path."""
        place = self
        for name in filename.split("/"):
            if name not in place.children:
                return False
            place = place.children[name]
        return True

    def __str__(self) -> str:
        return "".join(self._lines("", "─── "))

    def _lines(self, before: str, mark: str) -> Iterable[str]:
        yield f"{before}{mark}{self.name}\n"
        before += "│   " if mark.startswith("├") else "    "
        found = sorted(self.children.values(), key=lambda child: (not child.is_dir, child.name))
        for child in found:
            mark = "└── " if child is found[-1] else "├── "
            yield from child._lines(before, mark) if child.is_dir else [f"{before}{mark}{child.name}\n"]


def _create_directory_from_file_list(
    filename: str, file_list: Iterable[str], include: GlobPattern = "**", exclude: GlobPattern = ()
) -> Directory:
    """The tree of the files that the patterns mean."""
    wanted, top = GlobGroup(include, exclude=exclude, separator="/"), Directory(filename, True)
    for file in filter(wanted.matches, file_list):
        top._add_file(file)
    return top
