"""Chromium without a screen, in words of what a person does."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any


class Eyes:
    """A browser that looks at one service while inside."""

    def __init__(self, url: str, browser: str, driver: str) -> None:
        from selenium.webdriver import Chrome, ChromeOptions
        from selenium.webdriver.chrome.service import Service

        options = ChromeOptions()
        options.binary_location = browser
        for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage"):
            options.add_argument(f"--{flag}")
        options.add_argument("--window-size=1280,900")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.url, self.driver = url, Chrome(options=options, service=Service(driver))

    def __enter__(self) -> "Eyes":
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.quit()

    def open(self, path: str) -> None:
        """Opens a page, and waits until there is nothing to wait for."""
        self.complaints()  # forgets those of pages before
        self.driver.get(self.url + path)
        self.until(lambda: not self.all("[data-wait]"))
        self.until(lambda: self.run("return document.readyState") == "complete")
        self.until(self.is_drawn)

    def is_drawn(self) -> bool:
        """Whether every chart is there."""
        states = [one.get_attribute("data-drawn") for one in self.all("figure.chart")]
        return all(state == "yes" for state in states)

    def until(self, true: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits for something that must happen."""
        from selenium.common.exceptions import WebDriverException

        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(WebDriverException):  # a page that goes away
                if true():
                    return
            assert time.monotonic() < end, self.driver.page_source[:2000]
            time.sleep(0.05)

    def run(self, script: str, *values: Any) -> Any:
        """What a script returns."""
        return self.driver.execute_script(script, *values)

    def all(self, selector: str) -> list[Any]:
        """Elements of a page."""
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        """The element of a page."""
        (found,) = self.all(selector)
        return found

    def text(self, selector: str) -> str:
        """What is to be read there."""
        return str(self.one(selector).text)

    def press(self, *keys: str) -> None:
        """Types, without a mouse."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> str:
        """What the keyboard acts on: its id or its text."""
        found = self.driver.switch_to.active_element
        return str(found.get_attribute("id") or found.text)

    def complaints(self) -> list[str]:
        """Errors in the console since it was asked last; Vega warns of empty marks."""
        found = self.driver.get_log("browser")
        return [str(one["message"]) for one in found if one["level"] == "SEVERE"]

    @contextlib.contextmanager
    def looking(self, width: int = 1280, dark: bool = False) -> Iterator[None]:
        """A screen of some width, in the light or in the dark."""
        send = self.driver.execute_cdp_cmd
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        light = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        send("Emulation.setDeviceMetricsOverride", size)
        send("Emulation.setEmulatedMedia", {"features": [light]})
        try:
            yield
        finally:
            send("Emulation.clearDeviceMetricsOverride", {})
            send("Emulation.setEmulatedMedia", {"features": []})
