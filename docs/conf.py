"""The site, by Sphinx: `make docs`.

Its sources are the Markdown files of the whole repository, where they stand, so
that their links lead to the same places here and in the repository.
"""

import importlib.metadata
import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_extensions"))
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

project = "keras_posenc"
author = "The keras_posenc authors"
copyright = author
release = version = importlib.metadata.version("keras-posenc")
# The name of the published folder, a tag or `latest`; empty for a local build.
published = os.environ.get("DOCS_VERSION", "")
# Where pages are edited, such as https://github.com/OWNER/NAME; or empty.
repository = os.environ.get("REPOSITORY", "")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "docstrings",
    "errors",
    "languages",
    "mathml",
    "notebooks",
    "pictures",
]
root_doc = "README"
include_patterns = [
    "*.md",
    "benchmarks/NOTES.md",
    "benchmarks/POSITIONS.md",
    "benchmarks/RESULTS.md",
    "docs/**",
    "examples/README.md",
    "export/**",
    "keras_posenc/export/README.md",
    "tests/README.md",
]
exclude_patterns = [
    ".*",
    "build",
    "docs/_*",
    "**/.ipynb_checkpoints",
    "**/node_modules",
]

# Pages
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
suppress_warnings = ["myst.header", "toc.empty_glob"]

# Notebooks: `DOCS_NOTEBOOKS=off` shows them without what they print.
nb_execution_mode = os.environ.get("DOCS_NOTEBOOKS", "cache")
nb_execution_cache_path = str(DOCS.parent / "build" / "docs-notebooks")
nb_execution_timeout = 600  # seconds for a cell: machines may be busy
nb_execution_show_tb = True
nb_merge_streams = True
nb_output_stderr = "remove"  # what TensorFlow logs, of the machine for example
os.environ["PYTHONSTARTUP"] = str(DOCS / "_kernel.py")

# Reference
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_inherit_docstrings = False
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 70
napoleon_custom_sections = [("Call arguments", "params_style")]
toc_object_entries_show_parents = "hide"

# Look
html_theme = "furo"
pygments_dark_style = "one-dark"
html_title = f"keras_posenc {release}"
html_favicon = "_static/favicon.svg"
html_extra_path = ["_root"]
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_js_files = [("tables.js", {"defer": "defer"})]
if published:
    html_js_files.append(("versions.js", {"defer": "defer"}))
html_context = {"published": published}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "versions.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
html_math_renderer = "mathml"
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
if repository:
    html_theme_options |= {
        "source_repository": repository,
        "source_branch": "main" if published == "latest" else published,
        "source_directory": "",
    }
copybutton_exclude = ".linenos, .gp, .go"


def setup(app):
    """The start page is the README, with the site's menu after it."""

    def add_menu(_, page, text):
        if page == root_doc:
            text[0] += (DOCS / "_menu.md").read_text("utf-8")

    app.connect("source-read", add_menu)
