"""Models of timm with random weights, the smallest of each family, as engines and by PyTorch.

They run where timm and torchvision are installed, and on the GPU where there is one.
"""

from __future__ import annotations

import pytest

import opwright

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
timm = pytest.importorskip("timm")

NAMES = """
beit_base_patch16_224 halonet_h1 mobileone_s1 cait_xxs24_224 coat_tiny convit_tiny convmixer_768_32
convnext_zepto_rms cpubone_nano crossvit_tiny_240 csatv2 cs3darknet_focus_s cspnext_tiny davit_tiny
deepseek_vit_412m deit_tiny_patch16_224 densenet121 dla46x_c dpn48b edgenext_xx_small efficientformer_l1
efficientformerv2_s0 efficientnet_lite0 efficientvim_m1 efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224
fasternet_t0 fastvit_t8 focalnet_tiny_srf gcvit_xxtiny gemma4_vit_167m_enc ghostnet_050 hardcorenas_b
hgnetv2_b0 hiera_tiny_224 sam2_hiera_tiny hrnet_w18_small iformer_t inception_next_atto inception_resnet_v2
inception_v3 inception_v4 lcnetv2_small levit_128s lowformer_b0 mambaout_femto maxvit_pico_rw_256
poolformerv2_s12 gmlp_ti16_224 lcnet_035 mobilenetv5_base mobilevit_xxs mvitv2_tiny
naflexvit_base_patch16_parfac_gap nasnetalarge nest_tiny nextvit_small nf_regnet_b0 pit_ti_224 pnasnet5large
pvt_v2_b0 qwen3_vit_88m rdnet_tiny regnetx_002 repghostnet_050 repvit_m1 res2next50 resnest14d resnet10t
resnetv2_18 rexnet_100 selecsls42 legacy_seresnet18 sequencer2d_s shvit_s1 skresnet18 starnet_s050
swiftformer_xs swin_tiny_patch4_window7_224 swinv2_tiny_window16_256 swinv2_cr_tiny_224 tiny_vit_5m_224
tnt_s_legacy_patch16_224 tresnet_m twins_svt_small vgg11 visformer_tiny flexivit_small vit_tiny_r_s16_p8_224
vit_srelpos_small_patch16_224 samvit_base_patch16_224 vitamin_small_224 volo_d1_224 ese_vovnet19b_slim_dw
legacy_xception xception41p xcit_nano_12_p8_224
""".split()
ON_GPU = torch.cuda.is_available()


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_timm(name):
    torch.manual_seed(0)
    if name not in timm.list_models():
        pytest.skip("this version of timm has no such model")
    model = timm.create_model(name, pretrained=False, num_classes=100).eval()
    for parameter in model.parameters():
        if parameter.numel() and parameter.abs().max() == 0:  # what would hide all before it
            torch.nn.init.normal_(parameter, std=0.05)
    x = torch.randn(2, *model.default_cfg["input_size"])
    if ON_GPU:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        model, x = model.cuda(), x.cuda()
    with torch.no_grad():
        expected = model(x)
    engine = opwright.build(model, (x,), device="cuda" if ON_GPU else "cpu", timing=False)
    error = (engine(x) - expected).norm() / expected.norm()
    assert error < 1e-3
