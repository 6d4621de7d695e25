"""Reads the page of a report in a browser: its texts, and the values of its charts."""

VALUES = (
    "[...document.querySelectorAll('figure.chart')]"
    ".filter((one) => one.querySelector('.title').textContent === {title!r})"
    ".flatMap((one) => [...one.querySelectorAll('.lines b')].map((value) => value.textContent))"
)
TICKS = "[...document.querySelector('figure.chart').querySelectorAll('text.tick')].map((one) => one.textContent)"


def settle(page):
    page.run("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")


def texts(page, selector):
    return page.run(f"[...document.querySelectorAll({selector!r})].map((one) => one.textContent)")


def point_at(page, step):
    page.run(f"change({{cursor: {step}}})")
    settle(page)
