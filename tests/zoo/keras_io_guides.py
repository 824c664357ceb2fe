"""Models of keras.io's guides, and of its examples of graphs and games.

Built as they build them, with narrower layers.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.zoo.entries import group, stack
from tests.zoo.parts import conv, dense

graph = group("graph", "https://keras.io/examples/graph/")
rl = group("rl", "https://keras.io/examples/rl/")
guides = group("guides", "https://keras.io/guides/")


@rl("actor_critic_cartpole")
def actor_critic_cartpole():
    inputs = layers.Input(shape=(4,))
    common = layers.Dense(128, activation="relu")(inputs)
    action = layers.Dense(2, activation="softmax")(common)
    critic = layers.Dense(1)(common)
    return keras.Model(inputs=inputs, outputs=[action, critic])


@rl("ddpg_actor", "ddpg_pendulum/")
def ddpg_actor():
    last_init = keras.initializers.RandomUniform(minval=-0.003, maxval=0.003)
    inputs = layers.Input(shape=(3,))
    last = layers.Dense(1, activation="tanh", kernel_initializer=last_init)
    return keras.Model(inputs, last(dense(inputs, 64, 64)) * 2.0)


@rl("ddpg_critic", "ddpg_pendulum/")
def ddpg_critic():
    inputs = [layers.Input(shape=(3,)), layers.Input(shape=(1,))]
    state, action = inputs
    concat = layers.Concatenate()([dense(state, 16, 32), dense(action, 32)])
    return keras.Model(inputs, layers.Dense(1)(dense(concat, 64, 64)))


@rl("ppo_actor", "ppo_cartpole/")
def ppo_actor():
    observation_input = keras.Input(shape=(4,), dtype="float32")
    x = dense(observation_input, 64, 64, activation="tanh")
    return keras.Model(observation_input, layers.Dense(units=2)(x))


@guides("functional_ensemble", "functional_api/")
def functional_ensemble():
    def get_model():
        inputs = keras.Input(shape=(128,))
        return keras.Model(inputs, layers.Dense(1)(inputs))

    inputs = keras.Input(shape=(128,))
    outputs = layers.average([get_model()(inputs) for _ in range(3)])
    return keras.Model(inputs=inputs, outputs=outputs)


@guides("functional_toy_resnet", "functional_api/")
def functional_toy_resnet():
    inputs = keras.Input(shape=(32, 32, 3), name="img")
    x = layers.Conv2D(16, 3, activation="relu")(inputs)
    x = layers.Conv2D(32, 3, activation="relu")(x)
    block = layers.MaxPooling2D(3)(x)
    for _ in range(2):
        block = layers.add([conv(conv(block, 32), 32), block])
    x = layers.Conv2D(32, 3, activation="relu")(block)
    x = dense(layers.GlobalAveragePooling2D()(x), 64, dropout=0.5)
    return keras.Model(inputs, layers.Dense(10)(x), name="toy_resnet")


@guides("functional_shared_embedding", "functional_api/")
def functional_shared_embedding():
    embed = layers.Embedding(1000, 32)
    texts = [keras.Input(shape=(None,), dtype="int32") for _ in range(2)]
    return keras.Model(texts, [embed(text) for text in texts])


@guides("sequential_features", "sequential_model/")
def sequential_features():
    initial = stack(
        keras.Input(shape=(64, 64, 3)),
        layers.Conv2D(16, 5, strides=2, activation="relu"),
        layers.Conv2D(16, 3, activation="relu", name="my_intermediate"),
        layers.Conv2D(16, 3, activation="relu"),
    )
    outputs = [layer.output for layer in initial.layers]
    return keras.Model(inputs=initial.inputs, outputs=outputs)


@guides("sequential_without_input", "sequential_model/")
def sequential_without_input():
    network = stack(
        layers.Dense(2, activation="relu", name="layer1"),
        layers.Dense(3, activation="relu", name="layer2"),
        layers.Dense(4, name="layer3"),
        name="my_sequential",
    )
    network(ops.ones((3, 3)))
    return network


@guides("preprocessing_one_hot", "preprocessing_layers/")
def preprocessing_one_hot():
    lookup = layers.StringLookup(output_mode="one_hot")
    lookup.adapt(np.array([["a"], ["b"], ["c"], ["b"], ["c"], ["a"]]))
    inputs = keras.Input(shape=(1,), dtype="string", name="Letter")
    samples = np.array([["a"], ["b"], ["c"], ["d"], ["e"], [""]])
    outputs = layers.Dense(2)(lookup(inputs))
    return keras.Model(inputs, outputs), {"samples": samples}


@guides("preprocessing_texts", "preprocessing_layers/")
def preprocessing_texts():
    text_vectorizer = layers.TextVectorization(
        output_mode="multi_hot", ngrams=2
    )
    text_vectorizer.adapt(
        [
            "The Brain is wider than the Sky",
            "For put them side by side",
            "The one the other will contain",
            "With ease and You beside",
        ]
    )
    inputs = keras.Input(shape=(1,), dtype="string")
    outputs = layers.Dense(1)(text_vectorizer(inputs))
    return keras.Model(inputs, outputs)


@guides("preprocessing_images", "preprocessing_layers/")
def preprocessing_images():
    pictures = keras.Input((40, 40, 3), dtype="uint8", name="Photo")
    x = layers.Resizing(36, 36, crop_to_aspect_ratio=True)(pictures)
    x = layers.CenterCrop(32, 32)(x)
    x = layers.Rescaling(1.0 / 127.5, offset=-1)(x)
    x = layers.Conv2D(8, 3, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(pictures, layers.Dense(10)(x))


@guides("masking_and_padding", "understanding_masking_and_padding/")
def masking_and_padding():
    class TemporalSoftmax(layers.Layer):
        supports_masking = True

        def call(self, inputs, mask=None):
            float_mask = ops.expand_dims(ops.cast(mask, "float32"), -1)
            inputs_exp = ops.exp(inputs) * float_mask
            return inputs_exp / ops.sum(inputs_exp, axis=1, keepdims=True)

    inputs = keras.Input(shape=(None,), dtype="int32")
    x = layers.Embedding(100, 32, mask_zero=True)(inputs)
    return keras.Model(inputs, TemporalSoftmax()(layers.Dense(1)(x)))


@guides("rnn_bidirectional_stack", "working_with_rnns/")
def rnn_bidirectional_stack():
    return stack(
        keras.Input(shape=(5, 10)),
        layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
        layers.Bidirectional(layers.LSTM(32)),
        layers.Dense(10),
    )


@guides("rnn_encoder_decoder", "working_with_rnns/")
def rnn_encoder_decoder():
    source, target = layers.Input((None,)), layers.Input((None,))
    x = layers.Embedding(1000, 32)(source)
    _, *states = layers.LSTM(32, return_state=True, name="encoder")(x)
    x = layers.Embedding(2000, 32)(target)
    x = layers.LSTM(32, name="decoder")(x, initial_state=states)
    return keras.Model([source, target], layers.Dense(10)(x))


@graph("gnn_citations")
def gnn_citations():
    def create_ffn(hidden_units, name=None):
        steps = []
        for units in hidden_units:
            steps.append(layers.BatchNormalization())
            steps.append(layers.Dropout(0.2))
            steps.append(layers.Dense(units, activation=tf.nn.gelu))
        return stack(*steps, name=name)

    class GraphConvLayer(layers.Layer):
        def __init__(self, hidden_units, **kwargs):
            super().__init__(**kwargs)
            self.ffn_prepare = create_ffn(hidden_units)
            self.update_fn = create_ffn(hidden_units)

        def call(self, inputs):
            nodes, edges, edge_weights = inputs
            messages = self.ffn_prepare(tf.gather(nodes, edges[1]))
            aggregated = tf.math.unsorted_segment_mean(
                messages * tf.expand_dims(edge_weights, -1),
                edges[0],
                num_segments=nodes.shape[0],
            )
            return self.update_fn(tf.concat([nodes, aggregated], axis=1))

    class GNNNodeClassifier(keras.Model):
        def __init__(self, node_features, edges, num_classes, hidden_units):
            super().__init__()
            self.node_features = node_features
            self.edges = edges
            weights = tf.ones(shape=edges.shape[1])
            self.edge_weights = weights / tf.math.reduce_sum(weights)
            self.preprocess = create_ffn(hidden_units, "preprocess")
            self.conv1 = GraphConvLayer(hidden_units, name="graph_conv1")
            self.conv2 = GraphConvLayer(hidden_units, name="graph_conv2")
            self.postprocess = create_ffn(hidden_units, "postprocess")
            self.compute_logits = layers.Dense(num_classes, name="logits")

        def call(self, input_node_indices):
            x = self.preprocess(self.node_features)
            for layer in (self.conv1, self.conv2):
                x = layer((x, self.edges, self.edge_weights)) + x
            x = tf.gather(self.postprocess(x), input_node_indices)
            return self.compute_logits(x)

    rng = np.random.default_rng(0)
    states = rng.integers(0, 2, (20, 12)).astype("float32")
    pairs = rng.integers(0, 20, (50, 2)).astype("int32")
    classifier = GNNNodeClassifier(
        tf.constant(states), tf.constant(pairs.T), 7, [16, 16]
    )
    nodes = np.array([1, 10, 15], "int32")
    classifier(nodes)
    spec = keras.InputSpec(shape=(None,), dtype="int32")
    signatures = {"serving_default": (classifier, {"input_node_indices": spec})}
    return classifier, {"signatures": signatures, "samples": nodes}
