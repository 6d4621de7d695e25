"""Checkpoints. The reference is the content that was saved: each zip member has a checksum, so a change is refused."""

import io
import warnings
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz.mutations.byte_strings import mutate_bytes
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown


class Checkpoints(Reader):
    """Content of a checkpoint that verifies and is Lightning's, with its tensors as lists."""

    slow_tier: ClassVar[int] = 100

    def seeds(self) -> Sequence[Input]:
        return [Input("checkpoints/last.ckpt", saved())]

    def restructure(self, random: Random, data: bytes) -> bytes:
        """Mutate a member of the archive and write it with the right checksum."""
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = [(name, archive.read(name)) for name in archive.namelist()]
        except Exception:  # noqa: BLE001  (a mutated archive can raise anything)
            return mutate_bytes(random, data)
        index, other, kind = random.randrange(len(members)), random.randrange(len(members)), random.randrange(6)
        name, content = members[index]
        if kind == 0:
            del members[index]
        elif kind == 1:
            members[index] = (
                random.choice((name.upper(), "../x", "/etc/x", "", name + "/", members[other][0])),
                content,
            )
        elif kind == 2:
            members[index] = (name, random.choice((b"", content[: len(content) // 2], content * 2)))
        elif kind == 3:
            members[index], members[other] = (name, members[other][1]), (members[other][0], content)
        else:
            members[index] = (name, mutate_bytes(random, content))
        file = io.BytesIO()
        packing = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        with warnings.catch_warnings(), zipfile.ZipFile(file, "w", packing) as archive:
            warnings.simplefilter("ignore")  # of names that occur twice
            for name, content in members:
                archive.writestr(zipfile.ZipInfo(name), content, packing)
        return file.getvalue()

    def read(self, path: Path) -> Any:
        from engine.checkpointing.checkpoint_schema import require_checkpoint
        from engine.checkpointing.discovery import saved_at
        from engine.checkpointing.verification import load_lazily, verify

        verify(path)
        content = load_lazily(path)
        require_checkpoint(content, path)
        saved_at(path)
        return _plain(content)

    def reference(self, path: Path) -> Any:
        import torch

        members = _members(saved())
        try:
            found = _members(path.read_bytes())
        except Exception as error:  # noqa: BLE001  (see above)
            raise InvalidInput(f"zipfile finds {error!r}"[:200]) from error
        needed = {name: content for name, content in members.items() if "/data" in name}
        if {name: found.get(name) for name in needed} == needed:
            return _plain(torch.load(io.BytesIO(saved()), weights_only=True))
        # Also where a tensor has fewer bytes than its pickle states: torch then reads on in the same file. No damage
        # leads to that, as the checksums hold.
        raise Unknown("its checksums are right, so it is another checkpoint")

    def names_location(self, message: str, data: bytes) -> bool:
        return True


READERS = {"checkpoints": Checkpoints}


@cache
def saved() -> bytes:
    import torch

    ready, whole = {"ready": 3, "completed": 3}, {"ready": 3, "started": 3, "processed": 3, "completed": 3}
    progress = {"total": ready, "current": ready}
    content = {
        "state_dict": {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.zeros(2, dtype=torch.float64)},
        "optimizer_states": [
            {"state": {0: {"step": torch.tensor(3), "exp_avg": torch.ones(2, 3)}}, "param_groups": [{"params": [0, 1]}]}
        ],
        "lr_schedulers": [{"last_epoch": 3}],
        "loops": {
            "fit_loop": {
                "epoch_loop.batch_progress": {"total": whole, "current": whole, "is_last_batch": True},
                "epoch_loop.automatic_optimization.optim_progress": {
                    "optimizer": {"step": progress, "zero_grad": {"total": whole, "current": whole}}
                },
                "epoch_progress": {"total": whole, "current": whole},
            }
        },
        "global_step": 3,
        "epoch": 1,
        "pytorch-lightning_version": "2.6.6",
        "saved_at": 1_700_000_000.0,
    }
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if len(set(archive.namelist())) < len(archive.namelist()):
            raise ValueError("a name occurs twice")
        return {name.partition("/")[1] + name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
