"""Models of keras.io's examples of vision: vectors, parts of pictures, clouds.

Built as the examples build them, with fewer blocks and smaller pictures.
"""

import keras
import numpy as np
from keras import layers, ops

from tests.zoo.entries import model
from tests.zoo.keras_io_vision import Patches, mlp

IO = "https://keras.io/examples/vision/"


@model("vision/siamese_contrastive", IO + "siamese_contrastive/")
def siamese_contrastive():
    def euclidean_distance(vects):
        x, y = vects
        total = ops.sum(ops.square(x - y), axis=1, keepdims=True)
        return ops.sqrt(ops.maximum(total, keras.backend.epsilon()))

    inputs = keras.layers.Input((28, 28, 1))
    x = keras.layers.BatchNormalization()(inputs)
    x = keras.layers.Conv2D(4, (5, 5), activation="tanh")(x)
    x = keras.layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = keras.layers.Conv2D(16, (5, 5), activation="tanh")(x)
    x = keras.layers.AveragePooling2D(pool_size=(2, 2))(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Dense(10, activation="tanh")(x)
    embedding_network = keras.Model(inputs, x)
    input_1 = keras.layers.Input((28, 28, 1))
    input_2 = keras.layers.Input((28, 28, 1))
    tower_1 = embedding_network(input_1)
    tower_2 = embedding_network(input_2)
    merged = keras.layers.Lambda(euclidean_distance, output_shape=(1,))(
        [tower_1, tower_2]
    )
    normal = keras.layers.BatchNormalization()(merged)
    output = keras.layers.Dense(1, activation="sigmoid")(normal)
    return keras.Model(inputs=[input_1, input_2], outputs=output)


@model("vision/siamese_network", IO + "siamese_network/")
def siamese_network():
    class DistanceLayer(layers.Layer):
        def call(self, anchor, positive, negative):
            ap = ops.sum(ops.square(anchor - positive), -1)
            an = ops.sum(ops.square(anchor - negative), -1)
            return (ap, an)

    # In place of the downloaded ResNet50.
    base = keras.applications.resnet.ResNet50(
        weights=None, input_shape=(32, 32, 3), include_top=False
    )
    early = base.get_layer("conv2_block1_out").output
    x = layers.Flatten()(layers.MaxPooling2D(4)(early))
    x = layers.BatchNormalization()(layers.Dense(64, activation="relu")(x))
    x = layers.BatchNormalization()(layers.Dense(32, activation="relu")(x))
    embedding = keras.Model(base.input, layers.Dense(32)(x), name="Embedding")
    names = ("anchor", "positive", "negative")
    inputs = [layers.Input(name=name, shape=(32, 32, 3)) for name in names]
    preprocess = keras.applications.resnet.preprocess_input
    distances = DistanceLayer()(*[embedding(preprocess(i)) for i in inputs])
    return keras.Model(inputs=inputs, outputs=distances)


@model("vision/metric_learning", IO + "metric_learning/")
def metric_learning():
    class EmbeddingModel(keras.Model):
        pass

    inputs = layers.Input(shape=(32, 32, 3))
    x = layers.Conv2D(16, 3, strides=2, activation="relu")(inputs)
    x = layers.Conv2D(32, 3, strides=2, activation="relu")(x)
    x = layers.Conv2D(64, 3, strides=2, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    embeddings = layers.Dense(units=8, activation=None)(x)
    embeddings = layers.UnitNormalization()(embeddings)
    return EmbeddingModel(inputs, embeddings)


def simclr_parts():
    class RandomColorAffine(layers.Layer):
        def __init__(self, brightness=0, jitter=0, **kwargs):
            super().__init__(**kwargs)
            self.seed_generator = keras.random.SeedGenerator(1337)
            self.brightness = brightness
            self.jitter = jitter

        def call(self, images, training=True):
            if training:
                batch_size = ops.shape(images)[0]
                scales = 1 + keras.random.uniform(
                    (batch_size, 1, 1, 1),
                    minval=-self.brightness,
                    maxval=self.brightness,
                    seed=self.seed_generator,
                )
                matrices = keras.random.uniform(
                    (batch_size, 1, 3, 3),
                    minval=-self.jitter,
                    maxval=self.jitter,
                    seed=self.seed_generator,
                )
                transforms = ops.eye(3) * scales + matrices
                images = ops.clip(ops.matmul(images, transforms), 0, 1)
            return images

    augmenter = keras.Sequential(
        [
            keras.Input(shape=(32, 32, 3)),
            layers.Rescaling(1 / 255),
            layers.RandomFlip("horizontal"),
            layers.RandomTranslation(0.25, 0.25),
            layers.RandomZoom((-0.5, 0.0), (-0.5, 0.0)),
            RandomColorAffine(0.3, 0.1),
        ]
    )
    encoder = keras.Sequential(
        [
            layers.Conv2D(16, kernel_size=3, strides=2, activation="relu"),
            layers.Conv2D(16, kernel_size=3, strides=2, activation="relu"),
            layers.Conv2D(16, kernel_size=3, strides=2, activation="relu"),
            layers.Flatten(),
            layers.Dense(32, activation="relu"),
        ],
        name="encoder",
    )
    return augmenter, encoder


@model("vision/semisupervised_simclr", IO + "semisupervised_simclr/")
def semisupervised_simclr():
    _, encoder = simclr_parts()
    return keras.Sequential(
        [layers.Input(shape=(32, 32, 3)), encoder, layers.Dense(10)],
        name="finetuning_model",
    )


@model("vision/simclr_with_augmenter", IO + "semisupervised_simclr/")
def simclr_with_augmenter():
    augmenter, encoder = simclr_parts()
    return keras.Sequential([augmenter, encoder, layers.Dense(10)])


@model("vision/simsiam", IO + "simsiam/")
def simsiam():
    decay = keras.regularizers.l2(0.0005)
    inputs = layers.Input((32, 32, 3))
    x = layers.Rescaling(scale=1.0 / 127.5, offset=-1)(inputs)
    x = layers.ZeroPadding2D((1, 1))(x)
    for filters, strides in ((16, 1), (32, 2)):
        skip = layers.Conv2D(filters, 1, strides, use_bias=False)(x)
        y = layers.Conv2D(
            filters, 3, strides, padding="same", kernel_regularizer=decay
        )(x)
        y = layers.ReLU()(layers.BatchNormalization()(y))
        y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(y)
        x = layers.ReLU()(layers.Add()([layers.BatchNormalization()(y), skip]))
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(64, use_bias=False, kernel_regularizer=decay)(x)
    x = layers.ReLU()(layers.BatchNormalization()(x))
    x = layers.Dense(64, use_bias=False, kernel_regularizer=decay)(x)
    outputs = layers.BatchNormalization()(x)
    encoder = keras.Model(inputs, outputs, name="encoder")
    predictor = keras.Sequential(
        [
            layers.Input((64,)),
            layers.Dense(16, use_bias=False, kernel_regularizer=decay),
            layers.ReLU(),
            layers.BatchNormalization(),
            layers.Dense(64),
        ],
        name="predictor",
    )
    return keras.Model(inputs, predictor(encoder(inputs)))


def transformer_blocks(x, blocks, heads, width, units):
    for _ in range(blocks):
        x1 = layers.LayerNormalization(epsilon=1e-6)(x)
        attention = layers.MultiHeadAttention(
            num_heads=heads, key_dim=width, dropout=0.1
        )(x1, x1)
        x2 = layers.Add()([attention, x])
        x3 = layers.LayerNormalization(epsilon=1e-6)(x2)
        x = layers.Add()([mlp(x3, units, 0.1), x2])
    return x


@model("vision/masked_image_modeling", IO + "masked_image_modeling/")
def masked_image_modeling():
    class MAEPatchEncoder(layers.Layer):
        def __init__(self, num_patches, dim, **kwargs):
            super().__init__(**kwargs)
            self.dim = dim
            self.num_patches = num_patches

        def build(self, input_shape):
            self.projection = layers.Dense(units=self.dim)
            self.position_embedding = layers.Embedding(
                input_dim=self.num_patches, output_dim=self.dim
            )

        def call(self, patches):
            positions = ops.arange(0, self.num_patches, 1)
            encoded = self.position_embedding(positions[None, ...])
            encoded = ops.tile(encoded, [ops.shape(patches)[0], 1, 1])
            return self.projection(patches) + encoded

    class PatchesOf(layers.Layer):
        def __init__(self, patch_size, **kwargs):
            super().__init__(**kwargs)
            self.patch_size = patch_size
            self.resize = layers.Reshape((-1, patch_size * patch_size * 3))

        def call(self, images):
            return self.resize(
                ops.image.extract_patches(
                    images, self.patch_size, padding="valid"
                )
            )

    inputs = layers.Input((None, 32))
    x = transformer_blocks(inputs, 2, 4, 32, [64, 32])
    outputs = layers.LayerNormalization(epsilon=1e-6)(x)
    encoder = keras.Model(inputs, outputs, name="mae_encoder")
    return keras.Sequential(
        [
            layers.Input((48, 48, 3)),
            layers.Rescaling(1 / 255.0),
            layers.Resizing(48, 48),
            PatchesOf(6),
            MAEPatchEncoder(64, 32),
            encoder,
            layers.BatchNormalization(),
            layers.GlobalAveragePooling1D(),
            layers.Dense(10, activation="softmax"),
        ],
        name="linear_model",
    )


@model("vision/unet_oxford_pets", IO + "oxford_pets_image_segmentation/")
def unet_oxford_pets():
    inputs = keras.Input(shape=(64, 64, 3))
    x = layers.Conv2D(8, 3, strides=2, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    previous = x
    for filters in [16, 32]:
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.SeparableConv2D(filters, 3, padding="same")(x)
            x = layers.BatchNormalization()(x)
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
        skip = layers.Conv2D(filters, 1, strides=2, padding="same")(previous)
        x = layers.add([x, skip])
        previous = x
    for filters in [32, 16, 8]:
        for _ in range(2):
            x = layers.Activation("relu")(x)
            x = layers.Conv2DTranspose(filters, 3, padding="same")(x)
            x = layers.BatchNormalization()(x)
        x = layers.UpSampling2D(2)(x)
        skip = layers.UpSampling2D(2)(previous)
        skip = layers.Conv2D(filters, 1, padding="same")(skip)
        x = layers.add([x, skip])
        previous = x
    outputs = layers.Conv2D(3, 3, activation="softmax", padding="same")(x)
    return keras.Model(inputs, outputs)


@model("vision/deeplabv3_plus", IO + "deeplabv3_plus/")
def deeplabv3_plus():
    def block(x, filters=32, kernel_size=3, dilation_rate=1, use_bias=False):
        x = layers.Conv2D(
            filters,
            kernel_size=kernel_size,
            dilation_rate=dilation_rate,
            padding="same",
            use_bias=use_bias,
            kernel_initializer=keras.initializers.HeNormal(),
        )(x)
        return ops.nn.relu(layers.BatchNormalization()(x))

    def pyramid(x):
        dims = x.shape
        y = layers.AveragePooling2D(pool_size=(dims[-3], dims[-2]))(x)
        y = block(y, kernel_size=1, use_bias=True)
        pool = layers.UpSampling2D(
            size=(dims[-3] // y.shape[1], dims[-2] // y.shape[2]),
            interpolation="bilinear",
        )(y)
        rates = [block(x, kernel_size=1, dilation_rate=1)]
        rates += [block(x, dilation_rate=rate) for rate in (6, 12, 18)]
        x = layers.Concatenate(axis=-1)([pool, *rates])
        return block(x, kernel_size=1)

    size = 64
    inputs = keras.Input(shape=(size, size, 3))
    preprocessed = keras.applications.resnet50.preprocess_input(inputs)
    resnet = keras.applications.ResNet50(
        weights=None, include_top=False, input_tensor=preprocessed
    )
    x = resnet.get_layer("conv3_block1_2_relu").output
    x = pyramid(x)
    a = layers.UpSampling2D(
        size=(size // 4 // x.shape[1], size // 4 // x.shape[2]),
        interpolation="bilinear",
    )(x)
    b = resnet.get_layer("conv2_block3_2_relu").output
    b = block(b, filters=12, kernel_size=1)
    x = layers.Concatenate(axis=-1)([a, b])
    x = block(block(x))
    x = layers.UpSampling2D(
        size=(size // x.shape[1], size // x.shape[2]),
        interpolation="bilinear",
    )(x)
    outputs = layers.Conv2D(20, kernel_size=(1, 1), padding="same")(x)
    return keras.Model(inputs=inputs, outputs=outputs)


@model("vision/basnet", IO + "basnet_segmentation/")
def basnet():
    def basic_block(x, filters, stride=1, activation="relu"):
        skip = x
        x = layers.Conv2D(filters, 3, strides=stride, padding="same")(x)
        x = layers.Activation("relu")(layers.BatchNormalization()(x))
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        if skip.shape != x.shape:
            skip = layers.Conv2D(filters, 1, strides=stride)(skip)
        return layers.Activation(activation)(layers.Add()([x, skip]))

    def convolution_block(x, filters, dilation=1):
        x = layers.Conv2D(filters, 3, padding="same", dilation_rate=dilation)(x)
        return layers.Activation("relu")(layers.BatchNormalization()(x))

    def segmentation_head(x, out_classes, final_size):
        x = layers.Conv2D(out_classes, kernel_size=(3, 3), padding="same")(x)
        if x.shape[1] != final_size:
            x = layers.Resizing(final_size, final_size)(x)
        return x

    def predict_module(size):
        inputs = layers.Input((size, size, 3))
        x = layers.Conv2D(8, 3, padding="same")(inputs)
        stages = []
        for filters, stride in ((8, 1), (16, 2), (32, 2)):
            x = basic_block(x, filters, stride)
            stages.append(x)
        x = convolution_block(x, 32, dilation=2)
        heads = [x]
        for stage in stages[::-1]:
            if x.shape[1] != stage.shape[1]:
                x = layers.UpSampling2D(2, interpolation="bilinear")(x)
            x = layers.concatenate([x, stage], axis=-1)
            x = convolution_block(x, 16)
            heads.append(x)
        outputs = [segmentation_head(head, 1, size) for head in heads][::-1]
        return keras.Model(inputs, outputs)

    def refinement_module(base, size):
        inputs = base.output[0]
        x = layers.Conv2D(8, 3, padding="same")(inputs)
        skips = []
        for _ in range(2):
            x = convolution_block(x, 8)
            skips.append(x)
            x = layers.MaxPool2D(2)(x)
        x = convolution_block(x, 8)
        for skip in skips[::-1]:
            x = layers.UpSampling2D(2, interpolation="bilinear")(x)
            x = convolution_block(layers.concatenate([x, skip]), 8)
        x = segmentation_head(x, 1, size)
        return keras.Model(base.inputs, layers.Add()([inputs, x]))

    predict = predict_module(48)
    refine = refinement_module(predict, 48)
    outputs = [refine.output, *predict.output]
    outputs = [layers.Activation("sigmoid")(x) for x in outputs]
    return keras.Model(predict.input, outputs)


@model("vision/keypoint_detection", IO + "keypoint_detection/")
def keypoint_detection():
    backbone = keras.applications.MobileNetV2(
        weights=None, include_top=False, alpha=0.35, input_shape=(64, 64, 3)
    )
    backbone.trainable = False
    inputs = layers.Input((64, 64, 3))
    x = keras.applications.mobilenet_v2.preprocess_input(inputs)
    x = backbone(x)
    x = layers.Dropout(0.3)(x)
    x = layers.SeparableConv2D(24, kernel_size=2, strides=1, activation="relu")(
        x
    )
    outputs = layers.SeparableConv2D(
        24, kernel_size=1, strides=1, activation="sigmoid"
    )(x)
    return keras.Model(inputs, outputs, name="keypoint_detector")


@model(
    "vision/object_detection_vit",
    IO + "object_detection_using_vision_transformer/",
)
def object_detection_vit():
    class PatchEncoderOfDetector(layers.Layer):
        def __init__(self, num_patches, projection_dim):
            super().__init__()
            self.num_patches = num_patches
            self.projection = layers.Dense(units=projection_dim)
            self.position_embedding = layers.Embedding(
                input_dim=num_patches, output_dim=projection_dim
            )

        def call(self, patch):
            positions = ops.expand_dims(
                ops.arange(start=0, stop=self.num_patches, step=1), axis=0
            )
            projected = self.projection(patch)
            return projected + self.position_embedding(positions)

    inputs = keras.Input(shape=(64, 64, 3))
    x = PatchEncoderOfDetector(16, 32)(Patches(16)(inputs))
    x = transformer_blocks(x, 2, 4, 32, [64, 32])
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Dropout(0.3)(layers.Flatten()(x))
    features = mlp(x, [64, 32], dropout_rate=0.3)
    return keras.Model(inputs, layers.Dense(4)(features))


@model("vision/retinanet", IO + "retinanet/")
def retinanet():
    class FeaturePyramid(keras.layers.Layer):
        def __init__(self, backbone, width=32, **kwargs):
            super().__init__(name="FeaturePyramid", **kwargs)
            self.backbone = backbone
            self.laterals = [
                keras.layers.Conv2D(width, 1, 1, "same") for _ in range(3)
            ]
            self.convs = [
                keras.layers.Conv2D(width, 3, 1, "same") for _ in range(3)
            ]
            self.conv_c6_3x3 = keras.layers.Conv2D(width, 3, 2, "same")
            self.conv_c7_3x3 = keras.layers.Conv2D(width, 3, 2, "same")
            self.upsample_2x = keras.layers.UpSampling2D(2)

        def call(self, images, training=False):
            c3, c4, c5 = self.backbone(images, training=training)
            p3, p4, p5 = (
                layer(c)
                for layer, c in zip(self.laterals, (c3, c4, c5), strict=True)
            )
            p4 = p4 + self.upsample_2x(p5)
            p3 = p3 + self.upsample_2x(p4)
            p3, p4, p5 = (
                layer(p)
                for layer, p in zip(self.convs, (p3, p4, p5), strict=True)
            )
            p6 = self.conv_c6_3x3(c5)
            p7 = self.conv_c7_3x3(ops.relu(p6))
            return p3, p4, p5, p6, p7

    def build_head(output_filters, bias_init, width=32):
        head = keras.Sequential([keras.Input(shape=[None, None, width])])
        init = keras.initializers.RandomNormal(0.0, 0.01)
        for _ in range(2):
            head.add(
                keras.layers.Conv2D(
                    width, 3, padding="same", kernel_initializer=init
                )
            )
            head.add(keras.layers.ReLU())
        head.add(
            keras.layers.Conv2D(
                output_filters,
                3,
                1,
                padding="same",
                kernel_initializer=init,
                bias_initializer=bias_init,
            )
        )
        return head

    class RetinaNet(keras.Model):
        def __init__(self, num_classes, backbone, **kwargs):
            super().__init__(name="RetinaNet", **kwargs)
            self.fpn = FeaturePyramid(backbone)
            self.num_classes = num_classes
            prior = keras.initializers.Constant(-np.log((1 - 0.01) / 0.01))
            self.cls_head = build_head(9 * num_classes, prior)
            self.box_head = build_head(9 * 4, "zeros")

        def call(self, image, training=False):
            features = self.fpn(image, training=training)
            size = ops.shape(image)[0]
            classes, boxes = [], []
            for feature in features:
                box = self.box_head(feature)
                boxes.append(ops.reshape(box, [size, -1, 4]))
                scores = self.cls_head(feature)
                classes.append(
                    ops.reshape(scores, [size, -1, self.num_classes])
                )
            return ops.concatenate(
                [
                    ops.concatenate(boxes, axis=1),
                    ops.concatenate(classes, axis=1),
                ],
                axis=-1,
            )

    inputs = keras.Input((None, None, 3))
    x = layers.Conv2D(8, 7, strides=4, padding="same")(inputs)
    outputs = []
    for filters in (16, 24, 32):
        x = layers.Conv2D(filters, 3, strides=2, padding="same")(x)
        x = layers.ReLU()(layers.BatchNormalization()(x))
        outputs.append(x)
    backbone = keras.Model(inputs, outputs)
    detector = RetinaNet(5, backbone)
    detector(np.zeros((1, 64, 64, 3), "float32"))
    return detector


class OrthogonalRegularizer(keras.regularizers.Regularizer):
    def __init__(self, num_features, l2reg=0.001):
        self.num_features = num_features
        self.l2reg = l2reg
        self.eye = ops.eye(num_features)

    def __call__(self, x):
        x = ops.reshape(x, (-1, self.num_features, self.num_features))
        xxt = ops.tensordot(x, x, axes=(2, 2))
        xxt = ops.reshape(xxt, (-1, self.num_features, self.num_features))
        return ops.sum(self.l2reg * ops.square(xxt - self.eye))


def point_conv(x, filters, name=None):
    x = layers.Conv1D(filters, kernel_size=1, padding="valid", name=name)(x)
    x = layers.BatchNormalization(momentum=0.0)(x)
    return layers.Activation("relu")(x)


def point_dense(x, filters):
    x = layers.Dense(filters)(x)
    x = layers.BatchNormalization(momentum=0.0)(x)
    return layers.Activation("relu")(x)


def tnet(inputs, num_features):
    bias = keras.initializers.Constant(np.eye(num_features).flatten())
    x = point_conv(inputs, 16)
    x = point_conv(x, 16)
    x = point_conv(x, 64)
    x = layers.GlobalMaxPooling1D()(x)
    x = point_dense(x, 32)
    x = point_dense(x, 16)
    x = layers.Dense(
        num_features * num_features,
        kernel_initializer="zeros",
        bias_initializer=bias,
        activity_regularizer=OrthogonalRegularizer(num_features),
    )(x)
    transform = layers.Reshape((num_features, num_features))(x)
    return layers.Dot(axes=(2, 1))([inputs, transform])


@model("vision/pointnet", IO + "pointnet/")
def pointnet():
    inputs = keras.Input(shape=(128, 3))
    x = tnet(inputs, 3)
    x = point_conv(x, 16)
    x = point_conv(x, 16)
    x = tnet(x, 16)
    x = point_conv(x, 16)
    x = point_conv(x, 32)
    x = point_conv(x, 64)
    x = layers.GlobalMaxPooling1D()(x)
    x = point_dense(x, 32)
    x = layers.Dropout(0.3)(x)
    x = point_dense(x, 16)
    x = layers.Dropout(0.3)(x)
    outputs = layers.Dense(10, activation="softmax")(x)
    return keras.Model(inputs=inputs, outputs=outputs, name="pointnet")


def segmentation_of_points(num_points):
    inputs = keras.Input(shape=(None, 3))
    x = tnet(inputs, 3)
    features_16 = point_conv(x, 16, name="features_64")
    features_32 = point_conv(features_16, 32, name="features_128_1")
    features_32b = point_conv(features_32, 32, name="features_128_2")
    transformed = tnet(features_32b, 32)
    features_64 = point_conv(transformed, 64, name="features_512")
    pooled = point_conv(features_64, 128, name="pre_maxpool_block")
    pooled = layers.MaxPooling1D(pool_size=num_points, name="global_features")(
        pooled
    )
    pooled = ops.tile(pooled, [1, num_points, 1])
    x = layers.Concatenate(name="segmentation_input")(
        [
            features_16,
            features_32,
            features_32b,
            transformed,
            features_64,
            pooled,
        ]
    )
    x = point_conv(x, 32, name="segmentation_features")
    outputs = layers.Conv1D(
        5, kernel_size=1, activation="softmax", name="segmentation_head"
    )(x)
    return keras.Model(inputs, outputs)


@model("vision/pointnet_segmentation", IO + "pointnet_segmentation/")
def pointnet_segmentation():
    points = np.random.default_rng(0).random((2, 64, 3)).astype("float32")
    return segmentation_of_points(64), {"samples": points}


@model("vision/pointnet_segmentation_fixed", IO + "pointnet_segmentation/")
def pointnet_segmentation_fixed():
    # The model above takes 64 points alone, and does not say so.
    fixed = keras.Input(shape=(64, 3), name="point_cloud")
    return keras.Model(fixed, segmentation_of_points(64)(fixed))


@model("vision/grad_cam", IO + "grad_cam/")
def grad_cam():
    classifier = keras.applications.MobileNetV2(
        weights=None, alpha=0.35, input_shape=(64, 64, 3), classes=10
    )
    classifier.layers[-1].activation = None
    last = classifier.get_layer("out_relu").output
    return keras.Model(classifier.inputs, [last, classifier.output])


@model("vision/integrated_gradients", IO + "integrated_gradients/")
def integrated_gradients():
    inputs = keras.Input((64, 64, 3))
    x = keras.applications.xception.preprocess_input(inputs)
    x = layers.Conv2D(8, 3, strides=2, use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    x = layers.Activation("relu")(x)
    x = layers.SeparableConv2D(16, 3, padding="same", use_bias=False)(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


@model("vision/knowledge_distillation_student", IO + "knowledge_distillation/")
def knowledge_distillation_student():
    return keras.Sequential(
        [
            keras.Input(shape=(28, 28, 1)),
            layers.Conv2D(16, (3, 3), strides=(2, 2), padding="same"),
            layers.LeakyReLU(negative_slope=0.2),
            layers.MaxPooling2D(
                pool_size=(2, 2), strides=(1, 1), padding="same"
            ),
            layers.Conv2D(32, (3, 3), strides=(2, 2), padding="same"),
            layers.Flatten(),
            layers.Dense(10),
        ],
        name="student",
    )


@model(
    "vision/attention_mil",
    IO + "attention_mil_classification/",
)
def attention_mil():
    class MILAttentionLayer(layers.Layer):
        def __init__(self, weight_params_dim, use_gated=False, **kwargs):
            super().__init__(**kwargs)
            self.weight_params_dim = weight_params_dim
            self.use_gated = use_gated

        def build(self, input_shape):
            size = input_shape[0][1], self.weight_params_dim
            initializer = "glorot_uniform"
            self.v_weight_params = self.add_weight(
                shape=size, initializer=initializer, name="v"
            )
            self.w_weight_params = self.add_weight(
                shape=(self.weight_params_dim, 1),
                initializer=initializer,
                name="w",
            )
            if self.use_gated:
                self.u_weight_params = self.add_weight(
                    shape=size, initializer=initializer, name="u"
                )

        def call(self, inputs):
            instances = [self.scores(instance) for instance in inputs]
            instances = ops.stack(instances)
            instances = ops.softmax(instances, axis=0)
            split = ops.split(instances, len(inputs), axis=0)
            return [ops.squeeze(part, 0) for part in split]

        def scores(self, instance):
            original = instance
            instance = ops.tanh(
                ops.tensordot(instance, self.v_weight_params, 1)
            )
            if self.use_gated:
                instance = instance * ops.sigmoid(
                    ops.tensordot(original, self.u_weight_params, axes=1)
                )
            return ops.tensordot(instance, self.w_weight_params, axes=1)

    shared_1 = layers.Dense(32, activation="relu")
    shared_2 = layers.Dense(16, activation="relu")
    inputs, embeddings = [], []
    for _ in range(3):
        inp = layers.Input((28, 28))
        flat = layers.Flatten()(inp)
        inputs.append(inp)
        embeddings.append(shared_2(shared_1(flat)))
    alpha = MILAttentionLayer(64, use_gated=True, name="alpha")(embeddings)
    weighted = [
        layers.multiply([alpha[i], embeddings[i]]) for i in range(len(alpha))
    ]
    concat = layers.concatenate(weighted, axis=1)
    output = layers.Dense(2, activation="softmax")(concat)
    return keras.Model(inputs, output)


@model("vision/learnable_resizer", IO + "learnable_resizer/")
def learnable_resizer():
    target = (24, 24)

    def conv_block(x, filters, kernel_size, strides, activation=True):
        x = layers.Conv2D(
            filters, kernel_size, strides, padding="same", use_bias=False
        )(x)
        x = layers.BatchNormalization()(x)
        return layers.LeakyReLU(0.2)(x) if activation else x

    inputs = layers.Input(shape=[None, None, 3])
    naive = layers.Resizing(*target, interpolation="bilinear")(inputs)
    x = layers.Conv2D(16, 7, strides=1, padding="same")(inputs)
    x = layers.LeakyReLU(0.2)(x)
    x = layers.Conv2D(16, 1, strides=1, padding="same")(x)
    x = layers.LeakyReLU(0.2)(x)
    x = layers.BatchNormalization()(x)
    bottleneck = layers.Resizing(*target, interpolation="bilinear")(x)
    y = conv_block(bottleneck, 16, 3, 1)
    y = conv_block(y, 16, 3, 1, activation=False)
    x = layers.Add()([bottleneck, y])
    x = conv_block(x, 16, 3, 1, activation=False)
    x = layers.Add()([bottleneck, x])
    x = layers.Conv2D(3, 7, strides=1, padding="same")(x)
    resizer = keras.Model(
        inputs, layers.Add()([naive, x]), name="learnable_resizer"
    )
    pictures = layers.Input((32, 32, 3))
    x = layers.Rescaling(scale=1.0 / 255)(pictures)
    x = resizer(x)
    x = layers.Conv2D(16, 3, strides=2, activation="relu")(x)
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(pictures, layers.Dense(2, activation="softmax")(x))


@model("vision/token_learner", IO + "token_learner/")
def token_learner():
    def token_learner_module(inputs, number_of_tokens=4):
        normal = layers.LayerNormalization(epsilon=1e-6)(inputs)
        maps = keras.Sequential(
            [
                layers.Conv2D(
                    number_of_tokens, 3, activation=ops.gelu, padding="same"
                ),
                layers.Conv2D(
                    number_of_tokens, 3, activation=ops.gelu, padding="same"
                ),
                layers.Conv2D(
                    number_of_tokens, 3, activation="sigmoid", padding="same"
                ),
                layers.Reshape((-1, number_of_tokens)),
                layers.Permute((2, 1)),
            ]
        )(normal)
        channels = inputs.shape[-1]
        flat = layers.Reshape((1, -1, channels))(inputs)
        attended = ops.expand_dims(maps, axis=-1) * flat
        return ops.mean(attended, axis=2)

    inputs = layers.Input(shape=(32, 32, 3))
    x = layers.Rescaling(1 / 255.0)(inputs)
    x = layers.Conv2D(32, 4, strides=4, padding="VALID")(x)
    patches = layers.Reshape((64, 32))(x)
    positions = ops.arange(start=0, stop=64, step=1)
    encoded = layers.Embedding(64, 32)(positions) + patches
    encoded = layers.Dropout(0.1)(encoded)
    for i in range(4):
        encoded = transformer_blocks(encoded, 1, 4, 32, [64, 32])
        if i == 1:
            _, count, width = encoded.shape
            side = int(np.sqrt(count))
            encoded = layers.Reshape((side, side, width))(encoded)
            encoded = token_learner_module(encoded)
    x = layers.LayerNormalization(epsilon=1e-6)(encoded)
    x = layers.GlobalAvgPool1D()(x)
    return keras.Model(inputs, layers.Dense(10, activation="softmax")(x))


@model("vision/probing_vits_dino", IO + "probing_vits/")
def probing_vits_dino():
    class TFViTAttention(layers.Layer):
        """Attention that returns its scores as well, for the pictures."""

        def __init__(self, width=32, heads=4, **kwargs):
            super().__init__(**kwargs)
            self.heads = heads
            self.size = width // heads
            self.query = layers.Dense(width, name="query")
            self.key = layers.Dense(width, name="key")
            self.value = layers.Dense(width, name="value")
            self.dense = layers.Dense(width, name="dense")

        def split(self, x):
            x = ops.reshape(x, (ops.shape(x)[0], -1, self.heads, self.size))
            return ops.transpose(x, (0, 2, 1, 3))

        def call(self, x):
            q = self.split(self.query(x))
            k = self.split(self.key(x))
            v = self.split(self.value(x))
            scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
            scores = ops.softmax(scores / self.size**0.5, axis=-1)
            x = ops.transpose(ops.matmul(scores, v), (0, 2, 1, 3))
            x = ops.reshape(x, (ops.shape(x)[0], -1, self.heads * self.size))
            return self.dense(x), scores

    class ViTClassifier(keras.Model):
        def __init__(self, width=32, **kwargs):
            super().__init__(**kwargs)
            self.patch_embed = keras.Sequential(
                [
                    layers.Conv2D(width, 8, 8, padding="VALID"),
                    layers.Reshape((16, width)),
                ],
                name="projection",
            )
            self.positional_embedding = self.add_weight(
                shape=(1, 17, width), name="pos_embedding"
            )
            self.cls_token = self.add_weight(
                shape=(1, 1, width), initializer="zeros", name="cls"
            )
            self.attention = [TFViTAttention(width) for _ in range(2)]
            self.norms = [layers.LayerNormalization() for _ in range(4)]
            self.mlps = [
                keras.Sequential(
                    [layers.Dense(64, activation="gelu"), layers.Dense(width)]
                )
                for _ in range(2)
            ]
            self.layer_norm = layers.LayerNormalization(epsilon=1e-6)

        def call(self, images):
            x = self.patch_embed(images)
            n = ops.shape(x)[0]
            x = ops.concatenate([ops.repeat(self.cls_token, n, 0), x], axis=1)
            x = x + self.positional_embedding
            maps = {}
            for i, attention in enumerate(self.attention):
                y, scores = attention(self.norms[2 * i](x))
                x = x + y
                x = x + self.mlps[i](self.norms[2 * i + 1](x))
                maps[f"transformer_block_{i}_att"] = scores
            return self.layer_norm(x)[:, 0], maps

    probe = ViTClassifier()
    probe(np.zeros((1, 32, 32, 3), "float32"))
    return probe
