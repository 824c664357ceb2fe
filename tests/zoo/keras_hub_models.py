"""Models of keras-hub, tiny ones, with random weights."""

from tests.zoo.entries import group, model, trained

URL = "https://keras.io/keras_hub/api/models"
WIDTHS = {
    "vocabulary_size": 50,
    "num_layers": 2,
    "hidden_dim": 16,
    "intermediate_dim": 32,
}
SIZES = {**WIDTHS, "num_heads": 2}
TABLE = {**SIZES, "max_sequence_length": 24}
GROUPED = {**WIDTHS, "num_query_heads": 4, "num_key_value_heads": 2}
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
LOCAL = {**GROUPED, "sliding_window": 8}
EXPERTS = {**LOCAL, "num_experts": 4, "top_k": 2}

# Of text: the page, arguments of the backbone, and what is built on it.
TEXT = {
    "Albert": ("albert", {**TABLE, "embedding_dim": 8}, "TextClassifier"),
    "Bart": ("bart", TABLE, "Seq2SeqLM"),
    "Bert": ("bert", TABLE, "TextClassifier"),
    "Bloom": ("bloom", SIZES, "CausalLM"),
    "DebertaV3": ("deberta_v3", TABLE, "TextClassifier"),
    "FNet": ("f_net", {**WIDTHS, "max_sequence_length": 24}, "MaskedLM"),
    "Falcon": ("falcon", {**WIDTHS, "num_attention_heads": 4}, "CausalLM"),
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
    "GptOss": ("gpt_oss", EXPERTS, "CausalLM"),
    "Llama": ("llama", GROUPED, "CausalLM"),
    "Mistral": ("mistral", LOCAL, "CausalLM"),
    "Mixtral": ("mixtral", EXPERTS, "CausalLM"),
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
            **dict.fromkeys(
                ("gate_lora", "mv_lora", "aaa_lora", "decay_lora"), 8
            ),
        },
        "CausalLM",
    ),
    "Roberta": ("roberta", TABLE, "TextClassifier"),
    "RoformerV2": ("roformer_v2", {**SIZES, "head_size": 8}, "MaskedLM"),
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
    "image_shape": (None, None, 3),
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
    "image_shape": (64, 64, 3),
}
VIT = {
    "image_shape": (32, 32, 3),
    "patch_size": 8,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
}
DINO = {
    **VIT,
    "intermediate_dim": 32,
    "layer_scale_init_value": 1.0,
    "num_register_tokens": 4,
}
VIT_DET = {
    "hidden_size": 16,
    "num_layers": 2,
    "intermediate_dim": 32,
    "num_heads": 2,
    "global_attention_layer_indices": [1],
    "num_output_channels": 8,
    "window_size": 2,
    "image_shape": (32, 32, 3),
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
    "HGNetV2": ("hgnetv2", HGNET, "ImageClassifier"),
    "ResNet": ("resnet", RESNET, "ImageClassifier"),
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
    "ViTDet": ("vit_det", {**VIT_DET, "patch_size": 8}, "Backbone"),
}


def hub(name, /, *args, **options):
    """A model of keras-hub, by the name of its class."""
    import keras_hub

    return getattr(keras_hub.models, name)(*args, **options)


def built(name, head, arguments):
    """A backbone or, of one, a task fed with ids or images: no preprocessor."""
    made = trained(hub(f"{name}Backbone", **arguments))
    if head != "Backbone":
        classes = {"num_classes": 3} if head.endswith("Classifier") else {}
        made = hub(name + head, backbone=made, preprocessor=None, **classes)
    if name == "RWKV7":  # its own code needs a known length
        shapes = {each.name: (None, 16) for each in made.inputs}
        return made, {"signatures": {"serving_default": (made, shapes)}}
    # What an export is given for a table of positions.
    longest = arguments.get("max_sequence_length")
    return made, {"max_length": longest} if longest else {}


for part, rows in (("text", TEXT), ("images", IMAGES)):
    for each, (page, arguments, head) in rows.items():
        model(
            f"keras-hub {part}/{each}{head}",
            f"{URL}/{page}/",
            name=each,
            head=head,
            arguments=arguments,
        )(built)

images = group("keras-hub images", f"{URL}/")
other = group("keras-hub other", f"{URL}/")


def resnet(size):
    return hub("ResNetBackbone", **{**RESNET, "image_shape": (size, size, 3)})


@images("SegFormerImageSegmenter", "segformer/")
def segformer_segmenter():
    backbone = hub(
        "SegFormerBackbone",
        image_encoder=hub("MiTBackbone", **MIT),
        projection_filters=16,
    )
    return trained(hub("SegFormerImageSegmenter", backbone, num_classes=4))


@images("DeepLabV3ImageSegmenter", "deeplab_v3/")
def deeplab_segmenter():
    backbone = hub(
        "DeepLabV3Backbone",
        image_encoder=resnet(96),
        low_level_feature_key="P2",
        spatial_pyramid_pooling_key="P4",
        dilation_rates=[6, 12, 18],
        upsampling_size=4,
        image_shape=(96, 96, 3),
    )
    return trained(hub("DeepLabV3ImageSegmenter", backbone, num_classes=4))


