"""CamemBERT: RoBERTa for French."""

from keras_posenc.checkpoints.families.roberta import Roberta


class Camembert(Roberta):
    """[Martin et al., 2019](https://arxiv.org/abs/1911.03894)."""

    types = ("camembert",)
