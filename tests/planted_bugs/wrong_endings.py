"""Bugs that are met when something goes wrong: checkpoints, resumes, signals, agreement and exit codes."""

from tests.planted_bugs.bug import Bug

CHECKPOINTS = (
    Bug(
        "no-flush-before-the-rename",
        "A checkpoint gets its name before the disk has it, so a power cut leaves an empty one.",
        "engine/io/atomic_file.py",
        "file.flush()\n            os.fsync(file.fileno())",
        "pass",
        ("tests/engine/io/test_atomic_file.py", "tests/engine/checkpointing/test_checkpoint_io.py"),
    ),
    Bug(
        "row-moves-from-the-wrong-end",
        "With three kept checkpoints all older ones become copies of the newest but one.",
        "engine/checkpointing/rotation.py",
        "for i in range(end, index, -1):",
        "for i in range(index + 1, end + 1):",
        ("tests/engine/checkpointing/test_rotation.py", "tests/callbacks/test_checkpointing.py"),
    ),
    Bug(
        "newest-by-the-time-of-the-file",
        "`--ckpt_path last` takes what was copied or touched last for the newest.",
        "engine/checkpointing/discovery.py",
        "return sorted(paths, key=saved_at, reverse=True)",
        "return sorted(paths, key=lambda path: path.stat().st_mtime, reverse=True)",
        ("tests/engine/checkpointing/test_verification.py", "tests/commands/runs/test_checkpoint_selection.py"),
    ),
    Bug(
        "failures-are-forgiven",
        "A disk that refuses every checkpoint does not end the run.",
        "engine/checkpointing/save_outcomes.py",
        "if is_permanent or len(failures) > 1:",
        "if is_permanent:",
        ("tests/engine/checkpointing/test_checkpoint_io.py", "tests/distributed/storage/test_checkpoint_faults.py"),
    ),
    Bug(
        "asynchronous-save-without-a-copy",
        "An asynchronous checkpoint mixes weights of the step that saved it with those of later steps.",
        "engine/checkpointing/checkpoint_io.py",
        "checkpoint = self._snapshot.copy_to_cpu(checkpoint)",
        "checkpoint = dict(checkpoint)",
        ("tests/engine/checkpointing/test_checkpoint_io.py", "tests/distributed/storage/test_checkpoint_faults.py"),
    ),
    Bug(
        "nan-stays-the-best",
        "A validation that gave NaN keeps best.ckpt for ever.",
        "callbacks/checkpointing/best_checkpoint.py",
        'score = (-math.inf if self.mode == "max" else math.inf) if math.isnan(score) else score',
        "score = float(score)",
        ("tests/callbacks/test_checkpointing.py",),
    ),
    Bug(
        "checksum-of-the-last-chunk",
        "Damage to a shard is only noticed in its last 4 MiB.",
        "engine/io/file_hash.py",
        "crc = zlib.crc32(chunk, crc)",
        "crc = zlib.crc32(chunk)",
        ("tests/engine/checkpointing/test_verification.py", "tests/engine/strategies/test_sharded_checkpoint.py"),
    ),
    Bug(
        "trained-and-then-frozen-is-lost",
        "Weights that were trained and frozen afterwards are missing from a checkpoint.",
        "engine/checkpointing/frozen_weights.py",
        "if built.get(name) == value}",
        "if name in built}",
        ("tests/engine/checkpointing/test_frozen_weights.py",),
    ),
)

RESUME = (
    Bug(
        "resume-with-another-accumulation",
        "A run that goes on with another accumulation counts its micro-batches by the old one.",
        "engine/checkpointing/loop_progress.py",
        'finished = counters["processed"] // saved * accumulation',
        'finished = counters["processed"]',
        (
            "tests/engine/checkpointing/test_loop_progress.py",
            "tests/distributed/exactness/test_exactness.py",
            "tests/commands/test_resume.py",
        ),
    ),
    Bug(
        "resume-with-another-seed",
        "A run goes on in the middle of an epoch with another seed: some samples come twice, others never.",
        "engine/datamodule.py",
        'return {"seed": global_seed(), "batch_size": self.plan.batch_size, **size}',
        'return {"batch_size": self.plan.batch_size, **size}',
        ("tests/engine/test_datamodule.py", "tests/commands/test_resume.py"),
    ),
    Bug(
        "rollbacks-are-counted-anew",
        "Each restart allows all rollbacks again, so a diverged run never stops.",
        "callbacks/guards/finite_guard.py",
        'self.rollbacks = state_dict["rollbacks"]',
        "self.rollbacks = 0",
        ("tests/callbacks/guards/test_finite_guard.py", "tests/distributed/faults/test_numeric_guards.py"),
    ),
    Bug(
        "one-bad-sample-too-few",
        "As many bad samples as are allowed end the run.",
        "engine/data/skip_counters.py",
        "if bad > limit:",
        "if bad >= limit:",
        ("tests/engine/data/test_sample_loading.py", "tests/distributed/faults/test_skipped_samples.py"),
    ),
)

