"""Runs `python train.py doctor`."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from commands.cli.shipped_configs import with_shipped_configs
from commands.doctor.check import Check, Finding, is_any_hanging, run_checks
from commands.doctor.config_checks import config_checks
from commands.doctor.launch_plan import planned
from commands.doctor.machine_checks import machine_checks
from commands.doctor.output import EXIT_CODES, as_json, print_table, worst
from commands.launch.local_rank import without_local_rank
from engine.system.installation import PROGRAM, SCRIPT
from engine.system.runs_folder import runs_of

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

examples:
  {PROGRAM} doctor
  {PROGRAM} doctor --config configs/FAMILY/X.yaml --config configs/overlays/gpu.yaml --trainer.devices 4
  torchrun --nproc_per_node 2 {SCRIPT} doctor --config configs/FAMILY/X.yaml
  srun {PROGRAM} doctor --config configs/FAMILY/X.yaml
  {PROGRAM} doctor --json | python -m json.tool

exit code: 0 if all checks pass, 1 after a WARN, 2 after a FAIL.
More: docs/doctor.md"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run `python train.py doctor ...`.

    Args:
        arguments: arguments after `doctor`; None: those of `sys.argv`.
    """
    arguments = without_local_rank(sys.argv[2:] if arguments is None else arguments, os.environ)
    json_output, timeout, settings = _parse(with_shipped_configs(arguments))
    with runs_of(settings, os.environ) as runs:
        _check(json_output, timeout, settings, runs)


def _check(json_output: bool, timeout: float, settings: list[str], runs: Path) -> NoReturn:
    ranks = _launched_ranks(timeout)
    with redirect_stdout(sys.stderr) if json_output else nullcontext():  # the output has the JSON object alone
        checks = [*(ranks.checks() if ranks else ()), *_checks(settings, runs)]
        findings = _run(checks, spinner=not json_output and ranks is None and sys.stderr.isatty())
        findings = ranks.merge(findings) if ranks else findings
    if ranks is None or ranks.reports:
        print(as_json(findings)) if json_output else print_table(findings)
    if ranks:
        ranks.leave()
    code = EXIT_CODES[worst(findings)]
    if is_any_hanging():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


def _parse(arguments: list[str]) -> tuple[bool, float, list[str]]:
    """Return whether to print JSON, the seconds to wait for other ranks, and the options of the training."""
    parser = argparse.ArgumentParser(
        prog=f"{PROGRAM} doctor",
        usage=f"{PROGRAM} doctor [--json] [--wait SECONDS] [--config FILE [--config OVERLAY ...] [--KEY VALUE ...]]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    wait = "under a launcher: how long to wait for all ranks (default: 120)"
    parser.add_argument("--wait", type=float, default=120.0, metavar="SECONDS", help=wait)
    parser.add_argument(
        "-c",
        "--config",
        action="append",
        metavar="FILE",
        default=[],
        help="as for fit; later files override earlier ones",
    )
    known, options = parser.parse_known_args(arguments)
    if options and not known.config:
        parser.error(f"{' '.join(options)}: options override a config; add --config FILE")
    settings = [word for file in known.config for word in ("--config", file)] + options
    return known.json, known.wait, settings


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
    plan = planned(settings, os.environ)
    return [*machine_checks(plan, os.environ), *config_checks(settings, plan, os.environ, runs)]


def _run(checks: list[Check], spinner: bool) -> list[Finding]:
    if not spinner:
        return run_checks(checks)
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        return run_checks(checks, lambda check: status.update(f"checking: {check.name}"))
