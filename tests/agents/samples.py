"""Observations made up for the tests of networks and policies."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from agents.network import split_observation
from envs.features import ObservationLayout
from envs.settings import EnvSettings


def random_observations(layout: ObservationLayout, batch: int, occupied: int, seed: int = 0) -> torch.Tensor:
    """Observations with ``occupied`` jobs in random slots, each holding random GPUs."""
    rng = np.random.default_rng(seed)
    obs = torch.from_numpy(rng.random((batch, layout.size), dtype=np.float32))
    parts = split_observation(obs, layout)
    parts.nodes[:, :, 0] = 1.0
    parts.jobs[:, :, :] = 0.0
    parts.occupancy[:, :, :] = -1.0
    for b in range(batch):
        for slot in rng.choice(layout.num_slots, occupied, replace=False):
            parts.jobs[b, slot, 0] = 1.0
            parts.jobs[b, slot, 1:] = torch.from_numpy(rng.random(parts.jobs.shape[2] - 1, dtype=np.float32))
            node, gpu = rng.integers(layout.num_nodes), rng.integers(layout.gpus_per_node)
            parts.occupancy[b, node, gpu] = float(slot)
    return obs


def small_settings(**changes: Any) -> EnvSettings:
    """Windows of 20 jobs on a crowded cluster of 16 GPUs: episodes of about 100 decisions."""
    defaults: dict[str, Any] = {
        "trace": "synthetic-philly?jobs=200",
        "cluster": "4x4",
        "num_slots": 12,
        "window_jobs": 20,
        "edit_budget": 8,
    }
    return EnvSettings(**{**defaults, **changes})


def colocated_settings(**changes: Any) -> EnvSettings:
    """Windows of 8 training jobs and the inference tasks among them: episodes of 100 to 200 decisions."""
    trace = "synthetic-colocated?jobs=60,load=0.2,mean_duration_s=15"
    return small_settings(**{"scenario": "colocated", "trace": trace, "window_jobs": 8, **changes})


def draw_valid(mask: npt.NDArray[np.bool_], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """One valid action (B,) of each row of ``mask (B, A)``."""
    return np.where(mask, rng.random(mask.shape), -1.0).argmax(axis=1)
