"""Reads a report of answers in a browser, and has a text that would change the page if it were not escaped."""

import json

ATTACK = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\"><!-- $title"
STATUS = "document.querySelector('[role=status]').textContent"
CARDS = "[...document.querySelectorAll('.card h3')].map((title) => title.textContent)"


def choose(name: str, value: str) -> str:
    """Return JavaScript that sets a field of the page's filter."""
    return (
        f"(() => {{ const field = document.querySelector('[name={name}]'); field.value = {json.dumps(value)};"
        "field.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
