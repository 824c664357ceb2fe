"""Asks a text task's file in MediaPipe, in a process of its own.

The request is JSON, and so is the answer on standard output.
"""

import json
from typing import Any


def prepare() -> None:
    """Imports MediaPipe ahead of time."""
    from mediapipe.tasks.python import text  # noqa: F401


def main(request: str) -> None:
    """Prints the answer."""
    print(json.dumps(_answer(json.loads(request))))


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """For each text its vector, or its scores, with the labels of these."""
    from mediapipe.tasks.python import text
    from mediapipe.tasks.python.core.base_options import BaseOptions

    base = BaseOptions(model_asset_path=request["path"])
    if request["task"] == "text_embedder":
        embedder = text.TextEmbedderOptions(base_options=base)
        with text.TextEmbedder.create_from_options(embedder) as task:
            return {
                "answers": [
                    task.embed(each).embeddings[0].embedding.tolist()
                    for each in request["texts"]
                ]
            }
    classifier = text.TextClassifierOptions(base_options=base)
    with text.TextClassifier.create_from_options(classifier) as task:
        heads = [
            sorted(
                task.classify(each).classifications[0].categories,
                key=lambda category: category.index,
            )
            for each in ("", *request["texts"])
        ]
    return {
        "labels": [category.category_name for category in heads[0]],
        "answers": [[each.score for each in head] for head in heads[1:]],
    }
