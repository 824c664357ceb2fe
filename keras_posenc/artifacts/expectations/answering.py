"""What answers for the models behind signatures."""

import functools
import hashlib
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from keras_posenc.artifacts.expectations.expectations import describe
from keras_posenc.artifacts.expectations.samples import Inputs
from keras_posenc.artifacts.graphs.shared_layers import remembered_layers
from keras_posenc.artifacts.ground.errors import in_words
from keras_posenc.artifacts.signatures.signature import Signature, trace
from keras_posenc.keras_internals import layers_within

Call = Callable[[Mapping[str, Any]], dict[str, Any]]


class Memory:
    """What models have answered: some signatures ask the same of one model.

    Args:
        signatures: Those whose models are asked the same. What layers of
            several of them compute of the same inputs, they compute once.

    Attributes:
        seconds: How long the processor works at most for each answer, also for
            those that were known.
    """

    def __init__(self, signatures: Sequence[Signature] = ()) -> None:
        self.seconds = 0.0
        self._signatures = [each for each in signatures if each.origin is None]
        self._calls: dict[int, Call] = {}
        self._known: dict[Any, tuple[dict[str, Any], float]] = {}

    def answer(self, signature: Signature, inputs: Inputs) -> dict[str, Any]:
        """What the model answers, which is called once for the same inputs."""
        digest = hashlib.sha256(pickle.dumps(inputs)).digest()
        if (id(signature), digest) not in self._known:
            self._ask(signature, inputs, digest)
        answers, seconds = self._known[id(signature), digest]
        self.seconds += seconds
        return answers

    def _ask(self, signature: Signature, inputs: Inputs, digest: bytes) -> None:
        together = [
            signature,
            *(
                each
                for each in self._signatures
                if each is not signature and _specs(each) == _specs(signature)
            ),
        ]
        began = time.process_time()
        answers = {}
        with remembered_layers(together):
            tensors = _tensors(inputs)
            for each in together:
                if id(each) not in self._calls:
                    self._calls[id(each)] = _call_of(each)
                try:
                    answers[id(each)] = _answer(
                        each, self._calls[id(each)], inputs, tensors
                    )
                except ValueError:
                    if each is signature:
                        raise
        seconds = time.process_time() - began
        for model, answer in answers.items():
            self._known[model, digest] = answer, seconds


def answers_of(
    signature: Signature, memory: Memory
) -> Callable[[Inputs], dict[str, Any]]:
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
        return _graph(signature)
    return signature.call


def graph_of(signature: Signature) -> Callable[[Inputs], dict[str, Any]]:
    """The model's graph, traced now: it reads its weights as they are then."""
    call = _graph(signature)
    return lambda inputs: _answer(signature, call, inputs, _tensors(inputs))


def _graph(signature: Signature) -> Call:
    graph = trace(signature)
    return lambda tensors: graph(**tensors)


def _specs(signature: Signature) -> dict[str, Any]:
    return {
        name: (spec.shape, spec.dtype) for name, spec in signature.specs.items()
    }


def _tensors(inputs: Inputs) -> dict[str, Any]:
    import tensorflow as tf

    # Where the worker is, too: a GPU's products are another's.
    with tf.device("CPU:0"):
        return {name: tf.constant(value) for name, value in inputs.items()}


def _answer(
    signature: Signature,
    call: Call,
    inputs: Inputs,
    tensors: Mapping[str, Any],
) -> dict[str, Any]:
    import tensorflow as tf

    try:
        with tf.device("CPU:0"):
            outputs = call(tensors)
    except Exception as error:
        raise ValueError(
            f"The model itself does not take {describe(inputs)} in signature "
            f"'{signature.name}': {in_words(error)}"
        ) from error
    return {name: value.numpy() for name, value in outputs.items()}
