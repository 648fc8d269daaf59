"""Sphinx configuration. API pages are written from the package at every build."""

import importlib
import inspect
import logging
import pkgutil
import re
import sys
from abc import ABC
from collections.abc import Iterable
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import pyg_glif

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
sys.path.insert(0, str(HERE.parent))  # the experiments, which are not installed
import inventories  # noqa: E402
import pictures  # noqa: E402

logging.getLogger("pyg_glif").setLevel(logging.WARNING)  # examples of the gallery

project = "pyg_glif"
author = "The pyg_glif authors"
copyright = author
release = version = metadata.version("pyg_glif")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.doctest",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "formulas",
]
# Parts of pages are no pages.
exclude_patterns = ["_build", "node_modules", "results/*.md", "gallery/*"]

html_theme = "furo"
html_title = f"pyg_glif {release}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_math_renderer = "katex"
html_copy_source = False
html_show_sphinx = False
python_maximum_signature_line_length = 72

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

intersphinx_mapping = inventories.write(HERE / "_build" / "inventories")
# Prompts and what examples print are not copied.
copybutton_exclude = ".linenos, .gp, .go"
viewcode_line_numbers = True
autosummary_generate = False  # the pages are written below

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "image_scrapers": ("matplotlib", "pictures.own_figures"),
    "ignore_repr_types": r"matplotlib\.|pyg_glif\.sklearn",
    "within_subsection_order": "FileNameSortKey",
    "min_reported_time": 600,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "write_computation_times": False,
    "copyfile_regex": "",
}
suppress_warnings = ["config.cache"]  # the scraper is a function

SCIKIT_LEARN = ("BaseEstimator", "ClassifierMixin", "RegressorMixin")
SCIKIT_LEARN += ("MetaEstimatorMixin",)
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# Types and defaults are in the docstrings; overloads would hide the defaults.
autodoc_typehints = "none"

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes"]
napoleon_use_ivar = True
napoleon_use_rtype = False

# Examples in docstrings are run by pytest, with the names of their module.
doctest_test_doctest_blocks = ""

MANY_NAMES = 4  # are shown in the table of modules
MANY_METHODS = 4  # classes with so many have a table of them
PRIVATE_DEFAULT = re.compile(r"(\w+)=(_[A-Z]\w*)")
GENERATED = HERE / "api" / "generated"


def public_modules() -> list[ModuleType]:
    """The public modules one level below the package."""
    return [
        importlib.import_module(f"pyg_glif.{found.name}")
        for found in pkgutil.iter_modules(pyg_glif.__path__)
        if not found.name.startswith("_")
    ]


def summary(value: object) -> str:
    """First paragraph of a docstring, on one line; the type of a constant."""
    documented = inspect.isclass(value) or inspect.isroutine(value)
    if not (documented or inspect.ismodule(value)):
        return f"A constant, ``{type(value).__name__}``."
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def exports(module: ModuleType) -> list[str]:
    """``__all__``, or what is defined in the module where there is none."""
    own = [
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and not name.startswith("_")
    ]
    return list(getattr(module, "__all__", own))


@cache
def find_homes() -> dict[int, str]:
    """Which module documents which object, by the object's identity."""
    return {
        id(getattr(module, name)): module.__name__
        for module in public_modules()
        for name in exports(module)
    }


def overview(module: ModuleType) -> list[str]:
    """A table of all exports, linked to where they are documented."""
    lines = [".. list-table::", "   :widths: auto", ""]
    for name in exports(module):
        value = getattr(module, name)
        home = find_homes().get(id(value), module.__name__)
        lines += [f"   * - :obj:`~{home}.{name}`", f"     - {summary(value)}"]
    return [*lines, ""]


def method_table(value: type) -> list[str]:
    """A table of a class's own methods and properties, if it has some."""
    owners = [c for c in value.__mro__ if c.__module__.startswith("pyg_glif")]
    shown = owners[::-1] if value.__module__.startswith("pyg_glif.sklearn") else [value]
    members = {
        member: None
        for owner in shown
        for member, found in vars(owner).items()
        if (inspect.isroutine(found) or isinstance(found, property | cached_property))
        and not member.startswith("_")
        and not is_generated(member, found)
        and inspect.getdoc(getattr(value, member))
    }
    if len(members) < MANY_METHODS:
        return []
    names = (f"      {member}" for member in members)
    return ["   .. autosummary::", "", *names, ""]


def documented_bases(bases: Iterable[Any]) -> list[Any]:
    """Bases of a class; in place of those that no page tells about, their own."""
    found: dict[Any, None] = {}
    for base in bases:
        plain = get_origin(base) or base
        ours = plain.__module__.startswith("pyg_glif")
        told = not ours or id(plain) in find_homes()
        found |= dict.fromkeys([base] if told else documented_bases(plain.__bases__))
    return [base for base in found if base not in (object, ABC)]


