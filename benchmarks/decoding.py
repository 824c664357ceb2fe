"""Times decoders that write token after token: the third part of `make bench`.

Weights are at random, the search is greedy, and no text ends before it is as
long as asked. All take turns; PyTorch and CTranslate2 run in processes of their
own. A whole run is kept in `RESULTS.md`, `results.json` and a picture.
"""

import contextlib
import functools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _command import PEERS, Kept, Works, machine, parse
from _contest import (
    DIM,
    END,
    FEED_FORWARD,
    HEADS,
    START,
    THREADS,
    US,
    VOCABULARY,
    Contest,
    Peer,
    Size,
    Work,
    take_turns,
)
from _report import picture, report

XLA, AGAIN = f"{US}, XLA", f"{US}, without a cache"
OTHERS = "torch", "ctranslate2"
LAYERS = 6  # of the encoder, and as many of the decoder
SOURCE = STEPS = 32

# Where the time of a token is measured: the first is the number of tokens
# before it, and the last fills a cache of so many slots.
SLOTS = 1024
AT = (0, 128, 256, 512, 768, SLOTS - 16)
RUN = 16  # tokens that are timed together
FLAT = 1.15  # the most that a token at the end may take of one at the start


def main() -> None:
    works: dict[str, Works] = {
        "tokens": tokens,
        "files": files,
        "training": training,
    }
    options = parse(__doc__, [*works, "positions"], rounds=3, peers=OTHERS)
    kept = Kept("decoding", options)
    positions = None
    with contextlib.ExitStack() as stack:
        peers = {
            PEERS[package]: stack.enter_context(Peer(PEERS[package], python))
            for package in OTHERS
            if (python := getattr(options, package))
        }
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(kept.progress)
        contests = kept.contests(works, peers, folder)
        if options.only in "positions":
            contest, positions = kept.once(
                "positions", by_position, options.rounds, kept.progress
            )
            contests.append(contest)
    found = {
        "machine": machine(options),
        "contests": contests,
        "positions": positions,
    }
    if options.to and positions:
        name = picture("decoding", found["machine"]["processor"])
        draw(positions, options.to / name)
    report("decoding", found, options.to)


def tokens(peers: dict[str, Peer], folder: Path) -> Iterator[Contest]:
    """A text of so many tokens, the encoder's work among it."""
    import tensorflow as tf

    ours, theirs = our_generator(LAYERS), hub_model(LAYERS)
    for batch in (1, 32):
        ids = tf.constant(numbers(batch))
        given = {
            "encoder_token_ids": ids,
            "encoder_padding_mask": tf.ones_like(ids),
            # One token, and room for the others.
            "decoder_token_ids": tf.fill((batch, 1 + STEPS), START),
            "decoder_padding_mask": tf.one_hot(
                tf.zeros((batch,), "int32"), 1 + STEPS, dtype="int32"
            ),
        }
        contestants: dict[str, Work] = {}
        for suffix, jit_compile in (("", False), (", XLA", True)):
            graph = tf.function(ours, jit_compile=jit_compile)
            contestants[US + suffix] = functools.partial(graph, ids)
            theirs.compile(sampler="greedy", jit_compile=jit_compile)
            contestants["keras-hub" + suffix] = functools.partial(
                theirs.make_generate_function(), given, stop_token_ids=None
            )
        most = {1: (0.60, 0.35), 32: (0.70, 0.40)}[batch]
        goals = {
            (name, "keras-hub"): ratio
            for name, ratio in zip((US, XLA), most, strict=True)
        }
        size = Size(LAYERS, batch, SOURCE, steps=STEPS)
        for name, peer in peers.items():
            contestants[name] = functools.partial(peer.run, size)
        if "PyTorch" in peers:
            goals[XLA, "PyTorch"] = 1.00
        yield Contest(
            f"a token of {batch} × {STEPS}, {LAYERS} + {LAYERS} blocks",
            contestants,
            goals,
            parts=STEPS,
        )


def files(peers: dict[str, Peer], folder: Path) -> Iterator[Contest]:
    """Smaller models, as phones have them, from files."""
    import onnxruntime
    from ai_edge_litert.interpreter import Interpreter

    import keras_posenc as kp

    generator = our_generator(2, dim=256)
    silent = {"verify": False, "verbose": False}
    path = kp.export_litert(generator, folder / "decoder.tflite", **silent).path
    interpreter = Interpreter(str(path), num_threads=THREADS)
    litert = interpreter.get_signature_runner("serving_default")
    ids = numbers(1)
    contestants = {"LiteRT": lambda: litert(ids=ids)}
    goals = {}
    try:
        path = kp.export_onnx(generator, folder / "decoder.onnx", **silent).path
    except ValueError as error:
        print(f"No ONNX file: {error}")
    else:
        session = onnxruntime.InferenceSession(path)
        contestants["ONNX Runtime"] = lambda: session.run(None, {"ids": ids})
        goals["LiteRT", "ONNX Runtime"] = 1.15
    yield Contest(
        f"a token of 1 × {STEPS} from a file, 2 + 2 blocks of 256",
        contestants,
        goals,
        parts=STEPS,
    )


