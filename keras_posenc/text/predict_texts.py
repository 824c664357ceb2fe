"""The outputs of a model for a list of texts, by name."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np

from keras_posenc.checks import check_positive_int
from keras_posenc.export.errors import check_model, require_tensorflow_backend
from keras_posenc.export.signatures.from_model import named_outputs
from keras_posenc.export.signatures.labels import LABEL, check_labels

SCORE = "score"


def predict_texts(
    model: keras.Model,
    texts: Iterable[str],
    *,
    labels: Any = None,
    batch_size: int = 32,
    verbose: bool = True,
) -> list[dict[str, Any]]:
    """Runs a model of raw text on a list of texts.

    Args:
        model: A model with one input, strings of shape (batch,) or (batch, 1):
            for example one that starts with a `WordpieceTokenizer`.
        texts: The texts: a list, a NumPy array, a pandas column; not a single
            string.
        labels: The names of a classifier's classes, in the order of its
            scores; for several outputs a dict of such lists by output.
        batch_size: How many texts the model gets at once.
        verbose: Whether to show a progress bar, where there are several
            batches.

    Returns:
        A dict for each text, in their order. It has each output by its name
        (as in an export), as an array without the batch dimension: in
        `(batch, seq, ...)`, `seq` is the longest of the text's batch. `labels`
        add `label`, the class of the highest score, and `score`, that score: a
        str and a float, or arrays `(seq,)` where each token has scores. If
        `labels` is a dict they are `<output>_label` and `<output>_score`.

    Raises:
        ValueError: `texts` are not texts, the model does not take texts, or
            the labels do not fit its outputs.
        RuntimeError: Keras runs on another backend, which has no strings.

    Example:
    >>> import keras
    >>> import keras_posenc as kp
    >>> tokenizer = kp.WordpieceTokenizer.learn(
    ...     ["a fair exam", "an unfair exam"], 40
    ... )
    >>> model = keras.Sequential([
    ...     keras.Input((), dtype="string", name="text"),
    ...     tokenizer,
    ...     keras.layers.Embedding(40, 8, mask_zero=True),
    ...     kp.Pooling1D("mean"),
    ...     keras.layers.Dense(2, activation="softmax", name="scores"),
    ... ])
    >>> (found,) = kp.predict_texts(
    ...     model, ["a fair exam"], labels=["fair", "unfair"]
    ... )
    >>> found["label"] in ("fair", "unfair"), found["scores"].shape
    (True, (2,))
    """
    require_tensorflow_backend("predict_texts")
    check_model(model)
    is_column = _takes_column(model)
    texts = _as_texts(texts)
    batch_size = check_positive_int("batch_size", batch_size)
    if labels is not None:
        check_labels(labels)
    import tensorflow as tf

    batches = range(0, len(texts), batch_size)
    bar = None
    if verbose and len(batches) > 1:
        bar = keras.utils.Progbar(len(texts), unit_name="text")
    found: list[dict[str, Any]] = []
    for begin in batches:
        batch = tf.constant(texts[begin : begin + batch_size])
        if is_column:
            batch = tf.expand_dims(batch, -1)
        outputs = named_outputs(model, model.predict_on_batch(batch))
        added = _labels_of(outputs, labels)
        found += [
            {name: value[row] for name, value in {**outputs, **added}.items()}
            for row in range(len(batch))
        ]
        if bar is not None:
            bar.update(len(found))
    return found


def _takes_column(model: keras.Model) -> bool:
    """Returns whether a model takes texts of shape (batch, 1)."""
    inputs = getattr(model, "inputs", None) or []
    found = [(x.dtype, tuple(x.shape[1:])) for x in inputs]
    if found and found not in ([("string", ())], [("string", (1,))]):
        takes = ", ".join(f"{x.dtype} {tuple(x.shape)}" for x in inputs)
        raise ValueError(
            "`model` must take texts: one input of strings of shape (batch,) "
            "or (batch, 1), such as keras.Input((), dtype='string'). Received: "
            f"model '{model.name}', which takes {takes}"
        )
    return found == [("string", (1,))]


def _as_texts(texts: Any) -> list[str]:
    if isinstance(texts, str | bytes | Mapping) or not isinstance(
        texts, Iterable
    ):
        raise ValueError(
            "`texts` must be a list of strings; give a single one as [text]. "
            f"Received: {type(texts).__name__}"
        )
    texts = list(texts)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(
                "`texts` must be strings. Received at index "
                f"{index}: {type(text).__name__}"
            )
    return texts


def _labels_of(outputs: Mapping[str, Any], labels: Any) -> dict[str, Any]:
    """Returns label and score of each text, by the names of their outputs."""
    if labels is None:
        return {}
    if isinstance(labels, Mapping):
        by_output = {name: (f"{name}_", each) for name, each in labels.items()}
    elif len(outputs) == 1:
        by_output = dict.fromkeys(outputs, ("", labels))
    else:
        raise ValueError(
            "`labels` must be a dict by output, where there are several: "
            f"{', '.join(outputs)}"
        )
    added: dict[str, Any] = {}
    for output, (prefix, names) in by_output.items():
        scores = outputs.get(output)
        if scores is None or scores.ndim < 2 or scores.shape[-1] != len(names):
            shapes = ", ".join(
                f"{name} of shape {value.shape}"
                for name, value in outputs.items()
            )
            raise ValueError(
                f"`labels` of '{output}' are {len(names)}, and the model has "
                f"no output '{output}' of shape (batch, ..., {len(names)}): "
                f"{shapes}"
            )
        best = np.argmax(scores, axis=-1)
        chosen = np.take_along_axis(scores, best[..., np.newaxis], axis=-1)
        for name, value in (
            (LABEL, np.array(names, dtype=object)[best]),
            (SCORE, chosen[..., 0].astype("float64")),
        ):
            if prefix + name in outputs:
                raise ValueError(
                    f"`labels` would add '{prefix}{name}', which the model has "
                    "already. Give them as a dict by output"
                )
            added[prefix + name] = value.tolist() if value.ndim == 1 else value
    return added
