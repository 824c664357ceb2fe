"""What answers for the models behind signatures."""

import functools
import hashlib
import pickle
import time
from collections.abc import Callable
from typing import Any

from keras_posenc.artifacts.expectations.expectations import describe
from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.ground.errors import in_words
from keras_posenc.artifacts.signatures.signature import Signature, trace
from keras_posenc.keras_internals import layers_within

Call = Callable[[Inputs], dict[str, Any]]


class Memory:
    """What models have answered: some signatures ask the same of one model.

    Attributes:
        seconds: How long the processor works for each answer, also for those
            that were known.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._calls: dict[int, Call] = {}
        self._known: dict[Any, tuple[dict[str, Any], float]] = {}

    def answer(self, signature: Signature, inputs: Inputs) -> dict[str, Any]:
        """What the model answers, which is called once for the same inputs."""
        model = id(signature)
        if model not in self._calls:
            self._calls[model] = _call_of(signature)
        key = model, hashlib.sha256(pickle.dumps(inputs)).digest()
        if key not in self._known:
            began = time.process_time()
            answers = self._calls[model](inputs)
            self._known[key] = answers, time.process_time() - began
        answers, seconds = self._known[key]
        self.seconds += seconds
        return answers

    def apart(self) -> "Memory":
        """The same models, of which no output is known."""
        other = Memory()
        other._calls = self._calls
        return other

    def answer_again(
        self, signature: Signature, inputs: Inputs
    ) -> dict[str, Any]:
        """What the model answers, called once more, after `answer`."""
        return self._calls[id(signature)](inputs)


def answers_of(signature: Signature, memory: Memory) -> Call:
    """What answers for the model: its eager code, or its graph.

    What a signature adds to its model is done in NumPy; see `Origin`.
    """
    origin = signature.origin
    if origin is not None:
        answer = answers_of(origin.signature, memory)
        return lambda inputs: origin.tell(answer(origin.ask(inputs)))
    return functools.partial(memory.answer, signature)


def _call_of(signature: Signature) -> Call:
    if any(
        layer.compute_dtype in ("float16", "bfloat16")
        for layer in layers_within(signature.model)
    ):
        # Graphs round to low precision at other places than eager code does,
        # and what model.predict answers is the graph's.
        return graph_of(signature)
    return lambda inputs: _answer(signature, signature.call, inputs)


def graph_of(signature: Signature) -> Call:
    """The model's graph, traced now: it reads its weights as they are then."""
    graph = trace(signature)
    return lambda inputs: _answer(
        signature, lambda tensors: graph(**tensors), inputs
    )


def _answer(signature: Signature, call: Any, inputs: Inputs) -> dict[str, Any]:
    import tensorflow as tf

    try:
        # Where the worker is, too: a GPU's products are another's.
        with tf.device("CPU:0"):
            outputs = call(
                {name: tf.constant(value) for name, value in inputs.items()}
            )
    except Exception as error:
        raise ValueError(
            f"The model itself does not take {describe(inputs)} in signature "
            f"'{signature.name}': {in_words(error)}"
        ) from error
    return {name: value.numpy() for name, value in outputs.items()}
