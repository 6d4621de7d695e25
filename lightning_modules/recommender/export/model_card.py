"""Writes the model card of an exported recommender."""

from datamodules.recommender.batch import EventEncoding
from engine.export.artifacts import ExportedModel
from lightning_modules.recommender.export.onnx_export import Recommender

_NAMES = {"standard": "SASRec", "time_interval": "TiSASRec", "hstu": "HSTU", "fuxi": "FuXi-alpha", "gru": "GRU4Rec"}
_SOURCES = {
    "standard": 'SASRec (Kang and McAuley, "Self-Attentive Sequential Recommendation", ICDM 2018)',
    "time_interval": 'TiSASRec (Li, Wang and McAuley, "Time Interval Aware Self-Attention for Sequential '
    'Recommendation", WSDM 2020)',
    "hstu": 'HSTU (Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for '
    'Generative Recommendations", ICML 2024)',
    "fuxi": 'FuXi-alpha (Ye et al., "FuXi-alpha: Scaling Recommendation Model with Feature Interaction Enhanced '
    'Transformer", arXiv 2502.03036)',
    "gru": 'GRU4Rec (Hidasi and Karatzoglou, "Recurrent Neural Networks with Top-k Gains for Session-based '
    'Recommendations", CIKM 2018)',
    "mhc": 'manifold-constrained hyper-connections (Xie et al., "mHC: Manifold-Constrained Hyper-Connections", '
    "arXiv 2512.24880)",
    "gated": 'LiGR layers (Borisyuk et al., "From Features to Transformers: Redefining Ranking for Scalable Impact", '
    "arXiv 2502.03417)",
}
_FILES = {
    "model.onnx": "the scoring graph, for onnxruntime in any language",
    "model.safetensors": "the encoder's weights",
    "config.json": "how the encoder is built; inputs and outputs of the graph",
    "items.json": "the items' own ids (and titles) and their numbers of training events, `popularity`; item 1 is the "
    "first",
}
_INPUTS = {
    "items": "int64 [batch, length]: numbers of the events' items, the oldest first, of which the last `max_length` "
    "count; shorter rows are filled with 0 on the right",
    "times": "int64 [batch, length]: seconds of these events; shorter rows repeat their last one",
    "time_scale": "int64 [batch]: the smallest gap in seconds between two events of the whole history that is not 0; "
    "1 if there is none",
    "request_time": "int64 [batch]: seconds of the request, not before the last event",
    "event_codes": "int64 [batch, length, columns]: categories of the events, by their numbers from 1 in the lists of "
    "`event_features` in config.json; 0 where unknown, missing or filled",
    "event_numbers": "float32 [batch, length, columns]: numbers of the events, as (x - mean) / deviation by "
    "`event_features` in config.json, limited to -5 and 5; NaN where missing or filled",
    "seen": "int64 [batch, any]: items that are not to be recommended, filled with 0",
}
_REQUEST = 1767232800
_REQUEST_TIME = (
    " It knows when the recommendation is asked for, which is given as `request_time`: its metrics, "
    "`request_time/...`, are not comparable with those of models that know the past alone."
)
_USAGE = """Without Lockstep, with `pip install onnxruntime numpy`, in this directory:

```python
import json
from pathlib import Path

import numpy as np
import onnxruntime

settings = json.loads(Path("config.json").read_text(encoding="utf-8"))
ids = json.loads(Path("items.json").read_text(encoding="utf-8"))["ids"]
numbers = {{item: number for number, item in enumerate(ids, start=1)}}
session = onnxruntime.InferenceSession("model.onnx")

history = [({first!r}, 1767225600), ({second!r}, 1767229200)]  # own ids and seconds, the oldest first
items = np.array([[numbers[item] for item, _ in history]])
times = np.array([[time for _, time in history]])
gaps = np.diff(times[0])
last = settings["max_length"]
inputs = {{
    "items": items[:, -last:],
    "times": times[:, -last:],
    "time_scale": np.array([gaps[gaps > 0].min() if (gaps > 0).any() else 1]),
{request_input}{feature_inputs}    "seen": items,
}}
inputs = {{name: inputs[name] for name in settings["inputs"]}}
top_items, top_scores = session.run(["top_items", "top_scores"], inputs)
recommended = [
    (ids[item - 1], float(score)) for item, score in zip(top_items[0], top_scores[0]) if score > -np.inf
]
print(recommended)
```

With Lockstep:

```python
from lightning_modules.recommender.export.runtime import load_recommender

model = load_recommender(".")
print(model.recommend(items=[{first!r}, {second!r}], times=[1767225600, 1767229200]{request_argument}))
```

Inputs of the graph:

{inputs}

Outputs: `scores` float32 [batch, items + 1], by item number (column 0 is -inf); `top_items` int64 and `top_scores`
float32 [batch, {top_k}], {competition}the best first (-inf where there are no more). A row without events gets scores
that mean nothing; recommend it the items with the largest `popularity` of items.json, as `recommend` does."""


