"""A trained run as a scheduler: :func:`load_policy`.

``envs.rollout`` drives the policy through the environment it was trained in, on any trace and cluster.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from agents.checkpoint import Checkpoint, CheckpointError, is_checkpoint, load_checkpoint, load_weights
from agents.exchange import EMPTY_LOGIT
from agents.network import ClusterNetwork, NetworkConfig
from envs.actions import COMMIT, EDITS, NUM_EDITS
from envs.features import FEATURES, ObservationLayout
from envs.service_edits import NUM_SERVICE_EDITS, SERVICE_EDITS

BEST = "best"
CHECKPOINTS = "checkpoints"
KINDS = ("commit", *(name for name, _ in EDITS), *(name for name, _ in SERVICE_EDITS))  # of actions

Actions = npt.NDArray[np.int64]


class LearnedPolicy:
    """Chooses edits by the network of a checkpoint.

    ``trained_on``: facts about the training run (trace, cluster, seed, decisions, ...). The same
    weights serve every cluster and number of slots; ``layout`` says how an observation is laid out.
    """

    batch: Literal["fixed", "tuned"] = "fixed"
    stochastic = False
    oracle = ("duration",)  # its observations hold what the settings let schedulers know of durations

    def __init__(self, name: str, network: ClusterNetwork, config: dict[str, Any], device: torch.device) -> None:
        self.name = name
        self.network = network.to(device).eval()
        self.device = device
        self.layout = ObservationLayout(**config["layout"])
        self.num_slots: int = config["layout"]["num_slots"]
        self.freezes = self.layout.layered
        self.edit_budget: int = config["edit_budget"]
        self.trained_on: dict[str, Any] = config["trained_on"]

    def act(
        self,
        obs: npt.NDArray[np.float32],
        mask: npt.NDArray[np.bool_],
        layout: ObservationLayout | None = None,
        rng: np.random.Generator | None = None,
    ) -> Actions:
        """Actions (B,) for ``obs (B, R) float32`` and ``mask (B, A) bool``; never one that is masked out.

        Without ``rng`` the likeliest action, the lowest of several; with it a draw from the policy.
        ``layout`` of the observations, if it is not that of the training run.
        """
        return choose(self.network, obs, mask, layout or self.layout, rng)


def choose(
    network: ClusterNetwork,
    obs: npt.NDArray[np.float32],
    mask: npt.NDArray[np.bool_],
    layout: ObservationLayout,
    rng: np.random.Generator | None,
) -> Actions:
    """As :meth:`LearnedPolicy.act`. Draws nothing from torch's generator, so a training run is not disturbed."""
    if obs.shape[1] != layout.size:
        raise ValueError(f"observations have {obs.shape[1]} numbers, but the layout describes {layout.size}")
    device = next(network.parameters()).device
    with torch.no_grad():
        scores = network(torch.from_numpy(obs).to(device), layout)[0].cpu().numpy()
    if rng is not None:  # the largest of logit + Gumbel noise is a draw from the softmax
        scores = scores + rng.gumbel(size=scores.shape)
    actions: Actions = np.where(mask, scores, 2 * EMPTY_LOGIT).argmax(axis=1)
    return actions


def kinds_of(actions: Actions, num_slots: int) -> Actions:
    """Position in KINDS of each of ``actions (B,)``."""
    first = 1 + num_slots * NUM_EDITS  # of the services
    of_job = 1 + (actions - 1) % NUM_EDITS
    of_service = 1 + NUM_EDITS + (actions - first) % NUM_SERVICE_EDITS
    return np.where(actions == COMMIT, 0, np.where(actions < first, of_job, of_service))


def policy_config(
    layout: ObservationLayout, network: NetworkConfig, edit_budget: int, trained_on: dict[str, Any]
) -> dict[str, Any]:
    """What a checkpoint says about its policy."""
    seen = [feature for feature in FEATURES if feature.block != "layers" or layout.layered]
    return {
        "layout": asdict(layout),
        "network": asdict(network),
        "edit_budget": edit_budget,
        "features": [f"{feature.block}.{feature.name}: {feature.meaning}" for feature in seen],
        "edits": list(KINDS[1:]),
        "trained_on": trained_on,
    }


def find_checkpoint(folder: Path) -> Path:
    """The checkpoint meant by ``folder``: itself, or a run's best one, or its latest."""
    if is_checkpoint(folder):
        return folder
    if is_checkpoint(folder / BEST):
        return folder / BEST
    latest = latest_checkpoint(folder)
    if latest is None:
        raise CheckpointError(f"{folder} holds no checkpoint: neither manifest.json nor {BEST}/ nor {CHECKPOINTS}/")
    return latest


def latest_checkpoint(run: Path) -> Path | None:
    """The newest finished checkpoint of a run that can be resumed."""
    found = sorted(path for path in (run / CHECKPOINTS).glob("step-*") if is_checkpoint(path))
    return found[-1] if found else None


def load_policy(folder: str | Path, device: str = "auto") -> LearnedPolicy:
    """The policy of a run folder of train.py, or of one checkpoint; raises :class:`CheckpointError`.

    Sets torch to one thread: on more, networks this small wait for each other most of the time.
    """
    torch.set_num_threads(1)
    where = find_checkpoint(Path(folder))
    checkpoint = load_checkpoint(where)
    network = build_network(checkpoint, where)
    load_weights(network, checkpoint.weights, where)
    return LearnedPolicy(str(folder), network, checkpoint.config, resolve_device(device))


def build_network(checkpoint: Checkpoint, where: Path) -> ClusterNetwork:
    """A network of the checkpoint's size, if this version of Musher observes what that one did."""
    config = checkpoint.config
    try:
        network, layout = NetworkConfig(**config["network"]), ObservationLayout(**config["layout"])
        current = policy_config(layout, network, config["edit_budget"], config["trained_on"])
        same = all(config[name] == current[name] for name in ("features", "edits"))
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"checkpoint {where} describes no policy: config.json lacks or misstates {error}"
        ) from None
    if not same:
        raise CheckpointError(
            f"checkpoint {where} was trained on other observations or actions than this version of Musher has"
        )
    return ClusterNetwork(network, layout.layered)


def resolve_device(device: str) -> torch.device:
    """``auto``: CUDA where there is a usable GPU, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise CheckpointError("device cuda was asked for, but torch sees no CUDA GPU")
    return torch.device(device)
