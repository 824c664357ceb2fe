"""DINOv2: ViT whose blocks scale the output of each sublayer."""

from collections.abc import Mapping
from typing import Any

from keras_posenc.checkpoints.config import Config
from keras_posenc.checkpoints.families.vit import ViT
from keras_posenc.transformer.specs import Norm


class DinoV2(ViT):
    """[Oquab et al., 2023](https://arxiv.org/abs/2304.07193)."""

    types = ("dinov2",)
    prefix = "dinov2."
    names = {
        **ViT.names,
        "attention_norm": "encoder.layer.{}.norm1",
        "attention_scale": "encoder.layer.{}.layer_scale1.lambda1",
        "intermediate": "encoder.layer.{}.mlp.fc1",
        "feed_forward_output": "encoder.layer.{}.mlp.fc2",
        "feed_forward_norm": "encoder.layer.{}.norm2",
        "feed_forward_scale": "encoder.layer.{}.layer_scale2.lambda1",
    }
    pooling: str | list[str] | None = ["first", "mean_after_first"]
    ignored = """
        apply_layernorm drop_path_rate layerscale_value out_features
        out_indices reshape_hidden_states stage_names use_mask_token
    """
    fixed: Mapping[str, Any] = {"use_swiglu_ffn": False}

    def options(self, config: Config) -> dict[str, Any]:
        sizes = self.sizes(config)
        ratio = config.positive("mlp_ratio", 4)
        return {
            **sizes,
            "intermediate_dim": int(sizes["d_model"] * ratio),
            "norm": Norm(
                at="before", epsilon=config.positive("layer_norm_eps", 1e-6)
            ),
        }

    def factors(self, block: Any, parts: Any, number: int) -> dict[str, Any]:
        shape = block.feed_forward.output_projection.bias.shape
        return {
            f"{half}_output": parts.absorbed(
                f"{half}_scale", shape, 1.0, number, of=None
            )
            for half in ("attention", "feed_forward")
        }
