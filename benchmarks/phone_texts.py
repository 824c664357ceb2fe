"""Times a sentence encoder in the runtimes of phones, from texts to vectors.

    python benchmarks/phone_texts.py all-MiniLM-L6-v2

On this processor, one text of 16 or 128 tokens at a time: LiteRT-LM's embedding
engine, MediaPipe's text embedder, and our LiteRT file, which takes the text's
ids and has no tokenizer. Takes about three minutes, and needs
`pip install '.[checkpoints,litertlm,mediapipe]'`.
"""

import argparse
import contextlib
import functools
import importlib.metadata
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _command import above_0, machine
from _contest import THREADS, Contest, Work, hold
from _report import report

LENGTHS = (16, 128)
LITERT, MEDIAPIPE = "LiteRT, int8, ids", "MediaPipe, int8"
PACKAGES = {"LiteRT-LM, int8": "int8", "LiteRT-LM, float32": None}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=above_0, default=30, metavar="N")
    parser.add_argument("--to", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    from rich.progress import Progress

    with contextlib.ExitStack() as stack:
        exports = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        works = list(encoders(options.folder, exports, stack))
        progress = stack.enter_context(Progress())
        contests = [hold(each, options.rounds, progress) for each in works]
    facts = machine(options)
    for name in ("ai-edge-litert", "litert-lm-api", "mediapipe"):
        facts[name] = importlib.metadata.version(name)
    found = {"machine": facts, "contests": contests}
    report("phone_texts", found, options.to)


def encoders(
    folder: Path, exports: Path, stack: contextlib.ExitStack
) -> Iterator[Contest]:
    """Exports the encoder, and yields one contest for each length."""
    import litert_lm
    from ai_edge_litert.interpreter import Interpreter
    from mediapipe.tasks.python import text as tasks
    from mediapipe.tasks.python.core.base_options import BaseOptions

    import keras_posenc as kp

    model = kp.load_hugging_face(folder, verbose=False)
    by_ids = kp.load_hugging_face(folder, from_ids=True, verbose=False)
    silent = {"verify": False, "verbose": False}
    file = kp.export_litert(
        by_ids, exports / "ids.tflite", quantization="int8", **silent
    ).path
    runner = Interpreter(str(file), num_threads=THREADS).get_signature_runner(
        "serving_default"
    )
    (named,) = runner.get_input_details()
    engines = {
        name: stack.enter_context(
            litert_lm.EmbeddingEngine(
                str(
                    kp.export_litertlm(
                        model,
                        exports / f"{quantization}.litertlm",
                        lengths=LENGTHS,
                        quantization=quantization,
                        **silent,
                    ).path
                ),
                backend=litert_lm.Backend.CPU(thread_count=THREADS),
                cache_dir=":nocache",
            )
        )
        for name, quantization in PACKAGES.items()
    }
    task = kp.export_litert(
        model,
        exports / "task.tflite",
        task="text_embedder",
        quantization="int8",
        **silent,
    ).path
    options = tasks.TextEmbedderOptions(
        base_options=BaseOptions(model_asset_path=str(task))
    )
    embedder = stack.enter_context(
        tasks.TextEmbedder.create_from_options(options)
    )
    for length in LENGTHS:
        text = " ".join("a" * (length - 2))  # [CLS], [SEP] are around it
        ids = np.array(model.embedder_parts().ids([text]), "int32")
        assert ids.shape[-1] == length
        contestants: dict[str, Work] = {
            **{
                name: functools.partial(engine.compute_embedding, text)
                for name, engine in engines.items()
            },
            MEDIAPIPE: functools.partial(embedder.embed, text),
            LITERT: functools.partial(runner, **{named: ids}),
        }
        yield Contest(f"a text of {length} tokens", contestants, {})


if __name__ == "__main__":
    main()
