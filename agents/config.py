"""Settings of a training run: one dataclass for each algorithm, and one for the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from agents.network import NetworkConfig

Algo = Literal["maskable-ppo", "ppo", "a2c"]
Device = Literal["auto", "cpu", "cuda"]


class TrainError(ValueError):
    """A training run that cannot be made or resumed; the message is one sentence."""


@dataclass(frozen=True)
class OnPolicyConfig:
    """What PPO and A2C have in common."""

    learning_rate: float = 5e-4
    """Step size of the optimiser (PPO: Adam, A2C: RMSprop)."""
    anneal: bool = True
    """Lower the step size linearly to 0 over the run."""
    rollout_steps: int = 128
    """Decisions of each cluster between updates."""
    gamma: float = 1.0
    """Discount of a decision. Edits take no time, so anything below 1 punishes editing, not waiting."""
    gae_lambda: float = 0.95
    """Bias against variance of advantages (Schulman et al., ICLR 2016)."""
    ent_coef: float = 0.0
    """Weight of the entropy bonus; it rewards edits for being many, since a busy cluster offers dozens."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    max_grad_norm: float = 0.5
    """Gradients are scaled down to this norm."""

    def __post_init__(self) -> None:
        _check(self, ("rollout_steps", "learning_rate", "gamma", "max_grad_norm"))


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """Proximal policy optimisation (Schulman et al., 2017), with or without masks."""

    batch_size: int = 512
    """Decisions in a minibatch at most; minibatches are of equal size."""
    epochs: int = 4
    """Passes over a rollout."""
    clip_range: float = 0.2
    """Largest change of an action's probability ratio that is rewarded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self, ("epochs", "clip_range"))
        if self.batch_size < 2:
            raise TrainError(f"batch size must be at least 2, not {self.batch_size}")


@dataclass(frozen=True)
class A2CConfig(OnPolicyConfig):
    """Synchronous advantage actor-critic (Mnih et al., ICML 2016); knows no masks."""

    learning_rate: float = 7e-4
    """Step size of RMSprop."""
    rollout_steps: int = 16
    """Decisions of each cluster between updates."""
    normalise_advantage: bool = True
    """Give the advantages of a rollout mean 0 and deviation 1."""


@dataclass(frozen=True)
class TrainConfig:
    """One training run but for its environment."""

    algo: Algo = "maskable-ppo"
    """maskable-ppo never tries an action that is invalid; ppo and a2c commit when they do."""
    ppo: PPOConfig = field(default_factory=PPOConfig)
    """Settings of maskable-ppo and ppo."""
    a2c: A2CConfig = field(default_factory=A2CConfig)
    """Settings of a2c."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """Size of the network."""
    steps: int = 200_000
    """Decisions of the agent in all; rounded up to whole rollouts."""
    seed: int = 0
    """Seed of weights, actions, minibatches and workloads."""
    num_envs: int = 16
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
        _check(self, (*counts, "threads"))
        _check(self.network, ("width", "rounds", "heads"))
        rollout = self.num_envs * self.learner.rollout_steps
        if rollout < 2 or (self.algo != "a2c" and self.batch_size < 2):
            raise TrainError(
                f"a rollout of {rollout} decisions cannot be split into equal minibatches of more than one"
            )

    @property
    def batch_size(self) -> int:
        """Decisions in a minibatch: the largest divisor of a rollout that is not above ``ppo.batch_size``."""
        rollout = self.num_envs * self.ppo.rollout_steps
        return next(size for size in range(min(self.ppo.batch_size, rollout), 0, -1) if rollout % size == 0)

    @property
    def learner(self) -> PPOConfig | A2CConfig:
        """Settings of the algorithm in use."""
        return self.a2c if self.algo == "a2c" else self.ppo


def _check(config: Any, names: tuple[str, ...]) -> None:
    """Whole numbers must be at least 1, others above 0."""
    for name in names:
        value = getattr(config, name)
        if not value > 0:
            least = "at least 1" if isinstance(value, int) else "above 0"
            raise TrainError(f"{name.replace('_', ' ')} must be {least}, not {value}")
