"""Models of keras-hub, tiny ones, with random weights."""

from tests.zoo.entries import model, trained

URL = "https://keras.io/keras_hub/api/models"
SIZES = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
TABLE = {**SIZES, "max_sequence_length": 24}
GROUPED = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "num_query_heads": 4,
    "num_key_value_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
LINEAR = {
    "num_layers": 4,
    "head_dim": 8,
    "layer_types": ["linear_attention"] * 3 + ["full_attention"],
    "partial_rotary_factor": 0.25,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 4,
}
EXPERTS = {"num_experts": 4, "top_k": 2}

# Of text: the page, arguments of the backbone, and what is built on it.
TEXT = {
    "Albert": (
        "albert",
        {**TABLE, "embedding_dim": 8},
        "TextClassifier",
    ),
    "Bart": ("bart", TABLE, "Seq2SeqLM"),
    "Bert": ("bert", TABLE, "TextClassifier"),
    "Bloom": ("bloom", SIZES, "CausalLM"),
    "DebertaV3": ("deberta_v3", TABLE, "TextClassifier"),
    "FNet": (
        "f_net",
        {
            "vocabulary_size": 50,
            "num_layers": 2,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "max_sequence_length": 24,
        },
        "MaskedLM",
    ),
    "Falcon": (
        "falcon",
        {
            "vocabulary_size": 50,
            "num_layers": 2,
            "num_attention_heads": 4,
            "hidden_dim": 16,
            "intermediate_dim": 32,
        },
        "CausalLM",
    ),
    "Gemma": ("gemma", {**GROUPED, "head_dim": 4}, "CausalLM"),
    "Gemma3": (
        "gemma3",
        {
            **GROUPED,
            "image_size": 16,
            "head_dim": 4,
            "use_query_key_norm": True,
            "use_sliding_window_attention": True,
            "sliding_window_size": 8,
            "vision_encoder": None,
        },
        "TextEmbedder",
    ),
    "GPT2": ("gpt2", TABLE, "CausalLM"),
    "GPTNeoX": ("gpt_neo_x", TABLE, "CausalLM"),
    "GptOss": (
        "gpt_oss",
        {**GROUPED, **EXPERTS, "sliding_window": 8},
        "CausalLM",
    ),
    "Llama": ("llama", GROUPED, "CausalLM"),
    "Mistral": ("mistral", {**GROUPED, "sliding_window": 8}, "CausalLM"),
    "Mixtral": (
        "mixtral",
        {**GROUPED, **EXPERTS, "sliding_window": 8},
        "CausalLM",
    ),
    "Phi3": ("phi3", GROUPED, "CausalLM"),
    "Qwen3": ("qwen3", {**GROUPED, "head_dim": 4}, "CausalLM"),
    "Qwen3_5": ("qwen3_5", {**GROUPED, **LINEAR}, "CausalLM"),
    "RWKV7": (
        "rwkv7",
        {
            "vocabulary_size": 50,
            "hidden_size": 16,
            "num_layers": 2,
            "head_size": 4,
            "intermediate_dim": 32,
            "gate_lora": 8,
            "mv_lora": 8,
            "aaa_lora": 8,
            "decay_lora": 8,
        },
        "CausalLM",
    ),
    "Roberta": ("roberta", TABLE, "TextClassifier"),
    "RoformerV2": (
        "roformer_v2",
        {**SIZES, "head_size": 8},
        "MaskedLM",
    ),
    "T5": ("t5", SIZES, "Seq2SeqLM"),
    "XLNet": ("xlnet", SIZES, "Backbone"),
}

