"""Recognizes English and Chinese text with PP-OCRv4 in ONNX Runtime (rapidocr-onnxruntime; Apache 2.0)."""

import logging
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from datamodules.document_qa.ingestion.ocr.recognizer import OcrLine, RecognitionError, Recognizer

if TYPE_CHECKING:
    from PIL.Image import Image


class RapidOCR(Recognizer):
    """Models that are part of the package, with one thread: each worker of the ingestion has a core."""

    def __init__(self) -> None:
        from rapidocr_onnxruntime import RapidOCR

        self._engine = RapidOCR(intra_op_num_threads=1, inter_op_num_threads=1)
        logging.getLogger("RapidOCR").setLevel(logging.ERROR)  # it warns of every page without text

    @override
    def lines(self, picture: "Image") -> list[OcrLine]:
        pixels = np.asarray(picture.convert("RGB"))[:, :, ::-1]  # OpenCV's order of the channels
        try:
            recognized, _ = self._engine(np.ascontiguousarray(pixels))
        except Exception as error:  # noqa: BLE001  (of OpenCV, ONNX Runtime and shapely, for unusual images)
            raise RecognitionError(f"rapidocr failed: {error}") from error
        lines = []
        for corners, text, _ in recognized or ():
            across, down = zip(*corners, strict=True)
            lines.append(OcrLine((min(across), min(down), max(across), max(down)), text))
        return lines
