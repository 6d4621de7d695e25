"""What a model card says of interactions, and on what terms they may be used."""

from engine.exported import GENERATED, DataDescription

_OWN = "your own interactions. People's choices are personal data: state here on what terms they were given to you."


def described(dataset: str, where: str, content: str) -> DataDescription:
    """
    Args:
        dataset: as in InteractionSequences.
        where: name of the file or folder.
        content: how much of it there is, and what was held out.
    """
    if dataset == "synthetic":
        return DataDescription("Lockstep's synthetic marketplace", content, GENERATED)
    if dataset == "files":
        return DataDescription(where, content, _OWN)
    from datamodules.recommender.movielens import LICENCE

    return DataDescription(f"MovieLens {dataset}", content, LICENCE.format(name=dataset, readme="in its README") + ".")
