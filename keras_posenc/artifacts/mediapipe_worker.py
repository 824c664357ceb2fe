"""Asks a text task's file in MediaPipe, in a process of its own.

Self-contained: `python -P mediapipe_worker.py REQUEST`, where REQUEST is JSON;
the answer is JSON on standard output.
"""

import json
import sys
from typing import Any


def main(request: dict[str, Any]) -> list[list[float]]:
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


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
