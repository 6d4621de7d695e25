"""A model without an answer service is refused in the words of both commands, `demo` and `chat`."""

import pytest
from torch import nn

from commands.answers.families.answer_service_registry import family_of


def test_a_model_without_answers_is_refused():
    with pytest.raises(ValueError, match="Linear has no answers for demo and chat; these have: DocumentReader, Image"):
        family_of(nn.Linear(1, 1))
