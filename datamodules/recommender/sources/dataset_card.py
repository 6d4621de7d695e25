"""Describes interactions, and their terms of use, for the model card."""

from engine.export.artifacts import GENERATED, DatasetCard

_OWN = "your own interactions. People's choices are personal data: state here on what terms they were given to you."


def dataset_card(dataset: str, where: str, content: str) -> DatasetCard:
    """Describe a data set for the model card of an export.

    Args:
        dataset: option `dataset` of InteractionSequences.
        where: name of the file or folder.
        content: size of the data and the split.
    """
    if dataset == "synthetic":
        return DatasetCard("Lockstep's synthetic marketplace", content, GENERATED)
    if dataset == "files":
        return DatasetCard(where, content, _OWN)
    from datamodules.recommender.sources.movielens import LICENSE

    return DatasetCard(f"MovieLens {dataset}", content, LICENSE.format(name=dataset, readme="in its README") + ".")
