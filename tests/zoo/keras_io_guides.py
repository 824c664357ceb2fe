"""Models of keras.io's guides, and of its examples of graphs and of games.

Built as they build them, with fewer nodes and narrower layers.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from tests.zoo.entries import model

GRAPH = "https://keras.io/examples/graph/"
GAMES = "https://keras.io/examples/rl/"
GUIDES = "https://keras.io/guides/"


@model("graph/gnn_citations", GRAPH + "gnn_citations/")
def gnn_citations():
    def create_ffn(hidden_units, dropout_rate, name=None):
        steps = []
        for units in hidden_units:
            steps.append(layers.BatchNormalization())
            steps.append(layers.Dropout(dropout_rate))
            steps.append(layers.Dense(units, activation=tf.nn.gelu))
        return keras.Sequential(steps, name=name)

    class GraphConvLayer(layers.Layer):
        def __init__(self, hidden_units, **kwargs):
            super().__init__(**kwargs)
            self.ffn_prepare = create_ffn(hidden_units, 0.2)
            self.update_fn = create_ffn(hidden_units, 0.2)

        def call(self, inputs):
            node_repesentations, edges, edge_weights = inputs
            node_indices, neighbour_indices = edges[0], edges[1]
            neighbours = tf.gather(node_repesentations, neighbour_indices)
            messages = self.ffn_prepare(neighbours)
            messages = messages * tf.expand_dims(edge_weights, -1)
            aggregated = tf.math.unsorted_segment_mean(
                messages,
                node_indices,
                num_segments=node_repesentations.shape[0],
            )
            h = tf.concat([node_repesentations, aggregated], axis=1)
            return self.update_fn(h)

    class GNNNodeClassifier(keras.Model):
        def __init__(self, node_features, edges, num_classes, hidden_units):
            super().__init__()
            self.node_features = node_features
            self.edges = edges
            weights = tf.ones(shape=edges.shape[1])
            self.edge_weights = weights / tf.math.reduce_sum(weights)
            self.preprocess = create_ffn(hidden_units, 0.2, name="preprocess")
            self.conv1 = GraphConvLayer(hidden_units, name="graph_conv1")
            self.conv2 = GraphConvLayer(hidden_units, name="graph_conv2")
            self.postprocess = create_ffn(hidden_units, 0.2, "postprocess")
            self.compute_logits = layers.Dense(num_classes, name="logits")

        def call(self, input_node_indices):
            x = self.preprocess(self.node_features)
            x1 = self.conv1((x, self.edges, self.edge_weights))
            x = x1 + x
            x2 = self.conv2((x, self.edges, self.edge_weights))
            x = self.postprocess(x2 + x)
            return self.compute_logits(tf.gather(x, input_node_indices))

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


@model("graph/mpnn_molecular_graphs", GRAPH + "mpnn-molecular-graphs/")
def mpnn_molecular_graphs():
    class EdgeNetwork(layers.Layer):
        def build(self, input_shape):
            self.atom_dim = input_shape[0][-1]
            self.bond_dim = input_shape[1][-1]
            self.kernel = self.add_weight(
                shape=(self.bond_dim, self.atom_dim * self.atom_dim),
                initializer="glorot_uniform",
                name="kernel",
            )
            self.bias = self.add_weight(
                shape=(self.atom_dim * self.atom_dim,),
                initializer="zeros",
                name="bias",
            )
            self.built = True

        def call(self, inputs):
            atoms, bonds, pairs = inputs
            bonds = tf.matmul(bonds, self.kernel) + self.bias
            bonds = tf.reshape(bonds, (-1, self.atom_dim, self.atom_dim))
            neighbors = tf.expand_dims(tf.gather(atoms, pairs[:, 1]), axis=-1)
            messages = tf.squeeze(tf.matmul(bonds, neighbors), axis=-1)
            return tf.math.unsorted_segment_sum(
                messages, pairs[:, 0], num_segments=tf.shape(atoms)[0]
            )

    class MessagePassing(layers.Layer):
        def __init__(self, units, steps=2, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.steps = steps

        def build(self, input_shape):
            self.atom_dim = input_shape[0][-1]
            self.message_step = EdgeNetwork()
            self.pad_length = max(0, self.units - self.atom_dim)
            self.update_step = layers.GRUCell(self.atom_dim + self.pad_length)
            self.built = True

        def call(self, inputs):
            atoms, bonds, pairs = inputs
            atoms = tf.pad(atoms, [(0, 0), (0, self.pad_length)])
            for _ in range(self.steps):
                messages = self.message_step([atoms, bonds, pairs])
                atoms, _ = self.update_step(messages, atoms)
            return atoms

    atom_features = layers.Input((9,), dtype="float32", name="atom_features")
    bond_features = layers.Input((6,), dtype="float32", name="bond_features")
    pair_indices = layers.Input((2,), dtype="int32", name="pair_indices")
    x = MessagePassing(16)([atom_features, bond_features, pair_indices])
    # In place of the example's partitioning by molecule: one molecule, dense.
    x = layers.Lambda(lambda a: tf.expand_dims(a, 0))(x)
    attention = layers.MultiHeadAttention(2, 16)(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, attention]))
    x = layers.GlobalAveragePooling1D()(x)
    x = layers.Dense(32, activation="relu")(x)
    x = layers.Dense(1, activation="sigmoid")(x)
    rng = np.random.default_rng(0)
    samples = {
        "atom_features": rng.random((5, 9)).astype("float32"),
        "bond_features": rng.random((8, 6)).astype("float32"),
        "pair_indices": rng.integers(0, 5, (8, 2)).astype("int32"),
    }
    inputs = [atom_features, bond_features, pair_indices]
    return keras.Model(inputs=inputs, outputs=[x]), {"samples": samples}


@model(
    "graph/wgan_graphs_generator",
    "https://keras.io/examples/generative/wgan-graphs/",
)
def wgan_graphs_generator():
    z = keras.layers.Input(shape=(64,))
    x = z
    for units in (32, 64):
        x = keras.layers.Dense(units, activation="tanh")(x)
        x = keras.layers.Dropout(0.2)(x)
    adjacency = keras.layers.Dense(5 * 9 * 9)(x)
    adjacency = keras.layers.Reshape((5, 9, 9))(adjacency)
    adjacency = (adjacency + ops.transpose(adjacency, (0, 1, 3, 2))) / 2
    adjacency = keras.layers.Softmax(axis=1)(adjacency)
    features = keras.layers.Dense(9 * 5)(x)
    features = keras.layers.Reshape((9, 5))(features)
    features = keras.layers.Softmax(axis=2)(features)
    return keras.Model(
        inputs=z, outputs=[adjacency, features], name="Generator"
    )


@model("rl/actor_critic_cartpole", GAMES + "actor_critic_cartpole/")
def actor_critic_cartpole():
    inputs = layers.Input(shape=(4,))
    common = layers.Dense(128, activation="relu")(inputs)
    action = layers.Dense(2, activation="softmax")(common)
    critic = layers.Dense(1)(common)
    return keras.Model(inputs=inputs, outputs=[action, critic])


@model("rl/deep_q_network_breakout", GAMES + "deep_q_network_breakout/")
def deep_q_network_breakout():
    return keras.Sequential(
        [
            keras.Input(shape=(4, 84, 84)),
            layers.Lambda(
                lambda tensor: ops.transpose(tensor, [0, 2, 3, 1]),
                output_shape=(84, 84, 4),
            ),
            layers.Conv2D(16, 8, strides=4, activation="relu"),
            layers.Conv2D(32, 4, strides=2, activation="relu"),
            layers.Conv2D(32, 3, strides=1, activation="relu"),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(4, activation="linear"),
        ]
    )


@model("rl/ddpg_actor", GAMES + "ddpg_pendulum/")
def ddpg_actor():
    last_init = keras.initializers.RandomUniform(minval=-0.003, maxval=0.003)
    inputs = layers.Input(shape=(3,))
    out = layers.Dense(64, activation="relu")(inputs)
    out = layers.Dense(64, activation="relu")(out)
    outputs = layers.Dense(1, activation="tanh", kernel_initializer=last_init)(
        out
    )
    return keras.Model(inputs, outputs * 2.0)


@model("rl/ddpg_critic", GAMES + "ddpg_pendulum/")
def ddpg_critic():
    state_input = layers.Input(shape=(3,))
    state_out = layers.Dense(16, activation="relu")(state_input)
    state_out = layers.Dense(32, activation="relu")(state_out)
    action_input = layers.Input(shape=(1,))
    action_out = layers.Dense(32, activation="relu")(action_input)
    concat = layers.Concatenate()([state_out, action_out])
    out = layers.Dense(64, activation="relu")(concat)
    out = layers.Dense(64, activation="relu")(out)
    return keras.Model([state_input, action_input], layers.Dense(1)(out))


@model("rl/ppo_actor", GAMES + "ppo_cartpole/")
def ppo_actor():
    observation_input = keras.Input(shape=(4,), dtype="float32")
    x = observation_input
    for size in (64, 64):
        x = layers.Dense(units=size, activation="tanh")(x)
    logits = layers.Dense(units=2, activation=None)(x)
    return keras.Model(inputs=observation_input, outputs=logits)


@model("guides/functional_autoencoder", GUIDES + "functional_api/")
def functional_autoencoder():
    encoder_input = keras.Input(shape=(28, 28, 1), name="original_img")
    x = layers.Conv2D(16, 3, activation="relu")(encoder_input)
    x = layers.Conv2D(32, 3, activation="relu")(x)
    x = layers.MaxPooling2D(3)(x)
    x = layers.Conv2D(32, 3, activation="relu")(x)
    x = layers.Conv2D(16, 3, activation="relu")(x)
    encoder_output = layers.GlobalMaxPooling2D()(x)
    encoder = keras.Model(encoder_input, encoder_output, name="encoder")
    decoder_input = keras.Input(shape=(16,), name="encoded_img")
    x = layers.Reshape((4, 4, 1))(decoder_input)
    x = layers.Conv2DTranspose(16, 3, activation="relu")(x)
    x = layers.Conv2DTranspose(32, 3, activation="relu")(x)
    x = layers.UpSampling2D(3)(x)
    x = layers.Conv2DTranspose(16, 3, activation="relu")(x)
    decoder_output = layers.Conv2DTranspose(1, 3, activation="relu")(x)
    decoder = keras.Model(decoder_input, decoder_output, name="decoder")
    autoencoder_input = keras.Input(shape=(28, 28, 1), name="img")
    decoded_img = decoder(encoder(autoencoder_input))
    return keras.Model(autoencoder_input, decoded_img, name="autoencoder")


@model("guides/functional_ensemble", GUIDES + "functional_api/")
def functional_ensemble():
    def get_model():
        inputs = keras.Input(shape=(128,))
        return keras.Model(inputs, layers.Dense(1)(inputs))

    inputs = keras.Input(shape=(128,))
    outputs = layers.average([get_model()(inputs) for _ in range(3)])
    return keras.Model(inputs=inputs, outputs=outputs)


@model("guides/functional_tickets", GUIDES + "functional_api/")
def functional_tickets():
    title_input = keras.Input(shape=(None,), name="title")
    body_input = keras.Input(shape=(None,), name="body")
    tags_input = keras.Input(shape=(12,), name="tags")
    title = layers.LSTM(32)(layers.Embedding(1000, 16)(title_input))
    body = layers.LSTM(16)(layers.Embedding(1000, 16)(body_input))
    x = layers.concatenate([title, body, tags_input])
    priority = layers.Dense(1, name="priority")(x)
    department = layers.Dense(4, name="department")(x)
    return keras.Model(
        inputs=[title_input, body_input, tags_input],
        outputs={"priority": priority, "department": department},
    )


@model("guides/functional_toy_resnet", GUIDES + "functional_api/")
def functional_toy_resnet():
    inputs = keras.Input(shape=(32, 32, 3), name="img")
    x = layers.Conv2D(16, 3, activation="relu")(inputs)
    x = layers.Conv2D(32, 3, activation="relu")(x)
    block = layers.MaxPooling2D(3)(x)
    for _ in range(2):
        x = layers.Conv2D(32, 3, activation="relu", padding="same")(block)
        x = layers.Conv2D(32, 3, activation="relu", padding="same")(x)
        block = layers.add([x, block])
    x = layers.Conv2D(32, 3, activation="relu")(block)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(64, activation="relu")(x)
    x = layers.Dropout(0.5)(x)
    return keras.Model(inputs, layers.Dense(10)(x), name="toy_resnet")


@model("guides/functional_shared_embedding", GUIDES + "functional_api/")
def functional_shared_embedding():
    shared_embedding = layers.Embedding(1000, 32)
    text_input_a = keras.Input(shape=(None,), dtype="int32")
    text_input_b = keras.Input(shape=(None,), dtype="int32")
    return keras.Model(
        [text_input_a, text_input_b],
        [shared_embedding(text_input_a), shared_embedding(text_input_b)],
    )


@model("guides/sequential_features", GUIDES + "sequential_model/")
def sequential_features():
    initial = keras.Sequential(
        [
            keras.Input(shape=(64, 64, 3)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.Conv2D(16, 3, activation="relu", name="my_intermediate"),
            layers.Conv2D(16, 3, activation="relu"),
        ]
    )
    return keras.Model(
        inputs=initial.inputs,
        outputs=[layer.output for layer in initial.layers],
    )


@model("guides/sequential_without_input", GUIDES + "sequential_model/")
def sequential_without_input():
    network = keras.Sequential(name="my_sequential")
    network.add(layers.Dense(2, activation="relu", name="layer1"))
    network.add(layers.Dense(3, activation="relu", name="layer2"))
    network.add(layers.Dense(4, name="layer3"))
    network(ops.ones((3, 3)))
    return network


@model("guides/preprocessing_one_hot", GUIDES + "preprocessing_layers/")
def preprocessing_one_hot():
    data = np.array([["a"], ["b"], ["c"], ["b"], ["c"], ["a"]])
    lookup = layers.StringLookup(output_mode="one_hot")
    lookup.adapt(data)
    inputs = keras.Input(shape=(1,), dtype="string", name="Letter")
    return keras.Model(inputs, layers.Dense(2)(lookup(inputs))), {
        "samples": np.array([["a"], ["b"], ["c"], ["d"], ["e"], [""]])
    }


@model("guides/preprocessing_texts", GUIDES + "preprocessing_layers/")
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


@model("guides/preprocessing_images", GUIDES + "preprocessing_layers/")
def preprocessing_images():
    pictures = keras.Input((40, 40, 3), dtype="uint8", name="Photo")
    x = layers.Resizing(36, 36, crop_to_aspect_ratio=True)(pictures)
    x = layers.CenterCrop(32, 32)(x)
    x = layers.Rescaling(1.0 / 127.5, offset=-1)(x)
    x = layers.Conv2D(8, 3, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(pictures, layers.Dense(10)(x))


@model("guides/transfer_learning", GUIDES + "transfer_learning/")
def transfer_learning():
    # The stem and a block of Xception, as the guide keeps it frozen.
    base_input = keras.Input((64, 64, 3))
    x = layers.Conv2D(16, 3, strides=2, use_bias=False)(base_input)
    x = layers.Activation("relu")(layers.BatchNormalization()(x))
    skip = layers.Conv2D(32, 1, strides=2, padding="same", use_bias=False)(x)
    for _ in range(2):
        x = layers.SeparableConv2D(32, 3, padding="same", use_bias=False)(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    base_model = keras.Model(base_input, layers.add([x, skip]), name="xception")
    base_model.trainable = False
    inputs = keras.Input(shape=(64, 64, 3))
    scale_layer = keras.layers.Rescaling(scale=1 / 127.5, offset=-1)
    x = base_model(scale_layer(inputs), training=False)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


@model(
    "guides/masking_and_padding", GUIDES + "understanding_masking_and_padding/"
)
def masking_and_padding():
    class TemporalSoftmax(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.supports_masking = True

        def call(self, inputs, mask=None):
            float_mask = ops.expand_dims(ops.cast(mask, "float32"), -1)
            inputs_exp = ops.exp(inputs) * float_mask
            return inputs_exp / ops.sum(inputs_exp, axis=1, keepdims=True)

    inputs = keras.Input(shape=(None,), dtype="int32")
    x = layers.Embedding(100, 32, mask_zero=True)(inputs)
    x = layers.Dense(1)(x)
    outputs = TemporalSoftmax()(x)
    return keras.Model(inputs, outputs)


@model(
    "guides/rnn_minimal_cell",
    "https://keras.io/api/layers/recurrent_layers/rnn/",
)
def rnn_minimal_cell():
    class MinimalRNNCell(keras.Layer):
        def __init__(self, units, **kwargs):
            super().__init__(**kwargs)
            self.units = units
            self.state_size = units

        def build(self, input_shape):
            self.kernel = self.add_weight(
                shape=(input_shape[-1], self.units),
                initializer="uniform",
                name="kernel",
            )
            self.recurrent_kernel = self.add_weight(
                shape=(self.units, self.units),
                initializer="uniform",
                name="recurrent_kernel",
            )

        def call(self, inputs, states):
            prev_output = states[0]
            h = ops.matmul(inputs, self.kernel)
            output = h + ops.matmul(prev_output, self.recurrent_kernel)
            return output, [output]

    cells = [MinimalRNNCell(32), MinimalRNNCell(64)]
    x = keras.Input((None, 5))
    return keras.Model(x, layers.RNN(cells)(x))


@model("guides/rnn_bidirectional_stack", GUIDES + "working_with_rnns/")
def rnn_bidirectional_stack():
    return keras.Sequential(
        [
            keras.Input(shape=(5, 10)),
            layers.Bidirectional(layers.LSTM(64, return_sequences=True)),
            layers.Bidirectional(layers.LSTM(32)),
            layers.Dense(10),
        ]
    )


@model("guides/rnn_encoder_decoder", GUIDES + "working_with_rnns/")
def rnn_encoder_decoder():
    encoder_input = layers.Input(shape=(None,))
    encoder_embedded = layers.Embedding(1000, 32)(encoder_input)
    _, state_h, state_c = layers.LSTM(32, return_state=True, name="encoder")(
        encoder_embedded
    )
    decoder_input = layers.Input(shape=(None,))
    decoder_embedded = layers.Embedding(2000, 32)(decoder_input)
    decoder_output = layers.LSTM(32, name="decoder")(
        decoder_embedded, initial_state=[state_h, state_c]
    )
    output = layers.Dense(10)(decoder_output)
    return keras.Model([encoder_input, decoder_input], output)
