"""The error of plugins."""

from __future__ import annotations

__all__ = ["PluginError"]


class PluginError(RuntimeError):
    """A plugin cannot be loaded, or gave something a hook does not take. The message names the plugin."""
