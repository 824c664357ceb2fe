"""Every model of keras.applications, with random weights."""

import keras

from tests.zoo.entries import model, trained

# By the page of keras.io that has them.
CLASSES = {
    "convnext": [
        f"ConvNeXt{x}" for x in "Tiny Small Base Large XLarge".split()
    ],
    "densenet": ["DenseNet121", "DenseNet169", "DenseNet201"],
    "efficientnet": [f"EfficientNetB{x}" for x in range(8)],
    "efficientnet_v2": [
        f"EfficientNetV2{x}" for x in "B0 B1 B2 B3 S M L".split()
    ],
    "inceptionresnetv2": ["InceptionResNetV2"],
    "inceptionv3": ["InceptionV3"],
    "mobilenet": [
        *("MobileNet", "MobileNetV2"),
        *("MobileNetV3Small", "MobileNetV3Large"),
    ],
    "nasnet": ["NASNetMobile", "NASNetLarge"],
    "resnet": [
        f"ResNet{size}{version}"
        for version in ("", "V2")
        for size in (50, 101, 152)
    ],
    "vgg": ["VGG16", "VGG19"],
    "xception": ["Xception"],
}
# The least size of images, where it is more than 64.
LEAST = {"InceptionResNetV2": 75, "InceptionV3": 75, "Xception": 71}
URL = "https://keras.io/api/applications"


def application(name):
    """As an example trains it from scratch, on small images."""
    size = LEAST.get(name, 64)
    make = getattr(keras.applications, name)
    return trained(make(weights=None, input_shape=(size, size, 3), classes=10))


def as_it_comes(name, **arguments):
    """With the arguments that a user gives; none for 224 x 224 pixels."""
    make = getattr(keras.applications, name)
    return trained(make(weights=None, **arguments))


def features(name):
    """Vectors of images of any size."""
    return as_it_comes(
        name, include_top=False, input_shape=(None, None, 3), pooling="avg"
    )


def fine_tuned(name):
    """A new head on frozen layers, behind augmentation, as guides have it."""
    base = getattr(keras.applications, name)(
        weights=None, include_top=False, input_shape=(96, 96, 3)
    )
    base = trained(base)
    base.trainable = False
    inputs = keras.Input((96, 96, 3), name="image")
    x = keras.layers.RandomFlip("horizontal")(inputs)
    x = keras.layers.RandomRotation(0.1)(x)
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(x)
    x = base(x, training=False)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    outputs = keras.layers.Dense(2, activation="softmax", name="scores")(x)
    return keras.Model(inputs, outputs)


for page, names in CLASSES.items():
    for each in names:
        add = model(f"applications/{each}", f"{URL}/{page}/", name=each)
        add(application)

for page, each in (
    ("mobilenet", "MobileNet"),
    ("mobilenet", "MobileNetV3Small"),
    ("efficientnet", "EfficientNetB0"),
    ("resnet", "ResNet50"),
):
    source = f"{URL}/{page}/"
    model(f"applications/{each} as it comes", source, name=each)(as_it_comes)
    model(f"applications/{each} features", source, name=each)(features)

for each in ("MobileNetV2", "EfficientNetV2B0", "Xception"):
    model(
        f"applications/{each} fine-tuned",
        "https://keras.io/guides/transfer_learning/",
        name=each,
    )(fine_tuned)
