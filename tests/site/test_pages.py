"""Built pages of the documentation, as ``make docs`` leaves them."""

import importlib.util
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("PYG_GLIF_PAGES", "nowhere"))
FRONT = "Deploying a correction|Choosing a fair metric|Metrics|Gallery|Installing"

needs_pages = pytest.mark.skipif(
    not (FOLDER / "index.html").exists(),
    reason="'PYG_GLIF_PAGES' names no built pages ('make docs' does)",
)


def load_tool() -> ModuleType:
    path = ROOT / "tools" / "look_at_pages.py"
    spec = importlib.util.spec_from_file_location("look_at_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Asked(HTMLParser):
    """What a browser would fetch to show a page; links are only fetched if followed."""

    ATTRIBUTES = ("src", "srcset", "data", "poster")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in self.ATTRIBUTES or (tag == "link" and name == "href"):
                self.found.append(value or "")

    @classmethod
    def by(cls, text: str) -> list[str]:
        parser = cls()
        parser.feed(text)
        style = re.findall(r"url\(['\"]?([^)'\"]+)|@import ['\"]([^'\"]+)", text)
        return [*parser.found, *(one or other for one, other in style)]


def is_remote(address: str) -> bool:
    return re.match(r"(\w+:)?//", address) is not None


def test_a_page_that_asks_another_host_is_found_out() -> None:
    assert is_remote("https://cdn.example/a.js")
    assert is_remote("//cdn.example/a.js")
    assert not is_remote("../_static/a.js")
    page = '<script src="//a/b.js"></script><a href="https://c">text</a>'
    assert Asked.by(page) == ["//a/b.js"]
    assert Asked.by("p { background: url(https://d/e.png) }") == ["https://d/e.png"]


@needs_pages
def test_no_page_asks_another_host() -> None:
    asked = {
        (str(path.relative_to(FOLDER)), address)
        for pattern in ("*.html", "*.css", "*.svg")
        for path in FOLDER.rglob(pattern)
        for address in Asked.by(path.read_text(encoding="utf-8"))
        if is_remote(address)
    }
    assert not asked


@needs_pages
def test_everything_that_pages_ask_for_is_there() -> None:
    missing = set()
    for path in load_tool().pages(FOLDER):
        for address in Asked.by(path.read_text(encoding="utf-8")):
            name = re.split(r"[?#]", address)[0]
            there = name.startswith("data:") or (path.parent / name).exists()
            if not there:
                missing.add((str(path.relative_to(FOLDER)), address))
    assert not missing


@needs_pages
def test_formulas_are_drawn() -> None:
    text = (FOLDER / "maths.html").read_text(encoding="utf-8")
    assert text.count('class="katex-display"') > 10
    assert text.count("<math") == text.count('class="katex"')  # for those who listen
    for path in load_tool().pages(FOLDER):
        text = path.read_text(encoding="utf-8")
        assert "katex-error" not in text
        assert not re.search(r"(?<!\\)\$\$|\\\(|\\\[", strip_code(text)), path


def strip_code(text: str) -> str:
    """A page without code, formulas' sources and scripts, where TeX belongs."""
    for tag in ("pre", "code", "annotation", "script"):
        text = re.sub(rf"<{tag}\b.*?</{tag}>", "", text, flags=re.S)
    return text


@needs_pages
def test_the_front_leads_to_what_people_look_for() -> None:
    text = (FOLDER / "index.html").read_text(encoding="utf-8")
    assert "pip install" in re.sub(r"<[^>]+>", "", text)
    assert text.count("sd-stretched-link") >= 9  # cards
    article = text.split("<article")[1].split("</article>")[0]
    for name in FRONT.split("|"):
        assert f">{name}<" in article


@needs_pages
def test_what_is_documented_has_its_source() -> None:
    page = FOLDER / "api" / "generated" / "pyg_glif.functional.html"
    text = page.read_text(encoding="utf-8")
    (source,) = set(re.findall(r'href="([^"#]+)#glif_smooth"', text))
    assert 'id="glif_smooth"' in (page.parent / source).read_text(encoding="utf-8")


@needs_pages
def test_types_lead_to_their_own_pages() -> None:
    text = (FOLDER / "api/generated/pyg_glif.functional.html").read_text("utf-8")
    for address in (
        "https://docs.pytorch.org/docs/stable/tensors.html#torch.Tensor",
        "https://docs.python.org/3/library/functions.html#float",
    ):
        assert f'href="{address}"' in text


@needs_pages
def test_no_signature_shows_a_private_name() -> None:
    for path in (FOLDER / "api" / "generated").glob("*.html"):
        text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"\b\w+=_[A-Z]", text), path