SIGNALS = (
    Bug(
        "stop-is-swallowed",
        "Where processes look for a stop every few steps, one that was agreed in a step between is lost.",
        "engine/distributed/step_counters.py",
        "total + added for total, added in",
        "added for total, added in",
        ("tests/engine/distributed/test_step_counters.py", "tests/callbacks/health/test_preemption.py"),
    ),
    Bug(
        "sigusr1-kills",
        "SLURM's warning before the end of the time kills the run instead of stopping it.",
        "engine/health/signals.py",
        'names = ("SIGTERM", "SIGINT", "SIGUSR1")',
        'names = ("SIGTERM", "SIGINT")',
        ("tests/callbacks/health/test_preemption.py", "tests/distributed/resume/test_preemption.py"),
    ),
    Bug(
        "ctrl-c-ends-with-143",
        "A run that was stopped by Ctrl-C ends with the exit code of SIGTERM.",
        "callbacks/health/preemption.py",
        "raise RunStopped(ExitCode.SIGINT if number == signal.SIGINT else ExitCode.SIGTERM)",
        "raise RunStopped(ExitCode.SIGTERM)",
        ("tests/callbacks/health/test_preemption.py", "tests/distributed/resume/test_preemption.py"),
    ),
    Bug(
        "workers-die-of-ctrl-c",
        "Ctrl-C, which a terminal sends to all processes, ends the loader's workers in the middle of a step.",
        "engine/health/signals.py",
        'for name in ("SIGINT", "SIGUSR1"):',
        'for name in ("SIGUSR1",):',
        (
            "tests/engine/health/test_signals.py",
            "tests/engine/data/test_worker_process.py",
            "tests/callbacks/health/test_preemption.py",
        ),
    ),
    Bug(
        "first-start-is-not-requeued",
        "A SLURM job that is stopped before its first step does not go back into the queue.",
        "callbacks/health/slurm_requeue.py",
        "if restarts and not has_progress:",
        "if not has_progress:",
        ("tests/callbacks/health/test_slurm_requeue.py",),
    ),
)

PROCESSES = (
    Bug(
        "reply-of-an-earlier-life",
        "After a restart a process takes the answer that its dead predecessor was given.",
        "commands/launch/rendezvous_store.py",
        'return reply if reply.get("to") == token else None',
        "return reply or None",
        ("tests/commands/launch/test_rank_zero_decision.py",),
    ),
    Bug(
        "error-is-not-handed-out",
        "When process 0 is refused, the others wait five minutes for its answer.",
        "commands/launch/rendezvous_store.py",
        'self._send(key, {"error": str(error)})',
        "pass",
        ("tests/commands/launch/test_rank_zero_decision.py",),
    ),
    Bug(
        "dead-process-counts-as-alive",
        "What a process has last written into the store counts as a sign of life for ever.",
        "engine/health/heartbeat.py",
        "if previous is None or heartbeat.number != previous.number:",
        "if heartbeat is not None:",
        (
            "tests/engine/health/test_heartbeat.py",
            "tests/callbacks/health/test_watchdog.py",
            "tests/distributed/faults/test_hangs_and_deaths.py",
        ),
    ),
    Bug(
        "wrong-input-ends-with-1",
        "A config that is refused ends with the exit code of a failed run, and a scheduler tries it again.",
        "commands/cli/error_reporting.py",
        'shows where it was raised)")\n        return ExitCode.USER_ERROR',
        'shows where it was raised)")\n        return ExitCode.FAILED',
        ("tests/commands/cli/test_error_reporting.py", "tests/commands/cli/test_main.py"),
    ),
)

BUGS = (*CHECKPOINTS, *RESUME, *SIGNALS, *PROCESSES)
