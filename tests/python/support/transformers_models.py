"""Models of transformers with random weights: the structure of each architecture with few, small layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as tf

IDS = torch.randint(3, 90, (2, 9), generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1] * 9, [1] * 6 + [0] * 3])
TEXT = {"input_ids": IDS, "attention_mask": MASK}
CAUSAL = {"input_ids": IDS, "use_cache": False}
FEW = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BLOCKS = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
}
NARROW = {**FEW, "intermediate_size": 40, "max_position_embeddings": 64}
GROUPED = {**NARROW, "num_key_value_heads": 2}
SPEECH = {
    **NARROW,
    "conv_dim": (16, 16, 16),
    "conv_stride": (4, 2, 2),
    "conv_kernel": (8, 3, 3),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 3,
}
SEQUENCES = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
}
PAIR = {**TEXT, "decoder_input_ids": IDS[:, :5], "use_cache": False}


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def image(side: int = 32, batch: int = 2) -> dict[str, torch.Tensor]:
    return {"pixel_values": normal(batch, 3, side, side)}


def _resnet() -> Any:
    return tf.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[8, 16, 24, 32],
        depths=[1, 1, 1, 1],
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )


def _detr(name: str, **more: Any) -> Any:
    options = {k: v for k, v in SEQUENCES.items() if k not in ("vocab_size", "pad_token_id")}
    backbone = {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": _resnet(),
    }
    return model(name, num_queries=7, **backbone, **options, **more)


def _config_of(class_name: str) -> Any:
    return getattr(tf, class_name).config_class


def model(class_name: str, **config: Any) -> Any:
    """A model of that class, with a configuration of these numbers."""
    return getattr(tf, class_name)(_config_of(class_name)(**config))


def _clip_parts(positions: int = 20, **text: Any) -> dict[str, Any]:
    return {
        "text_config": {**NARROW, "max_position_embeddings": positions, "eos_token_id": 98, **text},
        "vision_config": {**BLOCKS, "image_size": 32, "patch_size": 8},
        "projection_dim": 24,
    }


def _ids_and_image(side: int = 32) -> dict[str, Any]:
    return {**TEXT, **image(side)}


def _llava() -> Any:
    return tf.LlavaForConditionalGeneration(
        tf.LlavaConfig(
            text_config=tf.LlamaConfig(**GROUPED),
            vision_config=tf.CLIPVisionConfig(**BLOCKS, image_size=32, patch_size=8),
            image_token_index=98,
            vision_feature_layer=-1,
        )
    )


def _llava_inputs() -> dict[str, Any]:
    ids = torch.cat([torch.full((2, 16), 98), IDS], 1)
    return {"input_ids": ids, "use_cache": False, **image()}


def _musicgen() -> Any:
    encoder = tf.T5Config(vocab_size=99, d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=40)
    codec = tf.EncodecConfig(
        num_filters=4, hidden_size=16, codebook_dim=16, codebook_size=64, upsampling_ratios=[4, 2]
    )
    decoder = tf.MusicgenDecoderConfig(
        **{**NARROW, "max_position_embeddings": 64},
        ffn_dim=40,
        num_codebooks=4,
        pad_token_id=98,
        bos_token_id=98,
    )
    joined = tf.MusicgenConfig.from_sub_models_config(encoder, codec, decoder)
    return tf.MusicgenForConditionalGeneration(joined)


def _bark(kind: str) -> Any:
    numbers = {"block_size": 32, "num_layers": 2, "num_heads": 4, "hidden_size": 32}
    vocabulary = {"input_vocab_size": 99, "output_vocab_size": 99}
    return model(f"Bark{kind}Model", **numbers, **vocabulary)


SERIES = {
    "past_values": normal(2, 40),
    "past_time_features": normal(2, 40, 2),
    "past_observed_mask": torch.ones(2, 40),
    "future_values": normal(2, 8),
    "future_time_features": normal(2, 8, 2),
    "use_cache": False,
}
FORECAST = {
    "prediction_length": 8,
    "context_length": 32,
    "lags_sequence": [1, 2, 4, 8],
    "num_time_features": 2,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
}
BOXES = torch.randint(0, 50, (2, 9, 2), generator=torch.Generator().manual_seed(2))
BOXES = torch.cat([BOXES, BOXES + 20], 2)
SWIN = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 2]}

Case = tuple[Callable[[], Any], Any]

#: A function that makes a model, and the arguments of its forward, by architecture name.
MODELS: dict[str, Case] = {
    # Encoders of text
    "albert": (lambda: model("AlbertModel", **NARROW, embedding_size=16), TEXT),
    "bert": (lambda: model("BertModel", **NARROW), TEXT),
    "big_bird": (
        lambda: model("BigBirdModel", **NARROW, block_size=4, num_random_blocks=1),
        {"input_ids": IDS.repeat(1, 5)[:, :44]},
    ),
    "canine": (
        lambda: model("CanineModel", **NARROW, local_transformer_stride=4, num_hash_buckets=50),
        {"input_ids": IDS.repeat(1, 2)[:, :16]},
    ),
    "convbert": (lambda: model("ConvBertModel", **NARROW, embedding_size=32), TEXT),
    "deberta_v2": (
        lambda: model(
            "DebertaV2Model",
            **NARROW,
            relative_attention=True,
            position_buckets=8,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type=["p2c", "c2p"],
        ),
        TEXT,
    ),
    "distilbert": (
        lambda: model(
            "DistilBertModel", vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=40
        ),
        TEXT,
    ),
    "electra": (lambda: model("ElectraModel", **NARROW, embedding_size=16), TEXT),
    "fnet": (lambda: model("FNetModel", **FEW, intermediate_size=40), {"input_ids": IDS}),
    "funnel": (
        lambda: model(
            "FunnelModel",
            vocab_size=99,
            block_sizes=[1, 2],
            num_decoder_layers=1,
            d_model=32,
            n_head=4,
            d_head=8,
            d_inner=40,
        ),
        TEXT,
    ),
    "layoutlm": (lambda: model("LayoutLMModel", **NARROW), {**TEXT, "bbox": BOXES}),
    "layoutlmv3": (
        lambda: model(
            "LayoutLMv3Model",
            **NARROW,
            coordinate_size=6,
            shape_size=4,
            input_size=32,
            patch_size=8,
            max_2d_position_embeddings=128,
        ),
        {**TEXT, "bbox": BOXES, **image()},
    ),
    "longformer": (
        lambda: model("LongformerModel", **NARROW, attention_window=4),
        {"input_ids": IDS[:, :8], "attention_mask": MASK[:, :8]},
    ),
    "mobilebert": (
        lambda: model(
            "MobileBertModel",
            **NARROW,
            embedding_size=16,
            true_hidden_size=16,
            intra_bottleneck_size=16,
        ),
        TEXT,
    ),
    "modernbert": (
        lambda: model(
            "ModernBertModel",
            **NARROW,
            local_attention=4,
            pad_token_id=0,
            attn_implementation="sdpa",
        ),
        TEXT,
    ),
    "mpnet": (lambda: model("MPNetModel", **NARROW), TEXT),
    "nystromformer": (
        lambda: model("NystromformerModel", **NARROW, num_landmarks=4, segment_means_seq_len=8),
        {"input_ids": IDS[:, :8]},
    ),
    "perceiver": (
        lambda: model(
            "PerceiverForMaskedLM",
            vocab_size=99,
            max_position_embeddings=9,
            num_latents=8,
            d_latents=32,
            d_model=16,
            num_self_attends_per_block=2,
            num_self_attention_heads=2,
            num_cross_attention_heads=2,
            qk_channels=16,
            v_channels=32,
        ),
        {"inputs": IDS, "attention_mask": MASK},
    ),
    "reformer": (
        lambda: model(
            "ReformerModel",
            vocab_size=99,
            hidden_size=32,
            num_attention_heads=2,
            attention_head_size=16,
            feed_forward_size=40,
            attn_layers=["local", "lsh"],
            axial_pos_shape=[4, 4],
            axial_pos_embds_dim=[16, 16],
            local_attn_chunk_length=4,
            lsh_attn_chunk_length=4,
            num_buckets=2,
            num_hashes=1,
            hash_seed=1,
            max_position_embeddings=64,
        ),
        {"input_ids": IDS.repeat(1, 2)[:, :16], "use_cache": False},
    ),
    "roberta": (lambda: model("RobertaModel", **NARROW), TEXT),
    "rembert": (lambda: model("RemBertModel", **NARROW, input_embedding_size=16), TEXT),
    "roformer": (lambda: model("RoFormerModel", **NARROW, embedding_size=16), TEXT),
    "squeezebert": (lambda: model("SqueezeBertModel", **NARROW, embedding_size=32), TEXT),
    "tapas": (
        lambda: model("TapasModel", **NARROW, type_vocab_sizes=[3, 9, 9, 2, 9, 9, 5]),
        {**TEXT, "token_type_ids": torch.ones(2, 9, 7, dtype=torch.int64)},
    ),
    "xlm": (
        lambda: model("XLMModel", vocab_size=99, emb_dim=32, n_layers=2, n_heads=4),
        {**TEXT},
    ),
    "xlm_roberta": (lambda: model("XLMRobertaModel", **NARROW), TEXT),
    "xlnet": (
        lambda: model("XLNetModel", vocab_size=99, d_model=32, n_layer=2, n_head=4, d_inner=40),
        {**TEXT, "use_mems": False},
    ),
    # Decoders
    "bloom": (
        lambda: model("BloomForCausalLM", vocab_size=99, hidden_size=32, n_layer=2, n_head=4),
        {**TEXT, "use_cache": False},
    ),
    "codegen": (
        lambda: model(
            "CodeGenForCausalLM",
            vocab_size=99,
            n_embd=32,
            n_layer=2,
            n_head=4,
            rotary_dim=4,
            n_positions=64,
        ),
        CAUSAL,
    ),
    "cohere": (lambda: model("CohereForCausalLM", **GROUPED), CAUSAL),
    "ctrl": (
        lambda: model(
            "CTRLLMHeadModel", vocab_size=99, n_embd=32, n_layer=2, n_head=4, dff=40, n_positions=64
        ),
        CAUSAL,
    ),
    "deepseek_v3": (
        lambda: model(
            "DeepseekV3ForCausalLM",
            **NARROW,
            num_key_value_heads=4,
            moe_intermediate_size=16,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_group=2,
            topk_group=1,
            first_k_dense_replace=1,
            kv_lora_rank=16,
            q_lora_rank=16,
            qk_rope_head_dim=8,
            qk_nope_head_dim=8,
            v_head_dim=8,
        ),
        CAUSAL,
    ),
    "falcon": (lambda: model("FalconForCausalLM", **NARROW), {**TEXT, "use_cache": False}),
    "falcon_mamba": (
        lambda: model(
            "FalconMambaForCausalLM",
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=4,
        ),
        CAUSAL,
    ),
    "gemma": (lambda: model("GemmaForCausalLM", **GROUPED, head_dim=8), CAUSAL),
    "gemma2": (
        lambda: model("Gemma2ForCausalLM", **GROUPED, head_dim=8, sliding_window=4),
        {**TEXT, "use_cache": False},
    ),
    "gemma3": (
        lambda: model(
            "Gemma3ForCausalLM", **GROUPED, head_dim=8, sliding_window=4, sliding_window_pattern=2
        ),
        {**TEXT, "use_cache": False},
    ),
    "gpt2": (
        lambda: model(
            "GPT2LMHeadModel", vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64
        ),
        CAUSAL,
    ),
    "gpt_bigcode": (
        lambda: model(
            "GPTBigCodeForCausalLM", vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64
        ),
        CAUSAL,
    ),
    "gpt_neo": (
        lambda: model(
            "GPTNeoForCausalLM",
            vocab_size=99,
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            attention_types=[[["global", "local"], 1]],
            window_size=4,
            max_position_embeddings=64,
        ),
        CAUSAL,
    ),
    "gpt_neox": (lambda: model("GPTNeoXForCausalLM", **NARROW), {**TEXT, "use_cache": False}),
    "gptj": (
        lambda: model(
            "GPTJForCausalLM",
            vocab_size=99,
            n_embd=32,
            n_layer=2,
            n_head=4,
            rotary_dim=4,
            n_positions=64,
        ),
        CAUSAL,
    ),
    "gpt_oss": (
        lambda: model(
            "GptOssForCausalLM",
            **GROUPED,
            head_dim=8,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=4,
        ),
        CAUSAL,
    ),
    "granite": (lambda: model("GraniteForCausalLM", **GROUPED), CAUSAL),
    "llama": (lambda: model("LlamaForCausalLM", **GROUPED), {**TEXT, "use_cache": False}),
    "mamba": (
        lambda: model(
            "MambaForCausalLM", vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=4
        ),
        CAUSAL,
    ),
    "mamba2": (
        lambda: model(
            "Mamba2ForCausalLM",
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            state_size=8,
            num_heads=8,
            head_dim=8,
            n_groups=2,
            chunk_size=4,
        ),
        CAUSAL,
    ),
    "mistral": (
        lambda: model("MistralForCausalLM", **GROUPED, sliding_window=4),
        {**TEXT, "use_cache": False},
    ),
    "mixtral": (
        lambda: model("MixtralForCausalLM", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
        CAUSAL,
    ),
    "mpt": (
        lambda: model(
            "MptForCausalLM", vocab_size=99, d_model=32, n_layers=2, n_heads=4, max_seq_len=64
        ),
        CAUSAL,
    ),
    "olmo2": (lambda: model("Olmo2ForCausalLM", **GROUPED), CAUSAL),
    "opt": (
        lambda: model("OPTForCausalLM", **NARROW, ffn_dim=40, word_embed_proj_dim=16),
        {**TEXT, "use_cache": False},
    ),
    "phi": (lambda: model("PhiForCausalLM", **GROUPED), CAUSAL),
    "phi3": (
        lambda: model("Phi3ForCausalLM", **GROUPED, pad_token_id=0),
        {**TEXT, "use_cache": False},
    ),
    "qwen2": (lambda: model("Qwen2ForCausalLM", **GROUPED), {**TEXT, "use_cache": False}),
    "qwen2_moe": (
        lambda: model(
            "Qwen2MoeForCausalLM",
            **GROUPED,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            shared_expert_intermediate_size=16,
        ),
        CAUSAL,
    ),
    "qwen3": (
        lambda: model("Qwen3ForCausalLM", **GROUPED, head_dim=8),
        {**TEXT, "use_cache": False},
    ),
    "recurrent_gemma": (
        lambda: model(
            "RecurrentGemmaForCausalLM",
            **GROUPED,
            head_dim=8,
            lru_width=32,
            attention_window_size=4,
        ),
        CAUSAL,
    ),
    "rwkv": (
        lambda: model(
            "RwkvForCausalLM",
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            attention_hidden_size=32,
        ),
        {"input_ids": IDS},
    ),
    "stablelm": (lambda: model("StableLmForCausalLM", **GROUPED), CAUSAL),
    "starcoder2": (lambda: model("Starcoder2ForCausalLM", **GROUPED), CAUSAL),
    # Encoders with decoders
    "bart": (lambda: model("BartForConditionalGeneration", **SEQUENCES), PAIR),
    "led": (
        lambda: model(
            "LEDForConditionalGeneration",
            **SEQUENCES,
            attention_window=4,
            max_encoder_position_embeddings=64,
            max_decoder_position_embeddings=64,
        ),
        {**PAIR, "input_ids": IDS[:, :8], "attention_mask": MASK[:, :8]},
    ),
    "m2m_100": (lambda: model("M2M100ForConditionalGeneration", **SEQUENCES), PAIR),
    "marian": (lambda: model("MarianMTModel", **SEQUENCES), PAIR),
    "mbart": (lambda: model("MBartForConditionalGeneration", **SEQUENCES), PAIR),
    "pegasus": (lambda: model("PegasusForConditionalGeneration", **SEQUENCES), PAIR),
    "prophetnet": (
        lambda: model(
            "ProphetNetForConditionalGeneration",
            vocab_size=99,
            hidden_size=32,
            num_encoder_layers=2,
            num_decoder_layers=2,
            num_encoder_attention_heads=4,
            num_decoder_attention_heads=4,
            encoder_ffn_dim=40,
            decoder_ffn_dim=40,
            max_position_embeddings=64,
            relative_max_distance=32,
            disable_ngram_loss=True,
        ),
        PAIR,
    ),
    "t5": (
        lambda: model(
            "T5ForConditionalGeneration",
            vocab_size=99,
            d_model=32,
            d_kv=8,
            num_layers=2,
            num_heads=4,
            d_ff=40,
            decoder_start_token_id=0,
        ),
        PAIR,
    ),
    # Images
    "beit": (
        lambda: model(
            "BeitModel", **BLOCKS, image_size=32, patch_size=8, use_relative_position_bias=True
        ),
        image(),
    ),
    "bit": (
        lambda: model(
            "BitModel",
            embedding_size=8,
            hidden_sizes=[8, 16, 24, 32],
            depths=[1, 1, 1, 1],
            num_groups=2,
        ),
        image(64),
    ),
    "conditional_detr": (lambda: _detr("ConditionalDetrForObjectDetection"), image(64)),
    "convnext": (
        lambda: model("ConvNextModel", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
        image(64),
    ),
    "convnextv2": (
        lambda: model("ConvNextV2Model", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
        image(64),
    ),
    "cvt": (
        lambda: model("CvtModel", embed_dim=[8, 16, 32], num_heads=[1, 2, 4], depth=[1, 2, 3]),
        image(64),
    ),
    "deformable_detr": (
        lambda: _detr("DeformableDetrForObjectDetection", num_feature_levels=4),
        image(64),
    ),
    "deit": (lambda: model("DeiTModel", **BLOCKS, image_size=32, patch_size=8), image()),
    "depth_anything": (
        lambda: model(
            "DepthAnythingForDepthEstimation",
            backbone_config=tf.Dinov2Config(
                **{k: v for k, v in BLOCKS.items() if k != "intermediate_size"},
                image_size=56,
                patch_size=14,
                out_features=["stage1", "stage1", "stage2", "stage2"][1:3],
                reshape_hidden_states=False,
            ),
            patch_size=14,
            reassemble_hidden_size=32,
            neck_hidden_sizes=[16, 16],
            reassemble_factors=[2, 1],
            fusion_hidden_size=16,
            head_in_index=-1,
        ),
        image(56),
    ),
    "detr": (lambda: _detr("DetrForObjectDetection"), image(64)),
    "dinov2": (
        lambda: model(
            "Dinov2Model", hidden_size=32, num_hidden_layers=2, num_attention_heads=4, image_size=28
        ),
        image(28),
    ),
    "dpt": (
        lambda: model(
            "DPTForDepthEstimation",
            hidden_size=32,
            num_hidden_layers=4,
            num_attention_heads=4,
            intermediate_size=40,
            image_size=32,
            patch_size=8,
            backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[8, 8, 16, 16],
            fusion_hidden_size=16,
        ),
        image(),
    ),
    "efficientnet": (
        lambda: model(
            "EfficientNetModel", width_coefficient=0.25, depth_coefficient=0.5, hidden_dim=320
        ),
        image(64),
    ),
    "glpn": (
        lambda: model(
            "GLPNForDepthEstimation",
            hidden_sizes=[8, 16, 24, 32],
            depths=[1] * 4,
            num_attention_heads=[1, 2, 2, 4],
            decoder_hidden_size=16,
        ),
        image(64),
    ),
    "hiera": (
        lambda: model(
            "HieraModel",
            embed_dim=16,
            image_size=[64, 64],
            depths=[1, 1, 2, 1],
            num_heads=[1, 2, 4, 8],
        ),
        image(64),
    ),
    "imagegpt": (
        lambda: model(
            "ImageGPTModel",
            vocab_size=99,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_inner=40,
            n_positions=64,
        ),
        {"input_ids": IDS},
    ),
    "levit": (
        lambda: model(
            "LevitModel",
            image_size=64,
            hidden_sizes=[16, 32, 48],
            num_attention_heads=[1, 2, 3],
            depths=[1, 1, 1],
            key_dim=[8, 8, 8],
            mlp_ratio=[2, 2, 2],
            attention_ratio=[2, 2, 2],
        ),
        image(64),
    ),
    "mask2former": (
        lambda: model(
            "Mask2FormerForUniversalSegmentation",
            backbone_config=tf.SwinConfig(
                image_size=64,
                embed_dim=8,
                depths=[1] * 4,
                num_heads=[1, 1, 2, 2],
                window_size=4,
                out_features=["stage1", "stage2", "stage3", "stage4"],
            ),
            hidden_dim=32,
            num_attention_heads=4,
            encoder_layers=1,
            decoder_layers=2,
            num_queries=5,
            feature_size=32,
            mask_feature_size=32,
            encoder_feedforward_dim=40,
            dim_feedforward=40,
        ),
        image(64),
    ),
    "maskformer": (
        lambda: model(
            "MaskFormerForInstanceSegmentation",
            backbone_config=tf.SwinConfig(
                image_size=64,
                embed_dim=8,
                depths=[1] * 4,
                num_heads=[1, 1, 2, 2],
                window_size=4,
                out_features=["stage1", "stage2", "stage3", "stage4"],
            ),
            decoder_config=tf.DetrConfig(
                num_queries=5,
                d_model=32,
                decoder_layers=2,
                decoder_attention_heads=4,
                decoder_ffn_dim=40,
            ),
            fpn_feature_size=32,
            mask_feature_size=32,
        ),
        image(64),
    ),
    "mobilenet_v2": (lambda: model("MobileNetV2Model", depth_multiplier=0.25), image(64)),
    "mobilevit": (
        lambda: model(
            "MobileViTModel",
            hidden_sizes=[16, 16, 16],
            neck_hidden_sizes=[8, 8, 8, 8, 8, 8, 16],
            image_size=64,
        ),
        image(64),
    ),
    "poolformer": (
        lambda: model("PoolFormerModel", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1]),
        image(64),
    ),
    "pvt": (
        lambda: model(
            "PvtModel",
            image_size=64,
            hidden_sizes=[8, 16, 24, 32],
            depths=[1] * 4,
            num_attention_heads=[1, 2, 3, 4],
        ),
        image(64),
    ),
    "regnet": (
        lambda: model(
            "RegNetModel",
            embedding_size=8,
            hidden_sizes=[8, 16, 24, 32],
            depths=[1] * 4,
            groups_width=8,
        ),
        image(64),
    ),
    "resnet": (lambda: tf.ResNetModel(_resnet()), image(64)),
    "sam": (
        lambda: model(
            "SamModel",
            vision_config={
                "hidden_size": 32,
                "output_channels": 16,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "image_size": 64,
                "patch_size": 8,
                "window_size": 4,
                "global_attn_indexes": [1],
                "mlp_dim": 40,
                "num_pos_feats": 8,
            },
            prompt_encoder_config={
                "hidden_size": 16,
                "image_size": 64,
                "patch_size": 8,
                "mask_input_channels": 4,
                "image_embedding_size": 8,
            },
            mask_decoder_config={
                "hidden_size": 16,
                "mlp_dim": 24,
                "num_attention_heads": 2,
                "iou_head_hidden_dim": 16,
            },
        ),
        {**image(64), "input_points": torch.tensor([[[[10.0, 20.0]]], [[[30.0, 40.0]]]])},
    ),
    "segformer": (
        lambda: model(
            "SegformerForSemanticSegmentation",
            hidden_sizes=[8, 16, 24, 32],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 2, 4],
            decoder_hidden_size=16,
        ),
        image(64),
    ),
    "swin": (lambda: model("SwinModel", **SWIN, window_size=4), image()),
    "swin2sr": (
        lambda: model(
            "Swin2SRForImageSuperResolution", **{**SWIN, "patch_size": 1}, window_size=8, upscale=2
        ),
        image(),
    ),
    "swinv2": (lambda: model("Swinv2Model", **SWIN, window_size=4), image()),
    "upernet": (
        lambda: model(
            "UperNetForSemanticSegmentation",
            backbone_config=tf.ConvNextConfig(
                hidden_sizes=[8, 16, 24, 32],
                depths=[1] * 4,
                out_features=["stage1", "stage2", "stage3", "stage4"],
            ),
            hidden_size=16,
            auxiliary_in_channels=24,
            auxiliary_channels=8,
        ),
        image(64),
    ),
    "vit": (lambda: model("ViTModel", **BLOCKS, image_size=32, patch_size=8), image()),
    "vitdet": (
        lambda: model(
            "VitDetModel",
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=64,
            pretrain_image_size=64,
            patch_size=8,
            window_block_indices=[0],
            window_size=3,
        ),
        image(64),
    ),
    "yolos": (
        lambda: model(
            "YolosForObjectDetection",
            **BLOCKS,
            image_size=[32, 32],
            patch_size=8,
            num_detection_tokens=5,
        ),
        image(),
    ),
    # Images and text
    "align": (
        lambda: model(
            "AlignModel",
            text_config={**NARROW},
            vision_config={
                "width_coefficient": 0.25,
                "depth_coefficient": 0.5,
                "hidden_dim": 80,
                "image_size": 64,
            },
            projection_dim=80,
        ),
        _ids_and_image(64),
    ),
    "blip": (
        lambda: model("BlipModel", **_clip_parts(bos_token_id=97, pad_token_id=0)),
        _ids_and_image(),
    ),
    "blip_2": (
        lambda: tf.Blip2ForConditionalGeneration(
            tf.Blip2Config(
                vision_config={**BLOCKS, "image_size": 32, "patch_size": 8},
                qformer_config={**NARROW, "encoder_hidden_size": 32},
                text_config={
                    **NARROW,
                    "model_type": "opt",
                    "ffn_dim": 40,
                    "word_embed_proj_dim": 32,
                },
                num_query_tokens=4,
                image_token_index=98,
            )
        ),
        {
            "input_ids": torch.cat([torch.full((2, 4), 98), IDS], 1),
            "attention_mask": torch.cat([torch.ones(2, 4, dtype=torch.int64), MASK], 1),
            "use_cache": False,
            **image(),
        },
    ),
    "clip": (lambda: model("CLIPModel", **_clip_parts()), _ids_and_image()),
    "git": (
        lambda: model(
            "GitForCausalLM", **NARROW, vision_config={**BLOCKS, "image_size": 32, "patch_size": 8}
        ),
        {**_ids_and_image(), "use_cache": False},
    ),
    "groupvit": (
        lambda: model(
            "GroupViTModel",
            text_config={**NARROW, "eos_token_id": 98},
            vision_config={
                "hidden_size": 32,
                "depths": [1, 1, 1],
                "num_group_tokens": [8, 4, 0],
                "num_output_groups": [8, 4, 4],
                "num_attention_heads": 4,
                "image_size": 32,
                "patch_size": 8,
                "intermediate_size": 40,
            },
            projection_dim=24,
            projection_intermediate_dim=32,
        ),
        _ids_and_image(),
    ),
    "llava": (_llava, _llava_inputs()),
    "owlvit": (
        lambda: model("OwlViTModel", **_clip_parts(16)),
        _ids_and_image(),
    ),
    "siglip": (
        lambda: model(
            "SiglipModel",
            text_config={**NARROW, "max_position_embeddings": 16},
            vision_config={**BLOCKS, "image_size": 32, "patch_size": 8},
        ),
        _ids_and_image(),
    ),
    "vision_encoder_decoder": (
        lambda: tf.VisionEncoderDecoderModel(
            tf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
                tf.ViTConfig(**BLOCKS, image_size=32, patch_size=8),
                tf.GPT2Config(vocab_size=99, n_embd=32, n_layer=2, n_head=4),
            )
        ),
        {**image(), "decoder_input_ids": IDS, "use_cache": False},
    ),
    # Sound
    "ast": (
        lambda: model(
            "ASTModel",
            **BLOCKS,
            patch_size=4,
            num_mel_bins=16,
            max_length=24,
            frequency_stride=2,
            time_stride=2,
        ),
        {"input_values": normal(2, 24, 16)},
    ),
    "bark_coarse": (lambda: _bark("Coarse"), CAUSAL),
    "bark_semantic": (lambda: _bark("Semantic"), CAUSAL),
    "bark_fine": (
        lambda: model(
            "BarkFineModel",
            block_size=32,
            num_layers=2,
            num_heads=4,
            hidden_size=32,
            input_vocab_size=99,
            output_vocab_size=99,
            n_codes_total=4,
        ),
        {"codebook_idx": 2, "input_ids": IDS[:, :, None].repeat(1, 1, 4)},
    ),
    "clap": (
        lambda: model(
            "ClapAudioModelWithProjection",
            image_size=64,
            window_size=4,
            num_mel_bins=16,
            spec_size=64,
            patch_size=4,
            patch_stride=[4, 4],
            patch_embeds_hidden_size=8,
            hidden_size=32,
            depths=[1, 1, 1],
            num_attention_heads=[2, 2, 4],
            projection_dim=16,
            enable_fusion=False,
        ),
        {"input_features": normal(2, 1, 256, 16)},
    ),
    "dac": (
        lambda: model(
            "DacModel",
            encoder_hidden_size=8,
            decoder_hidden_size=64,
            downsampling_ratios=[2, 4],
            upsampling_ratios=[4, 2],
            n_codebooks=2,
            codebook_size=32,
            codebook_dim=4,
        ),
        {"input_values": normal(2, 1, 128)},
    ),
    "encodec": (
        lambda: model(
            "EncodecModel",
            num_filters=4,
            hidden_size=16,
            codebook_dim=16,
            codebook_size=32,
            upsampling_ratios=[4, 2],
        ),
        {"input_values": normal(2, 1, 128)},
    ),
    "hubert": (lambda: model("HubertModel", **SPEECH), {"input_values": normal(2, 800)}),
    "moonshine": (
        lambda: model(
            "MoonshineForConditionalGeneration",
            vocab_size=99,
            hidden_size=32,
            intermediate_size=40,
            encoder_num_hidden_layers=2,
            decoder_num_hidden_layers=2,
            encoder_num_attention_heads=4,
            decoder_num_attention_heads=4,
            max_position_embeddings=64,
        ),
        {"input_values": normal(2, 2000), "decoder_input_ids": IDS, "use_cache": False},
    ),
    "musicgen": (
        _musicgen,
        {**TEXT, "decoder_input_ids": IDS[:, :5].repeat(4, 1), "use_cache": False},
    ),
    "seamless_m4t": (
        lambda: model(
            "Wav2Vec2BertModel",
            **NARROW,
            feature_projection_input_dim=20,
            conv_depthwise_kernel_size=5,
        ),
        {"input_features": normal(2, 30, 20)},
    ),
    "speech_to_text": (
        lambda: model(
            "Speech2TextForConditionalGeneration",
            **SEQUENCES,
            input_feat_per_channel=8,
            num_conv_layers=2,
            conv_channels=16,
            max_source_positions=64,
            max_target_positions=64,
        ),
        {"input_features": normal(2, 40, 8), "decoder_input_ids": IDS, "use_cache": False},
    ),
    "speecht5": (
        lambda: model(
            "SpeechT5ForSpeechToText",
            **{
                k: v
                for k, v in SPEECH.items()
                if k
                in (
                    "vocab_size",
                    "hidden_size",
                    "conv_dim",
                    "conv_stride",
                    "conv_kernel",
                    "num_conv_pos_embeddings",
                    "num_conv_pos_embedding_groups",
                    "num_feat_extract_layers",
                )
            },
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=40,
            decoder_ffn_dim=40,
        ),
        {"input_values": normal(2, 800), "decoder_input_ids": IDS, "use_cache": False},
    ),
    "speecht5_hifigan": (
        lambda: model(
            "SpeechT5HifiGan",
            model_in_dim=16,
            upsample_initial_channel=32,
            upsample_rates=[4, 2],
            upsample_kernel_sizes=[8, 4],
        ),
        {"spectrogram": normal(2, 20, 16)},
    ),
    "vits": (
        lambda: model(
            "VitsModel",
            **{**NARROW, "intermediate_size": 40},
            ffn_dim=40,
            flow_size=32,
            spectrogram_bins=17,
            upsample_initial_channel=32,
            upsample_rates=[4, 2],
            upsample_kernel_sizes=[8, 4],
            duration_predictor_filter_channels=32,
            prior_encoder_num_flows=2,
            posterior_encoder_num_wavenet_layers=2,
            prior_encoder_num_wavenet_layers=2,
            noise_scale=0.0,
            noise_scale_duration=0.0,
        ),
        TEXT,
    ),
    "wav2vec2": (lambda: model("Wav2Vec2ForCTC", **SPEECH), {"input_values": normal(2, 800)}),
    "wavlm": (lambda: model("WavLMModel", **SPEECH), {"input_values": normal(2, 800)}),
    "whisper": (
        lambda: model(
            "WhisperForConditionalGeneration",
            **{k: v for k, v in SEQUENCES.items() if k != "max_position_embeddings"},
            num_mel_bins=8,
            max_source_positions=20,
            max_target_positions=32,
        ),
        {"input_features": normal(2, 8, 40), "decoder_input_ids": IDS, "use_cache": False},
    ),
    # Series
    "autoformer": (
        lambda: model("AutoformerModel", **FORECAST, label_length=4, moving_average=5),
        SERIES,
    ),
    "patchtsmixer": (
        lambda: model(
            "PatchTSMixerForPrediction",
            context_length=32,
            patch_length=8,
            patch_stride=8,
            num_input_channels=3,
            d_model=16,
            num_layers=2,
            prediction_length=8,
        ),
        {"past_values": normal(2, 32, 3)},
    ),
    "patchtst": (
        lambda: model(
            "PatchTSTForPrediction",
            context_length=32,
            patch_length=8,
            patch_stride=8,
            num_input_channels=3,
            d_model=16,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=24,
            prediction_length=8,
        ),
        {"past_values": normal(2, 32, 3)},
    ),
    "time_series_transformer": (lambda: model("TimeSeriesTransformerModel", **FORECAST), SERIES),
    "timesfm": (
        lambda: model(
            "TimesFmModel",
            patch_length=8,
            context_length=32,
            horizon_length=8,
            hidden_size=32,
            intermediate_size=32,
            head_dim=8,
            num_hidden_layers=2,
            num_attention_heads=4,
        ),
        {
            "past_values": normal(2, 32),
            "past_values_padding": torch.zeros(2, 32),
            "freq": torch.tensor([[0], [1]]),
        },
    ),
}
