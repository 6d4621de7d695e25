"""deploy/kubernetes: its form, by the schemas of Kubernetes and Kubeflow Trainer. No cluster has run it."""

import inspect
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api import models
from torch.distributed import run
from torch.distributed.elastic.agent.server.api import SimpleElasticAgent

from callbacks.health.watchdog import Watchdog
from callbacks.prometheus.exporter import PrometheusExporter
from callbacks.trackers.experiment_tracker import FINISH_TIMEOUT
from commands.cli.main import LockstepCLI
from tests.conftest import REPOSITORY
from tests.deploy.manifests import FOLDER, Pods, all_pods, documents

PODS = all_pods()
each_pod = pytest.mark.parametrize("pods", PODS, ids=[f"{pods.file}-{number}" for number, pods in enumerate(PODS)])
each_release = pytest.mark.parametrize("release", ["1.29", kubernetes_validate.latest_version().removesuffix(".0")])


@each_release
@pytest.mark.parametrize("name", ["job.yaml", "claim.yaml"])
def test_documents_are_valid_in_every_release_of_kubernetes(name, release):
    for document in documents(name):
        assert kubernetes_validate.validate(document, release, strict=True) == release


@each_release
@each_pod
def test_the_pods_fit_the_schema_of_kubernetes(pods, release):
    kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", **pods.template}, release, strict=True)


def test_a_wrong_word_would_be_found():
    pod = {"apiVersion": "v1", "kind": "Pod", **PODS[0].template}
    wrong = {**pod, "spec": {**pod["spec"], "terminationGraceSeconds": 120}}
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGraceSeconds"):
        kubernetes_validate.validate(wrong, "1.29", strict=True)


def test_the_job_fits_the_models_of_kubeflow_trainer():
    """Its models refuse wrong types, and omit unknown keys from their output."""
    runtime, job = documents("trainjob.yaml")
    assert models.TrainerV1alpha1TrainJob.from_dict(job).to_dict() == job
    understood = models.TrainerV1alpha1TrainingRuntime.from_dict(runtime).to_dict()
    (replicated,) = understood["spec"]["template"]["spec"]["replicatedJobs"]
    for port in replicated["template"]["spec"]["template"]["spec"]["containers"][0]["ports"]:
        assert port.pop("protocol") == "TCP"  # which it adds
    assert understood == runtime


