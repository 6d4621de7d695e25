"""The doctor measures the first step of a training on the device, and reports the device and its libraries."""

import io
import json
from contextlib import redirect_stdout

from tests.support.device.options import on
from tests.support.families.tiny_linear import TINY_FAMILY


def test_the_checks_of_the_machine_and_of_the_first_step_pass(device, workplace, record_property):
    config = [*TINY_FAMILY, *on(device, "bf16-mixed"), "--data.init_args.batch_size", "16"]
    findings = workplace.call(looked_at, config)["findings"]
    by_check = {check: [each for each in findings if each["check"] == check] for check in names(findings)}
    record_property("findings", [f"{each['check']} {each['status']}: {each['found']}" for each in findings])
    (step,) = by_check["micro batch"]
    assert step["status"] == "ok", step
    assert f"16 samples on {'cuda:0' if device == 'cuda' else 'cpu'}: loss" in step["found"]
    assert [each["status"] for check in ("torch", "gloo", "batch", "config") for each in by_check[check]] == ["ok"] * 4
    if device == "cuda":
        found = [each["status"] for check in ("nccl", "gpus") for each in by_check[check]]
        assert found, by_check
        assert "fail" not in found, by_check


def names(findings):
    return {each["check"] for each in findings}


def looked_at(config: list[str]) -> dict[str, object]:
    """Return what `doctor --json` prints."""
    from commands.doctor.main import main

    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            main(["--json", *config])
    except SystemExit:
        found: dict[str, object] = json.loads(printed.getvalue())
    return found
