"""Configures FSDP with few tokens in a chunk of scores, so that ranks call heads a different number of times."""

from engine.strategies.fsdp import VerifiedFSDPStrategy
from lightning_modules.multimodal.language import language_model


class ShardedOnCPU(VerifiedFSDPStrategy):
    def setup_environment(self) -> None:
        super().setup_environment()
        language_model._MAX_SCORED = 2
