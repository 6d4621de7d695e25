"""Runs `python train.py doctor`."""

import argparse
import math
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from commands.cli.shipped_configs import resolve_shipped_configs
from commands.doctor.check import Check, Finding, is_any_hanging, run_checks
from commands.doctor.config_checks import config_checks
from commands.doctor.findings_output import EXIT_CODES, findings_as_json, print_table, worst_status
from commands.doctor.launch_plan import plan_launch
from commands.doctor.machine_checks import machine_checks
from commands.doctor.model_plan.cluster import Cluster, parse_cluster
from commands.doctor.model_plan.plan_command import run_plan
from commands.launch.local_rank import without_local_rank
from commands.runs.runs_option import runs_of
from engine.system.installation import PROGRAM, SCRIPT

if TYPE_CHECKING:
    from commands.doctor.network.multi_process_checks import MultiProcessDoctor

_DESCRIPTION = """\
Check everything that a training needs before it starts. Each problem is printed with its reason and its fix. The doctor
changes nothing and creates no run directory; every check has a time limit."""

_EPILOG = f"""\
checks:
  always            Python and packages, torch against driver and NCCL, GPUs, cores, memory, /dev/shm, limits,
                    port, host name, network interfaces, variables, SLURM
  with --config     the same for that world size; config, data, weights, batch arithmetic, checkpoint folder, and one
                    step of one micro-batch with its peak memory
  under torchrun    rendezvous, all-reduce, bandwidth between the nodes, clocks, code and packages of all nodes
  or srun
  with --plan       none: prints how language models fit these GPUs, and what to set; with --config, its own model

examples:
  {PROGRAM} doctor
  {PROGRAM} doctor --config configs/FAMILY/X.yaml --config configs/overlays/gpu.yaml --trainer.devices 4
  torchrun --nproc_per_node 2 {SCRIPT} doctor --config configs/FAMILY/X.yaml
  srun {PROGRAM} doctor --config configs/FAMILY/X.yaml
  {PROGRAM} doctor --json | python -m json.tool
  {PROGRAM} doctor --plan nodes=2,gpus=8,gb=80

exit code: 0 if all checks pass, 1 after a WARN, 2 after a FAIL.
More: docs/doctor.md"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `python train.py doctor ...`.

    Args:
        arguments: arguments after `doctor`; None: `sys.argv`.
    """
    arguments = without_local_rank(sys.argv[2:] if arguments is None else arguments, os.environ)
    options = _parse(resolve_shipped_configs(arguments))
    if options.plan is not None:
        _plan(options.plan, options.settings, options.json)
    with runs_of(options.settings, os.environ) as runs:
        _check(options.json, options.wait, options.settings, runs)


def _plan(cluster: Cluster, settings: list[str], json_output: bool) -> NoReturn:
    try:
        run_plan(cluster, settings, json_output)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(EXIT_CODES["fail"]) from None
    raise SystemExit(0)


def _check(json_output: bool, timeout: float, settings: list[str], runs: Path) -> NoReturn:
    ranks = _launched_ranks(timeout)
    with redirect_stdout(sys.stderr) if json_output else nullcontext():  # the output has the JSON object alone
        checks = [*(ranks.checks() if ranks else ()), *_checks(settings, runs)]
        findings = _run(checks, spinner=not json_output and ranks is None and sys.stderr.isatty())
        findings = ranks.merge(findings) if ranks else findings
    if ranks is None or ranks.reports:
        print(findings_as_json(findings)) if json_output else print_table(findings)
    if ranks:
        ranks.leave()
    code = EXIT_CODES[worst_status(findings)]
    if is_any_hanging():
        # os._exit flushes no buffers.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


class _Options(NamedTuple):
    json: bool
    wait: float
    """Seconds to wait for other ranks."""
    settings: list[str]
    """Arguments of the training."""
    plan: Cluster | None


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise argparse.ArgumentTypeError(f"expected seconds, a number of more than 0, found {text!r}")
    return seconds


def _parse(arguments: list[str]) -> _Options:
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} doctor",
        usage=f"{PROGRAM} doctor [--json] [--wait SECONDS] [--plan nodes=N,gpus=N,gb=N]\n"
        "           [--config FILE [--config OVERLAY ...] [--KEY VALUE ...]]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    wait = "under a launcher: how long to wait for all ranks (default: 120)"
    parser.add_argument("--wait", type=_parse_seconds, default=120.0, metavar="SECONDS", help=wait)
    parser.add_argument(
        "--plan",
        type=_cluster,
        metavar="nodes=N,gpus=N,gb=N",
        help="print what to set so that language models fit these GPUs: nodes, GPUs of a node, GB of a GPU",
    )
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        metavar="FILE",
        default=[],
        help="as for fit; later files override earlier files",
    )
    parsed, options = parser.parse_known_args(arguments)
    if options and not parsed.config:
        parser.error(f"{' '.join(options)}: options override a config; add --config FILE")
    settings = [word for file in parsed.config for word in ("--config", file)] + options
    return _Options(parsed.json, parsed.wait, settings, parsed.plan)


def _cluster(text: str) -> Cluster:
    try:
        return parse_cluster(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _launched_ranks(timeout: float) -> "MultiProcessDoctor | None":
    """Return the checks between ranks; None without a launcher or with a world size of 1."""
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")
    try:
        from commands.doctor.network.multi_process_checks import MultiProcessDoctor
    except ImportError:  # torch or lightning is missing, which a machine check reports
        return None
    ranks = MultiProcessDoctor(timeout=timeout)
    return ranks if ranks.is_launched else None


def _checks(settings: list[str], runs: Path) -> list[Check]:
    plan = plan_launch(settings, os.environ)
    return [*machine_checks(plan, os.environ), *config_checks(settings, plan, os.environ, runs)]


def _run(checks: list[Check], spinner: bool) -> list[Finding]:
    if not spinner:
        return run_checks(checks)
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        return run_checks(checks, lambda check: status.update(f"checking: {check.name}"))
