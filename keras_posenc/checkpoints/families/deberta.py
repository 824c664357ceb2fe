"""DeBERTa v2 and v3: attention scores of contents and relative positions."""

from typing import Any

import keras
import numpy as np

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import ACTIVATIONS, Pooler
from keras_posenc.checkpoints.parts import array_of
from keras_posenc.checks import check_integer
from keras_posenc.positional.biases import DisentangledBias

# Three scores are added: content-content, content-position, position-content.
_SHARE = 3**-0.5
_FARTHEST = 2**20
_PROJECTIONS = ("distance_query", "distance_key")


class Deberta(Bert):
    """[He et al., 2021](https://arxiv.org/abs/2111.09543)."""

    types = ("deberta-v2",)
    prefix = "deberta."
    names = {
        "embedding": "embeddings.word_embeddings",
        "embedding_norm": "embeddings.LayerNorm",
        "distances": "encoder.rel_embeddings",
        "distance_norm": "encoder.LayerNorm",
        **{
            part: name
            for part, name in Bert.names.items()
            if name.startswith("encoder.")
        },
        "query": "encoder.layer.{}.attention.self.query_proj",
        "key": "encoder.layer.{}.attention.self.key_proj",
        "value": "encoder.layer.{}.attention.self.value_proj",
        # Without these, distances have the projections of contents.
        "distance_query": "encoder.layer.{}.attention.self.pos_query_proj",
        "distance_key": "encoder.layer.{}.attention.self.pos_key_proj",
    }
    ignored = "legacy"  # of masked language modeling only
    fixed = dict.fromkeys(("type_vocab_size", "conv_kernel_size", "z_steps"), 0)
    usual_epsilon = 1e-7

    def options(self, config: Config) -> dict[str, Any]:
        config.require("relative_attention", True)
        config.require("position_biased_input", False)
        kinds = config.take("pos_att_type")
        if isinstance(kinds, str):
            kinds = kinds.split("|")
        if kinds not in (["c2p", "p2c"], ["p2c", "c2p"]):
            raise config.wrong("pos_att_type", "it must be p2c and c2p")
        longest = config.checked("max_relative_positions", check_integer, -1)
        trained = config.size("max_position_embeddings")
        sizes = self.sizes(config)
        config.expect(
            "attention_head_size", sizes["d_model"] // sizes["num_heads"]
        )
        config.expect("pooler_hidden_size", sizes["d_model"])
        position = {
            "num_buckets": config.size("position_buckets"),
            "max_distance": longest if longest > 0 else trained,
        }
        if max(position.values()) > _FARTHEST:
            raise config.wrong(
                "max_relative_positions", f"it must be at most {_FARTHEST}"
            )
        return {
            **sizes,
            "input_position": None,
            "embedding_norm": True,
            "attention": [
                DisentangledBias(**position, name="disentangled_bias")
                for _ in range(sizes["num_layers"])
            ],
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        without: set[str] = set()
        if config.expect("norm_rel_ebd", "none", "layer_norm") == "none":
            without |= {"distance_norm"}
        if config.expect("share_att_key", False, True):
            without |= {*_PROJECTIONS}
        act = config.choose("pooler_hidden_act", ACTIVATIONS, "gelu")
        return {
            "names": {x: y for x, y in self.names.items() if x not in without},
            "pooler": Pooler("pooler.dense", act),
            "factors": dict.fromkeys(("query", "distance_query"), _SHARE),
        }

    def written(self, model: Any) -> dict[str, Any]:
        return {"norm_rel_ebd": "none", "share_att_key": False}

    def match(self, model: Any, parts: Any) -> None:
        super().match(model, parts)
        (self._save if parts.saves else self._load)(model, parts)

    def _load(self, model: Any, parts: Any) -> None:
        """Fills the products of distances, which no input changes."""
        width = model.d_model
        rows = 2 * model.attention[0].position.num_buckets
        table = parts.take("distances", (rows, width))
        if "distance_norm" in parts.reading.names:
            norm = keras.layers.LayerNormalization(
                epsilon=model.norm.epsilon, dtype="float32"
            )
            norm.build((None, width))
            parts.norm(norm, "distance_norm")
            table = keras.ops.convert_to_numpy(norm(table))
        for number, block in enumerate(model.encoder.blocks):
            layer = block.attention.query_key_value
            if "distance_key" in parts.reading.names:
                layer = _projection(width)
                self._match(layer, parts, number)
            kernel, bias = map(array_of, (layer.kernel, layer.bias))
            # In float64, so that each product is rounded once, as it is stored.
            both = table.astype("float64") @ kernel[:, : 2 * width]
            both += bias[: 2 * width]
            position = block.attention.attention_position
            weights = position.query_embeddings, position.key_embeddings
            for weight, values in zip(
                weights, np.split(both, 2, axis=1), strict=True
            ):
                weight.assign(values.reshape(weight.shape))
            # Trained ones could only be saved as products of a wider table.
            position.trainable = rows <= width

    def _save(self, model: Any, parts: Any) -> None:
        """Writes a table and projections that have these products.

        Training changes the products of each block by themselves, so they are
        no longer those of the table that was loaded.
        """
        width = model.d_model
        products = []
        for block in model.encoder.blocks:
            position = block.attention.attention_position
            weights = position.query_embeddings, position.key_embeddings
            each = [array_of(x).reshape(x.shape[0], width) for x in weights]
            products.append(np.concatenate(each, axis=1, dtype="float64"))
        # Loading rounds each product once, by at most half an epsilon.
        rounding = 2 * np.spacing(np.ones((), weights[0].dtype))
        offsets = [each.mean(axis=0) for each in products]
        centered = [x - y for x, y in zip(products, offsets, strict=True)]
        # The last of these directions span the columns of all products.
        _, directions = np.linalg.eigh(sum(each @ each.T for each in centered))
        directions = directions[:, ::-1][:, :width]
        table = np.zeros((len(directions), width), "float32")
        table[:, : directions.shape[1]] = directions
        parts.put("distances", table)
        for number, each in enumerate(centered):
            kernel = table.T @ each
            apart = np.abs(table @ kernel - each).max()
            if apart > rounding * np.abs(products[number]).max():
                raise ValueError(
                    "The embeddings of distances were trained, and no table "
                    f"of width {width} has those of all blocks as products. "
                    "Load the model again, which freezes them, and train it "
                    "without `trainable = True`; or save it as `.keras`"
                )
            layer = _projection(width)
            layer.kernel.assign(kernel)
            layer.bias.assign(offsets[number])
            self._match(layer, parts, number)

    def _match(self, layer: Any, parts: Any, number: int) -> None:
        factors = parts.reading.factors
        parts.dense(layer, _PROJECTIONS, number, factors=factors)


def _projection(width: int) -> keras.layers.Dense:
    """Returns a projection of distances, for queries and for keys."""
    layer = keras.layers.Dense(2 * width, dtype="float32")
    layer.build((None, width))
    return layer
