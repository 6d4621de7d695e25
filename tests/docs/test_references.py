"""Every link, test, file, config, setting, option, metric, make target and module that a page names exists.

So does every file that a comment or docstring of a source names.
"""

import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.conftest import REPOSITORY
from tests.docs.pages import PAGES, read
from tests.docs.references import Reference, missing, references

BROKEN = """\
# A guide

[dead](gone.md), [no such heading](#elsewhere), [alive](#a-guide) and [outside](../../outside.md)
[test_that_is_not_there](TESTS/docs/test_references.py), [test_references](TESTS/docs/test_references.py)

`trainer.max_epochs 3`, `model.language_model.lora.rank`, `--data.init_args.batch_size 3`, `--run_name`
`trainer.max_epoch 3`, `model.language_model.rank`, `--data.init_args.batchsize 3`, `--run_nam`
`configs/overlays/gpu.yaml`, `gpu.yaml`, `configs/overlays/gpus.yaml`, `gpus.yaml`, engine/gone_too.py
`train/data_wait`, `train/data_waits`, `make test`, `make tests`, SPEED_TABLE

    python -m benchmarks --no_such_option
    python -m benchmarks.nothing    # make it

| there | here |
|---|---|
| `--their_option`, scripts/train_multi_gpu.sh, `configs/vlm_pretrain.yaml` | `--no_option_of_ours` |
"""
NOT_THERE = [
    ("link", "gone.md"),
    ("link", "#elsewhere"),
    ("link", "../../outside.md"),
    ("test", "TESTS/docs/test_references.py::test_that_is_not_there"),
    ("file", "configs/overlays/gpus.yaml"),
    ("file", "engine/gone_too.py"),
    ("config", "gpus.yaml"),
    ("key", "trainer.max_epoch"),
    ("key", "model.language_model.rank"),
    ("key", "data.batchsize"),
    ("option", "--run_nam"),
    ("option", "--no_such_option"),
    ("option", "--no_option_of_ours"),
    ("metric", "train/data_waits"),
    ("make target", "tests"),
    ("module", "benchmarks.nothing"),
    ("placeholder", "SPEED_TABLE"),
]


@pytest.mark.parametrize("page", PAGES)
def test_everything_that_a_page_names_exists(page):
    assert missing(REPOSITORY / page) == []


def test_missing_references_are_found(tmp_path):
    """The guide has references that exist, and references of each kind that do not."""
    (tmp_path / "outside.md").write_text("# Outside the repository")
    folder = tmp_path / "of" / "guides"
    folder.mkdir(parents=True)
    (folder / "TESTS").symlink_to(REPOSITORY / "tests")
    (folder / "a.md").write_text(BROKEN)
    assert Counter(missing(folder / "a.md")) == Counter(Reference(*fields) for fields in NOT_THERE)


def test_a_page_of_a_family_has_keys_of_this_family_alone(tmp_path):
    for name, unknown in (
        ("temporal.md", []),
        ("other.md", []),
        ("recommender.md", ["model.encoder_size"]),
        ("recommender-data.md", ["model.encoder_size"]),
    ):
        (tmp_path / name).write_text("`model.encoder_size`")
        assert [reference.name for reference in missing(tmp_path / name)] == unknown


def test_references_of_every_kind_are_found():
    """A pattern that matches nothing would miss everything."""
    found = Counter(reference.kind for page in PAGES for reference in references(read(page)))
    assert {kind: number for kind, number in found.items() if number >= 15}.keys() == found.keys()
    assert found["key"] >= 600
    assert found["option"] >= 400
    assert found["link"] >= 300
    assert found["file"] >= 250
    for page, least in (("recommender", 30), ("image-classifier", 15), ("reliability", 15), ("tuning", 30)):
        kinds = Counter(reference.kind for reference in references(read(f"docs/{page}.md")))
        assert kinds["key"] + kinds["option"] + kinds["link"] >= least, page


PACKAGES = ("benchmarks", "callbacks", "commands", "datamodules", "engine", "lightning_modules")
IN_PROSE = re.compile(r"(?<![\w./-])(?!runs/)[a-z][a-z0-9_./-]*\.(?:py|yaml|md)\b")
OTHERS = {
    "threading.py",
    "file.py",
    "data.py",  # lines of a stack, as examples
    "config-2.yaml",
    "config-3.yaml",
    "hparams.yaml",  # written by a run
    "evaluation/evaluate_qa.py",
    "lmms_eval/api/model.py",
    "lmms_eval/api/task.py",  # of other projects
}


def prose_of(source: str) -> Iterator[str]:
    """Yield the comments and docstrings of a source."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.endswith('"""')):
            yield token.string


def lost_files(source: str, known: set[str]) -> list[str]:
    """Return the files that comments and docstrings name, and that no known path ends with."""
    found = {match[0] for text in prose_of(source) for match in IN_PROSE.finditer(text)} - OTHERS
    return sorted(name for name in found if not any(f"/{path}".endswith(f"/{name}") for path in known))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_that_a_source_names_exists(package):
    files = (path for folder in (*PACKAGES, "configs", "docs", "tests") for path in (REPOSITORY / folder).rglob("*.*"))
    known = {path.relative_to(REPOSITORY).as_posix() for path in (*files, *REPOSITORY.glob("*.*"))}
    sources = (REPOSITORY / package).rglob("*.py")
    lost = {str(path): names for path in sources if (names := lost_files(path.read_text(encoding="utf-8"), known))}
    assert not lost


def test_a_lost_file_is_found():
    source = '"""See engine/gone_too.py and gone.py; here.py is there."""\nx = "no.py"  # configs/none.yaml\n'
    assert lost_files(source, {"engine/here.py"}) == ["configs/none.yaml", "engine/gone_too.py", "gone.py"]