RESNET = {
    "input_conv_filters": [64],
    "input_conv_kernel_sizes": [7],
    "stackwise_num_filters": [64, 64, 64, 64],
    "stackwise_num_blocks": [1, 1, 1, 1],
    "stackwise_num_strides": [1, 2, 2, 2],
    "block_type": "bottleneck_block",
}
MIT = {
    "layerwise_depths": [2, 2],
    "image_shape": (32, 32, 3),
    "hidden_dims": [4, 8],
    "num_layers": 2,
    "layerwise_num_heads": [1, 2],
    "layerwise_sr_ratios": [8, 4],
    "max_drop_path_rate": 0.1,
    "layerwise_patch_sizes": [7, 3],
    "layerwise_strides": [4, 2],
}
HGNET = {
    "stem_channels": [3, 8, 8],
    "stackwise_stage_filters": [[8, 8, 16, 1, 1, 3], [16, 8, 32, 1, 1, 3]],
    "apply_downsample": [False, True],
    "use_lightweight_conv_block": [False, False],
    "depths": [1, 1],
    "hidden_sizes": [16, 32],
    "embedding_size": 8,
    "use_learnable_affine_block": True,
    "hidden_act": "relu",
}
VIT = {
    "image_shape": (32, 32, 3),
    "patch_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
}
DINO = {
    "image_shape": (32, 32, 3),
    "patch_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
    "layer_scale_init_value": 1.0,
    "num_register_tokens": 4,
}

# Of images, with one input.
IMAGES = {
    "CSPNet": (
        "cspnet",
        {
            "stem_filters": 8,
            "stem_kernel_size": 3,
            "stem_strides": 1,
            "stackwise_strides": 2,
            "stackwise_depth": [1, 2, 2],
            "stackwise_num_filters": [16, 24, 48],
            "image_shape": (None, None, 3),
            "down_growth": True,
            "bottle_ratio": (0.5, 1.0),
            "block_ratio": (1.0, 0.5),
            "expand_ratio": (2.0, 1.0),
            "block_type": "dark_block",
            "stage_type": "csp",
            "stem_padding": "same",
        },
        "ImageClassifier",
    ),
    "DeiT": ("deit", {**VIT, "intermediate_dim": 32}, "ImageClassifier"),
    "DenseNet": (
        "densenet",
        {
            "stackwise_num_repeats": [2, 2, 2],
            "compression_ratio": 0.5,
            "growth_rate": 4,
        },
        "ImageClassifier",
    ),
    "DINOV2": ("dinov2", DINO, "Backbone"),
    "DINOV3": ("dinov3", DINO, "Backbone"),
    "HGNetV2": (
        "hgnetv2",
        {**HGNET, "image_shape": (64, 64, 3)},
        "ImageClassifier",
    ),
    "ResNet": (
        "resnet",
        {**RESNET, "image_shape": (None, None, 3)},
        "ImageClassifier",
    ),
    "SwinTransformer": (
        "swin_transformer",
        {
            "image_shape": (32, 32, 3),
            "embed_dim": 16,
            "depths": (2, 2),
            "num_heads": (2, 4),
            "window_size": 4,
        },
        "ImageClassifier",
    ),
    "ViT": ("vit", {**VIT, "mlp_dim": 32}, "ImageClassifier"),
    "ViTDet": (
        "vit_det",
        {
            "hidden_size": 16,
            "num_layers": 2,
            "intermediate_dim": 32,
            "num_heads": 2,
            "global_attention_layer_indices": [1],
            "patch_size": 8,
            "num_output_channels": 8,
            "window_size": 2,
            "image_shape": (32, 32, 3),
        },
        "Backbone",
    ),
}


def built(name, head, arguments):
    """A backbone or, of one, a task fed with ids or images: no preprocessor."""
    import keras_hub

    made = trained(getattr(keras_hub.models, f"{name}Backbone")(**arguments))
    if head != "Backbone":
        classes = {"num_classes": 3} if head.endswith("Classifier") else {}
        made = getattr(keras_hub.models, name + head)(
            backbone=made, preprocessor=None, **classes
        )
    if name == "RWKV7":  # its own code needs a known length
        shapes = {each.name: (None, 16) for each in made.inputs}
        return made, {"signatures": {"serving_default": (made, shapes)}}
    # What an export is given for a table of positions.
    longest = arguments.get("max_sequence_length")
    return made, {"max_length": longest} if longest else {}


for group, rows in (("text", TEXT), ("images", IMAGES)):
    for each, (page, arguments, head) in rows.items():
        model(
            f"keras-hub {group}/{each}{head}",
            f"{URL}/{page}/",
            name=each,
            head=head,
            arguments=arguments,
        )(built)


def resnet(shape):
    import keras_hub

    return keras_hub.models.ResNetBackbone(**RESNET, image_shape=shape)


def segformer_backbone():
    import keras_hub

    return keras_hub.models.SegFormerBackbone(
        image_encoder=keras_hub.models.MiTBackbone(**MIT),
        projection_filters=16,
    )


