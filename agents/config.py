"""Settings of a training run: one dataclass for each algorithm, and one for the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agents.network import NetworkConfig

Algo = Literal["maskable-ppo", "ppo", "a2c"]
Device = Literal["auto", "cpu", "cuda"]


class TrainError(ValueError):
    """A training run that cannot be made or resumed; the message is one sentence."""


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation (Schulman et al., 2017), with or without masks."""

    learning_rate: float = 5e-4
    """Step size of Adam."""
    anneal: bool = True
    """Lower the step size linearly to 0 over the run."""
    rollout_steps: int = 64
    """Decisions of each cluster between updates."""
    batch_size: int = 512
    """Decisions in a minibatch."""
    epochs: int = 4
    """Passes over a rollout."""
    gamma: float = 1.0
    """Discount of a decision. Edits take no time, so anything below 1 punishes editing, not waiting."""
    gae_lambda: float = 0.95
    """Bias against variance of advantages (Schulman et al., ICLR 2016)."""
    clip_range: float = 0.2
    """Largest change of an action's probability ratio that is rewarded."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm."""


@dataclass(frozen=True)
class A2CConfig:
    """Synchronous advantage actor-critic (Mnih et al., ICML 2016); knows no masks."""

    learning_rate: float = 7e-4
    """Step size of RMSprop."""
    anneal: bool = True
    """Lower the step size linearly to 0 over the run."""
    rollout_steps: int = 16
    """Decisions of each cluster between updates."""
    gamma: float = 1.0
    """Discount of a decision. Edits take no time, so anything below 1 punishes editing, not waiting."""
    gae_lambda: float = 0.95
    """Bias against variance of advantages."""
    ent_coef: float = 0.01
    """Weight of the entropy bonus."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm."""
    normalise_advantage: bool = True
    """Give the advantages of a rollout mean 0 and deviation 1."""


Learner = PPOConfig | A2CConfig
LEARNERS: dict[Algo, type[PPOConfig] | type[A2CConfig]] = {"maskable-ppo": PPOConfig, "ppo": PPOConfig, "a2c": A2CConfig}


@dataclass(frozen=True)
class TrainConfig:
    """One training run but for its environment."""

    algo: Algo = "maskable-ppo"
    learner: Learner = field(default_factory=PPOConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    steps: int = 200_000
    """Decisions of the agent in all; rounded up to whole rollouts."""
    seed: int = 0
    """Seed of weights, actions, minibatches and workloads."""
    num_envs: int = 32
    """Clusters simulated side by side."""
    checkpoint_every: int = 50_000
    """Decisions between checkpoints."""
    keep_checkpoints: int = 2
    """Older checkpoints are deleted."""
    validate_every: int = 20_000
    """Decisions between validations."""
    validation_windows: int = 8
    """Windows of the trace's validation part, none of which is trained on."""
    device: Device = "auto"
    """Where the network computes."""
    threads: int = 1
    """Threads of torch; networks this small gain nothing from more, and lose much on a busy machine."""

    def __post_init__(self) -> None:
        counts = ("steps", "num_envs", "checkpoint_every", "keep_checkpoints", "validate_every", "validation_windows")
        for name in (*counts, "threads"):
            if getattr(self, name) < 1:
                raise TrainError(f"{name.replace('_', ' ')} must be at least 1, not {getattr(self, name)}")
        if not isinstance(self.learner, LEARNERS[self.algo]):
            raise TrainError(f"algorithm {self.algo} is set by {LEARNERS[self.algo].__name__}")
