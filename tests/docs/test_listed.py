"""Every guide is in the index, every config and overlay in its guide."""

import pytest

from tests.conftest import REPOSITORY
from tests.docs.pages import read
from tests.docs.references import FAMILIES, references


def test_every_guide_is_in_the_index():
    index = {
        reference.name
        for reference in references(read("docs/README.md"))
        if reference.kind == "link" and "/" not in reference.name
    }
    there = {path.name for path in (REPOSITORY / "docs").glob("*.md")} - {"README.md"}
    assert there == {name.partition("#")[0] for name in index}


@pytest.mark.parametrize("folder", [*FAMILIES, "overlays"])
def test_every_config_is_listed(folder):
    guide = read("docs/cluster.md" if folder == "overlays" else f"docs/{folder.replace('_', '-')}.md")
    names = [path.name for path in REPOSITORY.glob(f"configs/{folder}/*.yaml")]
    assert names
    assert [name for name in names if f"`{name}`" not in guide] == []
