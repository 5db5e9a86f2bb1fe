"""What freezing the first layers of a model does to its speed, and how its layers converge.

A reconstruction: IceFrog's formulas are not public (docs/design/004-layers.md). Freezing by prefix: of K modules the
first k are frozen. At depth k a model is an ordinary model profile whose throughput parameters are smaller and whose
micro-batches may be larger, so that everything which is true of model profiles stays true.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from traces.layer_profiles import ACTIVATION_FLOOR, OPTIMIZER_STATES, PARAM_BYTES, LayerProfile, load_layer_profiles
from traces.profiles import ModelProfile, ProfileError, Throughput, TypeProfile

REBUILT = 0.1  # of the synchronisation is left when the parameters are, if DDP is built anew at each change of depth


@dataclass(frozen=True)
class Layers:
    """How a model of the throughput table relates to its layer profile.

    ``backward``: share of the time of a sample that is backward (w): 0.62 is fitted to V100 runs of BERT, 0.45 to
    YOLOv3, which is input-bound. ``launches``: share of the fixed time of a step that goes with the active layers
    (lam). ``eval_forward``: time of a frozen module's forward pass over that of a training one (e): 0.85 with batch
    normalisation. ``by_params``: the backward time goes with parameters, not FLOPs (embeddings).
    """

    profile: str
    backward: float = 0.62
    launches: float = 0.75
    eval_forward: float = 1.0
    by_params: bool = False


LAYERS: dict[str, Layers] = {
    "bert": Layers("bert_base_squad384"),
    "cifar10": Layers("resnet18_cifar10", eval_forward=0.85),
    "deepspeech2": Layers("deepspeech2"),
    "imagenet": Layers("resnet50_imagenet", eval_forward=0.85),
    "ncf": Layers("neumf_ml1m", by_params=True),
    "yolov3": Layers("yolov3_voc416", backward=0.45, eval_forward=0.85),
}


class Preset(NamedTuple):
    """When modules converge: module i of K at progress first + (last - first) (i / (K - 1))^shape."""

    first: float
    last: float
    shape: float
    may_cache: bool  # the outputs of frozen modules may be kept instead of computed: no augmentation
    meaning: str


PRESETS: dict[str, Preset] = {
    "conservative": Preset(0.5, 1.0, 1.0, False, "late: as much as FreezeOut saves"),
    "middle": Preset(0.3, 1.0, 1.0, False, "training from scratch: the low end of what Egeria saves"),
    "egeria": Preset(0.15, 0.85, 1.0, False, "training from scratch: what Egeria saves"),
    "finetune": Preset(0.03, 0.5, 1.0, True, "fine-tuning of a trained model"),
}


class Freezing(NamedTuple):
    """How a cluster's software freezes."""

    sync_left: float = REBUILT
    """Share of the synchronisation that does not shrink with the parameters: 1 for plain DDP."""
    cached: bool = False
    """Outputs of frozen modules are kept instead of computed."""


def layers_of(model: str) -> tuple[Layers, LayerProfile]:
    """Of a model of the throughput table; ProfileError: its layers are not known."""
    if model not in LAYERS:
        raise ProfileError(f"the layers of model {model!r} are not known (known: {', '.join(LAYERS)})")
    layers = LAYERS[model]
    return layers, load_layer_profiles()[layers.profile]


@cache
def shares(model: str, depth: int, freezing: Freezing) -> tuple[float, float, float]:
    """What is left at a depth of the fixed time of a step, of the time of a sample, and of the synchronisation."""
    layers, profile = layers_of(model)
    params, forward = float(profile.param_share()[depth]), float(profile.forward_share()[depth])
    backward = params if layers.by_params else float(profile.backward_share()[depth])
    if not freezing.cached:
        forward += layers.eval_forward * (1.0 - forward)
    fixed = 1.0 - layers.launches + layers.launches * float(profile.layer_share()[depth])
    sample = (1.0 - layers.backward) * forward + layers.backward * backward
    return fixed, sample, freezing.sync_left + (1.0 - freezing.sync_left) * params


def max_local(model: str, depth: int, at_zero: int) -> int:
    """Largest micro-batch whose activations fit where ``at_zero`` samples do without freezing.

    Frozen parameters need no gradient and no state of the optimizer, frozen modules keep no activations.
    """
    _, profile = layers_of(model)
    kept = max(float(profile.activation_share()[depth]), ACTIVATION_FLOOR)
    states = 1 + OPTIMIZER_STATES[profile.optimizer]  # a gradient, and what the optimizer keeps
    freed = PARAM_BYTES * profile.params * states * (1.0 - float(profile.param_share()[depth]))
    activations = float(profile.column("saved_activation_bytes").sum())
    return int((at_zero + freed / activations) / kept + 1e-9)


def freeze(model: ModelProfile, depth: int, freezing: Freezing = Freezing()) -> ModelProfile:  # noqa: B008
    """The profile of a model whose first ``depth`` modules are frozen; at depth 0 the model itself.

    Raises ProfileError for a model without known layers, for a depth out of range, and for measured step times.
    """
    if depth == 0:
        return model
    _, profile = layers_of(model.model)
    if not 0 <= depth <= profile.max_frozen:
        raise ProfileError(f"model {model.model}: depth {depth} lies outside 0 to {profile.max_frozen}")
    return replace(
        model, types={name: _freeze_type(model.model, t, depth, freezing) for name, t in model.types.items()}
    )


def _freeze_type(model: str, profile: TypeProfile, depth: int, freezing: Freezing) -> TypeProfile:
    if profile.measured is not None:
        raise ProfileError(f"model {model} on {profile.gpu_type}: measured step times are not known with frozen layers")
    fixed, sample, sync = shares(model, depth, freezing)
    t = profile.throughput
    throughput = Throughput(
        t.alpha_c * fixed,
        t.beta_c * sample,
        t.alpha_n * sync,
        t.beta_n * sync,
        t.alpha_r * sync,
        t.beta_r * sync,
        t.gamma,
    )
    return replace(profile, throughput=throughput, max_local=max_local(model, depth, profile.max_local))
