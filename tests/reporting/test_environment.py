"""Templates escape, assets are inlined unharmed, policies name what is inlined."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from pyg_glif.reporting import ASSETS, Figure, asset, digest, environment

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

EVIL = '</script><script>alert("1")</script><!-- & \' {{ 7 * 7 }}'
PAGE = """{% extends "base.html" %}{% import "macros.html" as ui %}
{% block title %}{{ name }}{% endblock %}
{% block main %}{{ ui.table(["who", name], rows, [1], caption=name, name="t") }}
{{ ui.facts([[name, name]]) }}{{ ui.chart(figure) }}{% endblock %}"""


class Reader(HTMLParser):
    """Elements, their attributes and the text in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), []))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("", {}, []))  # text after it is not its own

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1][2].append(data)

    def texts(self, tag: str) -> list[str]:
        return ["".join(text) for name, _, text in self.found if name == tag]


def page(**options: Any) -> str:
    spec = {"mark": EVIL, "n": float("nan")}
    figure = Figure("one", EVIL, EVIL, draw=lambda: spec)
    values = {"name": EVIL, "rows": [[EVIL, 1.5], [None, 2]], "figure": figure}
    return environment().from_string(PAGE).render(**values, charts=True, **options)


def test_names_stay_text() -> None:
    found = Reader(page(static="/static"))
    scripts = [(attrs, text) for tag, attrs, text in found.found if tag == "script"]
    data = [text for attrs, text in scripts if attrs.get("type") == "application/json"]
    files = [attrs["src"] for attrs, _ in scripts if "src" in attrs]
    assert len(scripts) == len(data) + len(files) == 3
    assert files == ["/static/vega.js", "/static/page.js"]
    assert json.loads("".join(data[0])) == {"mark": EVIL, "n": None}
    assert found.texts("td")[0] == EVIL
    assert found.texts("title") == [EVIL]
    assert found.texts("dd")[0].strip() == EVIL


def test_a_page_of_its_own_loads_nothing_and_may_not() -> None:
    text = page()
    found = Reader(text)
    for _, attrs, _ in found.found:
        assert not {"src", "href", "style", "onclick"} & set(attrs)
    policies = [
        attrs["content"] or ""
        for tag, attrs, _ in found.found
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none';")
    inlined = [
        "".join(text)
        for tag, attrs, text in found.found
        if tag in ("script", "style") and "type" not in attrs
    ]
    assert len(inlined) == 3
    allowed = re.findall(r"'sha256-([^']+)'", policies[0])
    for code in inlined:
        expected = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        assert expected in allowed
    assert not re.search(r"url\(|@import", asset("style.css"))
    assert len(text) < 1_000_000


@pytest.mark.parametrize("name", ASSETS)
def test_assets(name: str) -> None:
    text = asset(name)
    assert len(text) > 1000
    if name.endswith(".js"):
        assert not re.search("</?script|<!--", text, re.IGNORECASE)
    found = base64.b64decode(digest(name).removeprefix("'sha256-").removesuffix("'"))
    assert found == hashlib.sha256(text.encode()).digest()


def test_there_are_no_other_assets() -> None:
    message = "'name' must be one of 'page.js', 'style.css', 'vega.js' "
    with pytest.raises(ValueError, match=message):
        asset("../environment.py")


def test_a_script_without_charts_is_small() -> None:
    small = environment().get_template("base.html").render()
    assert len(small) < 20_000
    assert "vegaEmbed=" not in small
