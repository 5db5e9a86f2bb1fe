"""The models whose profiles ship with the project, with random weights and inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from traces.layers.deepspeech import deepspeech2
from traces.layers.mobilenet import mobilenetv2_cifar10, mobilenetv2_imagenet
from traces.layers.neumf import neumf_ml1m
from traces.layers.resnet import resnet18_cifar10, resnet50_imagenet
from traces.layers.transformer import bert_6layer_64, bert_base_squad384, gpt2_small_1024, vit_b16_imagenet
from traces.layers.unet import ddpm_unet_cifar10
from traces.layers.vgg import vgg19bn_cifar10
from traces.layers.workload import Workload, checked
from traces.layers.yolo import yolov3_voc416


@dataclass(frozen=True)
class Entry:
    """How to make a model's workload, and the batch whose step is timed on a CPU by default."""

    make: Callable[[int], Workload]
    batch: int
    about: str

    def build(self, batch: int) -> Workload:
        return checked(replace(self.make(batch), about=self.about))


CATALOGUE = {
    "resnet18_cifar10": Entry(resnet18_cifar10, 16, "ResNet-18, CIFAR-10, 32 px"),
    "resnet50_imagenet": Entry(resnet50_imagenet, 4, "ResNet-50, ImageNet, 224 px"),
    "vgg19bn_cifar10": Entry(vgg19bn_cifar10, 16, "VGG-19 with BatchNorm, CIFAR-10, 32 px"),
    "mobilenetv2_imagenet": Entry(mobilenetv2_imagenet, 8, "MobileNetV2, ImageNet, 224 px"),
    "mobilenetv2_cifar10": Entry(mobilenetv2_cifar10, 16, "MobileNetV2, CIFAR-10, 32 px"),
    "bert_base_squad384": Entry(bert_base_squad384, 2, "BERT-base with a QA head, 384 tokens"),
    "gpt2_small_1024": Entry(gpt2_small_1024, 1, "GPT-2 small with a tied head, 1024 tokens"),
    "vit_b16_imagenet": Entry(vit_b16_imagenet, 4, "ViT-B/16, ImageNet, 224 px"),
    "deepspeech2": Entry(deepspeech2, 4, "DeepSpeech2, five BiLSTM layers of 1024, 300 frames"),
    "yolov3_voc416": Entry(yolov3_voc416, 1, "YOLOv3, VOC, 416 px"),
    "neumf_ml1m": Entry(neumf_ml1m, 256, "NeuMF, MovieLens-1M"),
    "ddpm_unet_cifar10": Entry(ddpm_unet_cifar10, 2, "DDPM U-Net, CIFAR-10, 32 px"),
}
# Small enough for the CPU check, but no workload of a scheduler: not in the shipped table.
EXTRA = {"bert_6layer_64": Entry(bert_6layer_64, 2, "BERT with six layers and a QA head, 64 tokens")}
