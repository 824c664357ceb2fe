"""A model from texts to texts."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.decoding import Decoding, takes
from keras_posenc.generation.engine_parts import EngineParts, engine_parts
from keras_posenc.generation.generated import log_probabilities
from keras_posenc.generation.likelihoods import drawn_pairs
from keras_posenc.generation.sampling import made_noise
from keras_posenc.generation.scoring import Scoring
from keras_posenc.generation.search import (
    Search,
    check_model,
    sizes_of,
    vocabulary_of,
)
from keras_posenc.generation.step import First, Step, step_models
from keras_posenc.generation.stream import Stream
from keras_posenc.generation.tokenizing import Detokenizing, Tokenizing
from keras_posenc.keras_internals import in_batches
from keras_posenc.ops.named import NamedArguments


def described(decoding: Decoding) -> str:
    """Returns a sentence with the options that differ from their defaults."""
    given = [
        f"{each.name}={value}"
        for each in dataclasses.fields(decoding)
        if (value := getattr(decoding, each.name)) not in (each.default, ())
        or each.name == "max_length"
    ]
    return f"Generates with {', '.join(given)}."


# Other names that the graph uses.
_NAMES = ("text", "noise", "search", "detokenize")


@keras.saving.register_keras_serializable(package="keras_posenc")
@takes(Decoding)
class Generator(NamedArguments, keras.Model):
    """Generates texts from texts, with a model of the next token.

    >>> import keras_posenc as kp
    >>> model = kp.Transformer(
    ...     20, d_model=16, num_layers=1, num_heads=2, intermediate_dim=32
    ... )
    >>> generator = kp.Generator(
    ...     model, max_length=8, beams=4, start_id=2, end_ids=3
    ... )
    >>> outputs = generator.predict([[5, 6, 7, 3]], verbose=0)
    >>> outputs["ids"].shape, outputs["score"].shape
    ((1, 8), (1,))

    A Functional model. With tokenizers it takes `text`, strings `(batch,)`,
    and returns a dict of `text`, strings `(batch,)`, and `score`, float32
    `(batch,)`. Without, it is the same as `from_ids`: from `ids` `(batch, seq)`
    to a dict of `ids`, int32 `(batch, max_length)`, `score`, and `token_score`,
    float32 `(batch, max_length)`. If there are end symbols both also return
    `ended`, bool `(batch,)`: False for a sequence that was cut off at
    `max_length`. If `n_best` is above 1, the second axis has that many
    sequences, the best first.

    A score is the log-likelihood of the generated tokens, the end symbol
    included, under the unrestricted model; with `beams` it is divided by the
    length penalty. Padding, the start symbol and ids that the target tokenizer
    does not have are never generated. An empty source or an empty prompt is
    valid; without a start symbol, all ids are equally likely as the first
    token after an empty prompt.

    Args:
        model: A `Transformer`, from sources to targets, or a
            `TransformerDecoderModel`, from prompts to what follows them.
        source_tokenizer: The layer from texts to ids, such as a
            `CharacterTokenizer`; None if inputs are ids.
        target_tokenizer: The layer whose `detokenize` turns ids into texts; by
            default the source's for a model without an encoder. None returns
            ids.
        **options: See `Decoding`.
        name: Name of the model.
        trainable: Whether its weights train.

    Raises:
        ValueError: An invalid argument, or two that exclude each other; a
            model whose positions cannot be cached.

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        model: keras.Model,
        *,
        source_tokenizer: Any = None,
        target_tokenizer: Any = None,
        name: str | None = None,
        trainable: bool = True,
        **options: Any,
    ) -> None:
        check_model(model)
        has_encoder = hasattr(model, "encode")
        if target_tokenizer is None and not has_encoder:
            target_tokenizer = source_tokenizer
        _check_vocabulary(
            "source_tokenizer", source_tokenizer, model.vocabulary_size
        )
        _check_vocabulary(
            "target_tokenizer", target_tokenizer, vocabulary_of(model)
        )
        for option in ("start_id", "end_ids"):
            if options.get(option) is None:
                options[option] = default_of(option, target_tokenizer)
        search = Search(
            model,
            self.decoding_kind(**options),
            generated_ids=_size_of(target_tokenizer),
            name="search",
        )
        back = None
        if target_tokenizer is not None:
            back = Detokenizing(
                target_tokenizer,
                end_ids=search.decoding.end_ids,
                pad_id=search.pad_id,
                name="detokenize",
            )
        inputs, outputs = _graph(search, source_tokenizer, back)
        super().__init__(
            inputs=inputs, outputs=outputs, name=name, trainable=trainable
        )
        # Without it Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.output_scales = functools.partial(sizes_of, model)
        self.longest_input = search.longest_prompt
        self.card = described(search.decoding)
        self.is_drawn = search.decoding.draw is not None
        self.search = search
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.detokenize = back

    def call(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        inputs = self._dense(self._by_name("inputs", inputs))
        # A Functional model would accept, and ignore, any other argument.
        return super().call(inputs, training=training, mask=mask)

    @functools.cached_property
    def from_ids(self) -> keras.Model:
        """The same generator from ids to ids: a Functional model."""
        model = self._model_of_scores(*_graph(self.search), "from_ids")
        model.rescore = self.rescore
        model.is_drawn = self.is_drawn
        return model

    def offered_signatures(self) -> dict[str, keras.Model]:
        """Returns the models that exports of this model offer, by name.

        Samples are drawn with `noise`, one more input, floats in [0, 1) of
        shape `(batch, max_length)`: so outputs can be reproduced and verified.
        """
        if not self.is_drawn:
            default, from_ids = self, self.from_ids
            if self.source_tokenizer is self.detokenize is None:
                default = from_ids  # the same model: an export runs it once
        else:
            default, from_ids = self._with_noise(), self._with_noise(False)
        return {
            "serving_default": default,
            "from_ids": from_ids,
            "score": self.scorer
            if any(self._tokenizers().values())
            else self.scorer_from_ids,
        }

    def measures_quantized(self) -> dict[str, keras.Model]:
        """Returns the models that a quantized file has in addition, by name.

        With `score` a file's perplexity can be measured, and its divergence
        from the model.
        """
        return {"score": self.scorer_from_ids}

    def rescore(
        self, inputs: dict[str, Any], outputs: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns how likely the model finds generated `ids`, `(rows, length)`.

        A quantized file may choose another token where two are nearly equally
        likely, and every later token may then differ: so the model reads its
        ids. `token_score` is the log-likelihood of each, NaN of one that the
        model lacks; `is_token` is false for padding, and where the search
        decides the score.
        """
        decoding, ids = self.search.decoding, outputs["ids"]
        source = inputs["ids"]
        if len(ids.shape) == 3:
            source = ops.repeat(source, ops.shape(ids)[1], axis=0)
            ids = ops.reshape(ids, (-1, self.max_length))
        is_known = (ids >= 0) & (ids < self.search.vocabulary)
        known = ops.where(is_known, ids, 0)
        logits = self._scoring.logits(
            source,
            ops.where(is_known, ids, self.search.pad_id),
            decoding.removed_ids,
        )
        scores = ops.take_along_axis(
            log_probabilities(logits), ops.expand_dims(known, 2), axis=2
        )
        place = ops.arange(self.max_length, dtype="int32")
        is_free = place >= len(decoding.prefix_ids)
        if getattr(decoding, "forced_end_id", None) is not None:
            is_free &= place < self.max_length - 1
        if getattr(decoding, "renormalize_logits", False):
            is_free &= False
        return {
            "token_score": ops.where(is_known, ops.squeeze(scores, 2), np.nan),
            "is_token": ops.not_equal(ids, self.search.pad_id) & is_free,
        }

    def step_signatures(self) -> dict[str, keras.Model]:
        """Returns two models to export, for an app that chooses tokens itself.

        >>> import numpy as np
        >>> import keras_posenc as kp
        >>> model = kp.Transformer(
        ...     9, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
        ... )
        >>> generator = kp.Generator(model, max_length=3, start_id=2)
        >>> steps = generator.step_signatures()
        >>> state = steps["encode"](np.array([[5, 7, 3]]))
        >>> tuple(steps["decode"](state)["logits"].shape)
        (1, 9)

        `encode` turns `ids` into everything that the first step takes.
        `decode` turns that into `logits`, float32 `(batch, vocabulary)`, of
        the next token, and the state that the next step takes, except its
        `token`, which the app chooses. The app also does what `beams` to
        `repetition_penalty` do here: logits are the model's own, with ids that
        are never generated made impossible. With the most likely token each
        time, up to an end symbol or `max_length`, the app generates what a
        generator without these arguments does.

        Returns:
            A dict of Functional models, for the `signatures` of an export.
        """
        return step_models(self.search, self.name)

    def engine_parts(
        self, prefill_lengths: Any, cache_length: Any
    ) -> EngineParts:
        """Returns what `export_litertlm`, with these lengths, packs."""
        return engine_parts(self, prefill_lengths, cache_length)

    def _with_noise(self, texts: bool = True) -> keras.Model:
        noise = keras.Input((self.max_length,), dtype="float32", name="noise")
        layers = (self.source_tokenizer, self.detokenize) if texts else ()
        inputs, found = _graph(self.search, *layers, noise=noise)
        model = self._model_of_scores([inputs, noise], found, "by_noise")
        model.made_inputs = {"noise": made_noise}
        model.rescore = self.rescore
        return model

    @functools.cached_property
    def scorer(self) -> keras.Model:
        """The model from `source` and `target` to the target's log-likelihood.

        A Functional model with the same weights, of texts where the generator
        has tokenizers. If a text's ids lack an end symbol, it is added and
        scored. The outputs are a dict of `score`, float32 `(batch,)`, and
        `token_score`, float32 `(batch, tokens)`.
        """
        inputs, ids = {}, {}
        for side, tokenizer in self._tokenizers().items():
            if tokenizer is None:
                inputs[side] = keras.Input((None,), dtype="int32", name=side)
                ids[side] = inputs[side]
            else:
                inputs[side] = keras.Input((), dtype="string", name=side)
                tokenize = Tokenizing(tokenizer, name=f"{side}_ids")
                ids[side] = tokenize(inputs[side])
        return self._model_of_scores(inputs, self._scoring(ids), "scorer")

    @functools.cached_property
    def _scoring(self) -> Scoring:
        return Scoring(
            self.model,
            start_id=self.start_id,
            end_ids=self.end_ids,
            complete=self.target_tokenizer is not None,
            name="scoring",
        )

    @functools.cached_property
    def scorer_from_ids(self) -> keras.Model:
        """As `scorer`, from ids: `source` and `target`, `(batch, seq)`."""
        ids = {
            side: keras.Input((None,), dtype="int32", name=side)
            for side in ("source", "target")
        }
        scores = self._scoring(ids)
        model = self._model_of_scores(ids, scores, "scorer_from_ids")
        model.drawn_pairs = functools.partial(drawn_pairs, self.search)
        return model

    def _model_of_scores(
        self, inputs: Any, outputs: Any, name: str
    ) -> keras.Model:
        model = keras.Model(inputs, outputs, name=f"{self.name}_{name}")
        model.autocast = False  # as in `Search`, of noise
        model.output_scales = self.output_scales
        if name.startswith("scorer"):
            model.card = "How likely the model considers a given target."
            model.longest_input = self._scoring.longest_input
        else:
            model.card, model.longest_input = self.card, self.longest_input
        return model

    def predict(
        self, x: Any, *, batch_size: int = 32, verbose: Any = "auto"
    ) -> dict[str, np.ndarray]:
        """Generates, by Keras's `predict`, on every backend.

        `generator.from_ids.compile(jit_compile=True)` has XLA compile it on
        TensorFlow too, which is faster where lengths and batches repeat.

        Args:
            x: Texts, as a list, an array or a tensor; ids, `(batch, seq)`,
                where there is no source tokenizer, also as a ragged tensor; a
                dict of these by the name of the model's input, `text` or `ids`;
                or a `tf.data.Dataset` of batches of texts or ids.
            batch_size: How many texts are processed at once.
            verbose: As for Keras's `predict`.

        Returns:
            A dict of arrays, as the model's outputs; texts are Python strings.

        Raises:
            ValueError: `x` is none of these, or the model's logits are NaN.
        """
        tokenizer = self.source_tokenizer
        x = self._by_name("x", x)
        if hasattr(x, "element_spec"):
            _check_batches(x.element_spec, tokenizer)
            ids = x.map(self._dense if tokenizer is None else tokenizer)
            found = self.from_ids.predict(ids, verbose=verbose)
        else:
            ids = in_batches(self._ids("x", x, tokenizer), batch_size)
            found = self.from_ids.predict(*ids, verbose=verbose)
        self.search.check_scores(found["score"], of_beams=self.beams > 1)
        if self.detokenize is None:
            return found
        return _of_texts(self._texts, found)

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Quantizes the model as Keras does, and recompiles what runs it."""
        super().quantize(*args, **kwargs)
        self.forget_traces()

    def forget_traces(self) -> None:
        """Has what was compiled with other weights compiled again."""
        for each in vars(self).values():
            if isinstance(each, keras.Model):
                each.predict_function = None

    def score(
        self, source: Any, target: Any, *, batch_size: int = 32
    ) -> np.ndarray:
        """Returns the log-likelihood of each target, given its source.

        Args:
            source: Texts, or ids, `(batch, seq)`, without a tokenizer.
            target: Texts, or ids, `(batch, seq)`, one for each source.
            batch_size: How many pairs are processed at once.

        Returns:
            float32 `(batch,)`.

        Raises:
            ValueError: Something else is given, there are more or fewer
                targets than sources, or the model's logits are NaN.
        """
        given = {"source": source, "target": target}
        ids = {
            side: self._ids(side, given[side], tokenizer)
            for side, tokenizer in self._tokenizers().items()
        }
        if len(ids["source"]) != len(ids["target"]):
            raise ValueError(
                "`target` must have as many texts as `source`. Received: "
                f"{len(ids['target'])} targets, {len(ids['source'])} sources"
            )
        self._scoring.check_lengths(**ids)
        batches = in_batches(ids, batch_size)
        found = self.scorer_from_ids.predict(*batches, verbose=0)
        self.search.check_scores(found["score"], of_beams=False)
        return found["score"]

    def stream(self, text: Any, *, noise: Any = None) -> Stream:
        """Generates for one text, and yields tokens as they are chosen.

        >>> import keras_posenc as kp
        >>> model = kp.TransformerDecoderModel(
        ...     9, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
        ... )
        >>> generator = kp.Generator(model, max_length=3)
        >>> stream = generator.stream([5, 7, 2])
        >>> len(list(stream)), stream.ended  # it has no end symbol
        (3, False)

        Args:
            text: A text, or ids `(seq,)` where there is no source tokenizer.
            noise: Floats in [0, 1), `(max_length,)`, to sample with; by
                default from the generator's seed.

        Returns:
            An iterator of pieces that together are the text, or of ids without
            a target tokenizer, without the end symbol. It has the attributes
            `ids`, a list of those so far, and `ended`: None while there may be
            more; then whether an end symbol came, False for a text that was
            cut off at `max_length`.

        Raises:
            ValueError: The generator has beams, whose text is known only at
                the end; `text` or `noise` is invalid; or the model's logits
                are NaN.
        """
        self._check_streams()
        if self.source_tokenizer is not None and not isinstance(text, str):
            raise ValueError(
                f"`text` must be a string. Received: text={text!r}"
            )
        if self.source_tokenizer is None and not _is_row(text):
            raise ValueError(
                "`text` must be ids of shape (seq,), as there is no source "
                f"tokenizer. Received: text={text!r:.40}"
            )
        ids = self._ids("text", [text], self.source_tokenizer)
        if noise is not None:
            noise = np.asarray(noise, "float32")
            if not self.is_drawn or noise.shape != (self.max_length,):
                raise ValueError(
                    "`noise` must be of shape (max_length,), for a generator "
                    f"that draws. Received: noise of shape {noise.shape}"
                )
            if not np.all((noise >= 0) & (noise < 1)):  # False for NaN
                raise ValueError(
                    "`noise` must be in [0, 1). Received: noise from "
                    f"{np.min(noise)} to {np.max(noise)}"
                )
            noise = noise[np.newaxis]
        texts = None if self.detokenize is None else self._texts
        return Stream(
            self.search,
            self._first_and_step(),
            ids,
            texts=texts,
            noise=noise,
            settled=self._settled,
        )

    def _check_streams(self) -> None:
        """Raises `ValueError` for options that single steps do not have."""
        if self.beams > 1:
            raise ValueError(
                "`beams` must be 1 for a stream or a chat, which is generated "
                "token by token: the text of beams is known only at the end. "
                f"Received: beams={self.beams}. Make a generator of the same "
                "model with beams=1; of a checkpoint, give beams=1 to `chat` "
                "and `stream_chat`, or use `with_options(beams=1)`"
            )

    @property
    def _settled(self) -> Any:
        return getattr(self.target_tokenizer, "settled_text", None)

    # No property: Keras would save the models of one with the weights.
    def _first_and_step(self) -> tuple[First, Step]:
        return self._steps

    @functools.cached_property
    def _steps(self) -> tuple[First, Step]:
        return First(self.search), Step(self.search)

    def _by_name(self, name: str, x: Any) -> Any:
        """Returns the value of a dict's one key; anything else unchanged."""
        if not isinstance(x, Mapping):
            return x
        wanted = "ids" if self.source_tokenizer is None else "text"
        if [*x] != [wanted]:
            raise ValueError(
                f"`{name}` as a dict must have the one key '{wanted}'. "
                f"Received: {name} with the keys {[*x]}"
            )
        return x[wanted]

    def _ids(self, name: str, x: Any, tokenizer: Any) -> np.ndarray:
        """Returns the ids of texts, or those given: int `(batch, seq)`."""
        if tokenizer is not None:
            _check_texts(name, x)
            x = tokenizer(x)
        try:
            ids = np.asarray(ops.convert_to_numpy(x))
        except (TypeError, ValueError):
            ids = np.array(None)  # examples of several lengths, say
        if ids.dtype.kind not in "biuf" or not ids.ndim:
            of = self.search if name == "target" else self.model
            raise ValueError(
                f"`{name}` must be ids of shape (batch, seq), padded with "
                f"{of.pad_id} to one length, as there is no tokenizer for it. "
                f"Received: {name}={x!r:.40}"
            )
        if not len(ids):
            raise ValueError(
                f"`{name}` must hold at least one text. It is empty"
            )
        if not ids.size:  # no tokens at all, and so no integer dtype
            ids = ids.astype("int32")
        size = vocabulary_of(self.model) if name == "target" else None
        self.search.check_inputs(ids, name=name, size=size)
        return ids

    def _texts(self, ids: Any) -> np.ndarray:
        """Returns the Python strings of ids `(..., seq)`."""
        assert self.detokenize is not None
        for each in self.end_ids:
            ids = np.where(ids == each, self.search.pad_id, ids)
        texts = np.asarray(self.target_tokenizer.detokenize(ids))
        decoded = [
            text.decode() if isinstance(text, bytes) else str(text)
            for text in texts.reshape(-1)
        ]
        return np.array(decoded, object).reshape(texts.shape)

    def _dense(self, ids: Any) -> Any:
        """Returns ragged ids padded to one length; others unchanged."""
        if not hasattr(ids, "to_tensor"):
            return ids
        pad_id = ops.cast(self.model.pad_id, ids.dtype)
        return ids.to_tensor(default_value=pad_id)

    def _tokenizers(self) -> dict[str, Any]:
        """Returns the tokenizers of sources and targets, by their names."""
        return {
            "source": self.source_tokenizer,
            "target": self.target_tokenizer,
        }

    def get_config(self) -> dict[str, Any]:
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "trainable": self.trainable,
            "model": serialize(self.model),
            "source_tokenizer": serialize(self.source_tokenizer),
            "target_tokenizer": serialize(self.target_tokenizer),
            "same_tokenizer": self.source_tokenizer is self.target_tokenizer,
            **dataclasses.asdict(self.search.decoding),
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> "Generator":
        config = dict(config)
        same = config.pop("same_tokenizer", False)
        with keras.saving.custom_object_scope(custom_objects or {}):
            for name in ("model", "source_tokenizer", "target_tokenizer"):
                config[name] = keras.saving.deserialize_keras_object(
                    config[name]
                )
            if same:
                config["target_tokenizer"] = config["source_tokenizer"]
            return cls(config.pop("model"), **config)


def _of_texts(detokenize: Any, found: dict[str, Any]) -> dict[str, Any]:
    """Returns the same outputs with a text in place of ids."""
    rest = {name: found[name] for name in found if name in {"score", "ended"}}
    return {"text": detokenize(found["ids"]), **rest}


def _graph(
    search: Search, tokenizer: Any = None, back: Any = None, **noise: Any
) -> tuple[Any, Any]:
    """Returns the input and the outputs of a model of texts, or of ids."""
    inputs = ids = keras.Input((None,), dtype="int32", name="ids")
    if tokenizer is not None:
        if tokenizer.name in _NAMES:
            tokenizer = Tokenizing(tokenizer, name=f"{tokenizer.name}_ids")
        inputs = keras.Input((), dtype="string", name="text")
        ids = tokenizer(inputs)
    found = search(ids, **noise)
    return inputs, found if back is None else _of_texts(back, found)


def _check_batches(spec: Any, tokenizer: Any) -> None:
    """Raises `ValueError` unless a dataset has batches of texts, or ids."""
    rank = getattr(getattr(spec, "shape", None), "rank", None)
    if rank != (2 if tokenizer is None else 1):
        wanted = "ids, (batch, seq)" if tokenizer is None else "texts, (batch,)"
        raise ValueError(
            f"`x` as a dataset must hold batches of {wanted}. "
            f"Received: elements {spec}"
        )


def _check_texts(name: str, x: Any) -> None:
    """Raises `ValueError` for what is not a list of Unicode texts."""
    is_list = isinstance(x, list | tuple | np.ndarray)
    is_one = isinstance(x, str | bytes)
    if is_one or not (is_list or hasattr(x, "__array__")):
        raise ValueError(
            f"`{name}` must be a list or an array of texts. "
            f"Received: {name}={x!r:.40}"
        )
    if not is_list:
        return
    for each in np.asarray(x, object).ravel():
        if not isinstance(each, str | bytes) and not ops.is_tensor(each):
            raise ValueError(
                f"`{name}` must be texts. Received: {each!r:.40} among them"
            )
        if isinstance(each, str):
            try:
                each.encode()
            except UnicodeEncodeError as error:
                raise ValueError(
                    f"`{name}` must be Unicode, without lone surrogates. "
                    f"Received: {each!r:.40}"
                ) from error


def _size_of(tokenizer: Any) -> int | None:
    """Returns how many ids a tokenizer has, or None if unknown."""
    size = getattr(tokenizer, "vocabulary_size", None)
    size = size() if callable(size) else size
    return size if isinstance(size, int) else None


def _check_vocabulary(name: str, tokenizer: Any, vocabulary: int) -> None:
    """Raises `ValueError` for a tokenizer with more ids than the model."""
    if tokenizer is None:
        return
    if name == "target_tokenizer" and not hasattr(tokenizer, "detokenize"):
        raise ValueError(
            "`target_tokenizer` must have `detokenize`, from ids to texts. "
            f"Received: target_tokenizer={tokenizer!r}"
        )
    if not isinstance(tokenizer, keras.Layer):
        raise ValueError(
            f"`{name}` must be a layer from strings to ids. "
            f"Received: {name}={tokenizer!r}"
        )
    count = _size_of(tokenizer)
    if count is not None and count > vocabulary:
        raise ValueError(
            f"`{name}` must have no more ids than the model, which has "
            f"{vocabulary}. Received: a tokenizer of {count}"
        )


def default_of(option: str, tokenizer: Any) -> Any:
    """Returns the id that a tokenizer has for `start_id` or `end_ids`."""
    found = getattr(tokenizer, option.removesuffix("s"), None)
    return None if found == -1 else found  # a tokenizer without this token


def _is_row(ids: Any) -> bool:
    try:
        return np.ndim(ops.convert_to_numpy(ids)) == 1
    except (TypeError, ValueError):  # examples of several lengths, say
        return False
