"""Runs a text task's file in MediaPipe."""

from typing import Any

from keras_posenc_worker.formats import without_its_init
from keras_posenc_worker.process import forbid


def main(path: str, task: str, texts: list[str]) -> dict[str, Any]:
    """Returns each text's vector, or its scores and their labels."""
    forbid("tensorflow")
    # These import Matplotlib and tasks for images and sounds, for seconds.
    for package in ("mediapipe", "mediapipe.tasks.python"):
        without_its_init(package)
    from mediapipe.tasks.python import text
    from mediapipe.tasks.python.core.base_options import BaseOptions

    base = BaseOptions(model_asset_path=path)
    if task == "text_embedder":
        embedder = text.TextEmbedderOptions(base_options=base)
        with text.TextEmbedder.create_from_options(embedder) as running:
            return {
                "outputs": [
                    running.embed(each).embeddings[0].embedding.tolist()
                    for each in texts
                ]
            }
    classifier = text.TextClassifierOptions(base_options=base)
    with text.TextClassifier.create_from_options(classifier) as running:
        heads = [
            sorted(
                running.classify(each).classifications[0].categories,
                key=lambda category: category.index,
            )
            for each in ("", *texts)
        ]
    return {
        "labels": [category.category_name for category in heads[0]],
        "outputs": [[each.score for each in head] for head in heads[1:]],
    }
