"""Templates, style and scripts of pages."""

import base64
import hashlib
import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pyg_glif._utils.json import plain
from pyg_glif._utils.markup import escaped
from pyg_glif._utils.optional import require
from pyg_glif._utils.validation import check_choice
from pyg_glif.reporting.words import brief, counted, percent, shown

if TYPE_CHECKING:
    from jinja2 import Environment

#: Style and scripts, by the names under which ``asset`` gives them.
ASSETS = ("page.js", "style.css", "vega.js")

# What ends a script element, or starts what looks like one, wherever it stands.
_ENDS = re.compile(r"<(?=/script|!--|script)", re.IGNORECASE)


@lru_cache
def asset(name: str) -> str:
    """The text of a style sheet or script.

    Args:
        name (str): ``"style.css"``; ``"page.js"``, which draws charts and sorts
            tables; or ``"vega.js"``, which is Vega, Vega-Lite and Vega-Embed in one
            and sets ``window.vegaEmbed``.

    ``vega.js`` is in the version that Altair writes specifications for. It comes from
    ``vl-convert-python`` (``pyg_glif[report]``), not from the network.

    Example:
        >>> lines = asset("style.css").splitlines()
        >>> [line for line in lines if line.startswith("@media")][:2]
        ['@media (prefers-color-scheme: dark) {', '@media (max-width: 40rem) {']
    """
    check_choice("name", name, ASSETS)
    if name == "vega.js":
        feature = "Charts in pages"
        altair = require("altair", feature, "report")
        convert = require("vl_convert", feature, "report")
        version = "_".join(altair.SCHEMA_VERSION.split(".")[:2])
        text = str(convert.javascript_bundle(vl_version=version))
    else:
        text = (files(__package__) / "static" / name).read_text(encoding="utf-8")
    # The same character in every string and pattern of a script, and it ends nothing.
    return text if name.endswith(".css") else _ENDS.sub(r"\\x3c", text)


@lru_cache
def digest(name: str) -> str:
    """An asset as a source that a content policy allows, ``'sha256-...'``."""
    hashed = hashlib.sha256(asset(name).encode()).digest()
    return f"'sha256-{base64.b64encode(hashed).decode()}'"


def environment() -> "Environment":
    """A Jinja2 environment with the templates of the house.

    Everything is escaped unless it is marked safe. Filters: ``shown`` (any value as
    text) and ``tojson`` (for ``<script type="application/json">``). Pages extend
    ``base.html``, which takes ``static``, the address under which the ``ASSETS`` are
    served (without it they become part of the page), and ``charts``, whether there are
    any; ``macros.html`` has tables, charts and lists of facts.

    Example:
        >>> page = environment().from_string("<p>{{ name }}</p>")
        >>> page.render(name="<script>")
        '<p>&lt;script&gt;</p>'
    """
    import jinja2
    import markupsafe

    out: Environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pyg_glif.reporting"),
        autoescape=jinja2.select_autoescape(["html"], default_for_string=True),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    out.filters["shown"] = shown
    out.filters["percent"] = percent
    out.filters["md"] = escaped
    out.filters["counted"] = counted
    out.filters["brief"] = brief
    out.policies["json.dumps_function"] = _dumps
    out.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    # Two assets of our own, and one that was made safe for where it stands.
    out.globals["inlined"] = lambda name: markupsafe.Markup(asset(name))
    out.globals["digest"] = lambda name: markupsafe.Markup(digest(name))
    out.globals["static"] = None
    out.globals["charts"] = False
    return out


def _dumps(value: Any, **options: Any) -> str:
    """JSON that every reader takes: no NaN, no infinity."""
    return json.dumps(plain(value), allow_nan=False, **options)
