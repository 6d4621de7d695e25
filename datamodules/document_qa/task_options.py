"""Checks which options of document QA suit the task: to answer questions, or to retrieve pages."""

from collections.abc import Sequence
from typing import Literal

from datamodules.document_qa.prompt.prompt import AnswerWith
from datamodules.document_qa.types.question import SplitName
from datamodules.document_qa.views.ablation import Ablation

Task = Literal["answer", "retrieve"]


def check_task_options(
    task: Task,
    *,
    answer_with: AnswerWith,
    list_options: bool,
    option_orders: int,
    questions_per_chat: int,
    ablate: Ablation,
    augments: bool,
    rank: Sequence[SplitName] | None,
) -> None:
    """Check options of DocumentDataModule, which describes them.

    Raises:
        ValueError: an option does not suit the task, or has no effect with another option.
    """
    if not list_options and (answer_with == "letter" or option_orders > 1):
        raise ValueError(
            "data.init_args.list_options is false, so options have neither letters nor an order; remove "
            "data.init_args.answer_with letter and data.init_args.option_orders above 1"
        )
    if task == "retrieve" and ablate == "question_only":
        raise ValueError("data.init_args.ablate question_only leaves no page for data.init_args.task retrieve")
    if task == "retrieve" and augments:
        raise ValueError(
            "data.init_args.augmentation applies to data.init_args.task answer only, but the task is retrieve"
        )
    if task == "retrieve" and not list_options:
        raise ValueError(
            "data.init_args.list_options false applies to data.init_args.task answer only; with task retrieve a "
            "question is always encoded with its options"
        )
    if task == "retrieve" and questions_per_chat > 1 and "train" in (rank or ()):
        raise ValueError(
            f"data.init_args.rank contains train, and data.init_args.questions_per_chat is {questions_per_chat}: "
            "only the first question of each chat would be ranked; set data.init_args.questions_per_chat to 1"
        )
    if task == "answer" and rank is not None:
        raise ValueError("data.init_args.rank applies to data.init_args.task retrieve only, but the task is answer")
