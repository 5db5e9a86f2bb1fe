"""Gymnasium ids of the project. Imports nothing of ours, so that registering costs nothing."""

from __future__ import annotations

import gymnasium

# Far beyond any episode: TimeLimit must not cut what the horizon ends.
MAX_EPISODE_STEPS = 10_000_000


def register() -> None:
    """Register ``musher/Cluster-v0`` once."""
    if "musher/Cluster-v0" not in gymnasium.registry:
        gymnasium.register(
            id="musher/Cluster-v0",
            entry_point="envs.env:ClusterEnv",
            vector_entry_point="envs.vector_env:ClusterVectorEnv",
            max_episode_steps=MAX_EPISODE_STEPS,
        )
