"""Formulas, drawn by KaTeX when the pages are built.

Pages hold the result, MathML for those who listen included, and its fonts lie beside
them: nothing is computed by the reader's browser, and no other host is asked. KaTeX
comes from npm (``docs/package.json``), and Node runs it.
"""

import html
import json
import shutil
import subprocess
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
HERE = Path(__file__).parent
KATEX = HERE.parent / "node_modules" / "katex" / "dist"


@cache
def painter() -> "subprocess.Popen[str] | None":
    """A process that answers formulas; :obj:`None`, and a warning, without KaTeX."""
    node = shutil.which("node")
    if node is None or not KATEX.exists():
        LOGGER.warning("formulas stay TeX: run 'npm install' in 'docs', or 'make docs'")
        return None
    script = str(HERE / "formulas.js")
    pipe = subprocess.PIPE
    return subprocess.Popen([node, script], stdin=pipe, stdout=pipe, text=True)


@cache
def painted(formula: str, alone: bool) -> tuple[str, str | None]:
    """A formula for a page, and what is wrong with it."""
    process = painter()
    source = f"<code>{html.escape(formula)}</code>"
    if process is None or process.stdin is None or process.stdout is None:
        return source, None
    process.stdin.write(json.dumps([formula, alone]) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    return answer.get("html", source), answer.get("error")


def paint(node: nodes.math | nodes.math_block) -> str:
    """The formula of a node; TeX that KaTeX does not understand is a warning."""
    text, error = painted(node.astext(), isinstance(node, nodes.math_block))
    if error is not None:
        LOGGER.warning("formula: %s", error, location=node)
    return text


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Writes a formula within a line."""
    self.body.append(paint(node))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Writes a formula that stands alone."""
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    self.body.append(paint(node))
    if node["number"]:
        self.body.append(f'<span class="eqno">({node["number"]})</span>')
    self.body.append("</div>\n")
    raise nodes.SkipNode


def finish(app: Sphinx, error: Exception | None) -> None:
    """Ends the process, and puts style and fonts beside the pages."""
    process = painter() if painter.cache_info().currsize else None
    if process is not None:
        process.communicate()
    painted.cache_clear()
    painter.cache_clear()
    if error is None and app.builder.format == "html" and KATEX.exists():
        out = Path(app.outdir) / "_static" / "katex"
        (out / "fonts").mkdir(parents=True, exist_ok=True)
        shutil.copy(KATEX / "katex.min.css", out)
        for font in (KATEX / "fonts").glob("*.woff2"):
            shutil.copy(font, out / "fonts")


def setup(app: Sphinx) -> dict[str, bool]:
    """Offers ``html_math_renderer = "katex"``."""
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_css_file("katex/katex.min.css")
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
