"""Asks a text task's file in MediaPipe, in a process of its own.

Self-contained. The request is JSON, and so is the answer on standard output.
"""

import json
from typing import Any


def prepare() -> None:
    """Imports MediaPipe ahead of time."""
    from mediapipe.tasks.python import text  # noqa: F401


def main(request: str) -> None:
    """Prints the answer."""
    print(json.dumps(_answer(json.loads(request))))


def _answer(request: dict[str, Any]) -> list[list[float]]:
    """The scores of each text in the order of the classes, or its vector."""
    from mediapipe.tasks.python import text
    from mediapipe.tasks.python.core.base_options import BaseOptions

    base = BaseOptions(model_asset_path=request["path"])
    if request["task"] == "text_embedder":
        embedder = text.TextEmbedderOptions(base_options=base)
        with text.TextEmbedder.create_from_options(embedder) as task:
            return [
                task.embed(each).embeddings[0].embedding.tolist()
                for each in request["texts"]
            ]
    classifier = text.TextClassifierOptions(base_options=base)
    with text.TextClassifier.create_from_options(classifier) as task:
        heads = [
            task.classify(each).classifications[0] for each in request["texts"]
        ]
    return [
        [c.score for c in sorted(head.categories, key=lambda c: c.index)]
        for head in heads
    ]