@model("keras-hub images/SegFormerImageSegmenter", f"{URL}/segformer/")
def segformer_segmenter():
    import keras_hub

    return trained(
        keras_hub.models.SegFormerImageSegmenter(
            segformer_backbone(), num_classes=4
        )
    )


def deeplab_backbone():
    import keras_hub

    return keras_hub.models.DeepLabV3Backbone(
        image_encoder=resnet((96, 96, 3)),
        low_level_feature_key="P2",
        spatial_pyramid_pooling_key="P4",
        dilation_rates=[6, 12, 18],
        upsampling_size=4,
        image_shape=(96, 96, 3),
    )


@model("keras-hub images/DeepLabV3ImageSegmenter", f"{URL}/deeplab_v3/")
def deeplab_segmenter():
    import keras_hub

    return trained(
        keras_hub.models.DeepLabV3ImageSegmenter(
            deeplab_backbone(), num_classes=4
        )
    )


def retina_backbone():
    import keras_hub

    return keras_hub.models.RetinaNetBackbone(
        image_encoder=resnet((128, 128, 3)),
        min_level=3,
        max_level=7,
        use_p5=True,
        image_shape=(128, 128, 3),
    )


@model("keras-hub images/RetinaNetObjectDetector", f"{URL}/retinanet/")
def retina_detector():
    import keras_hub

    anchors = keras_hub.layers.AnchorGenerator(
        bounding_box_format="yxyx",
        min_level=3,
        max_level=7,
        num_scales=3,
        aspect_ratios=[0.5, 1.0, 2.0],
        anchor_size=4.0,
    )
    return trained(
        keras_hub.models.RetinaNetObjectDetector(
            backbone=retina_backbone(),
            anchor_generator=anchors,
            num_classes=4,
            bounding_box_format="yxyx",
        )
    )


def depth_backbone():
    import keras_hub

    encoder = keras_hub.models.DINOV2Backbone(
        14,
        4,
        16,
        2,
        64,
        1.0,
        0,
        image_shape=(126, 126, 3),
        apply_layernorm=True,
        name="image_encoder",
    )
    return keras_hub.models.DepthAnythingBackbone(
        image_encoder=encoder,
        reassemble_factors=[4, 2, 1, 0.5],
        neck_hidden_dims=[16, 16, 16, 16],
        fusion_hidden_dim=16,
        head_hidden_dim=8,
        head_in_index=-1,
        feature_keys=["stage1", "stage2", "stage3", "stage4"],
    )


@model("keras-hub images/DepthAnythingDepthEstimator", f"{URL}/depth_anything/")
def depth_estimator():
    import keras_hub

    return keras_hub.models.DepthAnythingDepthEstimator(
        backbone=depth_backbone(),
        depth_estimation_type="relative",
    )


def two_towers(name):
    """CLIP, and those after it: images and texts."""
    import keras_hub

    models = keras_hub.models
    vision = getattr(models, f"{name}VisionEncoder")(
        8, 32, 2, 2, 64, image_shape=(32, 32, 3), name="vision_encoder"
    )
    text = getattr(models, f"{name}TextEncoder")(
        50, 32, 32, 2, 2, 64, max_sequence_length=24, name="text_encoder"
    )
    options = {} if name == "SigLIP" else {"projection_dim": 32}
    made = getattr(models, f"{name}Backbone")(
        vision_encoder=vision, text_encoder=text, **options
    )
    return made, {"max_length": 24}


for each, page in (("CLIP", "clip"), ("SigLIP", "siglip")):
    model(f"keras-hub other/{each}Backbone", f"{URL}/{page}/", name=each)(
        two_towers
    )


def sam_backbone():
    import keras_hub

    return keras_hub.models.SAMBackbone(
        image_encoder=keras_hub.models.ViTDetBackbone(
            hidden_size=16,
            num_layers=2,
            intermediate_dim=32,
            num_heads=2,
            global_attention_layer_indices=[1],
            patch_size=16,
            num_output_channels=8,
            window_size=2,
            image_shape=(32, 32, 3),
        ),
        prompt_encoder=keras_hub.layers.SAMPromptEncoder(
            hidden_size=8,
            image_embedding_size=(2, 2),
            input_image_size=(32, 32),
            mask_in_channels=16,
        ),
        mask_decoder=keras_hub.layers.SAMMaskDecoder(
            num_layers=2,
            hidden_size=8,
            intermediate_dim=32,
            num_heads=2,
            embedding_dim=8,
            num_multimask_outputs=3,
            iou_head_depth=3,
            iou_head_hidden_dim=8,
        ),
    )


