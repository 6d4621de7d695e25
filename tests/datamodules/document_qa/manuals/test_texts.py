"""Tests the texts that train the built-in tokenizer."""

from datamodules.document_qa.synthetic_manuals import SyntheticManuals
from datamodules.multimodal.synthetic_split import Split


def test_the_tokenizer_is_made_of_manuals_that_no_test_has() -> None:
    data = SyntheticManuals(batch_size=4, test_size=40)
    manuals = data._questions(Split.TEST, 40)
    tested = {chunk.text for index in range(40) for page in manuals.document(0, index).pages for chunk in page.chunks}
    long_texts = [text for text in tested if len(text) > 100]
    read = next(data.texts())
    assert long_texts
    assert not any(text in read for text in long_texts)
