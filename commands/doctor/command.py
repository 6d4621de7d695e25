"""`python train.py doctor`: what is asked for, which checks answer it, and how the answer is told."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, NoReturn

from commands.doctor.config_checks import config_checks
from commands.doctor.examination import examine, left_behind
from commands.doctor.finding import Check, Finding
from commands.doctor.machine import machine_checks
from commands.doctor.plan import planned
from commands.doctor.report import EXIT_CODES, as_json, show, worst

if TYPE_CHECKING:
    from commands.doctor.team import Team

_DESCRIPTION = """\
Looks at everything that a training needs and says what is wrong with it, why that matters, and what mends it, before
it costs hours. It changes nothing, leaves no run folder and ends by itself: every check has a time limit."""

_EPILOG = """\
what it looks at:
  always            Python and packages, torch against driver and NCCL, GPUs, cores, memory, /dev/shm, limits,
                    port, host name, network interfaces, variables, SLURM
  with --config     the same for that many processes; config, data, weights, batch arithmetic, checkpoint folder,
                    and one step of one micro-batch with its peak memory
  under torchrun    rendezvous, all-reduce and its bandwidth between the nodes, clocks, code and packages of all nodes
  or srun

examples:
  python train.py doctor
  python train.py doctor --config configs/FAMILY/X.yaml --config configs/overlays/gpu.yaml --trainer.devices 4
  torchrun --nproc_per_node 2 train.py doctor --config configs/FAMILY/X.yaml
  srun python train.py doctor --config configs/FAMILY/X.yaml
  python train.py doctor --json | python -m json.tool

exit code: 0 if all is well, 1 if something is marked WARN, 2 if something is marked FAIL.
docs/doctor.md tells more."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """`python train.py doctor ...`; `arguments` are those behind the word `doctor`."""
    given = list(sys.argv[2:] if arguments is None else arguments)
    as_object, patience, settings = _parse(given)
    team = _team(patience)
    with redirect_stdout(sys.stderr) if as_object else nullcontext():  # the object stands alone in the output
        checks = [*(team.checks() if team else ()), *_checks(settings)]
        findings = _examined(checks, spinner=not as_object and team is None and sys.stderr.isatty())
        findings = team.agreed(findings) if team else findings
    if team is None or team.speaks:
        print(as_json(findings)) if as_object else show(findings)
    if team:
        team.leave()
    code = EXIT_CODES[worst(findings)]
    if left_behind():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


def _parse(arguments: list[str]) -> tuple[bool, float, list[str]]:
    """Whether JSON is wanted, how long to wait for others, and the settings: `--config FILE ... --KEY VALUE ...`."""
    parser = argparse.ArgumentParser(
        prog="train.py doctor",
        usage="train.py doctor [--json] [--wait SECONDS] [--config FILE [--config OVERLAY ...] [--KEY VALUE ...]]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    wait = "under a launcher: how long processes wait for each other to come (default: 120)"
    parser.add_argument("--wait", type=float, default=120.0, metavar="SECONDS", help=wait)
    parser.add_argument(
        "-c", "--config", action="append", metavar="FILE", default=[], help="as for fit; several are laid over another"
    )
    known, others = parser.parse_known_args(arguments)
    if others and not known.config:
        parser.error(f"{' '.join(others)}: settings are those of a config; add --config FILE")
    settings = [word for file in known.config for word in ("--config", file)] + others
    return known.json, known.wait, settings


def _team(patience: float) -> "Team | None":
    """The processes that a launcher has started beside this one, if there are some."""
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")
    try:
        from commands.doctor.team import Team
    except ImportError:  # without torch or lightning nobody can be met; the checks of the machine say what is missing
        return None
    team = Team(patience=patience)
    return team if team.is_one else None


def _checks(settings: list[str]) -> list[Check]:
    plan = planned(settings, os.environ)
    return [*machine_checks(plan, os.environ), *config_checks(settings, plan)]


def _examined(checks: list[Check], spinner: bool) -> list[Finding]:
    if not spinner:
        return examine(checks)
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        return examine(checks, lambda check: status.update(f"looking at: {check.name}"))
