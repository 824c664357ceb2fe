"""DeiT: ViT with a second token, trained to predict a teacher's outputs."""

from keras_posenc.checkpoints.families.vit import ViT


class DeiT(ViT):
    """[Touvron et al., 2020](https://arxiv.org/abs/2012.12877)."""

    types = ("deit",)
    prefix = "deit."
    names = {
        **ViT.names,
        "distillation_token": "embeddings.distillation_token",
    }
    class_tokens = ("class_token", "distillation_token")
