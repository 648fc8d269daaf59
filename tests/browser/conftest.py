"""One service and one browser for all tests in one, or the reason why not."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.eyes import Eyes
from tests.serve.live import Live
from tests.serve.samples import write_table

AXE = Path(__file__).parents[2] / ".browser/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="session")
def axe() -> str:
    """The script that looks for what keeps people out."""
    if not AXE.exists():
        pytest.skip("axe-core is not there ('make browser' installs it)")
    return AXE.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A table of people, and the file of their fit."""
    return write_table(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="session")
def live(people: tuple[Path, Path]) -> Iterator[Live]:
    """A service that may show people."""
    _chromium()
    table, fit = people
    options = ["--people", str(table), "--id", "name", "--attributes", "sex"]
    with Live(fit, *options, "--show-people") as found:
        yield found


@pytest.fixture(scope="session")
def eyes(live: Live) -> Iterator[Eyes]:
    """A browser that looks at the service."""
    with Eyes(live.url, *_chromium()) as found:
        yield found


def _chromium() -> tuple[str, str]:
    """Browser and driver."""
    pytest.importorskip("selenium")
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if os.name != "posix" or None in found:
        pytest.skip("chromium or its driver is not there ('make browser')")
    return str(found[0]), str(found[1])
