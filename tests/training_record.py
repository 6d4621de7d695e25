"""Record what short trainings of every family compute, and compare two records to the bit.

A refactoring must not change a number. Record the commit that it starts from, then record and compare later commits::

    git worktree add /tmp/before COMMIT
    python -m tests.training_record /tmp/before.json --checkout /tmp/before
    python -m tests.training_record /tmp/after.json --against /tmp/before.json

A record holds, for each training and world size, the metrics of all steps and of a short test, a hash of each trained
weight, the keys of the checkpoint and a hash of what the exported model computes. Kernels sum in another order on other
machines, so compare records of one machine only.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from tests.support.outputs.jsonl import read_jsonl

REPOSITORY = Path(__file__).resolve().parents[1]
STEPS = 30

_DROPOUT = "--model.init_args.language_model.config.attention_dropout=0.1"
_FEW = ["--data.init_args.validation_size=32", "--data.init_args.test_size=64"]
_SHORT = [*_FEW, "--model.init_args.max_new_tokens=6"]
_SMALL_MHC = [
    "--data.init_args.dataset=synthetic",
    "--data.init_args.batch_size=32",
    "--model.init_args.hidden_size=32",
]

TRAININGS: dict[str, tuple[str, list[str]]] = {
    "recommender": ("recommender/quickstart", ["--model.init_args.dropout=0.2"]),
    "recommender_mhc": ("recommender/sasrec_mhc", _SMALL_MHC),
    "image_classifier": ("image_classifier/digits", []),
    "temporal": ("temporal/quickstart", [_DROPOUT, *_SHORT]),
    "vision_language": ("vision_language/quickstart_pretrain", [_DROPOUT, *_SHORT]),
    "document_qa": ("document_qa/quickstart", [_DROPOUT, *_SHORT]),
    "retriever": ("document_qa/retriever_quickstart", [_DROPOUT, *_FEW]),
}
"""Name -> config below configs/ and options. All have dropout but the classifier, whose crops are random."""

EXPORTED = {"recommender", "recommender_mhc", "image_classifier", "vision_language"}

MEASURED = ("time", "memory", "per_second", "wait", "tflops", "mfu", "seconds")
"""Parts of the names of metrics that differ from run to run."""


def record(checkout: Path, name: str, world_size: int) -> dict[str, object]:
    """Train, test and export one of `TRAININGS`.

    Args:
        checkout: directory of the code to run.
        name: key of `TRAININGS`.
        world_size: number of processes.

    Raises:
        RuntimeError: a command failed.
    """
    config, changed = TRAININGS[name]
    common = ["--config", str(checkout / "configs" / f"{config}.yaml"), *changed, "--run_name=recorded"]
    common += ["--trainer.accelerator=cpu", f"--trainer.devices={world_size}"]
    common += ["--trainer.strategy=ddp"] if world_size > 1 else []
    limits = [f"--trainer.max_steps={STEPS}", "--trainer.max_epochs=-1", "--trainer.limit_val_batches=1"]
    limits += ["--trainer.val_check_interval=15", "--trainer.check_val_every_n_epoch=null"]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _run(checkout, folder, "fit", *common, *limits, "--trainer.log_every_n_steps=1")
        run = folder / "runs/recorded"
        saved = torch.load(run / "checkpoints/last.ckpt", map_location="cpu", weights_only=True)
        weights = saved.pop("state_dict")
        _run(checkout, folder, "test", *common, "--trainer.limit_test_batches=2", "--ckpt_path=last")
        found: dict[str, object] = {
            "metrics": _metrics(run / "metrics.jsonl"),
            "weights": {key: _hash(value.numpy()) for key, value in weights.items()},
            "checkpoint": sorted({path for path, _ in _leaves(saved)}),
        }
        if world_size == 1 and name in EXPORTED:
            target = folder / "exported"
            _run(checkout, folder, "export", *common, "--ckpt_path=last", "--output", str(target))
            found["export"] = {path.name: _outputs(path) for path in sorted(target.rglob("*.*"))}
    return found


def differences(before: object, after: object, path: str = "") -> Iterator[str]:
    """Yield a line for each difference between two records."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            if key not in before or key not in after:
                yield f"{path}/{key}: only {'after' if key in after else 'before'}"
            else:
                yield from differences(before[key], after[key], f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (first, second) in enumerate(zip(before, after, strict=True)):
            yield from differences(first, second, f"{path}/{number}")
    elif before != after:
        yield f"{path}: {str(before)[:80]} before, {str(after)[:80]} after"


def _run(checkout: Path, folder: Path, *arguments: str) -> None:
    command = [sys.executable, str(checkout / "train.py"), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")


def _metrics(path: Path) -> list[dict[str, object]]:
    lines = read_jsonl(path)
    return [{key: value for key, value in line.items() if not any(part in key for part in MEASURED)} for line in lines]


def _hash(array: np.ndarray) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    return f"{array.dtype} {array.shape} {digest}"


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}/{key}")
    else:
        yield path, value


def _outputs(path: Path) -> object:
    """Hash what an ONNX graph computes, or a file of weights; of other files only the name counts."""
    if path.suffix == ".safetensors":
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    if path.suffix != ".onnx":
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator, inputs = np.random.default_rng(0), {}
    for wanted in session.get_inputs():
        shape = [size if isinstance(size, int) else 4 for size in wanted.shape]
        kind = wanted.type.removeprefix("tensor(").removesuffix(")").replace("float", "float32")
        inputs[wanted.name] = generator.integers(1, 9, shape).cumsum(-1).astype(kind)
    return [_hash(output) for output in session.run(None, inputs)]


def main() -> int:
    """Write a record, and compare it where another is given."""
    parser = argparse.ArgumentParser(prog="python -m tests.training_record", description=__doc__.split("\n")[0])
    parser.add_argument("output", type=Path, help="JSON file to write")
    parser.add_argument("--checkout", type=Path, default=REPOSITORY, help="directory of the code to run")
    parser.add_argument("--against", type=Path, help="record to compare with")
    parser.add_argument("--only", nargs="+", choices=TRAININGS, default=list(TRAININGS), help="trainings to record")
    options = parser.parse_args()
    found = {}
    for name in options.only:
        for world_size in (1, 2):
            found[f"{name}, world size {world_size}"] = record(options.checkout.resolve(), name, world_size)
            print(f"{name}, world size {world_size}: recorded", flush=True)
            options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if options.against is None:
        return 0
    reference = json.loads(options.against.read_text(encoding="utf-8"))
    lines = list(differences({key: reference.get(key) for key in found}, found))
    print("\n".join(lines) or "identical")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
