"""The files of deploy/kubernetes, and the pods that each of its jobs starts."""

from typing import Any, NamedTuple

import yaml

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "deploy/kubernetes"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


class Pods(NamedTuple):
    """Pods that are alike, but for their number."""

    file: str
    replicas: int
    processes: int
    container_name: str
    restart_policy: str
    template: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        return self.template["spec"]

    @property
    def container(self) -> dict[str, Any]:
        (container,) = self.spec["containers"]
        return container

    def option(self, name: str) -> str:
        """The value of an option of train.py."""
        (value,) = (arg.partition("=")[2] for arg in self.container["args"] if arg.startswith(f"--{name}="))
        return value


def all_pods() -> list[Pods]:
    """Return the pods of each job, with the fields that its operator adds."""
    (operated,) = documents("pytorchjob.yaml")
    processes = int(operated["spec"]["nprocPerNode"])
    found = [
        Pods(
            "pytorchjob.yaml", replica["replicas"], processes, "pytorch", replica["restartPolicy"], replica["template"]
        )
        for replica in operated["spec"]["pytorchReplicaSpecs"].values()
    ]
    _, plain = documents("job.yaml")
    template = plain["spec"]["template"]
    variables = {variable["name"]: variable.get("value") for variable in template["spec"]["containers"][0]["env"]}
    processes = int(variables["PET_NPROC_PER_NODE"])
    policy = template["spec"]["restartPolicy"]
    found.append(Pods("job.yaml", plain["spec"]["completions"], processes, "pytorch", policy, template))
    runtime, job = documents("trainjob.yaml")
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    template, trainer = replicated["template"]["spec"]["template"], job["spec"]["trainer"]
    template["spec"]["containers"][0] |= {key: trainer[key] for key in ("image", "command", "args")}
    template["spec"]["containers"][0]["resources"] = trainer["resourcesPerNode"]
    policy = template["spec"]["restartPolicy"]
    found.append(Pods("trainjob.yaml", trainer["numNodes"], trainer["numProcPerNode"], "node", policy, template))
    return found
