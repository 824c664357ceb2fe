"""ESM-2: BERT with rotary positions, for protein sequences."""

from dataclasses import replace
from typing import Any

from keras_posenc.checkpoints.config import REQUIRED, Config
from keras_posenc.checkpoints.families.bert import Bert
from keras_posenc.checkpoints.family import Pooler
from keras_posenc.checkpoints.rotary import rotary_of

# ESM multiplies embeddings by the share of unmasked tokens in training over
# that of the input, which is 1 here.
_KEPT = 1 - 0.15 * 0.8


class Esm(Bert):
    """[Lin et al., 2022](https://doi.org/10.1101/2022.07.20.500902).

    For sequences without `<mask>`: ESM replaces its embedding by zeros.
    """

    types = ("esm",)
    prefix = "esm."
    names = {
        "embedding": "embeddings.word_embeddings",
        **{
            part: name
            for part, name in Bert.names.items()
            if name.startswith("encoder.")
        },
        "attention_norm": "encoder.layer.{}.attention.LayerNorm",
        "feed_forward_norm": "encoder.layer.{}.LayerNorm",
        "final_norm": "encoder.emb_layer_norm_after",
    }
    unused = (
        *Bert.unused,
        r".*rotary_embeddings\.inv_freq",
        r"(esm\.)?contact_head\..*",
        r"(esm\.)?embeddings\.position_embeddings\.weight",
    )
    pooler = Pooler("classifier.dense", "tanh")
    classifier = "classifier.out_proj"
    ignored = "esmfold_config vocab_list max_position_embeddings"
    fixed = {"is_folding_model": False}
    usual_pad_id = REQUIRED

    def options(self, config: Config) -> dict[str, Any]:
        config.require("position_embedding_type", "rotary")
        config.expect("emb_layer_norm_before", False, None)
        sizes = self.sizes(config)
        return {
            **sizes,
            "input_position": None,
            "attention": rotary_of(config, 10000.0, kinds=("default",)),
            "norm": replace(sizes["norm"], at="before"),
        }

    def said(self, config: Config, options: dict[str, Any]) -> dict[str, Any]:
        drops = config.expect("token_dropout", False, True)
        return {"embedding_scale": _KEPT if drops else 1.0}
