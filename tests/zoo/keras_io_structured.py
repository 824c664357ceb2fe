"""Models of keras.io's examples of structured data.

Built as the examples build them, with fewer columns and narrower layers.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import group, stack


def census_inputs():
    return {
        name: layers.Input(
            name=name,
            shape=(),
            dtype="float32" if name in NUMERIC else "string",
        )
        for name in [*NUMERIC, *CATEGORICAL]
    }


def of_census(inputs, outputs):
    """The model, and its inputs for four people."""
    samples = {name: np.arange(4, dtype="float32") for name in NUMERIC}
    for name, vocabulary in CATEGORICAL.items():
        samples[name] = np.array([vocabulary[i % 2] for i in range(4)])
    return keras.Model(inputs, outputs), {"samples": samples}


def number_of(name, x):
    """The number of a category, as the examples look it up."""
    lookup = layers.StringLookup(
        vocabulary=CATEGORICAL[name], mask_token=None, num_oov_indices=0
    )
    return lookup(x)


structured = group("structured", "https://keras.io/examples/structured_data/")

# The kinds of columns of the census data that several examples read.
NUMERIC = ["age", "capital_gains", "weeks_worked_in_year"]
CATEGORICAL = {
    "class_of_worker": ["Private", "Self-employed", "Not in universe"],
    "education": ["Bachelors degree(BA AB BS)", "High school graduate"],
    "veterans_benefits": ["0", "1", "2"],
}


@structured("imbalanced_classification")
def imbalanced_classification():
    return stack(
        keras.Input((30,)),
        layers.Dense(256, activation="relu"),
        layers.Dense(256, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(256, activation="relu"),
        layers.Dropout(0.3),
        layers.Dense(1, activation="sigmoid"),
    )


@structured(
    "classification_from_scratch",
    "structured_data_classification_from_scratch/",
)
def structured_data_classification_from_scratch():
    age = keras.Input(shape=(1,), name="age")
    chol = keras.Input(shape=(1,), name="chol")
    sex = keras.Input(shape=(1,), name="sex", dtype="int64")
    thal = keras.Input(shape=(1,), name="thal", dtype="string")
    encoded = []
    for x, values in ((sex, [0, 1]), (thal, ["fixed", "normal", "reversible"])):
        text = x.dtype == "string"
        kind = layers.StringLookup if text else layers.IntegerLookup
        lookup = kind(output_mode="multi_hot")
        lookup.adapt(np.array(values)[:, None])
        encoded.append(lookup(x))
    for x in (age, chol):
        normalizer = layers.Normalization()
        normalizer.adapt(np.array([[29.0], [54.0], [77.0]]))
        encoded.append(normalizer(x))
    x = layers.concatenate(encoded)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dropout(0.5)(x)
    output = layers.Dense(1, activation="sigmoid")(x)
    return keras.Model([age, chol, sex, thal], output)


def encode_inputs(inputs, use_embedding=False):
    encoded = []
    for name, x in inputs.items():
        if name not in CATEGORICAL:
            encoded.append(ops.expand_dims(x, -1))
        elif use_embedding:
            embedding = layers.Embedding(len(CATEGORICAL[name]), 4)
            encoded.append(embedding(number_of(name, x)))
        else:
            lookup = layers.StringLookup(
                vocabulary=CATEGORICAL[name],
                mask_token=None,
                num_oov_indices=1,
                output_mode="multi_hot",
            )
            encoded.append(lookup(ops.expand_dims(x, -1)))
    return layers.concatenate(encoded)


def scored(inputs, one, deep):
    """What the examples make of one side and of the deep one."""
    for units in [32, 32]:
        deep = layers.BatchNormalization()(layers.Dense(units)(deep))
        deep = layers.Dropout(0.1)(layers.ReLU()(deep))
    merged = layers.concatenate([one, deep])
    return of_census(inputs, layers.Dense(7, activation="softmax")(merged))


@structured("wide_and_deep", "wide_deep_cross_networks/")
def wide_and_deep():
    inputs = census_inputs()
    wide = layers.BatchNormalization()(encode_inputs(inputs))
    return scored(inputs, wide, encode_inputs(inputs, use_embedding=True))


@structured("deep_and_cross", "wide_deep_cross_networks/")
def deep_and_cross():
    inputs = census_inputs()
    x0 = cross = encode_inputs(inputs, use_embedding=True)
    for _ in range(2):
        cross = x0 * layers.Dense(cross.shape[-1])(cross) + cross
    return scored(inputs, layers.BatchNormalization()(cross), x0)


@structured("tabtransformer")
def tabtransformer():
    width = 16
    inputs = census_inputs()
    categorical = [
        layers.Embedding(len(CATEGORICAL[name]), width)(number_of(name, x))
        for name, x in inputs.items()
        if name in CATEGORICAL
    ]
    numerical = layers.concatenate(
        [ops.expand_dims(inputs[name], -1) for name in NUMERIC]
    )
    x = ops.stack(categorical, axis=1)
    x = x + layers.Embedding(x.shape[1], width)(ops.arange(x.shape[1]))
    for block in range(2):
        attention = layers.MultiHeadAttention(
            4, width, dropout=0.2, name=f"multihead_attention_{block}"
        )(x, x)
        x = layers.Add(name=f"skip_connection1_{block}")([attention, x])
        x = layers.LayerNormalization(
            name=f"layer_norm1_{block}", epsilon=1e-6
        )(x)
        forward = stack(
            layers.LayerNormalization(epsilon=1e-6),
            layers.Dense(width, activation="gelu"),
            layers.Dropout(0.2),
            name=f"feedforward_{block}",
        )(x)
        x = layers.Add(name=f"skip_connection2_{block}")([forward, x])
        x = layers.LayerNormalization(
            name=f"layer_norm2_{block}", epsilon=1e-6
        )(x)
    numerical = layers.LayerNormalization(epsilon=1e-6)(numerical)
    x = layers.concatenate([layers.Flatten()(x), numerical])
    for units in (32, 16):
        x = layers.BatchNormalization()(x)
        x = layers.Dropout(0.2)(layers.Dense(units, activation="selu")(x))
    outputs = layers.Dense(1, activation="sigmoid", name="sigmoid")(x)
    return of_census(inputs, outputs)
