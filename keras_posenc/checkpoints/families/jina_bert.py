"""JinaBERT (Jina v2): BERT with linear biases (ALiBi), mostly gated."""

from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Reading
from keras_posenc.checkpoints.tensors import Tensors
from keras_posenc.positional.biases import AlibiBias

_NAMES = {part: name for part, name in Bert.names.items() if part != "position"}
_GATED_NAMES = {
    **_NAMES,
    "gate_intermediate": "encoder.layer.{}.mlp.gated_layers",
    "feed_forward_output": "encoder.layer.{}.mlp.wo",
    "feed_forward_norm": "encoder.layer.{}.mlp.layernorm",
}
# The activation of the gate; "original" has none.
_GATES = {"original": None, "geglu": "gelu", "reglu": "relu"}


class JinaBert(Bert):
    """[Günther et al., 2023](https://arxiv.org/abs/2310.19923).

    Its type is BERT's, with `position_embedding_type` "alibi". Slopes are the
    published ones, of distances in both directions.
    """

    names = _NAMES
    ignored = "emb_pooler max_position_embeddings"

    def options(self, config: Config) -> dict[str, Any]:
        config.require("position_embedding_type", "alibi")
        gate = config.choose("feed_forward_type", _GATES, "original")
        options = {
            **self.sizes(config),
            "input_position": None,
            "attention": AlibiBias(name="alibi_bias"),
            "embedding_norm": True,
        }
        if gate is None:
            return options
        return {**options, "activation": gate, "use_gate": True}

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        found = super().said(config, options)
        if "use_gate" in options:
            found["names"] = _GATED_NAMES
            found["without_bias"] = frozenset({"gate_intermediate"})
        return found

    def check(self, reading: Reading, tensors: Tensors, path: Any) -> None:
        super().check(reading, tensors, path)
        if any(".layer_norm_q." in name for name in tensors.names):
            raise ValueError(
                f"'{path}' is of a model that normalizes queries and keys (as "
                "jina-embeddings-v2-base-code does), which is not supported. "
                "Choose a checkpoint without the tensors 'layer_norm_q'"
            )
