"""Lists the templates of manuals and questions.

Test-only wordings consist of words that also occur in training. In prose, a fact follows the part number that it is
about, as in most manuals.
"""

PROSE: dict[str, tuple[str, ...]] = {
    "material": (
        "Part {number} is of {value}.",
        "Part {number} consists of {value}.",
        "Part {number} is made of {value}.",
    ),
    "function": (
        "Part {number} is for {value}.",
        "Part {number} serves for {value}.",
        "Part {number} is used for {value}.",
    ),
}
"""Sentences of the text page, by attribute of a part."""

HEADINGS: dict[str, str] = {
    "text": "Description of the {title}",
    "table": "Data of the {title}",
    "figure": "Drawing of the {title}",
}
"""Headings, by kind of page."""

WORDINGS: dict[str, tuple[str, ...]] = {
    "material": (
        "In the {title}, what is the material of part {number}?",
        "In the {title}, which material has part {number}?",
    ),
    "function": (
        "In the {title}, what is the function of part {number}?",
        "In the {title}, which function has part {number}?",
    ),
    "name": ("In the {title}, what is the name of part {number}?", "In the {title}, which name has part {number}?"),
    "value": (
        "In the {title}, what is the {column} of part {number}?",
        "In the {title}, which {column} has part {number}?",
    ),
    "colour_at": (
        "In the {title}, what is the colour at the {place}?",
        "In the {title}, which colour is at the {place}?",
    ),
    "shape_at": ("In the {title}, what is the shape at the {place}?", "In the {title}, which shape is at the {place}?"),
    "number_at": (
        "In the {title}, what is the number at the {place}?",
        "In the {title}, which number is at the {place}?",
    ),
    "place_of": ("In the {title}, what is the place of part {number}?", "In the {title}, where is part {number}?"),
    "relation": (
        "In the {title}, where is part {number} relative to part {other}?",
        "In the {title}, relative to part {other}, where is part {number}?",
    ),
    "value_at": (
        "In the {title}, what is the {column} of the part at the {place}?",
        "In the {title}, which {column} has the part at the {place}?",
    ),
    "material_at": (
        "In the {title}, what is the material of the part at the {place}?",
        "In the {title}, which material has the part at the {place}?",
    ),
    "material_of_name": (
        "In the {title}, what is the material of the {name}?",
        "In the {title}, which material has the {name}?",
    ),
    "number_of_name": (
        "In the {title}, what is the number of the {name}?",
        "In the {title}, which number has the {name}?",
    ),
    "drawing": ("Describe the drawing of the {title}.",),
}
"""Wordings, by kind of question."""

UNSEEN_WORDINGS: dict[str, str] = {
    "material": "In the {title}, which is the material of part {number}?",
    "function": "In the {title}, which is the function of part {number}?",
    "name": "In the {title}, which is the name of part {number}?",
    "value": "In the {title}, which is the {column} of part {number}?",
    "colour_at": "In the {title}, what colour is at the {place}?",
    "shape_at": "In the {title}, what shape is at the {place}?",
    "number_at": "In the {title}, what number is at the {place}?",
    "place_of": "In the {title}, which place has part {number}?",
    "relation": "Relative to part {other}, where is part {number} in the {title}?",
    "value_at": "In the {title}, which is the {column} of the part at the {place}?",
    "material_at": "In the {title}, which is the material of the part at the {place}?",
    "material_of_name": "In the {title}, which is the material of the {name}?",
    "number_of_name": "In the {title}, which is the number of the {name}?",
    "drawing": "Describe the drawing of the {title}.",
}

ON_PAGE = "On page {page}: {question}"
"""A question that mentions the page of its answer."""
