"""The network as policies of Stable-Baselines3 (PPO, A2C) and sb3-contrib (MaskablePPO).

Both read the flat observation; pass the layout and the network's size through ``policy_kwargs``::

    MaskablePPO(MaskableClusterPolicy, vec_env, policy_kwargs={"layout": layout, "network": NetworkConfig()})
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import Tensor

from agents.network import ClusterNetwork, NetworkConfig
from envs.actions import num_actions
from envs.features import ObservationLayout


class _ClusterPolicy:
    """What both policies share: everything that their base classes compute with layers of fixed size."""

    def __init__(
        self,
        observation_space: spaces.Box,
        action_space: spaces.Discrete,
        lr_schedule: Schedule,
        *,
        layout: ObservationLayout,
        network: NetworkConfig | None = None,
        **kwargs: Any,
    ) -> None:
        if observation_space.shape != (layout.size,):
            raise ValueError(
                f"the layout describes {layout.size} numbers, the observation has {observation_space.shape}"
            )
        count = num_actions(layout.num_slots, layout.num_services)
        if action_space.n != count:
            raise ValueError(f"the layout has {count} actions, the action space {action_space.n}")
        self.layout = layout
        self.network_config = network or NetworkConfig()
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)  # type: ignore[call-arg]

    def _build(self, lr_schedule: Schedule) -> None:
        self.network = ClusterNetwork(self.network_config, self.layout.layered)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[attr-defined]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        shared = super()._get_constructor_parameters()  # type: ignore[misc]
        return {**shared, "layout": self.layout, "network": self.network_config}

    def _evaluate(self, obs: Tensor, action_masks: np.ndarray | Tensor | None) -> tuple[Any, Tensor]:
        """Distribution over actions and value ``(B, 1)`` for ``obs (B, R)``."""
        logits, values = self.network(obs.float(), self.layout)
        distribution = self.action_dist.proba_distribution(action_logits=logits)  # type: ignore[attr-defined]
        if action_masks is not None:
            distribution.apply_masking(action_masks)
        return distribution, values

    def forward(
        self, obs: Tensor, deterministic: bool = False, action_masks: np.ndarray | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions ``(B,)``, values ``(B, 1)`` and the actions' log-probabilities ``(B,)``."""
        distribution, values = self._evaluate(obs, action_masks)
        actions = distribution.get_actions(deterministic=deterministic)
        return actions, values, distribution.log_prob(actions)

    def evaluate_actions(
        self, obs: Tensor, actions: Tensor, action_masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values ``(B, 1)``, log-probabilities ``(B,)`` of ``actions (B,)`` and entropies ``(B,)``."""
        distribution, values = self._evaluate(obs, action_masks)
        return values, distribution.log_prob(actions), distribution.entropy()

    def get_distribution(self, obs: Tensor, action_masks: np.ndarray | None = None) -> Any:
        """Distribution over actions for ``obs (B, R)``."""
        return self._evaluate(obs, action_masks)[0]

    def predict_values(self, obs: Tensor) -> Tensor:
        """Values ``(B, 1)``."""
        return self._evaluate(obs, None)[1]


class MaskableClusterPolicy(_ClusterPolicy, MaskableActorCriticPolicy):  # type: ignore[misc]
    """For MaskablePPO: never samples an action that the mask rules out."""


class ClusterPolicy(_ClusterPolicy, ActorCriticPolicy):  # type: ignore[misc]
    """For PPO and A2C, which know no masks; empty slots are still never chosen."""