def sam_prompts():
    """Two images, each with a point and a box."""
    import numpy as np

    random = np.random.default_rng(0)
    return {
        "images": random.uniform(0, 1, (2, 32, 32, 3)).astype("float32"),
        "points": random.uniform(0, 32, (2, 1, 2)).astype("float32"),
        "labels": np.ones((2, 1), "float32"),
        "boxes": np.float32([[[[4, 4], [20, 24]]], [[[0, 8], [16, 30]]]]),
        "masks": np.zeros((2, 1, 8, 8, 1), "float32"),
    }


@model("keras-hub other/SAMImageSegmenter", f"{URL}/sam/")
def sam_segmenter():
    import keras_hub

    segmenter = keras_hub.models.SAMImageSegmenter(sam_backbone())
    prompts = sam_prompts()
    shapes = {name: (None, *x.shape[1:]) for name, x in prompts.items()}
    signatures = {"serving_default": (segmenter, shapes)}
    return segmenter, {"signatures": signatures, "samples": prompts}


@model("keras-hub other/WhisperBackbone", f"{URL}/whisper/")
def whisper():
    import keras_hub

    made = keras_hub.models.WhisperBackbone(
        **SIZES,
        num_mels=8,
        max_encoder_sequence_length=24,
        max_decoder_sequence_length=24,
    )
    return made, {"max_length": 24}


@model("keras-hub other/MoonshineBackbone", f"{URL}/moonshine/")
def moonshine():
    import keras_hub

    return keras_hub.models.MoonshineBackbone(
        vocabulary_size=50,
        filter_dim=16,
        encoder_num_layers=2,
        decoder_num_layers=2,
        hidden_dim=16,
        intermediate_dim=32,
        encoder_num_heads=2,
        decoder_num_heads=2,
        feedforward_expansion_factor=2,
        partial_rotary_factor=0.62,
    )


def pali_gemma_backbone():
    import keras_hub

    return keras_hub.models.PaliGemmaBackbone(
        vocabulary_size=50,
        image_size=16,
        num_layers=2,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=16,
        intermediate_dim=32,
        head_dim=8,
        vit_patch_size=4,
        vit_num_layers=2,
        vit_num_heads=2,
        vit_hidden_dim=16,
        vit_intermediate_dim=32,
    )


@model("keras-hub other/PaliGemmaCausalLM", f"{URL}/pali_gemma/")
def pali_gemma_lm():
    import keras_hub

    return keras_hub.models.PaliGemmaCausalLM(
        preprocessor=None, backbone=pali_gemma_backbone()
    )


@model("keras-hub other/PARSeqBackbone", f"{URL}/parseq/")
def parseq():
    import keras_hub

    encoder = keras_hub.models.ViTBackbone(
        image_shape=(16, 32, 3),
        patch_size=(4, 8),
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=32,
        use_class_token=False,
        name="image_encoder",
    )
    made = keras_hub.models.PARSeqBackbone(
        image_encoder=encoder,
        vocabulary_size=50,
        max_label_length=12,
        decoder_hidden_dim=16,
        num_decoder_layers=1,
        num_decoder_heads=2,
        decoder_mlp_dim=32,
    )
    return made, {"max_length": 12}


@model("keras-hub other/FluxBackbone", f"{URL}/flux/")
def flux():
    import keras_hub

    return keras_hub.models.FluxBackbone(
        input_channels=64,
        hidden_size=64,
        mlp_ratio=2.0,
        num_heads=1,
        depth=2,
        depth_single_blocks=2,
        axes_dim=[8, 28, 28],
        theta=10_000,
        use_bias=True,
        guidance_embed=True,
        image_shape=(16, 64),
        text_shape=(16, 64),
        image_ids_shape=(16, 3),
        text_ids_shape=(16, 3),
        y_shape=(64,),
    )
