"""Lists templates of questions and answers. A slot in braces is a field of the facts, formatted by the notation."""

from datamodules.temporal.timelines.channels import Format
from datamodules.temporal.timelines.text.facts import Direction, Facts, Task

Table = dict[tuple[Task, str], tuple[str, ...]]

_TREND, _BOTTLENECK, _FEASIBILITY, _READOUT = Task.TREND, Task.BOTTLENECK, Task.FEASIBILITY, Task.READOUT

QUESTIONS: dict[Format, Table] = {
    Format.TINY: {
        (_TREND, ""): ("trend of {channel}?",),
        (_BOTTLENECK, ""): ("minimum of {channel}?",),
        (_FEASIBILITY, ""): ("when is {requirement} of {channel} free?",),
        (_READOUT, ""): ("{channel} at {times}?",),
    },
    Format.FULL: {
        (_TREND, ""): (
            "Analyze the trend of the {channel} over the next {steps}. The capacity is {capacity}.",
            "With a capacity of {capacity}, how does the {channel} develop over {steps}, and how fast?",
            "Is the {channel} rising, falling or stable over the {steps} shown? Capacity: {capacity}.",
        ),
        (_BOTTLENECK, ""): (
            "Identify the minimum of the {channel} in this timeline of {steps} (capacity {capacity}).",
            "Find the lowest point of the {channel} within {steps}. The capacity is {capacity}.",
            "The {channel} has a capacity of {capacity}. Locate the bottleneck in these {steps}.",
        ),
        (_BOTTLENECK, "lasting"): (
            "Identify the minimum of the {channel} in this timeline of {steps} (capacity {capacity}), and how long it "
            "lasts.",
            "Find the lowest point of the {channel} within {steps} and its duration. The capacity is {capacity}.",
            "The {channel} has a capacity of {capacity}. Locate the bottleneck in these {steps} and its length.",
        ),
        (_FEASIBILITY, ""): (
            "Can a task that requires {requirement} of the {channel} be scheduled immediately, later or never within "
            "{steps}? The capacity is {capacity}.",
            "A task needs {requirement} of the {channel} (capacity {capacity}). When can it start in these {steps}?",
            "Of a capacity of {capacity}, a job wants {requirement} of the {channel}. Does it fit within {steps}, and "
            "when?",
        ),
        (_READOUT, ""): (
            "Read the {channel} at {times}. The timeline lasts {steps}, the capacity is {capacity}.",
            "What is the {channel} at {times} of these {steps}? Capacity: {capacity}.",
        ),
    },
}

ANSWERS: dict[Format, Table] = {
    Format.TINY: {
        (_TREND, "moving"): ("{channel} is {direction} from {start} to {end}.",),
        (_TREND, "stable"): ("{channel} is {direction} from {start} to {end}.",),
        (_BOTTLENECK, ""): ("{channel} is lowest with {value} at {time}.",),
        (_FEASIBILITY, "now"): ("{verdict}, {channel} is {value}.",),
        (_FEASIBILITY, "later"): ("{verdict}, {channel} is {value} at {time}.",),
        (_FEASIBILITY, "never"): ("{verdict}, {channel} is at most {value}.",),
        (_READOUT, ""): ("{channel} {readings}.",),
    },
    Format.FULL: {
        (_TREND, "moving"): (
            "The {channel} is {pace} {direction} from {start} to {end} over {steps}.",
            "Over {steps}, the {channel} is {pace} {direction}, from {start} at the beginning to {end} at the end.",
            "The {channel} shows a {pace} {direction} trend and goes from {start} to {end}.",
        ),
        (_TREND, "stable"): (
            "The {channel} is {direction}, from {start} to {end} over {steps}.",
            "Over {steps}, the {channel} is {direction}, with {start} at the beginning and {end} at the end.",
            "The {channel} shows a {direction} trend, from {start} to {end}.",
        ),
        (_BOTTLENECK, ""): (
            "The {channel} has its minimum of {value} at {time}.",
            "The bottleneck is at {time}, where the {channel} is down to {value}.",
            "At {time} the {channel} reaches its lowest point with {value}.",
        ),
        (_BOTTLENECK, "lasting"): (
            "The {channel} has its minimum of {value} at {time}. It stays there for {lasts}.",
            "The bottleneck is at {time}, where the {channel} is down to {value}. It lasts for {lasts}.",
            "At {time} the {channel} reaches its lowest point with {value}, for {lasts}.",
        ),
        (_FEASIBILITY, "now"): (
            "{verdict}: the {channel} is {value} at the start.",
            "{verdict}. The {channel} starts with {value}, which is enough.",
        ),
        (_FEASIBILITY, "later"): (
            "{verdict}: the {channel} first suffices at {time} with {value}.",
            "{verdict}. It has to wait until {time}, when the {channel} reaches {value}.",
        ),
        (_FEASIBILITY, "never"): (
            "{verdict}: the {channel} is at most {value}.",
            "{verdict}. The {channel} peaks at {value}, which is too little.",
        ),
        (_READOUT, ""): (
            "The {channel} {readings}.",
            "In this timeline, the {channel} {readings}.",
        ),
    },
}


def question_templates(facts: Facts, format: Format) -> tuple[str, ...]:
    """Return the templates of the question; they do not depend on slots that only the curve determines."""
    return QUESTIONS[format][facts.task, "" if facts.lasts is None else "lasting"]


def answer_templates(facts: Facts, format: Format) -> tuple[str, ...]:
    """Return the templates of the answer."""
    case = "" if facts.lasts is None else "lasting"
    if facts.task == Task.TREND:
        case = "stable" if facts.direction == Direction.STABLE else "moving"
    elif facts.task == Task.FEASIBILITY:
        assert facts.verdict is not None  # set for every feasibility question
        case = facts.verdict.value
    return ANSWERS[format][facts.task, case]
