"""Models of keras.io's examples of structured data.

Built as the examples build them, with fewer columns and narrower layers.
"""

import keras
import numpy as np
import tensorflow as tf
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


@structured(
    "feature_space", "structured_data_classification_with_feature_space/"
)
def feature_space():
    space = keras.utils.FeatureSpace(
        features={
            "sex": "integer_categorical",
            "thal": keras.utils.FeatureSpace.string_categorical(
                num_oov_indices=0
            ),
            "trestbps": "float_normalized",
            "oldpeak": "float_normalized",
            "age": keras.utils.FeatureSpace.float_discretized(num_bins=4),
        },
        crosses=[
            keras.utils.FeatureSpace.cross(
                feature_names=("sex", "age"), crossing_dim=8
            )
        ],
        output_mode="concat",
    )
    rows = {
        "sex": np.array([0, 1, 1, 0]),
        "thal": np.array(["fixed", "normal", "reversible", "normal"]),
        "trestbps": np.array([120.0, 130.0, 145.0, 160.0], "float32"),
        "oldpeak": np.array([0.0, 1.4, 2.3, 3.6], "float32"),
        "age": np.array([29.0, 41.0, 63.0, 67.0], "float32"),
    }
    space.adapt(tf.data.Dataset.from_tensor_slices(rows))
    dict_inputs = space.get_inputs()
    encoded = space.get_encoded_features()
    x = layers.Dense(32, activation="relu")(encoded)
    x = layers.Dropout(0.5)(x)
    predictions = layers.Dense(1, activation="sigmoid")(x)
    samples = {name: column[:, None] for name, column in rows.items()}
    return keras.Model(dict_inputs, predictions), {"samples": samples}


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


class GatedLinearUnit(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.linear = layers.Dense(units)
        self.sigmoid = layers.Dense(units, activation="sigmoid")

    def call(self, inputs):
        return self.linear(inputs) * self.sigmoid(inputs)


class GatedResidualNetwork(layers.Layer):
    def __init__(self, units, dropout_rate):
        super().__init__()
        self.units = units
        self.elu_dense = layers.Dense(units, activation="elu")
        self.linear_dense = layers.Dense(units)
        self.dropout = layers.Dropout(dropout_rate)
        self.gated_linear_unit = GatedLinearUnit(units)
        self.layer_norm = layers.LayerNormalization()
        self.project = layers.Dense(units)

    def call(self, inputs):
        x = self.dropout(self.linear_dense(self.elu_dense(inputs)))
        if inputs.shape[-1] != self.units:
            inputs = self.project(inputs)
        return self.layer_norm(inputs + self.gated_linear_unit(x))


@structured("grn_vsn", "classification_with_grn_and_vsn/")
def classification_with_grn_and_vsn():
    class VariableSelection(layers.Layer):
        def __init__(self, num_features, units, dropout_rate):
            super().__init__()
            self.grns = [
                GatedResidualNetwork(units, dropout_rate)
                for _ in range(num_features)
            ]
            self.grn_concat = GatedResidualNetwork(units, dropout_rate)
            self.softmax = layers.Dense(num_features, activation="softmax")

        def call(self, inputs):
            columns = list(inputs.values())
            v = self.grn_concat(layers.concatenate(columns))
            v = ops.expand_dims(self.softmax(v), axis=-1)
            x = [grn(c) for grn, c in zip(self.grns, columns, strict=True)]
            x = ops.matmul(ops.transpose(v, axes=[0, 2, 1]), ops.stack(x, 1))
            return ops.squeeze(x, axis=1)

    inputs = census_inputs()
    encoded = {}
    for name, x in inputs.items():
        if name in CATEGORICAL:
            embedding = layers.Embedding(len(CATEGORICAL[name]), 16)
            encoded[name] = embedding(number_of(name, x))
        else:
            encoded[name] = layers.Dense(16)(ops.expand_dims(x, -1))
    features = VariableSelection(len(encoded), 16, 0.15)(encoded)
    return of_census(inputs, layers.Dense(1, activation="sigmoid")(features))


@structured(
    "collaborative_filtering_movielens",
    "collaborative_filtering_for_movielens/",
)
def collaborative_filtering_movielens():
    class RecommenderNet(keras.Model):
        def __init__(self, users, movies, width):
            super().__init__()
            options = {
                "embeddings_initializer": "he_normal",
                "embeddings_regularizer": keras.regularizers.l2(1e-6),
            }
            self.user_embedding = layers.Embedding(users, width, **options)
            self.user_bias = layers.Embedding(users, 1)
            self.movie_embedding = layers.Embedding(movies, width, **options)
            self.movie_bias = layers.Embedding(movies, 1)

        def call(self, inputs):
            user, movie = inputs[:, 0], inputs[:, 1]
            vectors = self.user_embedding(user), self.movie_embedding(movie)
            bias = self.user_bias(user) + self.movie_bias(movie)
            return ops.nn.sigmoid(ops.tensordot(*vectors, 2) + bias)

    net = RecommenderNet(60, 90, 50)
    pairs = np.array([[1, 2], [3, 4]], "int64")
    net(pairs)
    spec = keras.InputSpec(shape=(None, 2), dtype="int64")
    signatures = {"serving_default": (net, {"inputs": spec})}
    return net, {"signatures": signatures, "samples": pairs}
