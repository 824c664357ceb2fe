"""DeiT: ViT with a second token, which a teacher's answers are read at."""

from keras_posenc.checkpoints.families.vit import ViT


class DeiT(ViT):
    """[Touvron et al., 2020](https://arxiv.org/abs/2012.12877)."""

    prefix = "deit."
    names = {
        **ViT.names,
        "distillation_token": "embeddings.distillation_token",
    }
    class_tokens = ("class_token", "distillation_token")