def training(peers: dict[str, Peer], folder: Path) -> Iterator[Contest]:
    """Forward, backward and Adam, with targets known."""
    from keras_posenc.training import TokenCrossentropy

    batch, longest = 32, 64
    # Of 8 to all tokens, drawn evenly.
    rng = np.random.default_rng(0)
    source, target = (
        np.where(
            np.arange(longest) < rng.integers(8, longest + 1, (batch, 1)),
            numbers(batch, longest, seed),
            0,
        )
        for seed in (1, 2)
    )
    inputs = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    given = {
        US: {"source": source, "target": inputs},
        "keras-hub": {
            "encoder_token_ids": source,
            "encoder_padding_mask": (source != 0).astype("int32"),
            "decoder_token_ids": inputs,
            "decoder_padding_mask": (inputs != 0).astype("int32"),
        },
    }
    models = {US: our_model(LAYERS), "keras-hub": hub_model(LAYERS)}
    contestants = {}
    for name, model in models.items():
        model.compile(
            "adam",
            TokenCrossentropy(),
            weighted_metrics=None,  # keras-hub has some by default
            jit_compile=False,
        )
        contestants[name] = functools.partial(
            model.train_on_batch, given[name], target, return_dict=True
        )
    fill = np.mean([source != 0, target != 0])
    yield Contest(
        f"a training step, {LAYERS} + {LAYERS} blocks, {batch} × {longest}, "
        f"{fill:.0%} filled",
        contestants,
        {(US, "keras-hub"): 0.75},
    )


def by_position(rounds: int, progress: Any) -> tuple[Any, Any]:
    """What a token takes by how many are before it: a curve for each loop."""
    import tensorflow as tf

    layers = 2
    model = our_model(layers)
    source = tf.constant(numbers(1))
    ids = tf.constant(numbers(1, SLOTS))

    def write(first: Any, cache: Any) -> Any:
        def step(index: Any, last: Any, cache: Any) -> Any:
            logits, cache = model.call_with_cache(last, cache)
            return index + 1, tf.math.top_k(logits[:, 0], 1)[1], cache

        return tf.while_loop(
            lambda index, *_: index < RUN, step, (0, first, cache)
        )[1]

    def again(ids: Any) -> Any:
        logits = model({"source": source, "target": ids})
        return tf.math.top_k(logits[:, -1], 1)[1]

    graph, xla = tf.function(write), tf.function(write, jit_compile=True)
    dynamic = [tf.TensorSpec((1, None), tf.int32)]
    whole = tf.function(again, input_signature=dynamic)
    empty = model.build_cache(source, SLOTS)
    prefill = tf.function(model.call_with_cache)
    works: dict[tuple[str, int], Work] = {}
    for before in AT:
        cache = prefill(ids[:, :before], empty)[1] if before else empty
        for name, loop in ((US, graph), (XLA, xla)):
            works[name, before] = functools.partial(loop, ids[:, :1], cache)
        works[AGAIN, before] = functools.partial(whole, ids[:, : before + 1])
    names = {f"{name} after {before}": name for name, before in works}
    times = take_turns(
        dict(zip(names, works.values(), strict=True)),
        rounds,
        track=functools.partial(progress.track, description="positions"),
    )
    curves: dict[str, list[float]] = {US: [], XLA: [], AGAIN: []}
    for key, name in names.items():
        curves[name].append(times[key] / (1 if name == AGAIN else RUN))
    work = f"a token, {layers} + {layers} blocks, cache of {SLOTS}"
    contest = {
        "work": work,
        "milliseconds": {},
        "peaks": {},
        "goals": [
            {
                "of": f"{name}: after {AT[-1]} / after {AT[0]} tokens",
                "found": curves[name][-1] / curves[name][0],
                "at most": FLAT,
            }
            for name in (US, XLA)
        ],
    }
    return contest, {"work": work, "before": AT, "curves": curves}


def our_model(layers: int, dim: int = DIM) -> Any:
    import keras_posenc as kp

    return kp.Transformer(
        VOCABULARY,
        d_model=dim,
        num_layers=layers,
        num_heads=HEADS,
        intermediate_dim=FEED_FORWARD * dim // DIM,
        activation="gelu",
    )


def our_generator(layers: int, dim: int = DIM) -> Any:
    import keras_posenc as kp

    model = our_model(layers, dim)
    generator = kp.Generator(
        model, max_length=STEPS, start_id=START, end_ids=()
    )
    return generator.from_ids


def hub_model(layers: int) -> Any:
    """keras-hub's BART, which is as large but for learned positions."""
    import keras_hub

    backbone = keras_hub.models.BartBackbone(
        vocabulary_size=VOCABULARY,
        num_layers=layers,
        num_heads=HEADS,
        hidden_dim=DIM,
        intermediate_dim=FEED_FORWARD,
        max_sequence_length=128,
    )
    return keras_hub.models.BartSeq2SeqLM(backbone, preprocessor=None)


def numbers(batch: int, length: int = SOURCE, seed: int = 0) -> Any:
    """Ids that are neither padding nor symbols of a sentence."""
    rng = np.random.default_rng(seed)
    return rng.integers(END + 1, VOCABULARY, (batch, length)).astype("int32")


# Of the palette of Okabe and Ito, which the color-blind tell apart.
STYLES = {
    US: ("#0072B2", "o", "-"),
    XLA: ("#009E73", "^", "-."),
    AGAIN: ("#D55E00", "s", "--"),
}


def draw(positions: dict[str, Any], path: Path) -> None:
    """What a token takes, by how many are before it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, times in positions["curves"].items():
        color, marker, line = STYLES[name]
        axes.plot(
            positions["before"],
            times,
            color=color,
            marker=marker,
            linestyle=line,
            label=name,
        )
    axes.set(xlabel="tokens before it", ylabel="time of a token (ms)")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