@needs_pages
def test_bases_are_classes_that_a_page_tells_about() -> None:
    for path in (FOLDER / "api" / "generated").glob("*.html"):
        text = re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8"))
        assert not re.search(r"Bases: (object|ABC|.*\b_[A-Z])", text), path


@needs_pages
@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "docs" / "gallery").glob("plot_*.py"))
)
def test_examples_of_the_gallery_have_a_picture(name: str) -> None:
    text = (FOLDER / "auto_gallery" / f"{name}.html").read_text(encoding="utf-8")
    assert f"sphx_glr_{name}_001.png" in text
    if "except FileNotFoundError" in (ROOT / "docs/gallery" / f"{name}.py").read_text():
        assert re.search(r"Out:|sphx-glr-script-out", text)  # says whose data these are


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with load_tool().browser() as driver:
        if driver is None:
            pytest.skip("needs chromium, chromedriver and selenium")
        yield driver


@needs_pages
def test_pages_fit_a_phone_and_a_desk(browser: Any) -> None:
    tool = load_tool()
    found = {
        str(page.relative_to(FOLDER)): faults
        for page in tool.pages(FOLDER)
        if (faults := tool.faults(browser, page))
    }
    assert found == {}


def test_what_does_not_fit_is_found_out(browser: Any, tmp_path: Path) -> None:
    tool = load_tool()
    page = tmp_path / "wide.html"
    page.write_text(
        '<article><table style="width: 900px"><tr><td>wide</td></tr></table>'
        '<div style="overflow-x: auto"><p style="width: 900px">scrolls</p></div>'
        '<img src="nothing.png"></article>'
    )
    found = tool.faults(browser, page)
    assert any("pixels wide on a screen of 390" in text for text in found)
    assert any("TABLE" in text and "wide" in text for text in found)
    assert not any("scrolls" in text.split(":")[-1] for text in found)
    assert any("nothing.png" in text for text in found)
    page.write_text('<body style="overflow: hidden"><article>' + page.read_text()[9:])
    cut = tool.faults(browser, page)
    assert any("TABLE" in text for text in cut)  # although nothing can be scrolled


@needs_pages
def test_figures_are_dark_in_the_dark(browser: Any) -> None:
    tool = load_tool()
    script = "return getComputedStyle(document.querySelector('article img')).filter"
    page = FOLDER / "auto_gallery" / "plot_adult.html"
    tool.show(browser, page, width=tool.WIDE)
    assert browser.execute_script(script) == "none"
    tool.show(browser, page, width=tool.WIDE, dark=True)
    assert browser.execute_script(script) != "none"


@needs_pages
def test_copied_examples_have_no_prompts(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    tool = load_tool()
    tool.show(browser, FOLDER / "index.html", width=tool.WIDE)
    button = next(
        found
        for found in browser.find_elements("css selector", "button.copybtn")
        if found.find_element("xpath", "preceding::pre[1]").text.startswith(">>>")
    )
    browser.execute_script("document.body.append(document.createElement('textarea'))")
    at_once = '{block: "center", behavior: "instant"}'
    browser.execute_script(f"arguments[0].scrollIntoView({at_once})", button)
    button.click()
    field = browser.find_element("tag name", "textarea")
    field.send_keys(Keys.CONTROL, "v")
    kept = field.get_property("value")
    assert kept.startswith("import torch\nfrom pyg_glif import")
    assert ">>>" not in kept
    assert "tensor([0.6750" not in kept
