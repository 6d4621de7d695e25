"""Stores a study in Optuna's SQLite file, and gives each trial to one worker.

The values of trial N are a function of the study's seed, of N and of the trials before it. They are chosen in memory
and stored in one transaction: no kill leaves a part of them.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from filelock import BaseFileLock, FileLock, Timeout
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from commands.sweep.sweep_settings import Parameter, Sampler, SweepSettings, Value
from engine.io.sqlite_url import sqlite_url

DATABASE, LOCK = "study.db", "study.lock"
MESSAGE, STEP = "message", "step"
"""User attributes of a trial: why it failed, and the step of its best value."""

_NAME = "sweep"
_IDENTITY = "settings"
_WAIT = 120.0  # seconds for another worker's transaction


class OtherStudyError(ValueError):
    """The study was started with other settings.

    Args:
        message: the setting, what it is and what it was.
        what: the setting.
    """

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what


class Claim(NamedTuple):
    """A trial that this worker runs. Its lock, held until the trial ends, keeps other workers from it."""

    number: int
    params: Mapping[str, Value]
    is_resumed: bool  # a worker was killed while it ran the trial
    lock: BaseFileLock

    @property
    def name(self) -> str:
        """Name of the trial's run in the study's folder."""
        return trial_name(self.number)


def trial_name(number: int) -> str:
    """Return the name of a trial's run."""
    return f"trial-{number:04d}"


