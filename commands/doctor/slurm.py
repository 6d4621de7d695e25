"""SLURM's variables against each other and against what the config asks for."""

import re
from collections.abc import Iterator, Mapping

from commands.doctor.finding import Finding
from commands.doctor.plan import Plan

CHECK = "slurm"


def slurm(plan: Plan, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the job is one that the training fits into; nothing to say outside of a job.

    Args:
        plan: processes and nodes, as far as the config says.
        environ: SLURM's variables.
    """
    if "SLURM_JOB_ID" not in environ:
        return
    nodes, tasks = _number(environ, "SLURM_NNODES", 1), _number(environ, "SLURM_NTASKS", 1)
    per_node, in_step = _number(environ, "SLURM_NTASKS_PER_NODE", 0), "SLURM_STEP_ID" in environ
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
            why = "torchrun starts the processes of a node itself: one for each node is enough"
            yield Finding(CHECK, "fail", found, why, f"srun --ntasks={nodes} --ntasks-per-node=1 torchrun ...")
        return
    if environ.get("SLURM_JOB_NAME") in ("bash", "interactive"):
        found = f"the job's name is {environ['SLURM_JOB_NAME']!r}"
        yield Finding(CHECK, "warn", found, "Lightning takes it for an interactive shell and passes SLURM's tasks over",
                      "export SLURM_JOB_NAME=train  # or --job-name of another name")  # fmt: skip
        return
    if tasks > 1 and not in_step:
        found = f"a job of {tasks} tasks, and this process was started without srun"
        yield Finding(CHECK, "fail", found, "one process alone would wait for the others for ever",
                      "srun python train.py ...  # or sbatch deploy/slurm/train.sbatch")  # fmt: skip
    if tasks > 1 and not per_node:
        found = f"{tasks} tasks without --ntasks-per-node"
        yield Finding(CHECK, "fail", found, "Lightning ends with `You set --ntasks`: how they spread is left open",
                      f"--nodes={nodes} --ntasks-per-node={-(-tasks // nodes)}  # instead of --ntasks")  # fmt: skip
    elif per_node and per_node * nodes != tasks:
        found = f"{tasks} tasks, but {nodes} node(s) with {per_node} each are {per_node * nodes}"
        yield Finding(CHECK, "fail", found, "nodes with unequally many processes cannot be numbered",
                      f"--nodes={nodes} --ntasks-per-node={per_node}  # without --ntasks")  # fmt: skip
    spread = environ.get("SLURM_TASKS_PER_NODE", "")
    if "," in spread:
        found = f"the nodes have {spread} tasks"
        yield Finding(CHECK, "fail", found, "every node needs as many processes as the others",
                      f"--nodes={nodes} --ntasks-per-node={-(-tasks // nodes)}")  # fmt: skip


def _config(plan: Plan, environ: Mapping[str, str], nodes: int, per_node: int) -> Iterator[Finding]:
    if "TORCHELASTIC_RUN_ID" in environ:
        return
    why = "some processes would wait for others that were never started: the start is refused"
    if plan.devices and plan.devices != per_node:
        found = f"--ntasks-per-node is {per_node}, trainer.devices {plan.devices}"
        remedy = f"sbatch --ntasks-per-node={plan.devices}  # or --trainer.devices {per_node}, or leave it on auto"
        yield Finding(CHECK, "fail", found, why, remedy)
    if plan.nodes and plan.nodes > 1 and plan.nodes != nodes:
        found = f"the job has {nodes} node(s), trainer.num_nodes is {plan.nodes}"
        remedy = f"sbatch --nodes={plan.nodes}  # or --trainer.num_nodes {nodes}"
        yield Finding(CHECK, "fail", found, why, remedy)


def _gpus(environ: Mapping[str, str], per_node: int) -> Iterator[Finding]:
    given = _number(environ, "SLURM_GPUS_ON_NODE", 0)
    if given and given != per_node and "TORCHELASTIC_RUN_ID" not in environ:
        found = f"{given} GPU(s) on a node for {per_node} task(s)"
        why = "a process without a GPU ends" if given < per_node else "a process drives one GPU: the others idle"
        yield Finding(CHECK, "fail" if given < per_node else "warn", found, why,
                      f"--gpus-per-node={given} --ntasks-per-node={given}")  # fmt: skip
    if environ.get("SLURM_GPUS_PER_TASK") and per_node > 1:
        found = f"--gpus-per-task={environ['SLURM_GPUS_PER_TASK']}"
        why = "each task then sees its own GPU alone, as number 0, while process n looks for number n"
        yield Finding(CHECK, "warn", found, why, f"--gpus-per-node={per_node}  # instead, or srun --gpu-bind=none")


def _cores(plan: Plan, environ: Mapping[str, str], in_step: bool) -> Iterator[Finding]:
    cores, loaders = _number(environ, "SLURM_CPUS_PER_TASK", 0), plan.loaders()
    if loaders and cores < 1 + loaders:
        found = f"{cores or 1} core(s) for a task with {loaders} loaders"
        remedy = f"--cpus-per-task={1 + loaders}  # or --data.init_args.num_workers {max(0, cores - 1)}"
        yield Finding(CHECK, "warn", found, "loaders and training take turns on them", remedy)
    if cores > 1 and not in_step and "SRUN_CPUS_PER_TASK" not in environ:
        found = f"--cpus-per-task={cores}, and SRUN_CPUS_PER_TASK is not set"
        yield Finding(CHECK, "warn", found, "since SLURM 22.05 srun does not take it over: each task gets one core",
                      "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK")  # fmt: skip


def _number(environ: Mapping[str, str], name: str, otherwise: int) -> int:
    """The first number of a variable, as in `4(x2)`."""
    found = re.match(r"\d+", environ.get(name, ""))
    return int(found.group()) if found else otherwise
