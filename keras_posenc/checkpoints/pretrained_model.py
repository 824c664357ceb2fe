"""A model from a checkpoint, with its labels, prompts and origin."""

import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_posenc.checkpoints.embedder_parts import (
    EmbedderParts,
    embedder_parts,
)
from keras_posenc.keras_internals import in_batches, trace_texts
from keras_posenc.ops.named import NamedArguments
from keras_posenc.text._tokenizer import Tokenizer, reporting_cuts
from keras_posenc.text.prompt import Prompt
from keras_posenc.transformer.pooling import AfterPrompt, Pooling1D

# The names of prompts that sentence-transformers looks for, in its order.
_OF_QUERIES = ("query",)
_OF_DOCUMENTS = ("document", "passage", "corpus")

# From as many texts on, batches are made by the number of ids: counting takes a
# hundredth of the model's time, where tokenizers are given many texts at once.
_MANY = 1000

_PACKAGE = "keras_posenc."
# The arguments that a `Sequential` does not have.
_OWN = (
    "labels",
    "origin",
    "checkpoint",
    "prompts",
    "default_prompt_name",
    "include_prompt",
)


@keras.saving.register_keras_serializable(package="keras_posenc")
class PretrainedModel(NamedArguments, keras.Sequential):
    """A `Sequential` that keeps its labels, its prompts and its origin.

    >>> import keras_posenc as kp
    >>> model = kp.load_hugging_face("all-MiniLM-L6-v2")  # doctest: +SKIP
    >>> model.predict(["A cat sits."]).shape  # doctest: +SKIP
    (1, 384)

    `load_hugging_face` makes it from a tokenizer, unless the model takes ids,
    or from what normalizes images; `encoder`, a `TransformerEncoderModel` or
    `VisionTransformerModel`; and the layers after it.

    A model of texts takes a list or an array of strings, called or by
    `predict`; a model of pairs, a list of pairs. `predict` and `encode_query`
    warn where texts were cut, with their number.

    Args:
        layers: The layers, as for a `Sequential`.
        labels: The names of the classes, in the order of the scores, or None.
        origin: The checkpoint: its `model_type`, its `revision` where known,
            and the SHA-256 of each file of weights.
        checkpoint: What `save_hugging_face` writes besides the weights:
            the config, and the files of the tokenizer, compressed.
        prompts: Texts that a sentence encoder was trained to find before
            others, by name, such as "query" and "document".
        default_prompt_name: The name of the prompt that a layer `Prompt` puts
            before every text, or None.
        include_prompt: Whether the tokens of a prompt are pooled too.
        **kwargs: As for `keras.Sequential`: `name`, `trainable`.
    """

    def __init__(
        self,
        layers: Sequence[Any] | None = None,
        *,
        labels: Sequence[str] | None = None,
        origin: Mapping[str, Any] | None = None,
        checkpoint: Mapping[str, Any] | None = None,
        prompts: Mapping[str, str] | None = None,
        default_prompt_name: str | None = None,
        include_prompt: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(layers, **kwargs)
        self.labels = None if labels is None else tuple(labels)
        self.origin = dict(origin or {})
        self.checkpoint = dict(checkpoint or {})
        self.prompts = dict(prompts or {})
        self.default_prompt_name = default_prompt_name
        self.include_prompt = include_prompt
        # Of models with these layers. Not in a dict of its own, of which Keras
        # would save the layers too.
        self._others = types.SimpleNamespace(by_prompt={})

    def compile(self, *args: Any, **kwargs: Any) -> None:
        # As those of this model, functions traced earlier are dropped.
        self._others.by_prompt.clear()
        super().compile(*args, **kwargs)

    _traced_with = -1  # how many weights `predict` was traced with
    _num_cut = 0  # how many texts the last `predict` has cut

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        texts = self._texts_of(inputs)
        inputs = inputs if texts is None else ops.convert_to_tensor(texts)
        return super().__call__(inputs, *args, **kwargs)

    def predict(
        self, x: Any, batch_size: int | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        texts = self._texts_of(x)
        if texts is None:
            if ops.is_tensor(x):
                self._trace_once()
            return super().predict(x, batch_size, *args, **kwargs)
        if not len(texts):  # Keras does not take an empty array
            shape, dtype = self.outputs[0].shape, self.outputs[0].dtype
            return np.zeros([size or 0 for size in shape], dtype)
        self._num_cut = 0
        self._trace_once()
        # Keras takes arrays of strings only if they have one axis.
        given = ops.convert_to_tensor(texts), batch_size
        if len(args) < 2 and kwargs.get("steps") is None:
            given = in_batches(*given)
        found = super().predict(*given, *args, **kwargs)
        if self._num_cut:
            self._warn_of_cut(len(texts))
        return found

    def predict_on_batch(self, x: Any) -> Any:
        self._trace_once(is_batch=True)
        return super().predict_on_batch(x)

    def predict_step(self, *args: Any) -> Any:  # on JAX, of the state too
        with reporting_cuts(self._add_cut):
            return super().predict_step(*args)

    def _add_cut(self, count: int) -> None:
        self._num_cut += int(count)

    def _warn_of_cut(self, total: int) -> None:
        tokenizer = next(x for x in self.layers if isinstance(x, Tokenizer))
        longest = tokenizer.sequence_length or tokenizer.max_length
        position = getattr(self.encoder, "input_position", None)
        most = getattr(position, "sequence_length", None)
        remedy = ""
        if most is None or most > longest:
            upto = "" if most is None else f" of up to {most}"
            remedy = f", or load the model with a larger `max_length`{upto}"
        warn_of_cut(tokenizer, self._num_cut, total, remedy)

    def make_predict_function(self, force: bool = False) -> Any:
        # A traced function lacks weights that were added later, as LoRA's are.
        count = len(self.weights)
        force = force or count != self._traced_with
        self._traced_with = count
        return super().make_predict_function(force)

    def _trace_once(self, *, is_batch: bool = False) -> None:
        """Traces `predict` for batches of any size; Keras would for each."""
        if self._axes_of_texts is not None:
            self.make_predict_function()
            if self.steps_per_execution == 1:
                shape = self.inputs[0].shape
                trace_texts(self.predict_function, shape, is_batch=is_batch)

    @property
    def _axes_of_texts(self) -> tuple[int | None, ...] | None:
        """The axes of texts after the batch's; None where they are no texts."""
        expected = (getattr(self, "inputs", None) or [None])[0]
        is_text = getattr(expected, "dtype", None) == "string"
        return tuple(expected.shape[1:]) if is_text else None

    def _texts_of(self, inputs: Any) -> np.ndarray | None:
        """Returns an array of texts; None for other inputs, such as tensors."""
        axes = self._axes_of_texts
        if hasattr(inputs, "to_numpy"):  # a column of a table
            inputs = inputs.to_numpy()
        kinds = str | bytes | list | tuple | np.ndarray | None
        if axes is None or not isinstance(inputs, kinds):
            return None
        try:
            texts = np.array(inputs, "object")
        except ValueError:  # rows of several lengths
            texts = np.array(None)
        if not texts.size:
            return texts.reshape(0, *axes)
        wrong = [x for x in texts.flat if not isinstance(x, str | bytes)]
        if not texts.ndim or texts.shape[1:] != axes or wrong:
            among = f"{wrong[0]!r:.60} among " if wrong else ""
            raise ValueError(
                f"Model '{self.name}' takes a list or an array of "
                f"{'pairs of texts' if axes else 'texts'}. "
                f"Received: {among}{inputs!r:.60}"
            )
        return texts

    @property
    def encoder(self) -> Any:
        """The `TransformerEncoderModel` or `VisionTransformerModel`."""
        return self.get_layer("encoder")

    def encode_query(
        self,
        texts: Any,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        **options: Any,
    ) -> np.ndarray:
        """Returns vectors of queries, as `predict` with the right prompt.

        As in sentence-transformers, the prompt is `prompt`, else that of
        `prompt_name`, else "query"; without such a prompt there is none, not
        even the default one.

        Args:
            texts: A list or an array of strings, or a single string.
            prompt: A text to put before each text; "" for none.
            prompt_name: The name of a prompt in `prompts`.
            **options: As for `predict`, such as `batch_size` and `verbose`.

        Returns:
            An array `(batch, dim)`, or `(dim,)` of a single string.

        Raises:
            ValueError: There is no prompt of that name, both are given, or the
                model takes no texts and there is a prompt.
        """
        found = self._prompt_of(_OF_QUERIES, prompt, prompt_name)
        return self._encode(texts, found, options)

    def encode_document(
        self,
        texts: Any,
        *,
        prompt: str | None = None,
        prompt_name: str | None = None,
        **options: Any,
    ) -> np.ndarray:
        """Returns vectors of documents, as `predict` with the right prompt.

        As `encode_query`, but where neither `prompt` nor `prompt_name` is
        given the prompt is the first of "document", "passage" and "corpus" in
        `prompts`, or none.
        """
        found = self._prompt_of(_OF_DOCUMENTS, prompt, prompt_name)
        return self._encode(texts, found, options)

    def _prompt_of(
        self, usual: Sequence[str], prompt: Any = None, name: Any = None
    ) -> str:
        if prompt is not None and name is not None:
            raise ValueError(
                "`prompt` is a text, and `prompt_name` the name of one: give "
                f"one of them. Received: prompt={prompt!r}, "
                f"prompt_name={name!r}"
            )
        if prompt is not None:
            if not isinstance(prompt, str):
                raise ValueError(
                    "`prompt` must be a string, such as 'query: '. "
                    f"Received: prompt={prompt!r}"
                )
            return prompt
        if name is None:
            return next(
                (self.prompts[key] for key in usual if key in self.prompts), ""
            )
        if name not in self.prompts:
            raise ValueError(
                f"Model '{self.name}' has no prompt {name!r}, only "
                f"{', '.join(map(repr, self.prompts)) or 'none at all'}. Give "
                "its text as `prompt`, or load the model with `prompts`"
            )
        return self.prompts[name]

    def _encode(
        self, texts: Any, prompt: str, options: Mapping[str, Any]
    ) -> np.ndarray:
        if isinstance(texts, str | bytes):
            vector: np.ndarray = self._encode([texts], prompt, options)[0]
            return vector
        found = self._texts_of(texts) if self._axes_of_texts == () else None
        if found is None and prompt == self._own_prompt:
            return self.predict(texts, **options)
        if found is None:
            raise ValueError(
                f"Model '{self.name}' must be given a list or an array of "
                f"texts, to put {prompt!r} before each. Received: {texts!r:.60}"
            )
        # Longest first: texts of a batch then are of about one length.
        order = np.argsort(-self._lengths(found), kind="stable")
        given: Any = found[order]
        model: Any = self
        if not self.include_prompt:
            model = self.with_prompt(prompt)
        elif prompt != self._own_prompt:
            # Put first here: a model for each prompt would be traced again.
            given = [
                prompt.encode() + each
                if isinstance(each, bytes)
                else prompt + each
                for each in given
            ]
            model = self.with_prompt("") if self._own_prompt else self
        vectors = model.predict(given, **options)
        sorted_back = np.empty_like(vectors)
        sorted_back[order] = vectors
        return sorted_back

    def _lengths(self, texts: np.ndarray) -> np.ndarray:
        """Returns how long texts are: in ids if there are many, see `_MANY`.

        Among docstrings, those with as many characters differ so much in ids
        that a third of each batch would be padding.
        """
        tokenizers = [x for x in self.layers if isinstance(x, Tokenizer)]
        if len(texts) < _MANY or not tokenizers:
            return np.array([len(each) for each in texts])
        counted = (
            tokenizers[0].split(ops.convert_to_tensor(some)).row_lengths()
            for some in np.split(texts, range(_MANY, len(texts), _MANY))
        )
        return np.concatenate([each.numpy() for each in counted])

    @property
    def _own_prompt(self) -> str:
        """The prompt that a layer puts before every text."""
        own = (x.prompt for x in self.layers if isinstance(x, Prompt))
        return next(own, "")

    def with_prompt(self, prompt: str) -> Self:
        """Returns a model of the same layers that puts a prompt before texts.

        `prompt` is the text, "" for none.
        """
        if self._axes_of_texts != ():
            raise ValueError(
                f"Model '{self.name}' takes no texts, before which a prompt "
                f"could be put. Received: prompt={prompt!r}"
            )
        # Other layers, as by `add`, make another model.
        key = (prompt, *map(id, self.layers))
        made: dict[Any, Any] = self._others.by_prompt
        if key in made:
            return made[key]
        of_prompts = (Prompt, AfterPrompt)
        layers = [x for x in self.layers if not isinstance(x, of_prompts)]
        pooling = layers.index(self.encoder) + 1
        start = 1
        if prompt and not self.include_prompt:
            # As in sentence-transformers: the ids of the prompt alone, without
            # the end symbol.
            ids = ops.convert_to_numpy(layers[0]([prompt]))[0]
            start += len(ids) - layers[0].frame[1]
        if isinstance(layers[pooling], Pooling1D):
            config = {**layers[pooling].get_config(), "start": start}
            layers[pooling] = Pooling1D.from_config(config)
        if start > 1:
            layers.insert(pooling, AfterPrompt(start - 1, name="after_prompt"))
        if prompt:
            layers.insert(0, Prompt(prompt, name="prompt"))
        (old,) = self.inputs
        text = keras.Input(old.shape[1:], dtype="string", name=old.name)
        own = {each: getattr(self, each) for each in _OWN}
        made[key] = type(self)([text, *layers], **own, name=self.name)
        return made[key]

    def added_signatures(self) -> dict[str, keras.Model]:
        """Returns the models with prompts that a SavedModel offers, by name."""
        if self._axes_of_texts != ():
            return {}
        found = {
            "encode_query": self._prompt_of(_OF_QUERIES),
            "encode_document": self._prompt_of(_OF_DOCUMENTS),
        }
        if {*found.values(), self._own_prompt} == {""}:
            return {}
        return {name: self.with_prompt(text) for name, text in found.items()}

    def embedder_parts(self) -> EmbedderParts:
        """Returns the parts of a sentence encoder for packages of LiteRT-LM."""
        return embedder_parts(self)

    @property
    def card(self) -> str:
        """What the model card of an export says of checkpoint and prompts."""
        origin = origin_in_words(self.origin)
        sentences = [origin] if origin else []
        if own := self._own_prompt:
            sentences.append(f"Puts the prompt {own!r} before each text.")
        elif any(self.prompts.values()):
            sentences.append("Puts no prompt before texts.")
        if note := self.ids_note:
            sentences.append(f"{note}.")
        return " ".join(sentences)

    @property
    def ids_note(self) -> str:
        """What an export says of ids: the prompt that they begin with."""
        named = {key: text for key, text in self.prompts.items() if text}
        ids = "Token ids must be those of the prompt and the text together"
        if own := self._own_prompt:
            ids = f"Token ids must be those of {own!r} and the text together"
        elif not named:
            return ""
        listed = ", ".join(f"{key} {text!r}" for key, text in named.items())
        return f"Prompts of the checkpoint: {listed}. {ids}" if listed else ids

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _OWN}
        own["labels"] = None if self.labels is None else list(self.labels)
        return {**super().get_config(), **own}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> Self:
        config = dict(config)
        own = {name: config.pop(name) for name in _OWN if name in config}
        model = super().from_config(config, custom_objects)
        if own.get("labels") is not None:
            own["labels"] = tuple(own["labels"])
        for name, value in own.items():
            setattr(model, name, value)
        return model


def origin_in_words(origin: Mapping[str, Any]) -> str:
    """Returns a sentence that says which checkpoint it was; "" for none."""
    rest = dict(origin)
    files = rest.pop("sha256", {})
    parts = [f"{key} {value}" for key, value in rest.items() if value]
    parts += [f"{name} of SHA-256 {digest}" for name, digest in files.items()]
    return f"From a checkpoint: {', '.join(parts)}." if parts else ""


def warn_of_cut(
    tokenizer: Tokenizer, count: int, total: int | None, remedy: str = ""
) -> None:
    """Warns of texts that a tokenizer has cut."""
    longest = tokenizer.sequence_length or tokenizer.max_length
    of_all = "" if total is None else f" of {total:,}"
    is_pair = tokenizer.num_separators is not None
    warnings.warn(
        f"Cut to {longest} tokens: {count:,}{of_all} "
        f"{'pairs of texts' if is_pair else 'texts'}. Split them{remedy}",
        UserWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """Returns the `stacklevel` of the code that called this package's."""
    frame = sys._getframe(1)
    level = 1
    # Code of `exec` may have no name.
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith(
        _PACKAGE
    ):
        frame, level = frame.f_back, level + 1
    return level
