"""One permutation-equivariant network for clusters and queues of any size.

Jobs, nodes and inference services are sets, so the network treats them as sets: every row of each and
the cluster row is embedded by shared weights; a *token* stands for the cluster. In each round
(agents/exchange.py) the token reads the sets by multi-head attention (pooling by attention: Lee et al.,
"Set Transformer", ICML 2019, section 3.2), every job reads the token and the mean of the nodes whose
GPUs it holds, and every service reads the token. That costs O(J), not O(J^2), and the jobs still see
each other through the token. The logit of (slot, edit) is computed from that slot's embedding alone, and
likewise that of (service, edit) (a pointer head: Vinyals et al., "Pointer Networks", NeurIPS 2015), so no
weight depends on the number of slots J, nodes N, GPUs per node G or services V, which may be 0.

Only occupied slots are computed; an empty slot costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from agents.exchange import EMPTY_LOGIT, Context, Round, dense
from envs.actions import NUM_EDITS, Edit
from envs.features import (
    CLUSTER_COLUMNS,
    FEATURES,
    JOB_COLUMNS,
    LAYER_COLUMNS,
    NODE_COLUMNS,
    SERVICE_COLUMNS,
    ObservationLayout,
)
from envs.service_edits import NUM_SERVICE_EDITS

# The first policy starts whatever fits, commits once nothing does, and seldom does anything else to a running job or
# an idle pod. Equal logits would make it stop and move jobs at random: with 40 of them running, 40 times for each
# commit. An elastic job that has GPUs grows now and then: at once, the first few would take the whole cluster.
MORE_BIAS, DISTURB_BIAS, GROW_BIAS = 2.0, -5.0, -2.0
DISTURBING = [Edit.LESS, Edit.PLACE_PACKED, Edit.PLACE_SAFE, Edit.PLACE_ALIKE, Edit.PLACE_SPREAD]
_JOB_COLUMNS = [feature.name for feature in FEATURES if feature.block == "jobs"]
RUNNING, WAS_RUNNING = _JOB_COLUMNS.index("running"), _JOB_COLUMNS.index("was_running")
ELASTIC = _JOB_COLUMNS.index("elastic")
_LAYER_COLUMNS = [feature.name for feature in FEATURES if feature.block == "layers"]
FROZEN, WAS_FROZEN = (JOB_COLUMNS + _LAYER_COLUMNS.index(name) for name in ("frozen", "was_frozen"))


@dataclass(frozen=True)
class NetworkConfig:
    """Size of the network."""

    width: int = 64
    """Channels of every embedding."""
    rounds: int = 1
    """How often the cluster token reads jobs, nodes and services, and these read the token."""
    heads: int = 2
    """Attention heads with which the token reads a set."""
    disturb: bool = False
    """May stop and move running rigid jobs. Much harder to learn: a good preemption pays off many passes later."""


class Observation(NamedTuple):
    """The parts of a batch of flat observations, as views."""

    cluster: Tensor  # (B, Fc) float32
    nodes: Tensor  # (B, N, Fn) float32; column 0 is 1 for a real node
    jobs: Tensor  # (B, J, Fj) float32; column 0 is 1 for an occupied slot; with layers, their columns behind it
    services: Tensor  # (B, V, Fs) float32
    occupancy: Tensor  # (B, N, G) float32, slot of the holder; negative: no job of a slot holds it


def split_observation(obs: Tensor, layout: ObservationLayout) -> Observation:
    """Views into flat observations ``obs (B, R) float32``."""
    parts: dict[str, Tensor] = layout.split(obs)  # type: ignore[arg-type, assignment]  # works on tensors too
    if layout.layered:
        parts["jobs"] = torch.cat([parts["jobs"], parts.pop("layers")], dim=2)
    if layout.num_services == 0:
        parts["services"] = obs.new_zeros(len(obs), 0, SERVICE_COLUMNS)
    return Observation(**parts)


def head(width: int, last: nn.Linear) -> nn.Sequential:
    """What an embedding is read out with."""
    return nn.Sequential(nn.LayerNorm(width), dense(width, width), nn.ReLU(), last)


class ClusterNetwork(nn.Module):
    """Logits of all actions and the value of the state, from a flat observation and its layout.

    ``layered``: of observations with the block of layers, and no others.
    """

    def __init__(self, config: NetworkConfig, layered: bool = False) -> None:
        super().__init__()
        self.config, self.layered = config, layered
        width = config.width
        self.embed_cluster = dense(CLUSTER_COLUMNS, width)
        self.embed_node = nn.Sequential(dense(NODE_COLUMNS, width), nn.ReLU())
        columns = JOB_COLUMNS + LAYER_COLUMNS * layered
        self.embed_job = nn.Sequential(dense(columns, width), nn.ReLU(), dense(width, width, 1.0))
        self.embed_service = nn.Sequential(dense(SERVICE_COLUMNS, width), nn.ReLU(), dense(width, width, 1.0))
        self.rounds = nn.ModuleList(Round(width, config.heads) for _ in range(config.rounds))
        edits, service_edits = dense(width, NUM_EDITS, 0.01), dense(width, NUM_SERVICE_EDITS, 0.01)
        with torch.no_grad():
            edits.bias.fill_(DISTURB_BIAS)
            edits.bias[Edit.MORE] = MORE_BIAS
            service_edits.bias.fill_(DISTURB_BIAS)
        self.edit_head = head(width, edits)
        self.service_head = head(width, service_edits)
        self.commit_head = head(width, dense(width, 1, 0.01))
        self.value_head = head(width, dense(width, 1, 0.01))

    def forbid(self, logits: Tensor, rows: Tensor) -> Tensor:
        """``logits (M, K)`` without edits that the agent does not make although the environment allows them.

        Undoing an edit of this pass: edits are free until the commit, so undoing is never wrong and never
        right, and a policy that may undo drifts into doing little else. And, unless ``config.disturb``,
        whatever would pause a rigid job that runs. Elastic jobs that hold GPUs get the bias of growth.
        """
        runs, ran, elastic = (rows[:, column] > 0.5 for column in (RUNNING, WAS_RUNNING, ELASTIC))
        more = torch.zeros_like(logits)
        more[:, Edit.MORE] = (runs & elastic) * (GROW_BIAS - MORE_BIAS)
        forbidden = torch.zeros_like(logits, dtype=torch.bool)
        forbidden[:, Edit.LESS] = runs & ~ran
        forbidden[:, Edit.MORE] = ran & ~runs
        if self.layered:
            deeper = rows[:, FROZEN] - rows[:, WAS_FROZEN]
            forbidden[:, Edit.FREEZE] = deeper < 0
            forbidden[:, Edit.UNFREEZE] = deeper > 0
        if not self.config.disturb:
            forbidden[:, DISTURBING] |= (ran & ~elastic)[:, None]
        return (logits + more).masked_fill(forbidden, EMPTY_LOGIT)

    def forward(self, obs: Tensor, layout: ObservationLayout) -> tuple[Tensor, Tensor]:
        """``obs (B, R) float32`` -> logits ``(B, A)`` in the order of envs/actions.py, value ``(B, 1)``."""
        parts = split_observation(obs, layout)
        context = Context.of(parts.jobs, parts.nodes, parts.occupancy)
        # contiguous() copies into aligned memory: rounding must not depend on where numpy has put the observation.
        token = self.embed_cluster(parts.cluster.contiguous())
        nodes = self.embed_node(parts.nodes) * context.real[:, :, None]
        rows = parts.jobs.flatten(0, 1)[context.index]
        jobs = self.embed_job(rows)
        services = self.embed_service(parts.services) if layout.num_services else parts.services
        for exchange in self.rounds:
            token, jobs, services = exchange(token, jobs, nodes, services, context)
        edits = context.spread(self.forbid(self.edit_head(jobs), rows), EMPTY_LOGIT).flatten(1)
        logits = [self.commit_head(token), edits]
        if layout.num_services:
            logits.append(self.service_head(services).flatten(1))
        return torch.cat(logits, dim=1), self.value_head(token)
