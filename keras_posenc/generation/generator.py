"""Texts in, texts out."""

import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_posenc.generation.described import OF_SCORES, described
from keras_posenc.generation.detokenizing import Detokenizing
from keras_posenc.generation.logit_size import LogitSize
from keras_posenc.generation.options import check_ids
from keras_posenc.generation.scoring import Scoring
from keras_posenc.generation.search import Search, check_model, vocabulary_of
from keras_posenc.generation.stream import Stream
from keras_posenc.generation.tokenizing import Tokenizing
from keras_posenc.ops.named import NamedArguments

# What else has a name in the graph.
_NAMES = ("text", "noise", "search", "detokenize")


@keras.saving.register_keras_serializable(package="keras_posenc")
class Generator(NamedArguments, keras.Model):
    """A model of sequences as a model from texts to texts.

    A Functional model. With tokenizers it takes `text`, strings `(batch,)`,
    and gives a dict of `text`, strings `(batch,)`, and `score`, float32
    `(batch,)`. Without, it is what `from_ids` is: `ids` `(batch, seq)` to a
    dict of `ids`, int32 `(batch, max_length)`, `score`, and `token_score`,
    float32 `(batch, max_length)`. Where there are end symbols both give
    `ended`, bool `(batch,)`: False for what was cut off at `max_length`. Where
    `n_best` is above 1, a second axis has as many sequences, the best first.

    A score is the log-likelihood of what was generated, the end symbol among
    it, under the model as it is, whatever restricted the choice; with `beams`,
    over the length penalty. Padding, the start symbol and ids that the target
    tokenizer has not are never generated. An empty source, or an empty prompt,
    is answered like any other; without a start symbol, all ids are as likely
    to begin what follows an empty prompt.

    Args:
        model: A `Transformer`, from sources to targets, or a
            `TransformerDecoderModel`, from prompts to what follows them.
        source_tokenizer: The layer that makes ids of the texts, such as a
            `CharacterTokenizer`; None takes ids.
        target_tokenizer: The one whose `detokenize` makes texts of ids; by
            default the source's for a model without an encoder. None gives
            ids.
        max_length: How many tokens are generated at most, an end symbol and
            the prefix among them.
        beams: How many beginnings are kept at each step; 1 takes the likeliest
            token each time.
        n_best: How many sequences are returned for each text, up to `beams`.
        length_penalty: See `beam_search`; the paper has 0.6.
        temperature: Given, tokens are drawn, as with the next three: see
            `Sampling`.
        top_k: How many of the likeliest tokens may be drawn.
        top_p: The probability that the tokens hold which may be drawn.
        min_p: The least share of the likeliest token's probability.
        seed: Where drawing begins: two generators of one seed draw the same
            sequences, call by call.
        repetition_penalty: Above 1, makes tokens that were there less likely.
        min_length: How many tokens come before an end symbol, at least, those
            of the prefix counted.
        start_id: With which a `Transformer`'s targets begin, and of a decoder
            alone an empty prompt, and no other; by default the target
            tokenizer's.
        end_ids: The id, or several, after which a sequence has ended; by
            default the target tokenizer's.
        prefix_ids: With what each generated sequence begins: the id of a
            language, say. It has no score.
        name: Name of the model.
        trainable: Whether its weights train.

    Raises:
        ValueError: An argument that is none of the above, or two that exclude
            each other; a model with positions that cannot be cached.

    Example:
        >>> import keras_posenc as kp
        >>> model = kp.Transformer(
        ...     20, d_model=16, num_layers=1, num_heads=2, intermediate_dim=32
        ... )
        >>> generator = kp.Generator(
        ...     model, max_length=8, beams=4, start_id=2, end_ids=3
        ... )
        >>> answer = generator.predict([[5, 6, 7, 3]], verbose=0)
        >>> answer["ids"].shape, answer["score"].shape
        ((1, 8), (1,))

    References:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)
    """

    takes_vectors = False
    takes_ragged = True

    def __init__(
        self,
        model: keras.Model,
        *,
        source_tokenizer: Any = None,
        target_tokenizer: Any = None,
        max_length: int = 64,
        beams: int = 1,
        n_best: int = 1,
        length_penalty: float = 0.0,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        min_p: float | None = None,
        seed: int | None = None,
        repetition_penalty: float = 1.0,
        min_length: int = 0,
        start_id: int | None = None,
        end_ids: Any = None,
        prefix_ids: Any = None,
        name: str | None = None,
        trainable: bool = True,
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
        if start_id is None:
            start_id = _id_of(target_tokenizer, "start_id")
        if end_ids is None:
            end_ids = _id_of(target_tokenizer, "end_id")
        search = Search(
            model,
            max_length=max_length,
            beams=beams,
            n_best=n_best,
            length_penalty=length_penalty,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            seed=seed,
            repetition_penalty=repetition_penalty,
            min_length=min_length,
            start_id=start_id,
            end_ids=check_ids("end_ids", end_ids),
            prefix_ids=prefix_ids,
            generated_ids=_size_of(target_tokenizer),
            name="search",
        )
        back = None
        if source_tokenizer is None:
            inputs = ids = keras.Input((None,), dtype="int32", name="ids")
        else:
            inputs = keras.Input((), dtype="string", name="text")
            ids = _tokens(source_tokenizer, inputs)
        outputs = search(ids)
        if target_tokenizer is not None:
            back = Detokenizing(
                target_tokenizer, end_ids=search.end_ids, name="detokenize"
            )
            outputs = _of_texts(back, outputs)
        super().__init__(
            inputs=inputs, outputs=outputs, name=name, trainable=trainable
        )
        # Else Keras warns of ids that carry a mask, as a tokenizer's do.
        self.supports_masking = True
        self.output_scales = LogitSize(model)
        self.card = described(search)
        self.is_drawn = search.draw is not None
        self.search = search
        for name in search.options():
            setattr(self, name, getattr(search, name))
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.detokenize = back

    def call(
        self, inputs: Any, *, training: Any = None, mask: Any = None
    ) -> Any:
        inputs = _dense(self._by_name("inputs", inputs))
        # A Functional model takes any other argument too, and ignores it.
        return super().call(inputs, training=training, mask=mask)

    @functools.cached_property
    def from_ids(self) -> keras.Model:
        """The same from ids to ids: a Functional model of the same weights."""
        ids = keras.Input((None,), dtype="int32", name="ids")
        model = self._model_of_scores(ids, self.search(ids), "from_ids")
        model.retrace = self.retrace
        model.is_drawn = self.is_drawn
        return model

    def offered_signatures(self) -> dict[str, keras.Model]:
        """What exports of this model can be asked, by name.

        Samples are drawn by `noise`, one more input, floats in [0, 1) of shape
        `(batch, max_length)`: an answer can be asked for again, and proven.
        """
        if self.search.draw is None:
            default, from_ids = self, self.from_ids
        else:
            default, from_ids = self._with_noise(), self._with_noise(False)
        return {
            "serving_default": default,
            "from_ids": from_ids,
            "score": self.scorer,
        }

    def retrace(
        self, inputs: dict[str, Any], answers: dict[str, Any], tolerance: Any
    ) -> dict[str, Any]:
        """What is generated where ties fall as in other answers.

        Exports are verified by it: where two tokens are all but equally likely,
        rounding decides which is chosen, and all that follows is another
        sequence. What was chosen by an export is right if the model would
        choose so, too, where its choices hang on no more than a tolerance.

        Args:
            inputs: Tensors by the names of the inputs of any of the models that
                `offered_signatures` has, but `score`.
            answers: Those of an export, by the names of its outputs.
            tolerance: See `Claim`.

        Returns:
            The model's answers, by the same names. `ids`, or `text`, are those
            given where they are right; scores are the model's own, of what was
            chosen.
        """
        ids = inputs.get("ids")
        if ids is None:
            ids = self.source_tokenizer(inputs["text"])
        claimed = answers.get("ids")
        if claimed is None:
            claimed = self._claimed(answers["text"])
        found = self.search.retrace(
            ids, claimed, tolerance, noise=inputs.get("noise")
        )
        if "ids" in answers:
            return found
        return _of_texts(self.detokenize, found)

    def _claimed(self, texts: Any) -> Any:
        """The ids of generated texts, `(..., max_length)`."""
        shape = texts.shape
        ids = self.target_tokenizer(ops.reshape(texts, (-1,)))
        ids = self._scoring.tokens(ops.cast(ids, "int32"))
        length = self.search.max_length
        ids = ops.pad(ids, ((0, 0), (0, length)))[:, :length]
        return ops.reshape(ids, (-1, *shape[1:], length))

    def step_signatures(self) -> dict[str, keras.Model]:
        """Two models to export, for an app that chooses token by token.

        `encode`, from `ids` to all that the first step takes, and `decode`,
        from that to `logits`, float32 `(batch, vocabulary)`, of the next token,
        and to what the next step takes in place of it, but for its `token`,
        which the app chooses. What makes the choice here, from `beams` to
        `repetition_penalty`, is the app's: logits are the model's own, with
        what is never generated made impossible. The likeliest each time, up to
        an end symbol or `max_length`, are what a generator without any of these
        generates.

        Returns:
            A dict of Functional models, for `signatures` of an export.

        Example:
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
        """
        from keras_posenc.generation.token_steps import step_models

        return step_models(self.search, self.name)

    def _with_noise(self, texts: bool = True) -> keras.Model:
        noise = keras.Input(
            (self.search.max_length,), dtype="float32", name="noise"
        )
        if texts and self.source_tokenizer is not None:
            inputs = keras.Input((), dtype="string", name="text")
            ids = _tokens(self.source_tokenizer, inputs)
        else:
            inputs = ids = keras.Input((None,), dtype="int32", name="ids")
        found = self.search(ids, noise=noise)
        if texts and self.detokenize is not None:
            found = _of_texts(self.detokenize, found)
        model = self._model_of_scores([inputs, noise], found, "by_noise")
        model.retrace = self.retrace
        return model

    @functools.cached_property
    def scorer(self) -> keras.Model:
        """From `source` and `target` to the log-likelihood of the target.

        A Functional model of the same weights, of texts where the generator
        has tokenizers. Targets end: an end symbol that a text's ids lack is
        scored too. Its outputs are a dict of `score`, float32 `(batch,)`, and
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
            start_id=self.search.start_id,
            end_ids=self.search.end_ids,
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
        return self._model_of_scores(ids, scores, "scorer_from_ids")

    def _model_of_scores(
        self, inputs: Any, outputs: Any, name: str
    ) -> keras.Model:
        model = keras.Model(inputs, outputs, name=f"{self.name}_{name}")
        model.autocast = False  # as in `Search`, of noise
        model.output_scales = self.output_scales
        model.card = OF_SCORES if name.startswith("scorer") else self.card
        return model

    def predict(
        self, x: Any, *, batch_size: int = 32, verbose: Any = "auto"
    ) -> dict[str, np.ndarray]:
        """Generates, by Keras's `predict`, on every backend.

        `generator.from_ids.compile(jit_compile=True)` has XLA compile it on
        TensorFlow too, which pays where lengths and batches repeat.

        Args:
            x: Texts, as a list, an array or a tensor; ids, `(batch, seq)`,
                where there is no source tokenizer, also as a ragged tensor; a
                dict of these by the name of the model's input, `text` or `ids`;
                or a `tf.data.Dataset` of batches of texts or ids.
            batch_size: How many go at once.
            verbose: As for Keras's `predict`.

        Returns:
            A dict of arrays, as the model's outputs; texts are Python strings.

        Raises:
            ValueError: Something that is none of these, or a model of NaN.
        """
        tokenizer = self.source_tokenizer
        x = self._by_name("x", x)
        if hasattr(x, "element_spec"):
            _check_batches(x.element_spec, tokenizer)
            ids = x.map(_dense if tokenizer is None else tokenizer)
            found = self.from_ids.predict(ids, verbose=verbose)
        else:
            found = self.from_ids.predict(
                self._ids("x", x, tokenizer),
                batch_size=batch_size,
                verbose=verbose,
            )
        self.search.check_scores(found["score"], of_beams=self.search.beams > 1)
        if self.detokenize is None:
            return found
        return _of_texts(self._texts, found)

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Keras's `quantize`, of the model within and all that runs it."""
        super().quantize(*args, **kwargs)
        for each in (*vars(self).values(), *vars(self).get("_steps", ())):
            if isinstance(each, keras.Model):  # compiled as it was before
                each.predict_function = None

    def score(
        self, source: Any, target: Any, *, batch_size: int = 32
    ) -> np.ndarray:
        """The log-likelihood of each target, given its source.

        Args:
            source: Texts, or ids, `(batch, seq)`, without a tokenizer.
            target: The same of targets, as many.
            batch_size: How many go at once.

        Returns:
            float32 `(batch,)`.

        Raises:
            ValueError: Something that is none of these, another number of
                targets than of sources, or a model of NaN.
        """
        given = {"source": source, "target": target}
        ids = {
            side: self._ids(side, given[side], tokenizer)
            for side, tokenizer in self._tokenizers().items()
        }
        if len(ids["source"]) != len(ids["target"]):
            raise ValueError(
                "`target` must be as many as `source`. Received: "
                f"{len(ids['target'])} targets, {len(ids['source'])} sources"
            )
        self._scoring.check_lengths(**ids)
        found = self.scorer_from_ids.predict(
            ids, batch_size=batch_size, verbose=0
        )
        self.search.check_scores(found["score"], of_beams=False)
        return found["score"]

    def stream(self, text: Any, *, noise: Any = None) -> Stream:
        """Generates for one text, and hands tokens on as they come.

        Args:
            text: A text, or ids `(seq,)` where there is no source tokenizer.
            noise: Floats in [0, 1), `(max_length,)`, that draw the sample; by
                default of the generator's own seed.

        Returns:
            An iterator of pieces of text that together are the text, or of ids
            without a target tokenizer, the end symbol left out. It has `ids`,
            a list of those so far, and `ended`: None for as long as there may
            be more; then whether an end symbol came, False for what was cut
            off at `max_length`.

        Raises:
            ValueError: A generator with beams, which has no text before it
                has all of it; what is no text, or no ids, or no noise for it; a
                model of NaN.

        Example:
            >>> import keras_posenc as kp
            >>> model = kp.TransformerDecoderModel(
            ...     9, d_model=8, num_layers=1, num_heads=2, intermediate_dim=8
            ... )
            >>> generator = kp.Generator(model, max_length=3)
            >>> stream = generator.stream([5, 7, 2])
            >>> len(list(stream)), stream.ended  # it has no end symbol
            (3, False)
        """
        if self.search.beams > 1:
            raise ValueError(
                "A stream takes one token after the other. Received: a "
                f"generator with beams={self.search.beams}; make one of the "
                "same model with beams=1"
            )
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
            if self.search.draw is None or noise.shape != (self.max_length,):
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
        return Stream(self.search, self._steps, ids, texts=texts, noise=noise)

    @functools.cached_property
    def _steps(self) -> tuple[keras.Model, keras.Model]:
        from keras_posenc.generation.step import First, Step

        return First(self.search), Step(self.search)

    def _by_name(self, name: str, x: Any) -> Any:
        """What a dict has for the one input; anything else as it is."""
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
        """The ids of texts, or those given: int `(batch, seq)`, of a row."""
        if tokenizer is not None:
            if isinstance(x, str | bytes):
                raise ValueError(
                    f"`{name}` must be a list or an array of texts. "
                    f"Received: one text, {x!r:.40}"
                )
            _check_texts(name, x)
            ids = np.asarray(ops.convert_to_numpy(tokenizer(x)))
        else:
            try:
                ids = np.asarray(ops.convert_to_numpy(x))
            except (TypeError, ValueError):
                ids = np.array(None)  # rows of several lengths, say
            if ids.dtype.kind not in "biuf" or not ids.ndim:
                raise ValueError(
                    f"`{name}` must be ids of shape (batch, seq), padded with "
                    "0 to one length, as there is no tokenizer for it. "
                    f"Received: {name}={x!r:.40}"
                )
        if not len(ids):
            raise ValueError(
                f"`{name}` must hold at least one text. It is empty"
            )
        if not ids.size:  # of rows without a token, which have no dtype
            ids = ids.astype("int32")
        size = vocabulary_of(self.model) if name == "target" else None
        self.search.check_inputs(ids, name=name, size=size)
        return ids

    def _texts(self, ids: Any) -> np.ndarray:
        """Python strings of ids `(..., seq)`."""
        assert self.detokenize is not None
        for each in self.search.end_ids:
            ids = np.where(ids == each, 0, ids)
        texts = np.asarray(self.target_tokenizer.detokenize(ids))
        decoded = [
            text.decode() if isinstance(text, bytes) else str(text)
            for text in texts.reshape(-1)
        ]
        return np.array(decoded, object).reshape(texts.shape)

    def _tokenizers(self) -> dict[str, Any]:
        """What makes ids of a source, and of a target."""
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
            **self.search.options(),
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
    """The same answers with a text in place of ids."""
    said = {name: found[name] for name in found if name in {"score", "ended"}}
    return {"text": detokenize(found["ids"]), **said}


def _tokens(tokenizer: keras.Layer, texts: Any) -> Any:
    """The ids of symbolic texts, however the tokenizer is called."""
    if tokenizer.name in _NAMES:
        tokenizer = Tokenizing(tokenizer, name=f"{tokenizer.name}_ids")
    return tokenizer(texts)


def _dense(ids: Any) -> Any:
    """Ids that TensorFlow has as ragged rows, padded with 0; else as given."""
    return ids.to_tensor() if hasattr(ids, "to_tensor") else ids


def _check_batches(spec: Any, tokenizer: Any) -> None:
    """Raises `ValueError` unless a dataset holds batches of texts, or ids."""
    rank = getattr(getattr(spec, "shape", None), "rank", None)
    if rank != (2 if tokenizer is None else 1):
        wanted = "ids, (batch, seq)" if tokenizer is None else "texts, (batch,)"
        raise ValueError(
            f"`x` as a dataset must hold batches of {wanted}. "
            f"Received: elements {spec}"
        )


def _check_texts(name: str, x: Any) -> None:
    """Raises `ValueError` for what no tokenizer takes, and says so by codes."""
    if not isinstance(x, list | tuple | np.ndarray):
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
    """How many ids a tokenizer has, if it says so."""
    size = getattr(tokenizer, "vocabulary_size", None)
    size = size() if callable(size) else size
    return size if isinstance(size, int) else None


def _check_vocabulary(name: str, tokenizer: Any, vocabulary: int) -> None:
    """Raises `ValueError` for a tokenizer of ids that the model has not."""
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


def _id_of(tokenizer: Any, name: str) -> Any:
    return getattr(tokenizer, name, None)


def _is_row(ids: Any) -> bool:
    try:
        return np.ndim(ops.convert_to_numpy(ids)) == 1
    except (TypeError, ValueError):  # rows of several lengths, say
        return False
