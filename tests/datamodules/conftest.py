"""Fixture `page`: a page in a browser, shared by the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.support.outputs.browser import Browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser's page, for tests marked `with_browser`."""
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened
