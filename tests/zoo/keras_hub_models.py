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
T5_GEMMA = {
    "vocabulary_size": 50,
    "dropout_rate": 0.1,
    "rms_norm_eps": 1e-6,
    "query_pre_attn_scalar": 1.0,
    "attention_bias": False,
    "hidden_activation": "gelu_approximate",
    "sliding_window": 16,
    "cross_attention_hidden_size": 16,
    "attn_logit_softcapping": 50.0,
    **{
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "num_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "layer_types": ["sliding_attention", "full_attention"],
        }.items()
    },
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

# Backbones of text: page, its arguments, and the tasks on it.
TEXT = {
    "Albert": (
        "albert",
        {**TABLE, "embedding_dim": 8},
        "TextClassifier MaskedLM",
    ),
    "Bart": ("bart", TABLE, "Seq2SeqLM"),
    "Bert": ("bert", TABLE, "TextClassifier MaskedLM TextEmbedder"),
    "Bloom": ("bloom", SIZES, "CausalLM"),
    "DebertaV3": ("deberta_v3", TABLE, "TextClassifier MaskedLM"),
    "DistilBert": ("distil_bert", TABLE, "TextClassifier MaskedLM"),
    "EdRec": (
        "edrec",
        {
            "vocab_size": 50,
            "num_layers_enc": 2,
            "num_layers_dec": 2,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "num_heads": 2,
        },
        "Seq2SeqLM",
    ),
    "Electra": (
        "electra",
        {
            "vocab_size": 50,
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 16,
            "embedding_dim": 16,
            "intermediate_dim": 32,
            "max_sequence_length": 24,
        },
        "",
    ),
    "ESM": ("esm", SIZES, "ProteinClassifier MaskedPLM"),
    "FNet": (
        "f_net",
        {
            "vocabulary_size": 50,
            "num_layers": 2,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "max_sequence_length": 24,
        },
        "TextClassifier MaskedLM",
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
        "CausalLM TextEmbedder",
    ),
    "Gemma4": (
        "gemma4",
        {
            **GROUPED,
            "image_size": 16,
            "num_layers": 6,
            "head_dim": 4,
            "use_sliding_window_attention": True,
            "sliding_window_size": 8,
            "vision_encoder": None,
        },
        "CausalLM",
    ),
    "Gemma3n": (
        "gemma3n",
        {
            "text_vocab_size": 50,
            "text_hidden_size": 16,
            "num_hidden_layers": 2,
            "pad_token_id": 0,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "intermediate_size": [32, 32],
            "hidden_activation": "gelu_approximate",
            "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 8,
            "rope_theta": 10000.0,
            "max_position_embeddings": 24,
            "vocab_size_per_layer_input": 50,
            "hidden_size_per_layer_input": 4,
            "altup_num_inputs": 2,
            "laurel_rank": 2,
        },
        "CausalLM",
    ),
    "GPT2": ("gpt2", TABLE, "CausalLM"),
    "GPTNeoX": ("gpt_neo_x", TABLE, "CausalLM"),
    "GptOss": (
        "gpt_oss",
        {**GROUPED, **EXPERTS, "sliding_window": 8},
        "CausalLM",
    ),
    "Llama": ("llama", GROUPED, "CausalLM"),
    "Llama3": ("llama3", GROUPED, "CausalLM"),
    "Mistral": ("mistral", {**GROUPED, "sliding_window": 8}, "CausalLM"),
    "Mixtral": (
        "mixtral",
        {**GROUPED, **EXPERTS, "sliding_window": 8},
        "CausalLM",
    ),
    "OPT": ("opt", TABLE, "CausalLM"),
    "Phi3": ("phi3", GROUPED, "CausalLM"),
    "Qwen": ("qwen", GROUPED, "CausalLM"),
    "Qwen3": ("qwen3", {**GROUPED, "head_dim": 4}, "CausalLM TextEmbedder"),
    "Qwen3Moe": (
        "qwen3_moe",
        {**GROUPED, **EXPERTS, "head_dim": 4, "moe_intermediate_dim": 16},
        "CausalLM",
    ),
    "Qwen3_5": ("qwen3_5", {**GROUPED, **LINEAR}, "CausalLM"),
    "Qwen3_5Moe": (
        "qwen3_5_moe",
        {
            **{k: v for k, v in GROUPED.items() if k != "intermediate_dim"},
            **LINEAR,
            **EXPERTS,
            "moe_intermediate_dim": 16,
            "shared_expert_intermediate_size": 16,
        },
        "CausalLM",
    ),
    "QwenMoe": (
        "qwen_moe",
        {
            **GROUPED,
            **EXPERTS,
            "moe_intermediate_dim": 16,
            "shared_expert_intermediate_dim": 32,
        },
        "CausalLM",
    ),
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
    "Roberta": ("roberta", TABLE, "TextClassifier MaskedLM"),
    "RoformerV2": (
        "roformer_v2",
        {**SIZES, "head_size": 8},
        "TextClassifier MaskedLM",
    ),
    "SmolLM3": (
        "smol_lm3",
        {
            "vocabulary_size": 50,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "num_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "rope_layer_enabled_list": [True, False],
            "layer_types": ["attention", "attention"],
            "mlp_bias": False,
            "layer_norm_epsilon": 1e-5,
            "max_position_embeddings": 64,
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
        },
        "CausalLM",
    ),
    "T5": ("t5", SIZES, "Seq2SeqLM"),
    "T5Gemma": ("t5gemma", T5_GEMMA, "Seq2SeqLM"),
    "T5Gemma2": (
        "t5gemma2",
        {**T5_GEMMA, "use_query_key_norm": True},
        "Seq2SeqLM",
    ),
    "XLMRoberta": (
        "xlm_roberta",
        TABLE,
        "TextClassifier MaskedLM TextEmbedder",
    ),
    "XLNet": ("xlnet", SIZES, ""),
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

# Backbones of images, with one input.
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
    "DINOV2": ("dinov2", DINO, ""),
    "DINOV3": ("dinov3", DINO, ""),
    "EfficientNet": (
        "efficientnet",
        {
            "stackwise_kernel_sizes": [3, 3, 5],
            "stackwise_num_repeats": [1, 2, 2],
            "stackwise_input_filters": [8, 8, 16],
            "stackwise_output_filters": [8, 16, 24],
            "stackwise_expansion_ratios": [1, 4, 4],
            "stackwise_squeeze_and_excite_ratios": [0.0, 0.0, 0.25],
            "stackwise_strides": [1, 2, 2],
            "stackwise_block_types": ["fused", "fused", "unfused"],
            "stackwise_force_input_filters": [0, 0, 0],
            "stackwise_nores_option": [False, False, False],
            "width_coefficient": 1.0,
            "depth_coefficient": 1.0,
        },
        "ImageClassifier",
    ),
    "HGNetV2": (
        "hgnetv2",
        {**HGNET, "image_shape": (64, 64, 3)},
        "ImageClassifier",
    ),
    "MiT": ("mit", MIT, "ImageClassifier"),
    "MobileNet": (
        "mobilenet",
        {
            "stackwise_expansion": [[16, 24], [32, 48]],
            "stackwise_num_blocks": [2, 2],
            "stackwise_num_filters": [[8, 8], [16, 16]],
            "stackwise_kernel_size": [[3, 3], [5, 5]],
            "stackwise_num_strides": [[2, 1], [2, 1]],
            "stackwise_se_ratio": [[None, None], [0.25, 0.25]],
            "stackwise_activation": [
                ["relu", "relu"],
                ["hard_swish", "hard_swish"],
                ["hard_swish"],
            ],
            "stackwise_padding": [[1, 1], [2, 2]],
            "output_num_filters": 64,
            "input_activation": "hard_swish",
            "output_activation": "hard_swish",
            "input_num_filters": 8,
            "image_shape": (32, 32, 3),
            "depthwise_filters": 8,
            "depthwise_stride": 2,
            "depthwise_residual": False,
            "squeeze_and_excite": 0.5,
            "last_layer_filter": 48,
        },
        "ImageClassifier",
    ),
    "MobileNetV5": (
        "mobilenetv5",
        {
            "stackwise_block_types": [["er"], ["uir", "uir"]],
            "stackwise_num_blocks": [1, 2],
            "stackwise_num_filters": [[24], [48, 48]],
            "stackwise_strides": [[2], [2, 1]],
            "stackwise_act_layers": [["relu"], ["relu", "relu"]],
            "stackwise_exp_ratios": [[4.0], [6.0, 6.0]],
            "stackwise_se_ratios": [[0.0], [0.0, 0.0]],
            "stackwise_dw_kernel_sizes": [[0], [5, 5]],
            "stackwise_dw_start_kernel_sizes": [[0], [0, 0]],
            "stackwise_dw_end_kernel_sizes": [[0], [0, 0]],
            "stackwise_exp_kernel_sizes": [[3], [0, 0]],
            "stackwise_pw_kernel_sizes": [[1], [0, 0]],
            "stackwise_num_heads": [[0], [0, 0]],
            "stackwise_key_dims": [[0], [0, 0]],
            "stackwise_value_dims": [[0], [0, 0]],
            "stackwise_kv_strides": [[0], [0, 0]],
            "stackwise_use_cpe": [[False], [False, False]],
            "image_shape": (32, 32, 3),
            "stem_size": 16,
            "use_msfa": False,
        },
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
    "VGG": (
        "vgg",
        {
            "stackwise_num_repeats": [2, 3, 3],
            "stackwise_num_filters": [8, 16, 16],
            "image_shape": (64, 64, 3),
        },
        "ImageClassifier",
    ),
    "VideoPrism": (
        "video_prism",
        {
            "image_shape": (28, 28, 3),
            "num_frames": 4,
            "patch_size": 4,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "num_heads": 2,
            "num_spatial_layers": 1,
            "num_temporal_layers": 1,
            "num_auxiliary_layers": 1,
        },
        "",
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
        "",
    ),
    "Xception": (
        "xception",
        {
            "stackwise_conv_filters": [[8, 16], [16, 24], [24, 32]],
            "stackwise_pooling": [True, True, False],
        },
        "ImageClassifier",
    ),
}


def backbone(name, arguments):
    import keras_hub

    made = getattr(keras_hub.models, f"{name}Backbone")(**arguments)
    return trained(made), lengths(arguments)


def task(name, head, arguments):
    """A backbone with a head, fed with ids or images: no preprocessor."""
    import keras_hub

    made, options = backbone(name, arguments)
    classes = {"num_classes": 3} if head.endswith("Classifier") else {}
    return getattr(keras_hub.models, name + head)(
        backbone=made, preprocessor=None, **classes
    ), options


def lengths(arguments):
    """What an export is given for a table of positions."""
    longest = arguments.get("max_sequence_length")
    return {"max_length": longest} if longest else {}


def add_all(group, table):
    for name, (page, arguments, heads) in table.items():
        source = f"{URL}/{page}/{page}_backbone/"
        model(
            f"{group}/{name}Backbone",
            source,
            name=name,
            arguments=arguments,
        )(backbone)
        for head in heads.split():
            model(
                f"{group}/{name}{head}",
                f"{URL}/{page}/",
                name=name,
                head=head,
                arguments=arguments,
            )(task)


add_all("keras-hub text", TEXT)
add_all("keras-hub images", IMAGES)


def resnet(shape=(64, 64, 3)):
    import keras_hub

    return keras_hub.models.ResNetBackbone(**RESNET, image_shape=shape)


def segformer_backbone():
    import keras_hub

    return keras_hub.models.SegFormerBackbone(
        image_encoder=keras_hub.models.MiTBackbone(**MIT),
        projection_filters=16,
    )


@model("keras-hub images/SegFormerBackbone", f"{URL}/segformer/")
def segformer():
    return trained(segformer_backbone())


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


@model("keras-hub images/DeepLabV3Backbone", f"{URL}/deeplab_v3/")
def deeplab():
    return trained(deeplab_backbone())


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


@model("keras-hub images/RetinaNetBackbone", f"{URL}/retinanet/")
def retina():
    return trained(retina_backbone())


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


def basnet_backbone():
    import keras_hub

    encoder = keras_hub.models.ResNetBackbone(
        **{**RESNET, "block_type": "basic_block"}
    )
    return keras_hub.models.BASNetBackbone(
        image_encoder=encoder, num_classes=1, image_shape=(64, 64, 3)
    )


@model("keras-hub images/BASNetBackbone", f"{URL}/basnet/")
def basnet():
    return trained(basnet_backbone())


@model("keras-hub images/BASNetImageSegmenter", f"{URL}/basnet/")
def basnet_segmenter():
    import keras_hub

    return trained(keras_hub.models.BASNetImageSegmenter(basnet_backbone()))


def dfine_backbone():
    import keras_hub

    hgnet = keras_hub.models.HGNetV2Backbone(
        **HGNET,
        image_shape=(None, None, 3),
        out_features=["stage1", "stage2"],
    )
    return keras_hub.models.DFineBackbone(
        backbone=hgnet,
        decoder_in_channels=[16, 16],
        encoder_hidden_dim=16,
        num_denoising=10,
        num_labels=4,
        hidden_dim=16,
        learn_initial_query=False,
        num_queries=10,
        anchor_image_size=(32, 32),
        feat_strides=[4, 8],
        num_feature_levels=2,
        encoder_in_channels=[16, 32],
        encode_proj_layers=[1],
        num_attention_heads=2,
        encoder_ffn_dim=32,
        num_encoder_layers=1,
        hidden_expansion=0.5,
        depth_multiplier=0.5,
        eval_idx=-1,
        num_decoder_layers=3,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
        decoder_n_points=[2, 2],
        lqe_hidden_dim=16,
        num_lqe_layers=2,
        out_features=["stage1", "stage2"],
        image_shape=(32, 32, 3),
        seed=0,
    )


@model("keras-hub images/DFineBackbone", f"{URL}/d_fine/")
def dfine():
    return dfine_backbone()


@model("keras-hub images/DFineObjectDetector", f"{URL}/d_fine/")
def dfine_detector():
    import keras_hub

    return keras_hub.models.DFineObjectDetector(
        backbone=dfine_backbone(), num_classes=4, bounding_box_format="yxyx"
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


@model("keras-hub images/DepthAnythingBackbone", f"{URL}/depth_anything/")
def depth():
    return depth_backbone()


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


def tower(name, side):
    made, options = two_towers(name)
    return getattr(made, f"{side}_encoder"), options


for each, page in (
    ("CLIP", "clip"),
    ("MetaCLIP2", "metaclip_2"),
    ("SigLIP", "siglip"),
):
    source = f"{URL}/{page}/"
    model(f"keras-hub other/{each}Backbone", source, name=each)(two_towers)
    for side in ("vision", "text"):
        model(
            f"keras-hub other/{each}{side.capitalize()}Encoder",
            source,
            name=each,
            side=side,
        )(tower)


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
        "masks": np.zeros((2, 0, 8, 8, 1), "float32"),
    }


@model("keras-hub other/SAMBackbone", f"{URL}/sam/")
def sam():
    return sam_backbone(), {"samples": sam_prompts()}


@model("keras-hub other/SAMImageSegmenter", f"{URL}/sam/")
def sam_segmenter():
    import keras_hub

    segmenter = keras_hub.models.SAMImageSegmenter(sam_backbone())
    return segmenter, {"samples": sam_prompts()}


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


@model("keras-hub other/PaliGemmaBackbone", f"{URL}/pali_gemma/")
def pali_gemma():
    return pali_gemma_backbone()


@model("keras-hub other/PaliGemmaCausalLM", f"{URL}/pali_gemma/")
def pali_gemma_lm():
    import keras_hub

    return keras_hub.models.PaliGemmaCausalLM(
        preprocessor=None, backbone=pali_gemma_backbone()
    )


@model("keras-hub other/Gemma3Backbone with images", f"{URL}/gemma3/")
def gemma3_images():
    import keras_hub
    import numpy as np

    vision = keras_hub.models.Gemma3VisionEncoder(
        image_size=16,
        patch_size=4,
        pool_size=2,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        output_dim=8,
    )
    gemma = keras_hub.models.Gemma3Backbone(
        vocabulary_size=50,
        image_size=16,
        num_layers=2,
        num_query_heads=2,
        num_key_value_heads=1,
        hidden_dim=8,
        intermediate_dim=16,
        head_dim=4,
        use_query_key_norm=True,
        use_post_ffw_norm=True,
        use_post_attention_norm=True,
        use_sliding_window_attention=True,
        sliding_window_size=8,
        vision_encoder=vision,
    )
    random = np.random.default_rng(0)
    marks = np.zeros((2, 16), "int32")
    marks[:, 3:7] = 1  # an image is 4 tokens
    return gemma, {
        "samples": {
            "token_ids": random.integers(1, 50, (2, 16)).astype("int32"),
            "padding_mask": np.ones((2, 16), "int32"),
            "images": random.uniform(0, 1, (2, 1, 16, 16, 3)).astype("float32"),
            "vision_indices": np.tile(np.arange(3, 7, dtype="int32"), (2, 1)),
            "vision_mask": marks,
        }
    }


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


def vae():
    # Not public, and part of what is.
    from keras_hub.src.models.vae.vae_backbone import VAEBackbone

    sizes = [[32, 32, 32, 32], [1, 1, 1, 1]] * 2
    return VAEBackbone(*sizes, sampler_method="mode", name="vae")


def clip_text(name, size, activation):
    import keras_hub

    return keras_hub.models.CLIPTextEncoder(
        20, size, size, 2, 2, 2 * size, activation, -2, name=name
    )


def stable_diffusion_backbone():
    import keras_hub

    return keras_hub.models.StableDiffusion3Backbone(
        mmdit_patch_size=2,
        mmdit_hidden_dim=32,
        mmdit_num_layers=2,
        mmdit_num_heads=2,
        mmdit_position_size=192,
        mmdit_qk_norm=None,
        mmdit_dual_attention_indices=None,
        vae=vae(),
        clip_l=clip_text("clip_l", 32, "quick_gelu"),
        clip_g=clip_text("clip_g", 64, "gelu"),
        image_shape=(64, 64, 3),
    )


@model("keras-hub other/StableDiffusion3Backbone", f"{URL}/stable_diffusion_3/")
def stable_diffusion():
    return stable_diffusion_backbone()


@model(
    "keras-hub other/Stable Diffusion 3: MMDiT", f"{URL}/stable_diffusion_3/"
)
def mmdit():
    return stable_diffusion_backbone().diffuser


@model("keras-hub other/Stable Diffusion 3: VAE", f"{URL}/stable_diffusion_3/")
def stable_diffusion_vae():
    return vae()


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


@model("keras-hub other/BLIP2Backbone", f"{URL}/blip2/")
def blip2():
    import keras_hub

    models = keras_hub.models
    vision = models.BLIP2VisionEncoder(
        image_size=32,
        patch_size=4,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        use_patch_bias=True,
        use_class_token=True,
        use_mha_bias=True,
        use_mlp_bias=True,
        dropout_rate=0.0,
        layer_norm_epsilon=1e-6,
        initializer_range=0.02,
    )
    qformer = models.BLIP2QFormer(
        num_query_tokens=2,
        num_layers=2,
        num_heads=2,
        hidden_dim=4,
        intermediate_dim=8,
        vision_dim=8,
        cross_attention_frequency=1,
        dropout=0.0,
        layer_norm_epsilon=1e-6,
    )
    language = models.BLIP2CustomOPT(
        vocabulary_size=14,
        num_layers=2,
        num_heads=2,
        hidden_dim=4,
        intermediate_dim=8,
        num_query_tokens=2,
        qformer_hidden_dim=4,
        max_sequence_length=10,
        dropout=0.0,
        language_projection=None,
    )
    made = models.BLIP2Backbone(
        vision_encoder=vision, qformer=qformer, language_model=language
    )
    return made, {"max_length": 8}  # of 10 positions images take 2
