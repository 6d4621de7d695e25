"""Tests what every page does, in a real browser: the keyboard, stray files, a server that has ended."""

import pytest

from commands.answers.answer_blocks import Chart, ChartLine, Text
from commands.answers.answer_service import AnswerService, FieldChoice, InputField
from tests.support.demo import demo_server, page_driver
from tests.support.outputs import browser

pytestmark = browser.with_browser

FOCUSED = "[...document.querySelectorAll('input, textarea, button')].indexOf(document.activeElement)"
FOUND = "document.querySelectorAll('.found button').length"


class Echo(AnswerService):
    """Answers with the names of what it is given, and a curve."""

    fields = [
        InputField("table", "file", "Table", suffixes=(".csv",)),
        InputField("items", "pick", "Items", max_count=3),
        InputField("question", "text", "Question"),
    ]

    def search(self, field, text):
        return [FieldChoice(f"id-{number}", f"item {number}") for number in range(20)]

    def answer(self, question):
        names = [file.name for file in question.files.get("table", ())]
        yield Text("answer", "", f"{names} {[item.value for item in question.picked['items']]}")
        yield Chart("curve", "", [ChartLine("load", [0.0, 50.0, 100.0])], [], 1, "three steps", (0.0, 2.5), "GB")


@pytest.fixture
def page(tmp_path):
    with demo_server.served(Echo()) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        yield page
        assert page.complaints == []


def drop_on(page, target, *names):
    """Drop files on a part of the page; return whether the browser would open them instead of it."""
    return page.run(f"""(() => {{
        const files = new DataTransfer(), target = document.querySelector("{target}");
        for (const name of {list(names)}) files.items.add(new File(["a"], name));
        const given = {{dataTransfer: files, bubbles: true, cancelable: true}};
        return ["dragover", "drop"].some((kind) => target.dispatchEvent(new DragEvent(kind, given)));
    }})()""")


def test_a_file_beside_its_field_goes_to_the_field(page):
    assert not drop_on(page, "h1", "a.csv", "b.csv")
    page_driver.wait(page, "document.querySelector('.given .note')")
    assert (
        page.run("document.querySelector('.given .note').innerText") == "One file is read at a time: of these 2, a.csv."
    )
    page_driver.ask(page)
    assert page.run("document.querySelector('[data-key=answer]').innerText") == "['a.csv'] []"


def test_tab_passes_the_found_values_and_closes_them(page):
    page.run("document.querySelector('input[type=search]').focus()")
    page_driver.wait(page, f"{FOUND} === 20")
    page.press("ArrowDown")
    page.press("ArrowDown")
    page.run("document.activeElement.click()")
    page_driver.wait(page, "document.querySelector('.picked li .title')?.innerText === 'item 1'")
    assert page.run(FOUND) == 0, "what is picked closes the list"
    page.press("ArrowDown")
    page_driver.wait(page, f"{FOUND} === 20")
    before = page.run(FOCUSED)
    page.press("Tab")
    assert page.run("document.activeElement.tagName") == "TEXTAREA"
    assert page.run(FOCUSED) > before
    assert page.run(FOUND) == 0, "what loses the focus closes the list"


def test_the_mouse_picks_a_found_value(page):
    page.run("document.querySelector('input[type=search]').focus()")
    page_driver.wait(page, f"{FOUND} === 20")
    x, y = page.run(
        "(({left, top}) => [left + 5, top + 5])(document.querySelectorAll('.found button')[2].getBoundingClientRect())"
    )
    page.mouse("mousePressed", x, y)
    page.mouse("mouseReleased", x, y)
    page_driver.wait(page, "document.querySelector('.picked li .title')?.innerText === 'item 2'")
    assert page.run(FOUND) == 0


def test_a_server_that_has_ended_is_a_message(tmp_path):
    with browser.Browser(tmp_path) as page:
        with demo_server.served(Echo()) as address:
            page.open(address)
            page_driver.ask(page)
            assert page.run("document.querySelector('.card .state').innerText").startswith("answered in 0.")
        page_driver.ask(page)
        assert page.run("document.querySelector('.state.error').innerText") == (
            "no answer: the program that serves this page does not answer; is it still running?"
        )
        page.run("document.querySelector('input[type=search]').focus()")
        page_driver.wait(page, "document.querySelector('.found .note')?.innerText.startsWith('the program')")


def test_the_text_of_a_chart_can_be_read_on_a_telephone(tmp_path):
    with demo_server.served(Echo()) as address, browser.Browser(tmp_path) as page:
        for width in (1200, 390):
            page.resize(width, 900)
            page.open(address)
            page_driver.ask(page)
            heights = page.run(
                "[...document.querySelectorAll('.chart .tick')].map((text) => text.getBoundingClientRect().height)"
            )
            assert min(heights) > 11, f"{width} pixels: {heights}"
