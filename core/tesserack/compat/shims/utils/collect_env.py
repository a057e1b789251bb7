"""``torch.utils.collect_env``: what ``tesserack doctor`` knows, as text."""

from __future__ import annotations

import json

__all__ = ["get_pretty_env_info", "main"]


def get_pretty_env_info() -> str:
    """The machine and the installation, one fact a line."""
    from tesserack.compat._version import TORCH
    from tesserack.utils.environment import describe

    lines = [f"PyTorch version: {TORCH}"]
    for part, facts in describe().items():
        if isinstance(facts, dict):
            lines += [f"{part} {name}: {json.dumps(value, default=str)}" for name, value in facts.items()]
        else:
            lines.append(f"{part}: {json.dumps(facts, default=str)}")
    return "\n".join(lines)


def main() -> None:
    """Print them."""
    print("Collecting environment information...")
    print(get_pretty_env_info())
