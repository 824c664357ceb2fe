"""Models of keras.io's examples of structured data.

Built as the examples build them, with fewer columns and narrower layers.
"""

import math

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.zoo.entries import model

TABLES = "https://keras.io/examples/structured_data/"

# The kinds of columns of the census data that several examples read.
NUMERIC = ["age", "capital_gains", "weeks_worked_in_year"]
CATEGORICAL = {
    "class_of_worker": ["Private", "Self-employed", "Not in universe"],
    "education": ["Bachelors degree(BA AB BS)", "High school graduate"],
    "veterans_benefits": ["0", "1", "2"],
}


def census_samples():
    samples = {
        name: np.arange(4, dtype="float32").reshape(4, 1) for name in NUMERIC
    }
    for name, vocabulary in CATEGORICAL.items():
        samples[name] = np.array([[vocabulary[i % 2]] for i in range(4)])
    return samples


def create_model_inputs():
    inputs = {}
    for name in [*NUMERIC, *CATEGORICAL]:
        dtype = "float32" if name in NUMERIC else "string"
        inputs[name] = layers.Input(name=name, shape=(), dtype=dtype)
    return inputs


def flat_samples():
    return {name: x[:, 0] for name, x in census_samples().items()}


@model(
    "structured/imbalanced_classification",
    TABLES + "imbalanced_classification/",
)
def imbalanced_classification():
    return keras.Sequential(
        [
            keras.Input((30,)),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(1, activation="sigmoid"),
        ]
    )


