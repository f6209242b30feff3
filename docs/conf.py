"""Settings of the documentation: `make docs` builds it into docs/_build/html, with every warning an error."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import pindown  # noqa: E402

project = "pindown"
author = copyright = "The pindown authors"
version = release = pindown.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "mathml",
    "offline",
    "records",
    "sample",
]
exclude_patterns = ["_build", "_templates", "figures", "results/*.jsonl", "own_method"]
templates_path = ["_templates"]

# Markdown: $…$ is a formula, and headings can be linked to.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
highlight_language = "none"  # of blocks that do not say theirs: shell, and drawings in text

# Docstrings: numpy style, and `name` is a name.
default_role = "py:obj"
napoleon_google_docstring = False
napoleon_use_param = napoleon_use_rtype = False  # types are words here, not names to look up
napoleon_custom_sections = [("Attributes", "params_style")]
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"inherited-members": True}
maximum_signature_line_length = 100
add_module_names = False
toc_object_entries_show_parents = "hide"

# Examples are run here, and one that fails ends the build.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "thumbnail_size": (560, 280),
    "write_computation_times": False,
}

html_theme = "furo"
html_title = "pindown"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["pindown.css"]
html_copy_source = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

if tags.has("prose"):  # noqa: F821 (given by Sphinx): no API, and examples are not run: seconds, for `make test`
    autosummary_generate, plot_gallery = False, "False"

    def setup(app):
        """Leave the API page empty."""
        app.connect(
            "source-read", lambda app, page, text: text.__setitem__(0, "# API") if page == "reference/api" else None
        )