def model_card(recommender: Recommender, inputs: list[str], checked: str) -> ExportedModel:
    """Return the content of the model card.

    Args:
        recommender: exported recommender.
        inputs: names of the graph's inputs.
        checked: sentence on the comparison of graph and encoder.
    """
    architecture, catalog = recommender.architecture, recommender.catalog
    attention, residual = architecture.attention, architecture.residual
    sources, title = [_SOURCES[attention]], _NAMES[attention]
    # `gated_mhc` has both.
    for option, name in (("gated", "LiGR layers"), ("mhc", "hyper-connections")):
        if option in residual.split("_"):
            title += f" {'with' if len(sources) == 1 else 'and'} {name}"
            sources.append(_SOURCES[option])
    with_request = architecture.request_time
    title += ", with request time" * with_request
    # Real ids, so that the example of the card runs as it is; a catalog of one item gives it twice.
    example = [str(item) for item in catalog.item_ids[:2]]
    usage = _USAGE.format(
        first=example[0],
        second=example[-1],
        inputs="\n".join(f"- `{name}`: {_INPUTS[name]}" for name in inputs),
        top_k=min(recommender.top_k, catalog.num_items),
        competition="without what is in `seen`, " if recommender.remove_seen else "",
        request_input=f'    "request_time": np.array([{_REQUEST}]),\n' if with_request else "",
        feature_inputs=_feature_inputs(recommender.event_features),
        request_argument=f", request_time={_REQUEST}" if with_request else "",
    )
    scored_items = "the items of its training data" if recommender.feature_columns is None else "these items"
    content = (
        f"A sequential recommender: from the last {catalog.max_length} events of a user it scores "
        f"{catalog.num_items:,} items as the next item. Its network is {' with '.join(sources)}. It scores "
        f"{scored_items} only, by what users with similar histories in the data chose next. It has not been "
        "evaluated for unequal treatment of users or of items."
    )
    if recommender.feature_columns is not None:
        content += f" The vectors of items include those of their features ({recommender.feature_columns})."
    if recommender.num_cold_items:
        content += (
            f" {recommender.num_cold_items:,} of the items occur in no interaction of the data and are scored by their "
            "features alone."
        )
    if recommender.event_features is not None:
        names = [*recommender.event_features.categories, *recommender.event_features.numbers]
        content += f" It reads features of the events: {', '.join(names)}."
    if with_request:
        content += _REQUEST_TIME
    tags = "recommendation", _NAMES[attention].lower()
    return ExportedModel(title, content, _FILES, usage, library="onnx", tags=tags, checked=checked)


def _feature_inputs(encoding: EventEncoding | None) -> str:
    """Return the lines of the usage that give the features of two events, all missing."""
    if encoding is None:
        return ""
    return (
        f'    "event_codes": np.zeros((1, 2, {len(encoding.categories)}), np.int64),  # unknown categories\n'
        f'    "event_numbers": np.full((1, 2, {len(encoding.numbers)}), np.nan, np.float32),  # missing numbers\n'
    )
