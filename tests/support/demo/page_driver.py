"""Acts as a visitor of a page: drops a file, presses a button, waits for an answer."""

import base64
import json
import time

from tests.support.outputs.browser import Browser


def wait(page: Browser, condition: str, seconds: float = 20.0) -> None:
    """Wait until an expression is true."""
    end = time.monotonic() + seconds
    while not page.run(f"!!({condition})"):  # an element has no value of its own
        assert time.monotonic() < end, f"{condition}: {page.run('document.body.innerText')}; {page.complaints}"
        time.sleep(0.02)


def drop(page: Browser, field: str, name: str, content: bytes) -> None:
    """Drop a file on a field."""
    encoded = json.dumps(base64.b64encode(content).decode())
    page.run(f"""(() => {{
        const bytes = Uint8Array.from(atob({encoded}), (letter) => letter.charCodeAt(0));
        const files = new DataTransfer();
        files.items.add(new File([bytes], {json.dumps(name)}));
        const zone = document.querySelector('[data-field={field}] .zone');
        zone.dispatchEvent(new DragEvent("drop", {{dataTransfer: files, bubbles: true, cancelable: true}}));
    }})()""")


def ask(page: Browser, seconds: float = 20.0) -> None:
    """Press the button, and wait until the answer is complete or refused."""
    page.run("document.querySelector('.ask').click()")
    wait(page, "!document.querySelector('.ask').disabled", seconds)


def check_two_visitors(page: Browser, seconds: float = 20.0) -> None:
    """Ask as `ask` does, then as two visitors at once; check that each gets the answer that a visitor alone gets."""
    page.run("own = fetch; fetch = (...given) => own(...(sent = given)); 0")
    ask(page, seconds)
    once = "own(...sent).then((answer) => answer.text())"
    expected = _final(page.run(f"fetch = own; {once}"))
    both = page.run(f"Promise.all([{once}, {once}])")
    assert expected
    assert [_final(text) for text in both] == [expected] * 2


def _final(text: str) -> dict[str, dict[str, object]]:
    """Return the blocks of an answer by key, without the notes of the queue."""
    lines = [json.loads(line) for line in text.splitlines()]
    return {line["key"]: line for line in lines if "key" in line}


def check_quality(page: Browser, address: str) -> None:
    """Check that the page fits a narrow window, in light and dark, and asked nothing of another host."""
    for dark in (False, True):
        page.resize(390, 900, dark)
        assert not page.run("document.documentElement.scrollWidth > innerWidth")
        paper = page.run("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    own = (address, "data:", "blob:")
    others = [request for request in page.requests if not request.startswith(own)]
    assert page.complaints == []
    assert others == []
