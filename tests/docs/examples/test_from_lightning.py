"""docs/from-lightning.md: its ported module trains by the page's commands; the module that it comes from exists."""

import re

from lightning.pytorch import LightningModule

from tests.docs.pages import arguments, commands, read

PAGE = "docs/from-lightning.md"
BEFORE, AFTER = re.findall(r"```python\n(.*?)```", read(PAGE), flags=re.DOTALL)


def test_the_ported_module_trains(lockstep, tmp_path, monkeypatch):
    names = {"__name__": "before"}
    exec(BEFORE, names)
    assert issubclass(names["Classifier"], LightningModule)
    (tmp_path / "ported.py").write_text(AFTER)
    monkeypatch.syspath_prepend(tmp_path)
    fit, test = map(arguments, commands(PAGE))
    assert fit.pop() == test.pop() == "ported"
    lockstep(fit[0], *fit[1:-1], "--trainer.accelerator", "cpu", name="ported")
    run = lockstep(test[0], *test[1:-1], name="ported")
    assert run.test_metrics[-1]["test/accuracy"] > 0.7
