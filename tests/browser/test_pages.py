import json
from pathlib import Path

import pytest

from tests.browser.eyes import Eyes

PAGES = ["/", "/people", "/people?q=person+1", "/people/3", "/what-if", "/newcomer"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_loads_without_complaint_and_keeps_nobody_out(
    eyes: Eyes, axe: str, path: str
) -> None:
    eyes.open(path)
    assert eyes.complaints() == []
    assert len(eyes.all("h1")) == 1
    # Through the driver, which no content policy binds.
    eyes.run(axe)
    found = eyes.driver.execute_async_script(
        "const done = arguments[0]; axe.run().then(done);"
    )
    bad = [
        (one["id"], one["nodes"][0]["html"])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]
    assert bad == []
    assert len(found["passes"]) > 10


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(("width", "dark"), [(360, False), (1280, True)])
def test_narrow_and_dark_pages_do_not_clip(
    eyes: Eyes, path: str, width: int, dark: bool
) -> None:
    with eyes.looking(width, dark):
        eyes.open(path)
        assert eyes.complaints() == []
        wide = eyes.run("return document.documentElement.scrollWidth")
        assert wide <= width
        # Nothing sticks out, but what scrolls by itself.
        out = eyes.run(
            """
            const inside = (e) => e.closest(".table, .skip, svg, textarea") === null;
            return Array.from(document.querySelectorAll("main *, header *"))
                .filter((e) => inside(e) && e.getBoundingClientRect().right
                        > window.innerWidth + 1)
                .map((e) => e.outerHTML.slice(0, 120));
            """
        )
        assert out == []
        paper, ink = eyes.run(
            """
            const style = getComputedStyle(document.body);
            return [style.backgroundColor, style.color];
            """
        )
        light = [sum(json.loads(f"[{c[4:-1]}]")) for c in (paper, ink)]
        assert (light[0] < light[1]) == dark


def test_sliders_change_the_charts_and_the_words(eyes: Eyes) -> None:
    from selenium.webdriver.common.keys import Keys

    eyes.open("/what-if")

    def drawn() -> list[str]:
        return [one.get_attribute("innerHTML") for one in eyes.all(".drawing svg")]

    def num_marks() -> list[int]:
        """Points of settings, bars of groups, bars of how far people move."""
        charts = ("front .mark-symbol", "decisions .mark-rect", "movement .mark-rect")
        return [len(eyes.all(f"#chart-{one} path")) for one in charts]

    before, said = drawn(), eyes.text("#said")
    assert len(before) == 3
    marks = num_marks()
    assert min(marks) > 0
    people = eyes.text("#moved")
    eyes.one("#lam").send_keys(Keys.HOME)  # strength zero: nothing changes
    eyes.until(lambda: all(a != b for a, b in zip(before, drawn(), strict=True)))
    assert eyes.text("#lam-value") == "0"
    assert num_marks() == marks
    assert "undefined" not in eyes.text("#chart-decisions")
    assert eyes.text("#said") != said
    assert "0 of 90 decisions differ" in eyes.text("#said")
    assert eyes.text("#moved") != people
    eyes.one("#lam").send_keys(Keys.END)
    eyes.one("#tau").send_keys(Keys.HOME)
    changed = eyes.text("#said")
    assert "of 90 people move" in changed
    eyes.one("button[type=reset]").click()
    eyes.until(lambda: eyes.text("#said") == said)
    eyes.until(lambda: eyes.text("#moved") == people)
    assert eyes.complaints() == []


def test_somebody_is_found_and_has_a_page(eyes: Eyes) -> None:
    eyes.open("/people")
    eyes.one("#q").send_keys("person 42")
    eyes.one("form[role=search] button").click()
    eyes.until(lambda: "person 42" in eyes.text("[role=status]"))
    eyes.one("tbody a").click()
    eyes.until(lambda: eyes.text("h1") == "person 42")
    assert "peers" in eyes.text("main")
    eyes.open("/people?q=nobody+of+that+name")
    assert eyes.text("[role=status]").startswith("Nobody")


def test_the_form_answers_and_names_the_field_that_is_wrong(eyes: Eyes) -> None:
    eyes.open("/newcomer")
    eyes.one("[data-field=age] input").send_keys("41")
    eyes.one("[data-field=job] select").send_keys("clerk")
    eyes.one("form button").click()
    eyes.until(lambda: bool(eyes.all("[data-output][data-wrong]")))
    assert "number" in eyes.text("[data-output] .error")
    assert eyes.focused() == "y1"
    eyes.one("#y1").send_keys("0.62")
    eyes.one("form button").click()
    eyes.until(lambda: eyes.text("#words") != "")
    assert eyes.text("#words").startswith("The output goes from 0.62 to 0.")
    assert not eyes.all("[data-wrong]")
    eyes.until(lambda: bool(eyes.all("#explanation p")))
    # A refused request is a complaint of the console, and nothing else is.
    assert [one for one in eyes.complaints() if "422" not in one] == []


def test_everything_can_be_done_by_keyboard(eyes: Eyes) -> None:
    from selenium.webdriver.common.keys import Keys

    eyes.open("/newcomer")
    eyes.press(Keys.TAB)
    assert eyes.focused() == "Skip to the content"
    eyes.press(Keys.ENTER, Keys.TAB)
    assert eyes.focused() == "f1"
    eyes.press("35", Keys.TAB, "d", Keys.TAB)
    assert eyes.focused() == "y1"
    eyes.press("0.4", Keys.ENTER)
    eyes.until(lambda: eyes.text("#words") != "")
    eyes.open("/what-if")
    for _ in range(10):
        eyes.press(Keys.TAB)
        if eyes.focused() == "lam":
            break
    said = eyes.text("#lam-value")
    eyes.press(Keys.ARROW_LEFT)
    assert eyes.text("#lam-value") != said


def test_what_people_are_called_stays_text(
    eyes: Eyes, people: tuple[Path, Path]
) -> None:
    eyes.open("/newcomer")
    options = [one.text for one in eyes.all("[data-field=job] option")]
    assert "<b>nurse</b>" in options
    eyes.open("/people?q=%3Cb%3E")
    assert not eyes.all("main b")