class SweepStudy:
    """Trials of a study.

    Args:
        folder: folder of the study, which exists.
        settings: content of SWEEP.yaml.
        identity: {name: value} of everything that the values of the trials depend on, recorded when the study begins.

    Raises:
        OtherStudyError: the study in the folder was started with others.
        ValueError: study.db is corrupt, or another version of Optuna has written it.
    """

    def __init__(self, folder: Path, settings: SweepSettings, identity: Mapping[str, str]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._folder, self._settings = folder, settings
        pruner = settings.pruner
        optuna_pruner = (
            optuna.pruners.MedianPruner(pruner.startup_trials, pruner.warmup_steps)
            if pruner.type == "median"
            else optuna.pruners.NopPruner()
        )
        with self.locked():
            _check_database(folder / DATABASE)
            try:
                self._storage = optuna.storages.RDBStorage(
                    sqlite_url(folder / DATABASE), engine_kwargs={"connect_args": {"timeout": _WAIT}}
                )
            except RuntimeError as error:  # its tables are those of another version of Optuna
                raise _no_study(folder / DATABASE, str(error)) from error
            self._study = optuna.create_study(
                study_name=_NAME,
                storage=self._storage,
                direction=settings.direction,
                load_if_exists=True,
                sampler=optuna.samplers.RandomSampler(),  # `_sample_parameters` chooses the values
                pruner=optuna_pruner,
            )
            self._check_identity(identity)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other workers from choosing a trial and from writing the summary."""
        with FileLock(self._folder / LOCK, timeout=_WAIT):
            yield

    def claim(self) -> Claim | None:
        """Return the next trial, which a killed worker may have started; None if the study is complete."""
        with self.locked():
            trials = self.trials()
            for trial in trials:
                if trial.state != TrialState.RUNNING or (lock := self._free(trial.number)) is None:
                    continue
                if self._storage.get_trial(self._id(trial.number)).state == TrialState.RUNNING:
                    return Claim(trial.number, trial.params, True, lock)
                lock.release()  # its worker has ended it since the trials were read
            if len(trials) >= self._settings.trials:
                return None
            number = len(trials)
            lock = self._free(number)
            assert lock is not None, "a trial is locked after it is stored"
            distributions = {parameter.key: _distribution(parameter) for parameter in self._settings.parameters}
            params = self._sample_parameters(trials, number, distributions)
            self._study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions))
            return Claim(number, params, False, lock)

    def values(self, number: int) -> list[tuple[int, float]]:
        """Return (step, value) of the validations of a trial that were stored, in ascending order."""
        return sorted(self._storage.get_trial(self._id(number)).intermediate_values.items())

    def store_value(self, number: int, step: int, value: float) -> None:
        """Store a value of a running trial. The step is larger than all before: Optuna ignores a second value."""
        optuna.trial.Trial(self._study, self._id(number)).report(value, step)

    def must_prune(self, number: int) -> bool:
        """Return whether a running trial is to end early, after the last value that was stored."""
        return optuna.trial.Trial(self._study, self._id(number)).should_prune()

    def finish(self, claim: Claim, state: TrialState, value: float | None, step: int | None, message: str = "") -> None:
        """Store how a trial has ended, and release it."""
        trial = self._id(claim.number)
        if message:
            self._storage.set_trial_user_attr(trial, MESSAGE, message)
        if step is not None:
            self._storage.set_trial_user_attr(trial, STEP, step)
        self._storage.set_trial_state_values(trial, state, None if value is None else [value])
        self.release(claim)

    def release(self, claim: Claim) -> None:
        """Leave a trial to the next start."""
        claim.lock.release()

    def trials(self) -> list[FrozenTrial]:
        """Return all trials in their order."""
        return self._study.get_trials(deepcopy=False)

    def _free(self, number: int) -> BaseFileLock | None:
        """Return the acquired lock of a trial; None if a worker that runs holds it."""
        lock = FileLock(self._folder / f"{trial_name(number)}.lock", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            return None
        return lock

    def _sample_parameters(
        self, trials: list[FrozenTrial], number: int, distributions: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        # A seed for each trial, so that its values do not depend on the worker or on restarts.
        seed = int.from_bytes(hashlib.sha256(f"{self._settings.seed}/{number}".encode()).digest()[:4], "big")
        # The study is in memory, because `ask` of the stored one would write each value in a transaction of its own.
        memory = optuna.create_study(direction=self._settings.direction, sampler=_sampler(self._settings.sampler, seed))
        memory.add_trials(trials)
        return memory.ask(distributions).params

    def _id(self, number: int) -> int:
        study = self._storage.get_study_id_from_name(_NAME)
        return self._storage.get_trial_id_from_study_id_trial_number(study, number)

    def _check_identity(self, identity: Mapping[str, str]) -> None:
        original = self._study.user_attrs.get(_IDENTITY)
        if original is None:
            self._study.set_user_attr(_IDENTITY, dict(identity))
            return
        if not isinstance(original, dict):
            raise _no_study(self._folder / DATABASE, f"its settings are {str(original)[:100]}")
        for what in {**original, **identity}:
            if original.get(what) != identity.get(what):
                was, now = (str(found.get(what, "absent"))[:200] for found in (original, identity))
                raise OtherStudyError(
                    f"{self._folder} is a study with other settings: {what}: found {now}, expected {was}\n"
                    "Restore it, or start another study with --run_name NAME",
                    what,
                )


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file."""
    if not path.exists():
        return False
    lock = FileLock(path, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        return True
    lock.release()
    return False


def _check_database(path: Path) -> None:
    """Raise ValueError if a file exists that is no SQLite database or is corrupt."""
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(path, timeout=_WAIT)) as connection:
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:  # locked, or not to be opened: the file may be whole
        raise ValueError(
            f"{path} cannot be read: {error}\nIs another program using it? Are you allowed to read and write it?"
        ) from error
    except sqlite3.Error as error:
        result = str(error)
    if result != "ok":
        raise _no_study(path, result)


def _no_study(path: Path, found: str) -> ValueError:
    return ValueError(
        f"{path}: found no study of a sweep: {' '.join(found.split())[:300]}\n"
        "Restore the file, or start another study with --run_name NAME"
    )


def _sampler(sampler: Sampler, seed: int) -> optuna.samplers.BaseSampler:
    if sampler.type == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=sampler.startup_trials)


def _distribution(parameter: Parameter) -> BaseDistribution:
    if parameter.kind == "categorical":
        return CategoricalDistribution(parameter.values)
    if parameter.kind == "int":
        return IntDistribution(int(parameter.low), int(parameter.high), log=parameter.log, step=parameter.step)
    return FloatDistribution(parameter.low, parameter.high, log=parameter.log)