@model(
    "structured/classification_from_scratch",
    TABLES + "structured_data_classification_from_scratch/",
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


@model(
    "structured/feature_space",
    TABLES + "structured_data_classification_with_feature_space/",
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


def encode_inputs(inputs, use_embedding=False, units=16):
    encoded = []
    for name, x in inputs.items():
        if name not in CATEGORICAL:
            encoded.append(ops.expand_dims(x, -1))
            continue
        vocabulary = CATEGORICAL[name]
        lookup = layers.StringLookup(
            vocabulary=vocabulary,
            mask_token=None,
            num_oov_indices=0 if use_embedding else 1,
            output_mode="int" if use_embedding else "multi_hot",
        )
        if use_embedding:
            embedding = layers.Embedding(
                input_dim=len(vocabulary), output_dim=math.ceil(units**0.5)
            )
            encoded.append(embedding(lookup(x)))
        else:
            encoded.append(lookup(ops.expand_dims(x, -1)))
    return layers.concatenate(encoded)


@model("structured/wide_and_deep", TABLES + "wide_deep_cross_networks/")
def wide_and_deep():
    inputs = create_model_inputs()
    wide = layers.BatchNormalization()(encode_inputs(inputs))
    deep = encode_inputs(inputs, use_embedding=True)
    for units in [32, 32]:
        deep = layers.Dense(units)(deep)
        deep = layers.BatchNormalization()(deep)
        deep = layers.ReLU()(deep)
        deep = layers.Dropout(0.1)(deep)
    merged = layers.concatenate([wide, deep])
    outputs = layers.Dense(units=7, activation="softmax")(merged)
    return keras.Model(inputs=inputs, outputs=outputs), {
        "samples": flat_samples()
    }


@model("structured/deep_and_cross", TABLES + "wide_deep_cross_networks/")
def deep_and_cross():
    inputs = create_model_inputs()
    x0 = encode_inputs(inputs, use_embedding=True)
    cross = x0
    for _ in range(2):
        units = cross.shape[-1]
        cross = x0 * layers.Dense(units)(cross) + cross
    cross = layers.BatchNormalization()(cross)
    deep = x0
    for units in [32, 32]:
        deep = layers.Dense(units)(deep)
        deep = layers.BatchNormalization()(deep)
        deep = layers.ReLU()(deep)
        deep = layers.Dropout(0.1)(deep)
    merged = layers.concatenate([cross, deep])
    outputs = layers.Dense(units=7, activation="softmax")(merged)
    return keras.Model(inputs=inputs, outputs=outputs), {
        "samples": flat_samples()
    }


@model("structured/tabtransformer", TABLES + "tabtransformer/")
def tabtransformer():
    width = 16
    inputs = create_model_inputs()
    categorical, numerical = [], []
    for name, x in inputs.items():
        if name not in CATEGORICAL:
            numerical.append(ops.expand_dims(x, -1))
            continue
        vocabulary = CATEGORICAL[name]
        lookup = layers.StringLookup(
            vocabulary=vocabulary,
            mask_token=None,
            num_oov_indices=0,
            output_mode="int",
        )
        categorical.append(layers.Embedding(len(vocabulary), width)(lookup(x)))
    encoded = ops.stack(categorical, axis=1)
    numerical = layers.concatenate(numerical)
    columns = encoded.shape[1]
    encoded = encoded + layers.Embedding(columns, width)(
        ops.arange(start=0, stop=columns, step=1)
    )
    for block in range(2):
        attention = layers.MultiHeadAttention(
            num_heads=4,
            key_dim=width,
            dropout=0.2,
            name=f"multihead_attention_{block}",
        )(encoded, encoded)
        x = layers.Add(name=f"skip_connection1_{block}")([attention, encoded])
        x = layers.LayerNormalization(
            name=f"layer_norm1_{block}", epsilon=1e-6
        )(x)
        forward = keras.Sequential(
            [
                layers.LayerNormalization(epsilon=1e-6),
                layers.Dense(width, activation=keras.activations.gelu),
                layers.Dropout(0.2),
            ],
            name=f"feedforward_{block}",
        )(x)
        x = layers.Add(name=f"skip_connection2_{block}")([forward, x])
        encoded = layers.LayerNormalization(
            name=f"layer_norm2_{block}", epsilon=1e-6
        )(x)
    features = layers.Flatten()(encoded)
    numerical = layers.LayerNormalization(epsilon=1e-6)(numerical)
    features = layers.concatenate([features, numerical])
    for units in (32, 16):
        features = layers.BatchNormalization()(features)
        features = layers.Dense(units, activation=keras.activations.selu)(
            features
        )
        features = layers.Dropout(0.2)(features)
    outputs = layers.Dense(1, activation="sigmoid", name="sigmoid")(features)
    return keras.Model(inputs=inputs, outputs=outputs), {
        "samples": flat_samples()
    }


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


@model("structured/grn_vsn", TABLES + "classification_with_grn_and_vsn/")
def classification_with_grn_and_vsn():
    class VariableSelection(layers.Layer):
        def __init__(self, num_features, units, dropout_rate):
            super().__init__()
            self.units = units
            self.grns = [
                GatedResidualNetwork(units, dropout_rate)
                for _ in range(num_features)
            ]
            self.grn_concat = GatedResidualNetwork(units, dropout_rate)
            self.softmax = layers.Dense(num_features, activation="softmax")

        def call(self, inputs):
            concat_inputs = list(inputs.values())
            v = layers.concatenate(concat_inputs)
            v = self.grn_concat(v)
            v = ops.expand_dims(self.softmax(v), axis=-1)
            x = [
                grn(column)
                for grn, column in zip(self.grns, concat_inputs, strict=True)
            ]
            x = ops.stack(x, axis=1)
            return ops.squeeze(
                ops.matmul(ops.transpose(v, axes=[0, 2, 1]), x), axis=1
            )

    inputs = create_model_inputs()
    encoded = {}
    for name, x in inputs.items():
        if name in CATEGORICAL:
            lookup = layers.StringLookup(
                vocabulary=CATEGORICAL[name],
                mask_token=None,
                num_oov_indices=0,
            )
            embedding = layers.Embedding(len(CATEGORICAL[name]), 16)
            encoded[name] = embedding(lookup(x))
        else:
            encoded[name] = layers.Dense(16)(ops.expand_dims(x, -1))
    features = VariableSelection(len(encoded), 16, 0.15)(encoded)
    outputs = layers.Dense(units=1, activation="sigmoid")(features)
    return keras.Model(inputs=inputs, outputs=outputs), {
        "samples": flat_samples()
    }


@model(
    "structured/collaborative_filtering_movielens",
    TABLES + "collaborative_filtering_for_movielens/",
)
def collaborative_filtering_movielens():
    class RecommenderNet(keras.Model):
        def __init__(self, num_users, num_movies, embedding_size, **kwargs):
            super().__init__(**kwargs)
            self.user_embedding = layers.Embedding(
                num_users,
                embedding_size,
                embeddings_initializer="he_normal",
                embeddings_regularizer=keras.regularizers.l2(1e-6),
            )
            self.user_bias = layers.Embedding(num_users, 1)
            self.movie_embedding = layers.Embedding(
                num_movies,
                embedding_size,
                embeddings_initializer="he_normal",
                embeddings_regularizer=keras.regularizers.l2(1e-6),
            )
            self.movie_bias = layers.Embedding(num_movies, 1)

        def call(self, inputs):
            user_vector = self.user_embedding(inputs[:, 0])
            user_bias = self.user_bias(inputs[:, 0])
            movie_vector = self.movie_embedding(inputs[:, 1])
            movie_bias = self.movie_bias(inputs[:, 1])
            dot = ops.tensordot(user_vector, movie_vector, 2)
            return ops.nn.sigmoid(dot + user_bias + movie_bias)

    net = RecommenderNet(60, 90, 50)
    pairs = np.array([[1, 2], [3, 4]], "int64")
    net(pairs)
    spec = keras.InputSpec(shape=(None, 2), dtype="int64")
    signatures = {"serving_default": (net, {"inputs": spec})}
    return net, {"signatures": signatures, "samples": pairs}
