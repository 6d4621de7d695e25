"""Makes the encoder to export: its item vectors are constants that include the features."""

from lightning_modules.recommender.features.feature_encoder import FeatureEncoder
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder


def encoder_to_export(
    encoder: SequenceEncoder, features: FeatureEncoder | None, settings: ArchitectureSettings
) -> SequenceEncoder:
    """Return an encoder whose item vectors are constants for all recommendable items, features included.

    Args:
        encoder: trained encoder, whose input and output share the item vectors.
        features: features of the items; None: the encoder is returned as it is.
        settings: settings of the encoder.
    """
    if features is None:
        return encoder
    vectors = features.item_vectors(encoder.items.weight)
    exported = SequenceEncoder(len(vectors) - 1, encoder.max_length, settings)
    # A graph and other programs look up vectors; they need no tables of features.
    exported.load_state_dict({**encoder.state_dict(), "items.weight": vectors})
    return exported.to(vectors.device).train(encoder.training)
