"""A package that LiteRT-LM's engine has run."""

import keras_posenc as kp

model = kp.TransformerDecoderModel(
    260, d_model=16, num_layers=1, num_heads=2, intermediate_dim=32
)
generator = kp.Generator(
    model, source_tokenizer=kp.ByteTokenizer(add_end=False)
)
exported = kp.export_litertlm(
    generator, "tiny.litertlm", prefill_lengths=(8, 16), cache_length=64
)
assert exported.report.passed