def entry(module: ModuleType, name: str) -> str:
    """The autodoc directive of one export."""
    value = getattr(module, name)
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
    elif inspect.isroutine(value):
        kind = "function"
    else:  # autodoc would print the docstring of its class
        return f".. py:data:: {module.__name__}.{name}\n\n   {summary(value)}\n"
    lines = [f".. auto{kind}:: {module.__name__}.{name}"]
    if module.__name__ == "pyg_glif.sklearn":  # its own classes are told there
        lines.append(f"   :inherited-members: {', '.join(SCIKIT_LEARN)}")
    if kind == "class" and not documented_bases(value.__bases__):
        lines.append("   :no-show-inheritance:")
    table = method_table(value) if kind == "class" else []
    return "\n".join([*lines, "", *table])


def page(module: ModuleType) -> str:
    """The module's docstring, a table of its exports, and each of them in full."""
    name = module.__name__
    lines = [name, "=" * len(name), "", f".. automodule:: {name}"]
    if not exports(module):  # type aliases: nothing but documented data
        return "\n".join([*lines, "   :members:", ""])
    lines += ["   :no-members:", "", *overview(module)]
    if module is not pyg_glif:
        homes = find_homes()  # what two modules export is told in one of them
        lines += [
            entry(module, export)
            for export in exports(module)
            if homes[id(getattr(module, export))] == name
        ]
    return "\n".join(lines)


def module_table(modules: list[ModuleType]) -> str:
    """What each module is for, in Markdown, with its first exports."""
    rows = ["| module | what is there | names |", "|---|---|---|"]
    for module in modules:
        name, found = module.__name__, exports(module)
        some = ", ".join(f"`{export}`" for export in found[:MANY_NAMES])
        more = "" if len(found) <= MANY_NAMES else ", …"
        link = f"[`{name}`](generated/{name}.rst)"
        what = summary(module).split(". ")[0].rstrip(".")
        what = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", what).replace("``", "`")
        rows.append(f"| {link} | {what} | {some}{more} |")
    return "\n".join([*rows, ""])


def write_api_pages(app: Sphinx) -> None:
    """Writes one page per module, so that no export can be forgotten."""
    modules = [pyg_glif, *public_modules()]
    pages = {f"{module.__name__}.rst": page(module) for module in modules}
    pages["modules.txt"] = module_table(modules)
    GENERATED.mkdir(parents=True, exist_ok=True)
    for old in GENERATED.iterdir():
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        path = GENERATED / name
        # Unchanged files keep their date, and Sphinx does not read them again.
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def resolve_reexport(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: nodes.TextElement
) -> nodes.reference | None:
    """Finds ``pyg_glif.name`` where ``name`` is documented."""
    package, _, name = node.get("reftarget", "").rpartition(".")
    home = find_homes().get(id(getattr(pyg_glif, name, None)))
    if package != "pyg_glif" or home is None or node.get("refdomain") != "py":
        return None
    target, doc = f"{home}.{name}", node["refdoc"]
    domain = env.domains.python_domain
    return domain.resolve_xref(env, doc, app.builder, "obj", target, node, text)


def skip_generated(
    app: Sphinx, what: str, name: str, value: object, skip: bool, options: object
) -> bool | None:
    """Leaves out what :func:`is_generated`."""
    return True if is_generated(name, value) else None


def is_generated(name: str, value: object) -> bool:
    """Whether it is a field of a named tuple or scikit-learn's request for metadata."""
    alias = str(getattr(value, "__doc__", "")).startswith("Alias for field number")
    return alias or re.fullmatch(r"set_\w+_request", name) is not None


def show_defaults(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str, str | None] | None:
    """Writes the values of defaults that the source calls by a private name."""
    if signature is None or not PRIVATE_DEFAULT.search(signature):
        return None
    names = inspect.unwrap(
        value.__init__ if inspect.isclass(value) else value
    ).__globals__

    def shown(match: re.Match[str]) -> str:
        return f"{match[1]}={names[match[2]]!r}"

    return PRIVATE_DEFAULT.sub(shown, signature), returns


def show_documented_bases(
    app: Sphinx, name: str, value: type, options: object, bases: list[Any]
) -> None:
    """Names the bases that have a page."""
    bases[:] = documented_bases(bases)


def mark_examples(app: Sphinx, doctree: nodes.document) -> None:
    """Hands the ``>>>`` blocks of Markdown pages to the doctest builder."""
    for block in doctree.findall(nodes.literal_block):
        text = block.astext()
        if block.get("language") == "python" and text.startswith(">>>"):
            # The blank line at the end is for readers of doctests in plain Markdown.
            block.rawsource = text.rstrip()
            block.children = [nodes.Text(block.rawsource)]
            block["testnodetype"] = "doctest"
            block["groups"] = ["default"]


def setup(app: Sphinx) -> None:
    """Connects the hooks above."""
    app.connect("builder-inited", lambda app: pictures.draw_landing(HERE / "_static"))
    app.connect("builder-inited", write_api_pages)
    app.connect("autodoc-skip-member", skip_generated)
    app.connect("autodoc-process-bases", show_documented_bases)
    app.connect("autodoc-process-signature", show_defaults)
    app.connect("doctree-read", mark_examples)
    app.connect("missing-reference", resolve_reexport)
