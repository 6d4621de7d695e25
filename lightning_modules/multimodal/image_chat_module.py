"""Learns chats about images; what it has learnt is a Llava of transformers."""

import logging
from pathlib import Path

from datamodules.multimodal.batch import Examples
from engine.exported import Exported
from lightning_modules.multimodal import llava_export
from lightning_modules.multimodal.card import described_llava, licences
from lightning_modules.multimodal.chat_module import ChatModule
from lightning_modules.multimodal.export import without_progress_bars
from lightning_modules.multimodal.image_module import ImageModule

log = logging.getLogger("lockstep")


class ImageChatModule(ImageModule, ChatModule):
    """Chats with Images in them."""

    features_name = "image_tokens"

    def feature_flops(self, examples: Examples) -> int:
        return len(examples.modality.pixels) * self.flops_of_a_view

    def export(self, folder: Path, merge: bool) -> Exported:
        """Writes a LlavaForConditionalGeneration of transformers where the parts allow it, else the parts."""
        tokenizer = self.data.tokenizer
        parts = llava_export.Parts(
            self.encoder, self.projector, self.language_model, self.image_layout, tokenizer.placeholder, self.data.fit
        )
        obstacles = llava_export.obstacles(parts, merge)
        if obstacles:
            log.info("as parts, not as a LlavaForConditionalGeneration of transformers: %s", "; ".join(obstacles))
            return super().export(folder, merge)
        log.info("as a LlavaForConditionalGeneration of transformers")
        answering = llava_export.Answering(tokenizer.end_of_turn, tokenizer.pad, self.max_new_tokens)
        without_progress_bars()
        llava_export.write(parts, folder, self.data.exported_tokenizer(), answering)
        return described_llava(type(self).__name__, licences(self.pretrained))