@images("RetinaNetObjectDetector", "retinanet/")
def retina_detector():
    import keras_hub

    levels = {"min_level": 3, "max_level": 7}
    corners = {"bounding_box_format": "yxyx"}
    detector = hub(
        "RetinaNetObjectDetector",
        anchor_generator=keras_hub.layers.AnchorGenerator(
            num_scales=3,
            aspect_ratios=[0.5, 1.0, 2.0],
            anchor_size=4.0,
            **levels,
            **corners,
        ),
        backbone=hub(
            "RetinaNetBackbone",
            image_encoder=resnet(128),
            use_p5=True,
            image_shape=(128, 128, 3),
            **levels,
        ),
        num_classes=4,
        **corners,
    )
    return trained(detector)


@images("DepthAnythingDepthEstimator", "depth_anything/")
def depth_estimator():
    encoder = hub(
        "DINOV2Backbone",
        *(14, 4, 16, 2, 64, 1.0, 0),
        image_shape=(126, 126, 3),
        apply_layernorm=True,
        name="image_encoder",
    )
    backbone = hub(
        "DepthAnythingBackbone",
        image_encoder=encoder,
        reassemble_factors=[4, 2, 1, 0.5],
        neck_hidden_dims=[16, 16, 16, 16],
        fusion_hidden_dim=16,
        head_hidden_dim=8,
        head_in_index=-1,
        feature_keys=["stage1", "stage2", "stage3", "stage4"],
    )
    return hub(
        "DepthAnythingDepthEstimator",
        backbone=backbone,
        depth_estimation_type="relative",
    )


def two_towers(name):
    """CLIP, and those after it: images and texts."""
    vision = hub(
        f"{name}VisionEncoder",
        *(8, 32, 2, 2, 64),
        image_shape=(32, 32, 3),
        name="vision_encoder",
    )
    text = hub(
        f"{name}TextEncoder",
        *(50, 32, 32, 2, 2, 64),
        max_sequence_length=24,
        name="text_encoder",
    )
    options = {} if name == "SigLIP" else {"projection_dim": 32}
    encoders = {"vision_encoder": vision, "text_encoder": text}
    return hub(f"{name}Backbone", **encoders, **options), {"max_length": 24}


for each in ("CLIP", "SigLIP"):
    other(f"{each}Backbone", f"{each.lower()}/", name=each)(two_towers)


@other("SAMImageSegmenter", "sam/")
def sam_segmenter():
    import keras_hub
    import numpy as np

    backbone = hub(
        "SAMBackbone",
        image_encoder=hub("ViTDetBackbone", **VIT_DET, patch_size=16),
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
    segmenter = hub("SAMImageSegmenter", backbone)
    # Two images, each with a point and a box.
    random = np.random.default_rng(0)
    prompts = {
        "images": random.uniform(0, 1, (2, 32, 32, 3)).astype("float32"),
        "points": random.uniform(0, 32, (2, 1, 2)).astype("float32"),
        "labels": np.ones((2, 1), "float32"),
        "boxes": np.float32([[[[4, 4], [20, 24]]], [[[0, 8], [16, 30]]]]),
        "masks": np.zeros((2, 1, 8, 8, 1), "float32"),
    }
    shapes = {name: (None, *x.shape[1:]) for name, x in prompts.items()}
    signatures = {"serving_default": (segmenter, shapes)}
    return segmenter, {"signatures": signatures, "samples": prompts}


@other("WhisperBackbone", "whisper/")
def whisper():
    lengths = {f"max_{x}coder_sequence_length": 24 for x in ("en", "de")}
    made = hub("WhisperBackbone", **SIZES, num_mels=8, **lengths)
    return made, {"max_length": 24}


@other("MoonshineBackbone", "moonshine/")
def moonshine():
    return hub(
        "MoonshineBackbone",
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


@other("PaliGemmaCausalLM", "pali_gemma/")
def pali_gemma_lm():
    backbone = hub(
        "PaliGemmaBackbone",
        **WIDTHS,
        image_size=16,
        num_query_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        vit_patch_size=4,
        vit_num_layers=2,
        vit_num_heads=2,
        vit_hidden_dim=16,
        vit_intermediate_dim=32,
    )
    return hub("PaliGemmaCausalLM", preprocessor=None, backbone=backbone)


@other("PARSeqBackbone", "parseq/")
def parseq():
    encoder = hub(
        "ViTBackbone",
        **{**VIT, "image_shape": (16, 32, 3), "patch_size": (4, 8)},
        mlp_dim=32,
        use_class_token=False,
        name="image_encoder",
    )
    made = hub(
        "PARSeqBackbone",
        image_encoder=encoder,
        vocabulary_size=50,
        max_label_length=12,
        decoder_hidden_dim=16,
        num_decoder_layers=1,
        num_decoder_heads=2,
        decoder_mlp_dim=32,
    )
    return made, {"max_length": 12}


@other("FluxBackbone", "flux/")
def flux():
    return hub(
        "FluxBackbone",
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
