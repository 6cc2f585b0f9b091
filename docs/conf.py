"""The documentation site: `make docs` writes it to docs/_build/html; a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

import simgpu

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "simgpu"
copyright = "the simgpu authors, Apache 2.0"
version = release = simgpu.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "generated"]
exclude_patterns = ["_build", "_ext"]
# deeper first headings of included pages; types that only checkers import, with names met twice
suppress_warnings = ["myst.header", "ref.python"]
html_theme = "furo"
html_title = "simgpu"

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

default_role = "literal"  # `x` in a docstring is code
autodoc_default_options = {"members": True, "member-order": "bysource", "exclude-members": "memo"}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries = False  # a fifth of the time
