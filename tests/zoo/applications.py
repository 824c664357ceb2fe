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


def features(name):
    """Vectors of images of any size."""
    make = getattr(keras.applications, name)
    return trained(
        make(
            weights=None,
            include_top=False,
            input_shape=(None, None, 3),
            pooling="avg",
        )
    )


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
    add = model(f"applications/{each} features", f"{URL}/{page}/", name=each)
    add(features)