def test_kubeflow_trainer_finds_what_it_looks_for():
    runtime, job = documents("trainjob.yaml")
    assert job["spec"]["runtimeRef"] == {"kind": runtime["kind"], "name": runtime["metadata"]["name"]}
    assert runtime["metadata"]["labels"] == {"trainer.kubeflow.org/framework": "torch"}
    assert runtime["spec"]["mlPolicy"] == {"torch": {}}
    (replicated,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert replicated["name"] == "node"
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert replicated["template"]["metadata"]["labels"] == labels
    spec = replicated["template"]["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (20, "Failed")


def test_the_pytorchjob_has_a_master_and_workers():
    (job,) = documents("pytorchjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert job["metadata"]["name"]
    assert job["spec"].keys() == {"nprocPerNode", "runPolicy", "pytorchReplicaSpecs"}
    assert isinstance(job["spec"]["nprocPerNode"], str)  # a number is refused by the operator's schema
    assert job["spec"]["runPolicy"] == {"cleanPodPolicy": "None", "backoffLimit": 20}
    replicas = job["spec"]["pytorchReplicaSpecs"]
    assert replicas.keys() == {"Master", "Worker"}
    assert replicas["Master"]["replicas"] == 1
    assert all(replica.keys() == {"replicas", "restartPolicy", "template"} for replica in replicas.values())


def test_the_indexed_job_has_its_service_and_node_count():
    service, job = documents("job.yaml")
    assert service["spec"]["clusterIP"] == "None"  # the word: without it the pods have no names
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    # A service is made for the pods of trainjob.yaml, too, with the name of its job.
    assert service["metadata"]["name"] not in {document["metadata"]["name"] for document in documents("trainjob.yaml")}
    variables = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    assert int(variables["PET_NNODES"]) == spec["completions"] == spec["parallelism"]
    assert variables["PET_MASTER_ADDR"] == f"{job['metadata']['name']}-0.{pod['subdomain']}"


@each_pod
def test_a_pod_restarts_and_has_gpus_shared_memory_and_storage(pods: Pods):
    """It comes back when it was evicted, has time to save, shared memory, GPUs, and storage that outlives it."""
    assert pods.restart_policy == "OnFailure"
    assert pods.replicas >= 1
    container = pods.container
    assert container["name"] == pods.container_name  # the container that the operator prepares
    assert container["resources"]["limits"]["nvidia.com/gpu"] == pods.processes
    assert pods.spec["nodeSelector"]
    assert pods.spec["tolerations"]
    volumes = {volume["name"]: volume for volume in pods.spec["volumes"]}
    mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container["volumeMounts"]}
    assert mounts["/dev/shm"]["emptyDir"]["medium"] == "Memory"
    (claim,) = documents("claim.yaml")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    for folder in ("runs", "data"):
        assert mounts[f"{container['workingDir']}/{folder}"]["persistentVolumeClaim"] == {
            "claimName": claim["metadata"]["name"]
        }
    # The rest of the file system cannot be written to.
    dockerfile = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    (home,) = re.findall(r" HOME=(\S+)", dockerfile)
    assert mounts["/tmp"]["emptyDir"] == mounts[home]["emptyDir"] == {}
    assert len(mounts) == 5
    variables = {variable["name"]: variable for variable in container["env"]}
    assert variables["HF_HOME"]["value"].startswith(f"{container['workingDir']}/data/"), "lost with the pod"


@each_pod
def test_torchrun_waits_for_the_pods_and_for_the_last_checkpoint(pods: Pods, monkeypatch):
    """torchrun waits as long as the startup probe and the time between SIGTERM and SIGKILL allow."""
    for variable in pods.container["env"]:
        if "value" in variable:
            monkeypatch.setenv(variable["name"], variable["value"])
    launch, _, _ = run.config_from_args(run.get_args_parser().parse_args(["train.py"]))
    startup, rendezvous = pods.container["startupProbe"], int(launch.rdzv_configs["timeout"])
    assert 900 < rendezvous <= startup["periodSeconds"] * startup["failureThreshold"] - 300, "and five minutes to start"
    assert 30 < launch.shutdown_timeout <= pods.spec["terminationGracePeriodSeconds"] - 10, "killed before it has saved"


@each_pod
def test_probes_and_prometheus_ask_the_metrics_endpoint(pods: Pods):
    """tests/deploy/test_pods_run.py asks it the same."""
    first = int(pods.option("prometheus.port"))
    assert pods.option("prometheus.host") == "0.0.0.0", "it must be reachable from outside the pod"
    ports = {port["name"]: port["containerPort"] for port in pods.container["ports"]}
    assert ports == {f"metrics-{number}": first + number for number in range(pods.processes)}
    annotations = pods.template["metadata"]["annotations"]
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(first),
        "prometheus.io/path": "/metrics",
    }
    startup, alive, ready = (pods.container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness"))
    assert all(probe["httpGet"] == {"path": "/healthz", "port": "metrics-0"} for probe in (startup, alive, ready))
    assert startup["periodSeconds"] * startup["failureThreshold"] > Watchdog().start_timeout
    assert PrometheusExporter().stalled_after > Watchdog().timeout, "the watchdog reports more, and comes first"
    waits = inspect.signature(SimpleElasticAgent.__init__).parameters["exit_barrier_timeout"].default  # torchrun's
    ending = waits + 2 * FINISH_TIMEOUT  # W&B and MLflow, which do not answer then
    assert alive["periodSeconds"] * (alive["failureThreshold"] - 1) > ending, "a run that ends would be killed"
    assert alive["timeoutSeconds"] >= 10, "a busy machine answers late"


def test_the_pod_monitor_finds_every_process():
    (monitor,) = documents("podmonitor.yaml")
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert monitor["spec"].keys() == {"selector", "podMetricsEndpoints"}
    ports = [endpoint["port"] for endpoint in monitor["spec"]["podMetricsEndpoints"]]
    for pods in PODS:
        assert monitor["spec"]["selector"] == {"matchLabels": pods.template["metadata"]["labels"]}
        assert ports == [port["name"] for port in pods.container["ports"]]


@each_pod
def test_a_pod_has_no_more_rights_than_it_needs(pods: Pods):
    user = pods.spec["securityContext"]
    assert user["runAsNonRoot"]
    assert user["seccompProfile"] == {"type": "RuntimeDefault"}
    assert user["fsGroup"] == user["runAsGroup"] == user["runAsUser"]
    dockerfile = (FOLDER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert f"USER {user['runAsUser']}" in dockerfile
    assert pods.spec["automountServiceAccountToken"] is False
    assert pods.container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


def test_all_files_start_the_same():
    same = (
        "image",
        "workingDir",
        "command",
        "args",
        "ports",
        "resources",
        "volumeMounts",
        "securityContext",
        "startupProbe",
        "livenessProbe",
        "readinessProbe",
    )
    own = {"containers", "restartPolicy", "subdomain"}
    first, *others = [
        (
            {key: pods.container[key] for key in same},
            [variable for variable in pods.container["env"] if not re.match("PET_(?!RDZV_CONF)", variable["name"])],
            {key: value for key, value in pods.spec.items() if key not in own},
            pods.template["metadata"],
        )
        for pods in PODS
    ]
    assert all(other == first for other in others)
    assert {
        pods.file: sum(other.replicas for other in PODS if other.file == pods.file) for pods in PODS
    } == dict.fromkeys(("pytorchjob.yaml", "job.yaml", "trainjob.yaml"), 2)


def test_train_py_accepts_the_arguments_of_the_pods(monkeypatch, capsys):
    monkeypatch.chdir(REPOSITORY)
    assert PODS[0].option("ckpt_path") == "last", "a restart would begin at step 0"
    assert PODS[0].option("run_name"), "a restart would begin at step 0"
    with pytest.raises(SystemExit) as end:
        LockstepCLI([*PODS[0].container["args"], "--print_config"])
    assert end.value.code in (0, None), capsys.readouterr().err


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
def test_the_guides_command_makes_the_secret_that_the_pods_read(tmp_path):
    guide = (REPOSITORY / "docs/cluster.md").read_text(encoding="utf-8")
    (line,) = (line.strip() for line in guide.splitlines() if "kubectl create secret" in line)
    wanted = [variable["valueFrom"]["secretKeyRef"] for variable in PODS[0].container["env"] if "valueFrom" in variable]
    assert all(reference["optional"] for reference in wanted)
    (tmp_path / "secrets.env").write_text("".join(f"{reference['key']}=a secret\n" for reference in wanted))
    command = [*line.split(), "--dry-run=client", "--output=yaml"]
    output = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60).stdout
    secret = yaml.safe_load(output)
    secret_keys = {(secret["metadata"]["name"], key) for key in secret["data"]}
    assert secret_keys == {(reference["name"], reference["key"]) for reference in wanted}
