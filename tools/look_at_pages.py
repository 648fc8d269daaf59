"""Looks at built pages in Chromium, as a reader would.

    python tools/look_at_pages.py docs/_build/html
    python tools/look_at_pages.py docs/_build/html --shots shots index maths

opens every page on a screen as wide as a phone's and on a desk's, and names those that
can be scrolled sideways, ask another host for something, complain in the console or
show a picture that is not there. With ``--shots`` it photographs the named pages
(without a name all), in the light and in the dark.
"""

import argparse
import base64
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NARROW, WIDE = 390, 1280
# What sticks out of the screen, and is in nothing that scrolls by itself: where it is
# cut off, nobody can read it.
STICKING_OUT = """
const scrolls = e => {
  for (e = e.parentElement; e && e.tagName != "ARTICLE"; e = e.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(e).overflowX)) return true;
  return false;
};
const unseen = "svg, svg *, .katex-mathml, .katex-mathml *";
const seen = document.querySelectorAll(`article *:not(${unseen})`);
return [...seen].filter(e => {
  const box = e.getBoundingClientRect();
  return box.right > window.innerWidth + 1 && box.width > 1 && e.checkVisibility()
    && !scrolls(e) && !["auto", "scroll"].includes(getComputedStyle(e).overflowX);
}).slice(0, 3).map(e => e.tagName + "." + e.className + ": " +
  (e.textContent || "").trim().slice(0, 50));
"""
BROKEN_PICTURES = """
return [...document.images].filter(i => i.checkVisibility() && i.complete &&
  i.naturalWidth == 0).map(i => i.src);
"""


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window; :obj:`None` where it, or Selenium, is not there."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ModuleNotFoundError:
        binary = None
    if binary is None or driver is None:
        yield None
        return
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for option in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(option)
    options.set_capability(
        "goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"}
    )
    service = webdriver.ChromeService(executable_path=driver)
    found = webdriver.Chrome(options=options, service=service)
    try:
        yield found
    finally:
        found.quit()


def pages(folder: Path) -> list[Path]:
    """Every page that people read; sources of modules apart, which are all alike."""
    found = sorted(folder.rglob("*.html"))
    return [p for p in found if "_modules" not in p.relative_to(folder).parts]


def show(driver: Any, page: Path, *, width: int, dark: bool = False) -> None:
    """Opens a page on a screen of some width."""
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    driver.get(page.resolve().as_uri())


def faults(driver: Any, page: Path) -> list[str]:
    """What is wrong with a page, at both widths."""
    found = []
    for width in (NARROW, WIDE):
        driver.get_log("performance")
        show(driver, page, width=width)
        whole = driver.execute_script("return document.documentElement.scrollWidth")
        if whole > width:
            found.append(f"{whole} pixels wide on a screen of {width}")
        out = driver.execute_script(STICKING_OUT)
        found += [f"sticks out of a screen of {width}: {element}" for element in out]
        found += [
            f"no such picture: {p}" for p in driver.execute_script(BROKEN_PICTURES)
        ]
        found += [f"asks {url}" for url in requests(driver) if not is_local(url)]
        found += [entry["message"] for entry in driver.get_log("browser")]
    return found


def requests(driver: Any) -> list[str]:
    """What the browser asked for since it was last asked itself."""
    messages = (
        json.loads(e["message"])["message"] for e in driver.get_log("performance")
    )
    sent = (m for m in messages if m["method"] == "Network.requestWillBeSent")
    return [m["params"]["request"]["url"] for m in sent]


def is_local(url: str) -> bool:
    """Whether nobody else is asked."""
    return url.startswith(("file:", "data:", "blob:", "about:"))


def photograph(driver: Any, page: Path, folder: Path, out: Path) -> None:
    """Whole pages, wide and narrow, light and dark."""
    for width in (WIDE, NARROW):
        for dark in (False, True):
            show(driver, page, width=width, dark=dark)
            high = driver.execute_script("return document.documentElement.scrollHeight")
            area = {
                "x": 0,
                "y": 0,
                "width": width,
                "height": min(high, 6000),
                "scale": 1,
            }
            options = {"captureBeyondViewport": True, "clip": area}
            shot = driver.execute_cdp_cmd("Page.captureScreenshot", options)
            name = str(page.relative_to(folder).with_suffix("")).replace("/", "_")
            path = out / f"{name}_{width}{'_dark' if dark else ''}.png"
            path.write_bytes(base64.b64decode(shot["data"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Names what is wrong; 1 if anything is."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="built pages")
    parser.add_argument("page", nargs="*", help="such as index or api/index")
    parser.add_argument("--shots", type=Path, help="folder for photographs")
    args = parser.parse_intermixed_args(arguments)
    chosen = [args.folder / f"{name}.html" for name in args.page] or pages(args.folder)
    num_faults = 0
    with browser() as driver:
        if driver is None:
            parser.error("needs chromium, chromedriver and the package selenium")
        for page in chosen:
            if args.shots is not None:
                args.shots.mkdir(parents=True, exist_ok=True)
                photograph(driver, page, args.folder, args.shots)
                continue
            for fault in faults(driver, page):
                num_faults += 1
                print(f"{page.relative_to(args.folder)}: {fault}")
    return int(num_faults > 0)


if __name__ == "__main__":
    sys.exit(main())
