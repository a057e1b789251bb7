"""Settings of the site, built by ``make docs``."""

from importlib.metadata import version as installed_version

project = "Tesserack"
author = "The Tesserack authors"
copyright = f"2026, {author}"
release = version = installed_version("tesserack")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# Pages link to files of the repository as readers of the repository would.
suppress_warnings = ["myst.xref_missing"]
exclude_patterns = ["_build", "README.md"]

html_theme = "furo"
html_title = f"Tesserack {release}"

autodoc_typehints = "description"
