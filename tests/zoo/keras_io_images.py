"""Models of keras.io's examples of vision: pictures to pictures, text, video.

Built as the examples build them, with fewer filters and smaller pictures.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import model

IO = "https://keras.io/examples/vision/"


@model("vision/autoencoder", IO + "autoencoder/")
def autoencoder():
    inputs = layers.Input(shape=(28, 28, 1))
    x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(inputs)
    x = layers.MaxPooling2D((2, 2), padding="same")(x)
    x = layers.Conv2D(32, (3, 3), activation="relu", padding="same")(x)
    x = layers.MaxPooling2D((2, 2), padding="same")(x)
    for _ in range(2):
        x = layers.Conv2DTranspose(
            32, (3, 3), strides=2, activation="relu", padding="same"
        )(x)
    x = layers.Conv2D(1, (3, 3), activation="sigmoid", padding="same")(x)
    return keras.Model(inputs, x)


@model("vision/super_resolution_sub_pixel", IO + "super_resolution_sub_pixel/")
def super_resolution_sub_pixel():
    class DepthToSpace(layers.Layer):
        def __init__(self, block_size):
            super().__init__()
            self.block_size = block_size

        def call(self, inputs):
            batch, height, width, depth = ops.shape(inputs)
            depth = depth // (self.block_size**2)
            x = ops.reshape(
                inputs,
                [batch, height, width, self.block_size, self.block_size, depth],
            )
            x = ops.transpose(x, [0, 1, 3, 2, 4, 5])
            return ops.reshape(
                x,
                [
                    batch,
                    height * self.block_size,
                    width * self.block_size,
                    depth,
                ],
            )

    conv = {
        "activation": "relu",
        "kernel_initializer": "orthogonal",
        "padding": "same",
    }
    inputs = keras.Input(shape=(None, None, 1))
    x = layers.Conv2D(64, 5, **conv)(inputs)
    x = layers.Conv2D(64, 3, **conv)(x)
    x = layers.Conv2D(32, 3, **conv)(x)
    x = layers.Conv2D(9, 3, **conv)(x)
    return keras.Model(inputs, DepthToSpace(3)(x))


@model("vision/edsr", IO + "edsr/")
def edsr():
    import tensorflow as tf

    class EDSRModel(keras.Model):
        def train_step(self, data):
            raise NotImplementedError

    def res_block(inputs):
        x = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
        x = layers.Conv2D(16, 3, padding="same")(x)
        return layers.Add()([inputs, x])

    def upsampling(inputs, factor=2, **kwargs):
        x = layers.Conv2D(16 * factor**2, 3, padding="same", **kwargs)(inputs)
        x = layers.Lambda(lambda x: tf.nn.depth_to_space(x, block_size=2))(x)
        x = layers.Conv2D(16 * factor**2, 3, padding="same", **kwargs)(x)
        return layers.Lambda(lambda x: tf.nn.depth_to_space(x, block_size=2))(x)

    inputs = layers.Input(shape=(None, None, 3))
    x = layers.Rescaling(scale=1.0 / 255)(inputs)
    x = x_new = layers.Conv2D(16, 3, padding="same")(x)
    for _ in range(3):
        x_new = res_block(x_new)
    x_new = layers.Conv2D(16, 3, padding="same")(x_new)
    x = upsampling(layers.Add()([x, x_new]))
    x = layers.Conv2D(3, 3, padding="same")(x)
    return EDSRModel(inputs, layers.Rescaling(scale=255)(x))


@model("vision/zero_dce", IO + "zero_dce/")
def zero_dce():
    class ZeroDCE(keras.Model):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dce_model = self.build_dce_net()

        def build_dce_net(self):
            def conv(x, filters=16, activation="relu"):
                return layers.Conv2D(
                    filters,
                    (3, 3),
                    strides=(1, 1),
                    activation=activation,
                    padding="same",
                )(x)

            image = keras.Input(shape=[None, None, 3])
            conv1 = conv(image)
            conv2 = conv(conv1)
            conv3 = conv(conv2)
            conv4 = conv(conv3)
            con1 = layers.Concatenate(axis=-1)([conv4, conv3])
            conv5 = conv(con1)
            con2 = layers.Concatenate(axis=-1)([conv5, conv2])
            conv6 = conv(con2)
            con3 = layers.Concatenate(axis=-1)([conv6, conv1])
            return keras.Model(image, conv(con3, 24, "tanh"))

        def get_enhanced_image(self, data, output):
            x = data
            for start in range(0, 24, 3):
                r = output[:, :, :, start : start + 3]
                x = x + r * (ops.square(x) - x)
            return x

        def call(self, data):
            return self.get_enhanced_image(data, self.dce_model(data))

    enhancer = ZeroDCE()
    enhancer(np.zeros((1, 32, 32, 3), "float32"))
    return enhancer


@model("vision/mirnet", IO + "mirnet/")
def mirnet():
    def selective_kernel(*features):
        channels = features[0].shape[-1]
        combined = layers.Add()(list(features))
        gap = layers.GlobalAveragePooling2D()(combined)
        wise = layers.Reshape((1, 1, channels))(gap)
        compact = layers.Conv2D(
            filters=channels // 8, kernel_size=(1, 1), activation="relu"
        )(wise)
        weighted = []
        for feature in features:
            scores = layers.Conv2D(
                filters=channels, kernel_size=(1, 1), activation="softmax"
            )(compact)
            weighted.append(feature * scores)
        return layers.Add()(weighted)

    def spatial_attention(x):
        average = ops.mean(x, axis=-1)
        average = ops.expand_dims(average, axis=-1)
        largest = ops.max(x, axis=-1)
        largest = ops.expand_dims(largest, axis=-1)
        both = layers.Concatenate(axis=-1)([average, largest])
        feature_map = layers.Conv2D(filters=1, kernel_size=(1, 1))(both)
        return x * ops.sigmoid(feature_map)

    def channel_attention(x):
        channels = x.shape[-1]
        gap = layers.GlobalAveragePooling2D()(x)
        descriptor = layers.Reshape((1, 1, channels))(gap)
        y = layers.Conv2D(channels // 8, (1, 1), activation="relu")(descriptor)
        y = layers.Conv2D(channels, (1, 1), activation="sigmoid")(y)
        return x * y

    def dual_attention(x):
        channels = x.shape[-1]
        y = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        y = layers.Conv2D(channels, 3, padding="same")(y)
        both = [channel_attention(y), spatial_attention(y)]
        y = layers.Concatenate(axis=-1)(both)
        y = layers.Conv2D(channels, (1, 1))(y)
        return layers.Add()([x, y])

    def down(x):
        channels = x.shape[-1]
        main = layers.Conv2D(channels, (1, 1), activation="relu")(x)
        main = layers.Conv2D(channels, 3, padding="same", activation="relu")(
            main
        )
        main = layers.MaxPooling2D()(main)
        main = layers.Conv2D(channels * 2, (1, 1))(main)
        skip = layers.MaxPooling2D()(x)
        return layers.Add()([main, layers.Conv2D(channels * 2, 1)(skip)])

    def up(x):
        channels = x.shape[-1]
        main = layers.Conv2D(channels, (1, 1), activation="relu")(x)
        main = layers.UpSampling2D()(main)
        main = layers.Conv2D(channels // 2, (1, 1))(main)
        skip = layers.UpSampling2D()(x)
        return layers.Add()([main, layers.Conv2D(channels // 2, 1)(skip)])

    def multi_scale(x):
        level2 = dual_attention(down(x))
        level1 = dual_attention(x)
        level1_ = dual_attention(selective_kernel(level1, up(level2)))
        level2_ = dual_attention(selective_kernel(down(level1), level2))
        merged = selective_kernel(level1_, up(level2_))
        merged = layers.Conv2D(x.shape[-1], 3, padding="same")(merged)
        return layers.Add()([x, merged])

    inputs = keras.Input(shape=[None, None, 3])
    x1 = layers.Conv2D(16, 3, padding="same")(inputs)
    x = multi_scale(x1)
    x = layers.Conv2D(16, 3, padding="same")(x)
    x = layers.Add()([x1, x])
    x = layers.Conv2D(3, 3, padding="same")(x)
    return keras.Model(inputs, layers.Add()([inputs, x]))


class CTCLayer(layers.Layer):
    """Adds the loss of CTC in training, and returns its predictions."""

    def __init__(self, name=None):
        super().__init__(name=name)
        self.loss_fn = keras.losses.CTC()

    def call(self, y_true, y_pred):
        self.add_loss(self.loss_fn(y_true, y_pred))
        return y_pred


@model("vision/captcha_ocr", IO + "captcha_ocr/")
def captcha_ocr():
    input_img = layers.Input(shape=(96, 32, 1), name="image", dtype="float32")
    labels = layers.Input(name="label", shape=(None,), dtype="float32")
    x = layers.Conv2D(
        16,
        (3, 3),
        activation="relu",
        kernel_initializer="he_normal",
        padding="same",
        name="Conv1",
    )(input_img)
    x = layers.MaxPooling2D((2, 2), name="pool1")(x)
    x = layers.Conv2D(
        24,
        (3, 3),
        activation="relu",
        kernel_initializer="he_normal",
        padding="same",
        name="Conv2",
    )(x)
    x = layers.MaxPooling2D((2, 2), name="pool2")(x)
    x = layers.Reshape(target_shape=(24, 8 * 24), name="reshape")(x)
    x = layers.Dense(32, activation="relu", name="dense1")(x)
    x = layers.Dropout(0.2)(x)
    x = layers.Bidirectional(
        layers.LSTM(32, return_sequences=True, dropout=0.25)
    )(x)
    x = layers.Bidirectional(
        layers.LSTM(16, return_sequences=True, dropout=0.25)
    )(x)
    x = layers.Dense(21, activation="softmax", name="dense2")(x)
    output = CTCLayer(name="ctc_loss")(labels, x)
    trained = keras.Model([input_img, labels], output, name="ocr_model_v1")
    # What the example predicts with: without the labels.
    return keras.Model(
        trained.input[0], trained.get_layer(name="dense2").output
    )


@model("vision/handwriting_recognition", IO + "handwriting_recognition/")
def handwriting_recognition():
    def conv(x, filters, name):
        return layers.Conv2D(
            filters,
            (3, 3),
            activation="relu",
            kernel_initializer="he_normal",
            padding="same",
            name=name,
        )(x)

    input_img = keras.Input(shape=(64, 32, 1), name="image")
    x = conv(input_img, 16, "Conv1")
    x = layers.MaxPooling2D((2, 2), name="pool1")(x)
    x = conv(x, 16, "Conv2")
    x = layers.MaxPooling2D((2, 2), name="pool2")(x)
    x = layers.Reshape(target_shape=(16, 8 * 16), name="reshape")(x)
    x = layers.Dense(64, activation="relu", name="dense1")(x)
    x = layers.Dropout(0.2)(x)
    x = layers.Bidirectional(
        layers.LSTM(32, return_sequences=True, dropout=0.25)
    )(x)
    return keras.Model(
        input_img, layers.Dense(81, activation="softmax", name="dense2")(x)
    )


@model("vision/depth_estimation", IO + "depth_estimation/")
def depth_estimation():
    class DownscaleBlock(layers.Layer):
        def __init__(self, filters, **kwargs):
            super().__init__(**kwargs)
            self.convA = layers.Conv2D(filters, 3, 1, "same")
            self.convB = layers.Conv2D(filters, 3, 1, "same")
            self.reluA = layers.LeakyReLU(negative_slope=0.2)
            self.reluB = layers.LeakyReLU(negative_slope=0.2)
            self.bn2a = layers.BatchNormalization()
            self.bn2b = layers.BatchNormalization()
            self.pool = layers.MaxPool2D((2, 2), (2, 2))

        def call(self, input_tensor):
            d = self.convA(input_tensor)
            x = self.reluA(self.bn2a(d))
            x = self.reluB(self.bn2b(self.convB(x)))
            x += d
            return x, self.pool(x)

    class UpscaleBlock(layers.Layer):
        def __init__(self, filters, **kwargs):
            super().__init__(**kwargs)
            self.us = layers.UpSampling2D((2, 2))
            self.convA = layers.Conv2D(filters, 3, 1, "same")
            self.convB = layers.Conv2D(filters, 3, 1, "same")
            self.reluA = layers.LeakyReLU(negative_slope=0.2)
            self.reluB = layers.LeakyReLU(negative_slope=0.2)
            self.bn2a = layers.BatchNormalization()
            self.bn2b = layers.BatchNormalization()
            self.conc = layers.Concatenate()

        def call(self, x, skip):
            x = self.us(x)
            concat = self.conc([x, skip])
            x = self.reluA(self.bn2a(self.convA(concat)))
            return self.reluB(self.bn2b(self.convB(x)))

    class BottleNeckBlock(layers.Layer):
        def __init__(self, filters, **kwargs):
            super().__init__(**kwargs)
            self.convA = layers.Conv2D(filters, 3, 1, "same")
            self.convB = layers.Conv2D(filters, 3, 1, "same")
            self.reluA = layers.LeakyReLU(negative_slope=0.2)
            self.reluB = layers.LeakyReLU(negative_slope=0.2)

        def call(self, x):
            return self.reluB(self.convB(self.reluA(self.convA(x))))

    class DepthEstimationModel(keras.Model):
        def __init__(self):
            super().__init__()
            f = [8, 16, 32]
            self.downscale_blocks = [DownscaleBlock(n) for n in f]
            self.bottle_neck_block = BottleNeckBlock(48)
            self.upscale_blocks = [UpscaleBlock(n) for n in f[::-1]]
            self.conv_layer = layers.Conv2D(
                1, (1, 1), padding="same", activation="tanh"
            )

        def call(self, x):
            c1, p1 = self.downscale_blocks[0](x)
            c2, p2 = self.downscale_blocks[1](p1)
            c3, p3 = self.downscale_blocks[2](p2)
            u = self.bottle_neck_block(p3)
            for block, c in zip(self.upscale_blocks, (c3, c2, c1), strict=True):
                u = block(u, c)
            return self.conv_layer(u)

    depth = DepthEstimationModel()
    depth(np.zeros((1, 32, 32, 3), "float32"))
    return depth


@model("vision/nerf", IO + "nerf/")
def nerf():
    # A ray's points with sines and cosines of their positions: 2 * 3 * 8 + 3.
    inputs = keras.Input(shape=(256, 2 * 3 * 8 + 3))
    x = inputs
    for i in range(6):
        x = layers.Dense(units=32, activation="relu")(x)
        if i % 4 == 0 and i > 0:
            x = layers.concatenate([x, inputs], axis=-1)
    outputs = layers.Dense(units=4)(x)
    return keras.Model(inputs=inputs, outputs=outputs)


@model("vision/image_classification_3d", IO + "3D_image_classification/")
def image_classification_3d():
    inputs = keras.Input((32, 32, 24, 1))
    x = inputs
    for filters in (8, 8, 16):
        x = layers.Conv3D(
            filters=filters, kernel_size=3, padding="same", activation="relu"
        )(x)
        x = layers.MaxPool3D(pool_size=2)(x)
        x = layers.BatchNormalization()(x)
    x = layers.GlobalAveragePooling3D()(x)
    x = layers.Dense(units=32, activation="relu")(x)
    x = layers.Dropout(0.3)(x)
    outputs = layers.Dense(units=1, activation="sigmoid")(x)
    return keras.Model(inputs, outputs, name="3dcnn")


@model("vision/video_classification", IO + "video_classification/")
def video_classification():
    label_processor = layers.StringLookup(
        num_oov_indices=0, vocabulary=["CricketShot", "Punch", "TennisSwing"]
    )
    frame_features_input = keras.Input((20, 64))
    mask_input = keras.Input((20,), dtype="bool")
    x = layers.GRU(16, return_sequences=True)(
        frame_features_input, mask=mask_input
    )
    x = layers.GRU(8)(x)
    x = layers.Dropout(0.4)(x)
    x = layers.Dense(8, activation="relu")(x)
    output = layers.Dense(
        len(label_processor.get_vocabulary()), activation="softmax"
    )(x)
    return keras.Model([frame_features_input, mask_input], output)


@model("vision/video_transformers", IO + "video_transformers/")
def video_transformers():
    class PositionalEmbedding(layers.Layer):
        def __init__(self, sequence_length, output_dim, **kwargs):
            super().__init__(**kwargs)
            self.position_embeddings = layers.Embedding(
                input_dim=sequence_length, output_dim=output_dim
            )
            self.sequence_length = sequence_length
            self.output_dim = output_dim

        def build(self, input_shape):
            self.position_embeddings.build(input_shape)

        def call(self, inputs):
            inputs = ops.cast(inputs, self.compute_dtype)
            length = ops.shape(inputs)[1]
            positions = ops.arange(start=0, stop=length, step=1)
            return inputs + self.position_embeddings(positions)

    class TransformerEncoder(layers.Layer):
        def __init__(self, embed_dim, dense_dim, num_heads, **kwargs):
            super().__init__(**kwargs)
            self.attention = layers.MultiHeadAttention(
                num_heads=num_heads, key_dim=embed_dim, dropout=0.3
            )
            self.dense_proj = keras.Sequential(
                [
                    layers.Dense(dense_dim, activation=keras.activations.gelu),
                    layers.Dense(embed_dim),
                ]
            )
            self.layernorm_1 = layers.LayerNormalization()
            self.layernorm_2 = layers.LayerNormalization()

        def call(self, inputs, mask=None):
            attention = self.attention(inputs, inputs, attention_mask=mask)
            x = self.layernorm_1(inputs + attention)
            return self.layernorm_2(x + self.dense_proj(x))

    inputs = keras.Input(shape=(None, 64))
    x = PositionalEmbedding(20, 64, name="frame_position_embedding")(inputs)
    x = TransformerEncoder(64, 4, 1, name="transformer_layer")(x)
    x = layers.GlobalMaxPooling1D()(x)
    x = layers.Dropout(0.5)(x)
    outputs = layers.Dense(5, activation="softmax")(x)
    return keras.Model(inputs, outputs), {"max_length": 20}


@model("vision/conv_lstm", IO + "conv_lstm/")
def conv_lstm():
    inp = layers.Input(shape=(None, 24, 24, 1))
    x = inp
    for kernel in (5, 3, 1):
        x = layers.ConvLSTM2D(
            filters=8,
            kernel_size=(kernel, kernel),
            padding="same",
            return_sequences=True,
            activation="relu",
        )(x)
        x = layers.BatchNormalization()(x)
    x = layers.Conv3D(
        filters=1, kernel_size=(3, 3, 3), activation="sigmoid", padding="same"
    )(x)
    return keras.Model(inp, x)


@model("vision/vivit", IO + "vivit/")
def vivit():
    class TubeletEmbedding(layers.Layer):
        def __init__(self, embed_dim, patch_size, **kwargs):
            super().__init__(**kwargs)
            self.projection = layers.Conv3D(
                filters=embed_dim,
                kernel_size=patch_size,
                strides=patch_size,
                padding="VALID",
            )
            self.flatten = layers.Reshape(target_shape=(-1, embed_dim))

        def call(self, videos):
            return self.flatten(self.projection(videos))

    class PositionalEncoder(layers.Layer):
        def __init__(self, embed_dim, **kwargs):
            super().__init__(**kwargs)
            self.embed_dim = embed_dim

        def build(self, input_shape):
            _, num_tokens, _ = input_shape
            self.position_embedding = layers.Embedding(
                input_dim=num_tokens, output_dim=self.embed_dim
            )
            self.positions = ops.arange(0, num_tokens, 1)

        def call(self, encoded_tokens):
            return encoded_tokens + self.position_embedding(self.positions)

    inputs = layers.Input(shape=(28, 28, 28, 1))
    patches = TubeletEmbedding(32, (8, 8, 8))(inputs)
    encoded = PositionalEncoder(32)(patches)
    for _ in range(2):
        x1 = layers.LayerNormalization(epsilon=1e-6)(encoded)
        attention = layers.MultiHeadAttention(
            num_heads=4, key_dim=32 // 4, dropout=0.1
        )(x1, x1)
        x2 = layers.Add()([attention, encoded])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x3 = keras.Sequential(
            [
                layers.Dense(units=32 * 4, activation=ops.gelu),
                layers.Dense(units=32, activation=ops.gelu),
            ]
        )(x3)
        encoded = layers.Add()([x3, x2])
    x = layers.LayerNormalization(epsilon=1e-6)(encoded)
    x = layers.GlobalAvgPool1D()(x)
    return keras.Model(inputs, layers.Dense(11, activation="softmax")(x))


@model("vision/image_captioning", IO + "image_captioning/")
def image_captioning():
    class TransformerEncoderBlock(layers.Layer):
        def __init__(self, embed_dim, num_heads, **kwargs):
            super().__init__(**kwargs)
            self.attention_1 = layers.MultiHeadAttention(
                num_heads=num_heads, key_dim=embed_dim, dropout=0.0
            )
            self.layernorm_1 = layers.LayerNormalization()
            self.layernorm_2 = layers.LayerNormalization()
            self.dense_1 = layers.Dense(embed_dim, activation="relu")

        def call(self, inputs, training, mask=None):
            inputs = self.dense_1(self.layernorm_1(inputs))
            attention = self.attention_1(
                query=inputs,
                value=inputs,
                key=inputs,
                attention_mask=None,
                training=training,
            )
            return self.layernorm_2(inputs + attention)

    class PositionalEmbedding(layers.Layer):
        def __init__(self, sequence_length, vocab_size, embed_dim, **kwargs):
            super().__init__(**kwargs)
            self.token_embeddings = layers.Embedding(vocab_size, embed_dim)
            self.position_embeddings = layers.Embedding(
                sequence_length, embed_dim
            )
            self.embed_scale = ops.sqrt(ops.cast(embed_dim, "float32"))

        def call(self, inputs):
            length = ops.shape(inputs)[-1]
            positions = ops.arange(start=0, stop=length, step=1)
            tokens = self.token_embeddings(inputs) * self.embed_scale
            return tokens + self.position_embeddings(positions)

        def compute_mask(self, inputs, mask=None):
            return ops.not_equal(inputs, 0)

    class TransformerDecoderBlock(layers.Layer):
        def __init__(self, embed_dim, ff_dim, num_heads, vocab, **kwargs):
            super().__init__(**kwargs)
            self.attention_1 = layers.MultiHeadAttention(num_heads, embed_dim)
            self.attention_2 = layers.MultiHeadAttention(num_heads, embed_dim)
            self.ffn_layer_1 = layers.Dense(ff_dim, activation="relu")
            self.ffn_layer_2 = layers.Dense(embed_dim)
            self.norms = [layers.LayerNormalization() for _ in range(3)]
            self.embedding = PositionalEmbedding(8, vocab, embed_dim)
            self.out = layers.Dense(vocab, activation="softmax")
            self.supports_masking = True

        def call(self, inputs, encoder_outputs, training, mask=None):
            inputs = self.embedding(inputs)
            causal = self.causal_mask(inputs)
            padding, combined = None, causal
            if mask is not None:
                padding = ops.cast(mask[:, :, None], "int32")
                combined = ops.cast(mask[:, None, :], "int32")
                combined = ops.minimum(combined, causal)
            x = self.attention_1(
                query=inputs, value=inputs, key=inputs, attention_mask=combined
            )
            x1 = self.norms[0](inputs + x)
            x = self.attention_2(
                query=x1,
                value=encoder_outputs,
                key=encoder_outputs,
                attention_mask=padding,
            )
            x2 = self.norms[1](x1 + x)
            x = self.ffn_layer_2(self.ffn_layer_1(x2))
            return self.out(self.norms[2](x + x2))

        def causal_mask(self, inputs):
            shape = ops.shape(inputs)
            batch, length = shape[0], shape[1]
            i = ops.arange(length)[:, None]
            j = ops.arange(length)
            mask = ops.cast(i >= j, "int32")
            mask = ops.reshape(mask, (1, length, length))
            return ops.tile(mask, (batch, 1, 1))

    class ImageCaptioningModel(keras.Model):
        def __init__(self, cnn_model, encoder, decoder):
            super().__init__()
            self.cnn_model = cnn_model
            self.encoder = encoder
            self.decoder = decoder

        def call(self, inputs):
            images, captions = inputs
            x = self.cnn_model(images)
            x = self.encoder(x, training=False)
            mask = ops.not_equal(captions, 0)
            return self.decoder(captions, x, training=False, mask=mask)

    picture = keras.Input((32, 32, 3))
    x = layers.Conv2D(16, 3, strides=4, activation="relu")(picture)
    x = layers.Reshape((-1, x.shape[-1]))(x)
    captioner = ImageCaptioningModel(
        keras.Model(picture, x),
        TransformerEncoderBlock(32, 1),
        TransformerDecoderBlock(32, 64, 2, 100),
    )
    images = np.zeros((2, 32, 32, 3), "float32")
    captioner((images, np.ones((2, 8), "int32")))
    return captioner


@model("vision/focal_modulation", IO + "focal_modulation_network/")
def focal_modulation():
    class FocalModulationLayer(layers.Layer):
        def __init__(self, dim, focal_window, focal_level, **kwargs):
            super().__init__(**kwargs)
            self.dim = dim
            self.focal_level = focal_level
            self.initial_proj = layers.Dense(2 * dim + focal_level + 1)
            self.focal_layers = [
                keras.Sequential(
                    [
                        layers.ZeroPadding2D((2 * i + focal_window) // 2),
                        layers.Conv2D(
                            filters=dim,
                            kernel_size=2 * i + focal_window,
                            activation=keras.activations.gelu,
                            groups=dim,
                            use_bias=False,
                        ),
                    ]
                )
                for i in range(focal_level)
            ]
            self.gap = layers.GlobalAveragePooling2D(keepdims=True)
            self.mod_proj = layers.Conv2D(filters=dim, kernel_size=1)
            self.proj = layers.Dense(dim)
            self.proj_drop = layers.Dropout(0.1)

        def call(self, x, training=None):
            x_proj = self.initial_proj(x)
            query, context, gates = ops.split(
                x_proj, [self.dim, 2 * self.dim], axis=-1
            )
            context = self.focal_layers[0](context)
            total = context * gates[..., 0:1]
            for index in range(1, self.focal_level):
                context = self.focal_layers[index](context)
                total += context * gates[..., index : index + 1]
            pooled = keras.activations.gelu(self.gap(context))
            total += pooled * gates[..., self.focal_level :]
            x_out = query * self.mod_proj(total)
            return self.proj_drop(self.proj(x_out), training=training)

    inputs = keras.Input((32, 32, 3))
    x = layers.Rescaling(1 / 255.0)(inputs)
    x = layers.Conv2D(16, 4, strides=4)(x)
    for _ in range(2):
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        x = layers.Add()([x, FocalModulationLayer(16, 3, 2)(y)])
        y = layers.LayerNormalization(epsilon=1e-5)(x)
        y = layers.Dense(32, activation=keras.activations.gelu)(y)
        x = layers.Add()([x, layers.Dense(16)(y)])
    x = layers.LayerNormalization(epsilon=1e-5)(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))
