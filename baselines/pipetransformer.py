"""PipeTransformer's schedule: after each epoch a fixed share of the layers still active is frozen (He et al., ICML'21).

The paper's L(t) = min(L(t - 1) + alpha (total - L(t - 1)), layer of least gradient norm). Here, as in the published
training runs of IceFrog's first author, alpha = 1 / E and gradients have no say: after epoch t of E the share
1 - (1 - 1/E)^t of the modules is frozen, rounded down, 63 % at the end. Its user sets it, whatever the cluster does;
allocations are the host's, which knows speeds without frozen layers only. It knows the job's progress.
Departures: an epoch is 1/E of the job's statistical work, not a pass over its data; and PipeTransformer packs what is
active into fewer GPUs and adds replicas, which here is for the host to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from baselines.hosts import Freezing, Grants, Ints
from envs.view import ClusterView


@dataclass
class PipeTransformer(Freezing):
    """Let a host allocate and freeze by epochs, the same share of what is active after each."""

    epochs: int = 100
    """E, epochs of a job: after each, 1/E of its active modules is frozen."""

    rule: ClassVar[str] = "pipetransformer"

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be a whole number >= 1, not {self.epochs}")

    def depths(self, view: ClusterView, grants: Grants) -> Ints:
        epoch = np.floor(self.epochs * view.elastic_progress[grants.slots])
        share = 1.0 - (1.0 - 1.0 / self.epochs) ** epoch
        depth = (share * view.modules[grants.slots]).astype(np.int64)
        return np.minimum(depth, view.max_depth[grants.slots])
