"""A folder as sentence-transformers saves one, of a small random encoder."""

import json
from pydoc_data.topics import topics

import keras

import keras_posenc as kp


def write(folder):
    """Writes it, with a vocabulary that suits docstrings."""
    keras.utils.set_random_seed(0)
    tokenizer = kp.WordpieceTokenizer.learn(
        topics.values(), 800, normalization="bert", max_length=64, verbose=False
    )
    encoder = kp.TransformerEncoderModel(
        tokenizer.vocabulary_size(),
        d_model=32,
        num_layers=1,
        num_heads=2,
        input_position=kp.PositionEmbedding(512),
        embedding_norm=True,
        name="encoder",
    )
    text = keras.Input((), dtype="string", name="text")
    kp.save_hugging_face(kp.PretrainedModel([text, tokenizer, encoder]), folder)
    modules = [
        {"type": f"sentence_transformers.models.{kind}", "path": path}
        for kind, path in (
            ("Transformer", ""),
            ("Pooling", "1_Pooling"),
            ("Normalize", "2_Normalize"),
        )
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = folder / "1_Pooling" / "config.json"
    pooling.write_text('{"pooling_mode": "mean"}')
