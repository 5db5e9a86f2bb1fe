"""The catalogue's models are the published ones: parameters and forward FLOPs within 1 % of the published numbers.

FLOPs here are 2 a multiply-add; sources that count multiply-adds are doubled. "recalled": quoted from memory of the
source, which was not at hand.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch

from traces.layers.catalogue import CATALOGUE
from traces.layers.deepspeech import deepspeech2
from traces.layers.flops import flop_counter
from traces.layers.transformer import bert
from traces.layers.unet import ddpm_unet_cifar10
from traces.layers.workload import checked
from traces.layers.yolo import yolov3

PUBLISHED = {  # model: parameters, forward FLOPs a sample
    # torchvision's documentation of its weights: 25,557,032 parameters, 4.089 GMAC
    "resnet50_imagenet": (25_557_032, 2 * 4.089e9),
    # torchvision's documentation: 3,504,872 parameters, 0.301 GMAC
    "mobilenetv2_imagenet": (3_504_872, 2 * 0.301e9),
    # torchvision's documentation: 86,567,656 parameters, 17.564 GMAC
    "vit_b16_imagenet": (86_567_656, 2 * 17.564e9),
    # chenyaofo/pytorch-cifar-models, README: mobilenetv2_x1_0, 2.24 M parameters, 87.98 M multiply-adds
    "mobilenetv2_cifar10": (2.24e6, 2 * 87.98e6),
    # kuangliu/pytorch-cifar's ResNet18: 11,173,962 parameters; 0.56 GMAC (recalled: tables of papers on distillation)
    "resnet18_cifar10": (11_173_962, 2 * 0.56e9),
    # Liu et al. (Network Slimming), ICCV'17, table 1: 20.04 M parameters, 7.97e8 FLOPs (recalled)
    "vgg19bn_cifar10": (20.04e6, 7.97e8),
    # Hugging Face BertForQuestionAnswering: 108,893,186 parameters; no FLOPs published at 384 tokens, see 128 below
    "bert_base_squad384": (108_893_186, None),
    # Hugging Face gpt2: 124,439,808 parameters; forward FLOPs of 1024 tokens as in CS336's accounting for GPT-2 small
    "gpt2_small_1024": (124_439_808, 291_648_307_200),
    # design page layer_elasticity.md, section 4: 61.6 M parameters, 32.7 GMAC at 416 px; the COCO head is below
    "yolov3_voc416": (61.6e6, 2 * 32.7e9),
    # Ho et al. (DDPM), NeurIPS'20, appendix B: 35.7 million parameters; FLOPs without attention are below
    "ddpm_unet_cifar10": (35.7e6, None),
    # no published numbers of these two; by hand below
    "deepspeech2": (None, None),
    "neumf_ml1m": (None, None),
}
close = partial(pytest.approx, rel=0.01)


def totals(make):
    """Parameters and forward FLOPs of a batch of 1."""
    with torch.device("meta"), torch.no_grad():
        work = checked(make(1))
        with flop_counter() as counter:
            work.model(*work.inputs)
    return sum(param.numel() for unit in work.params_by_unit() for param in unit), counter.get_total_flops()


@pytest.mark.parametrize("name", [name for name, published in PUBLISHED.items() if any(published)])
def test_totals_are_the_published_ones(name):
    params, flops = totals(CATALOGUE[name].build)
    assert params == close(PUBLISHED[name][0])
    if PUBLISHED[name][1] is not None:
        assert flops == close(PUBLISHED[name][1])


def test_every_model_of_the_catalogue_is_compared():
    assert set(PUBLISHED) == set(CATALOGUE)


def test_bert_at_128_tokens():
    """22.5 G FLOPs with 109 M parameters: MobileBERT (Sun et al., ACL'20), table 4, and TinyBERT's table."""
    assert totals(partial(bert, tokens=128))[1] == close(22.5e9)


def test_yolov3_for_coco():
    """pjreddie.com/darknet/yolo: 65.86 Bn at 416 px; 61,949,149 trainable parameters in ports of the weights."""
    params, flops = totals(partial(yolov3, classes=80))
    assert params == 61_949_149
    assert flops == pytest.approx(65.86e9, rel=1e-3)


def test_unet_without_attention():
    """Fang et al. (Diff-Pruning), NeurIPS'23, table 1: 6.1 GMAC (recalled), whose counter sees modules only."""
    # Q K^T and its product with V: five times at 16 x 16 pixels, once at 4 x 4, 256 channels
    products = 5 * 2 * 2 * 256 * 256 * 256 + 2 * 2 * 16 * 16 * 256
    assert totals(ddpm_unet_cifar10)[1] - products == close(2 * 6.1e9)


def test_deepspeech2_by_hand():
    """By T output frames; the recurrent layers are linear in T, so few frames show it."""
    frames, steps = 20, 10
    params, flops = totals(partial(deepspeech2, frames=frames))
    lstm = [2 * 4 * 1024 * (inputs + 1024) for inputs in (1312, 1024, 1024, 1024, 1024)]  # both directions
    kernels = (32 * 41 * 11, 32 * 32 * 21 * 11)
    norms = 2 * 2 * 32 + 5 * 2 * 1024
    assert params == sum(kernels) + sum(lstm) + 5 * 2 * 2 * 4096 + 1024 * 29 + norms
    assert flops == 2 * steps * (81 * kernels[0] + 41 * kernels[1] + sum(lstm) + 1024 * 29)


def test_neumf_by_hand():
    weights = 256 * 128 + 128 * 64 + 64 * 32 + 64
    params, flops = totals(CATALOGUE["neumf_ml1m"].build)
    assert params == (6040 + 3706) * (32 + 128) + weights + 128 + 64 + 32 + 1
    assert flops == 2 * weights


def test_gpt2s_head_is_tied():
    with torch.device("meta"):
        work = CATALOGUE["gpt2_small_1024"].build(1)
    sizes = [sum(param.numel() for param in unit) for unit in work.params_by_unit()]
    assert sizes[0] == 1024 * 768  # positions alone: the words stay trained until the head is frozen
    assert sizes[-1] == 50257 * 768 + 2 * 768
