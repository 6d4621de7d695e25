"""Tests the hooks of LanguageModule that read and write a run's files."""

from types import SimpleNamespace

import pytest

from lightning_modules.multimodal.language_module import LanguageModule
from tests.support.fake_trainer import fake_trainer


@pytest.mark.parametrize("fast_dev_run, written", [(False, 1), (True, 0), (3, 0)])
def test_a_trial_keeps_the_reports_of_a_test(fast_dev_run, written):
    stages, reports = [], []
    module = SimpleNamespace(
        trainer=fake_trainer("test", fast_dev_run=fast_dev_run),
        _log_metrics=stages.append,
        evaluation=SimpleNamespace(report=reports.append),
    )
    LanguageModule.on_test_epoch_end(module)
    assert stages == ["test"]
    assert len(reports) == written
