"""Which names of PyTorch's a program touched, and which of them Tesserack does not have."""

from __future__ import annotations

__all__ = ["Report", "current"]


class Report:
    """Names with the places they were first touched at."""

    def __init__(self, detailed: bool = False) -> None:
        self.detailed = detailed  # names that are there are noted too
        self.touched: dict[str, str] = {}
        self.missing: dict[str, list[str]] = {}

    def touch(self, name: str, place: str) -> None:
        """Note a name that is there."""
        self.touched.setdefault(name, place)

    def miss(self, name: str, place: str) -> None:
        """Note a name that is not."""
        places = self.missing.setdefault(name, [])
        if place not in places:
            places.append(place)

    def lines(self) -> list[str]:
        """The report as text: what is missing and where, then all that was touched."""
        out = [f"torch names touched: {len(self.touched)}, missing: {len(self.missing)}"]
        for name in sorted(self.missing):
            out.append(f"  missing  {name}  ({', '.join(self.missing[name][:3])})")
        out += [f"  touched  {name}  ({place})" for name, place in sorted(self.touched.items())]
        return out


current = Report()
