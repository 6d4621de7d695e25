"""Lists templates of the questions. Every word of a template that only the test uses also occurs in training."""

CAPTION_PROMPT = "describe the picture."

WORDINGS: dict[str, tuple[str, ...]] = {
    "colour_at": ("what colour is the shape at the {place}?", "which colour is at the {place}?"),
    "shape_at": ("what shape is at the {place}?", "which shape is at the {place}?"),
    "thing_at": ("what is at the {place}?", "what colour and shape are at the {place}?"),
    "empty": ("is the {place} empty?", "is there nothing at the {place}?"),
    "count": ("how many shapes are there?", "count the shapes."),
    "count_shape": ("how many {shape}s are there?", "count the {shape}s."),
    "count_colour": ("how many shapes are {colour}?", "count the {colour} shapes."),
    "has_colour": ("is there a {colour} shape?", "is a shape {colour}?"),
    "exists": ("is there a {thing}?", "is a shape a {thing}?"),
    "where": ("where is the {thing}?", "at which place is the {thing}?"),
    "colour_of": ("what colour is the {shape}?", "which colour is the {shape}?"),
    "shape_of": ("what shape is {colour}?", "which shape is {colour}?"),
    "relation": ("is the {thing} {direction} the {other}?", "is there the {thing} {direction} the {other}?"),
}
"""Templates by kind of question."""

UNSEEN_WORDINGS: dict[str, str] = {
    "colour_at": "what is the colour of the shape at the {place}?",
    "shape_at": "what is the shape at the {place}?",
    "thing_at": "which colour and shape is at the {place}?",
    "empty": "is nothing at the {place}?",
    "count": "how many are the shapes?",
    "count_shape": "how many are the {shape}s?",
    "count_colour": "how many {colour} shapes are there?",
    "has_colour": "is a {colour} shape there?",
    "exists": "is a {thing} there?",
    "where": "which place is the {thing} at?",
    "colour_of": "what is the colour of the {shape}?",
    "shape_of": "what is the {colour} shape?",
    "relation": "is a {thing} {direction} the {other}?",
}
