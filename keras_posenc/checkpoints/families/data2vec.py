"""data2vec for text: RoBERTa, trained to predict its own features."""

from keras_posenc.checkpoints.families.roberta import Roberta


class Data2VecText(Roberta):
    """[Baevski et al., 2022](https://arxiv.org/abs/2202.03555)."""

    types = ("data2vec-text",)
    prefix = "data2vec_text."
