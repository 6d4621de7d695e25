"""Reads a report of answers in a browser, and has a text that would change the page if it were not escaped."""

import json
from pathlib import Path

from tests.support.outputs.browser import Browser

ATTACK = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\"><!-- $title"
STATUS = "document.querySelector('[role=status]').textContent"
CARDS = "[...document.querySelectorAll('.card h3')].map((title) => title.textContent)"


def choose(name: str, value: str) -> str:
    """Return JavaScript that sets a field of the page's filter."""
    return (
        f"(() => {{ const field = document.querySelector('[name={name}]'); field.value = {json.dumps(value)};"
        "field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )


def assert_fits(page: Browser, path: Path, width: int, dark: bool) -> None:
    """Open a report in a window; assert that nothing of it is wider, and that the window has no error."""
    page.resize(width, 800, dark)
    page.open(path.as_uri())
    page.run("Promise.all([...document.querySelectorAll('.card img')].map((image) => image.decode()))")
    assert page.run("document.documentElement.scrollWidth") == width
    assert page.complaints == []
