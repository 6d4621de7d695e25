"""Checks SLURM's variables, against each other and against the config."""

import re
from collections.abc import Iterator, Mapping

from commands.doctor.check import Finding
from commands.doctor.launch_plan import LaunchPlan
from engine.system.installation import PROGRAM

CHECK = "slurm"


def check_slurm(plan: LaunchPlan, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the job matches the training; yields nothing outside a job.

    Args:
        plan: ranks and nodes of the config.
        environ: environment variables.
    """
    if "SLURM_JOB_ID" not in environ:
        return
    nodes, tasks = _first_number(environ, "SLURM_NNODES", 1), _first_number(environ, "SLURM_NTASKS", 1)
    per_node, in_step = _first_number(environ, "SLURM_NTASKS_PER_NODE", 0), "SLURM_STEP_ID" in environ
    problems = [
        *_tasks(environ, nodes, tasks, per_node, in_step),
        *_config(plan, environ, nodes, per_node or -(-tasks // nodes)),
        *_gpus(environ, per_node or -(-tasks // nodes)),
        *_cores(plan, environ, in_step),
    ]
    yield from problems
    if not any(problem.status == "fail" for problem in problems):
        where = "within srun" if in_step else "outside srun"
        yield Finding(CHECK, "ok", f"job {environ['SLURM_JOB_ID']}: {tasks} task(s) on {nodes} node(s), {where}")


def _tasks(environ: Mapping[str, str], nodes: int, tasks: int, per_node: int, in_step: bool) -> Iterator[Finding]:
    if "TORCHELASTIC_RUN_ID" in environ:
        if in_step and tasks > nodes:
            found = f"srun started {tasks} torchruns on {nodes} node(s)"
            why = "torchrun starts all ranks of a node; start it once per node"
            yield Finding(CHECK, "fail", found, why, f"srun --ntasks={nodes} --ntasks-per-node=1 torchrun ...")
        return
    if environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        found = f"the job's name is {environ['SLURM_JOB_NAME']!r}"
        yield Finding(CHECK, "warn", found, "Lightning takes it for an interactive shell and ignores SLURM's tasks",
                      "export SLURM_JOB_NAME=train  # or --job-name of another name")  # fmt: skip
        return
    if tasks > 1 and not in_step:
        found = f"a job of {tasks} tasks, and this process was started without srun"
        yield Finding(CHECK, "fail", found, "a single rank would wait for the other ranks indefinitely",
                      f"srun {PROGRAM} ...  # or sbatch deploy/slurm/train.sbatch")  # fmt: skip
    if tasks > 1 and not per_node:
        found = f"{tasks} tasks without --ntasks-per-node"
        yield Finding(CHECK, "fail", found, "Lightning ends with `You set --ntasks`: the tasks per node are unknown",
                      f"--nodes={nodes} --ntasks-per-node={-(-tasks // nodes)}  # instead of --ntasks")  # fmt: skip
    elif per_node and per_node * nodes != tasks:
        found = f"{tasks} tasks, but {nodes} node(s) with {per_node} each are {per_node * nodes}"
        yield Finding(CHECK, "fail", found, "every node needs the same number of ranks",
                      f"--nodes={nodes} --ntasks-per-node={per_node}  # without --ntasks")  # fmt: skip
    spread = environ.get("SLURM_TASKS_PER_NODE", "")
    if "," in spread:
        found = f"the nodes have {spread} tasks"
        yield Finding(CHECK, "fail", found, "every node needs the same number of ranks",
                      f"--nodes={nodes} --ntasks-per-node={-(-tasks // nodes)}")  # fmt: skip


def _config(plan: LaunchPlan, environ: Mapping[str, str], nodes: int, per_node: int) -> Iterator[Finding]:
    if "TORCHELASTIC_RUN_ID" in environ:
        return
    why = "some ranks would wait for ranks that were never started; the start is refused"
    if plan.devices and plan.devices != per_node:
        found = f"--ntasks-per-node is {per_node}, trainer.devices {plan.devices}"
        remedy = f"sbatch --ntasks-per-node={plan.devices}  # or --trainer.devices {per_node}, or auto"
        yield Finding(CHECK, "fail", found, why, remedy)
    if plan.nodes and plan.nodes > 1 and plan.nodes != nodes:
        found = f"the job has {nodes} node(s), trainer.num_nodes is {plan.nodes}"
        remedy = f"sbatch --nodes={plan.nodes}  # or --trainer.num_nodes {nodes}"
        yield Finding(CHECK, "fail", found, why, remedy)


def _gpus(environ: Mapping[str, str], per_node: int) -> Iterator[Finding]:
    gpus = _first_number(environ, "SLURM_GPUS_ON_NODE", 0)
    if gpus and gpus != per_node and "TORCHELASTIC_RUN_ID" not in environ:
        found = f"{gpus} GPU(s) on a node for {per_node} task(s)"
        why = "a rank without a GPU ends" if gpus < per_node else "a rank uses one GPU: the other GPUs are idle"
        yield Finding(CHECK, "fail" if gpus < per_node else "warn", found, why,
                      f"--gpus-per-node={gpus} --ntasks-per-node={gpus}")  # fmt: skip
    if environ.get("SLURM_GPUS_PER_TASK") and per_node > 1:
        found = f"--gpus-per-task={environ['SLURM_GPUS_PER_TASK']}"
        why = "each task then sees only its own GPU, as number 0, but local rank n uses number n"
        yield Finding(CHECK, "warn", found, why, f"--gpus-per-node={per_node}  # instead, or srun --gpu-bind=none")


def _cores(plan: LaunchPlan, environ: Mapping[str, str], in_step: bool) -> Iterator[Finding]:
    cores, loaders = _first_number(environ, "SLURM_CPUS_PER_TASK", 0), plan.loaders()
    if loaders and cores < 1 + loaders:
        found = f"{cores or 1} core(s) for a task with {loaders} loaders"
        remedy = f"--cpus-per-task={1 + loaders}  # or --data.init_args.num_workers {max(0, cores - 1)}"
        yield Finding(CHECK, "warn", found, "loaders and training share them", remedy)
    if cores > 1 and not in_step and "SRUN_CPUS_PER_TASK" not in environ:
        found = f"--cpus-per-task={cores}, and SRUN_CPUS_PER_TASK is not set"
        yield Finding(CHECK, "warn", found, "since SLURM 22.05 srun does not inherit it: each task gets one core",
                      "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK")  # fmt: skip


def _first_number(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return the first number of a variable such as `4(x2)`."""
    match = re.match(r"\d+", environ.get(name, ""))
    return int(match.group()) if match else default
