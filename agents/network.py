"""One permutation-equivariant network for clusters and queues of any size.

Jobs and nodes are sets, so the network treats them as sets: every job row, every node row and the
cluster row is embedded by shared weights; a *token* stands for the cluster. In each round the token
reads jobs and nodes by multi-head attention (pooling by attention: Lee et al., "Set Transformer",
ICML 2019, section 3.2), and every job reads the token and the mean of the nodes whose GPUs it holds.
That costs O(J), not O(J^2), and the jobs still see each other through the token. The logit of
(slot, edit) is computed from that slot's embedding alone (a pointer head: Vinyals et al., "Pointer
Networks", NeurIPS 2015), so no weight depends on the number of slots J, nodes N or GPUs per node G.

Only occupied slots are computed; an empty slot costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from envs.actions import Edit
from envs.observe import FEATURES, ObservationLayout

# The first policy starts whatever fits, commits once nothing does, and seldom disturbs a running job. Equal logits
# would make it stop and move jobs at random: with 40 of them running, 40 times for each commit. An elastic job that
# has GPUs grows now and then: at once, the first few would take the whole cluster.
MORE_BIAS, DISTURB_BIAS, GROW_BIAS = 2.0, -5.0, -2.0
DISTURBING = [Edit.LESS, Edit.PLACE_PACKED, Edit.PLACE_SAFE, Edit.PLACE_ALIKE, Edit.PLACE_SPREAD]
_JOB_COLUMNS = [feature.name for feature in FEATURES if feature.block == "jobs"]
RUNNING, WAS_RUNNING = _JOB_COLUMNS.index("running"), _JOB_COLUMNS.index("was_running")
ELASTIC = _JOB_COLUMNS.index("elastic")
EMPTY_LOGIT = -1e8  # an empty slot has no valid edit; the value sb3-contrib gives masked actions


@dataclass(frozen=True)
class NetworkConfig:
    """Size of the network."""

    width: int = 64
    """Channels of every embedding."""
    rounds: int = 1
    """How often the cluster token reads jobs and nodes, and jobs read the token and their nodes."""
    heads: int = 2
    """Attention heads with which the token reads a set."""
    disturb: bool = False
    """May stop and move running rigid jobs. Much harder to learn: a good preemption pays off many passes later."""


class Observation(NamedTuple):
    """The parts of a batch of flat observations, as views."""

    cluster: Tensor  # (B, Fc) float32
    nodes: Tensor  # (B, N, Fn) float32; column 0 is 1 for a real node
    jobs: Tensor  # (B, J, Fj) float32; column 0 is 1 for an occupied slot
    occupancy: Tensor  # (B, N, G) float32, slot of the holder; negative: no job of a slot holds it


def split_observation(obs: Tensor, layout: ObservationLayout) -> Observation:
    """Views into flat observations ``obs (B, R) float32``."""
    return Observation(**layout.split(obs))  # type: ignore[arg-type]  # slicing and reshaping work on tensors too


def held_share(occupancy: Tensor, num_slots: int) -> Tensor:
    """(B, J, N) float32: share of a slot's GPUs that lie on each node; a row of zeros if it holds none."""
    batch, nodes, gpus = occupancy.shape
    holder = occupancy.long().reshape(batch, nodes * gpus)
    holder = torch.where(holder < 0, num_slots, holder)  # one row more collects what no slot holds
    node = torch.arange(nodes, device=occupancy.device).repeat_interleave(gpus)
    counts = occupancy.new_zeros(batch, (num_slots + 1) * nodes)
    counts.scatter_add_(1, holder * nodes + node, torch.ones_like(holder, dtype=counts.dtype))  # whole numbers: exact
    counts = counts.reshape(batch, num_slots + 1, nodes)[:, :num_slots]
    return counts / counts.sum(dim=2, keepdim=True).clamp(min=1.0)


def dense(width_in: int, width_out: int, gain: float = 2**0.5) -> nn.Linear:
    """A linear layer with orthogonal weights and no initial bias (Saxe et al., ICLR 2014)."""
    layer = nn.Linear(width_in, width_out)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def head(width: int, last: nn.Linear) -> nn.Sequential:
    """What an embedding is read out with."""
    return nn.Sequential(nn.LayerNorm(width), dense(width, width), nn.ReLU(), last)


class AttentionPool(nn.Module):
    """The token's view of a set: ``heads`` softmax-weighted means of its members."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = dense(width, heads * width, gain=1.0)

    def forward(self, token: Tensor, members: Tensor, present: Tensor) -> Tensor:
        """``token (B, D)``, ``members (B, M, D)``, ``present (B, M) bool`` -> ``(B, heads * D)``.

        Rows that are not present must be zero; a set without members pools to zeros.
        """
        batch, _, width = members.shape
        query = self.query(token).reshape(batch, self.heads, width)
        scores = query @ members.transpose(1, 2) / width**0.5
        weights = scores.masked_fill(~present[:, None, :], EMPTY_LOGIT).softmax(dim=2)
        pooled: Tensor = weights @ members
        return pooled.reshape(batch, self.heads * width)


class Round(nn.Module):
    """One exchange between the cluster token, the nodes and the jobs."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.pool_jobs = AttentionPool(width, heads)
        self.pool_nodes = AttentionPool(width, heads)
        self.token_norm = nn.LayerNorm((1 + 2 * heads) * width)
        self.token_mlp = nn.Sequential(dense((1 + 2 * heads) * width, width), nn.ReLU(), dense(width, width, 1.0))
        self.job_norm = nn.LayerNorm(width)
        self.job_in = dense(width, width)
        self.token_in = dense(width, width)
        self.node_in = dense(width, width)
        self.job_out = dense(width, width, 1.0)

    def forward(self, token: Tensor, jobs: Tensor, nodes: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """``token (B, D)``, ``jobs (M, D)`` of the M occupied slots, ``nodes (B, N, D)`` -> new token and jobs."""
        seen = torch.cat(
            [
                token,
                self.pool_jobs(token, context.spread(jobs), context.occupied),
                self.pool_nodes(token, nodes, context.real),
            ],
            dim=1,
        )
        token = token + self.token_mlp(self.token_norm(seen))
        on_nodes = (context.held @ self.node_in(nodes)).flatten(0, 1)[context.index]
        hidden = self.job_in(self.job_norm(jobs)) + self.token_in(token)[context.row] + on_nodes
        return token, jobs + self.job_out(hidden.relu())


@dataclass(frozen=True)
class Context:
    """Which slots are occupied, which nodes are real and who holds what, for one batch."""

    occupied: Tensor  # (B, J) bool
    real: Tensor  # (B, N) bool
    held: Tensor  # (B, J, N) float32, see held_share
    index: Tensor  # (M,) int64 position of each occupied slot among the B * J slots
    row: Tensor  # (M,) int64 batch row of each occupied slot

    @classmethod
    def of(cls, parts: Observation) -> Context:
        occupied = parts.jobs[:, :, 0] > 0.5
        num_slots = occupied.shape[1]
        index = occupied.flatten().nonzero().squeeze(1)
        held = held_share(parts.occupancy, num_slots)
        return cls(occupied, parts.nodes[:, :, 0] > 0.5, held, index, index // num_slots)

    def spread(self, rows: Tensor, fill: float = 0.0) -> Tensor:
        """Rows (M, C) of the occupied slots put back into (B, J, C); empty slots get ``fill``."""
        batch, slots = self.occupied.shape
        full = torch.full((batch * slots, rows.shape[1]), fill, dtype=rows.dtype, device=rows.device)
        return full.index_copy(0, self.index, rows).reshape(batch, slots, -1)


class ClusterNetwork(nn.Module):
    """Logits of all actions and the value of the state, from a flat observation and its layout."""

    def __init__(self, layout: ObservationLayout, num_edits: int, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        feature = {name: shape[-1] for name, (_, _, shape) in layout.slices.items()}
        self.embed_cluster = dense(feature["cluster"], width)
        self.embed_node = nn.Sequential(dense(feature["nodes"], width), nn.ReLU())
        self.embed_job = nn.Sequential(dense(feature["jobs"], width), nn.ReLU(), dense(width, width, 1.0))
        self.rounds = nn.ModuleList(Round(width, config.heads) for _ in range(config.rounds))
        edits = dense(width, num_edits, 0.01)
        with torch.no_grad():
            edits.bias.fill_(DISTURB_BIAS)
            edits.bias[Edit.MORE] = MORE_BIAS
        self.edit_head = head(width, edits)
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
        if not self.config.disturb:
            forbidden[:, DISTURBING] |= (ran & ~elastic)[:, None]
        return (logits + more).masked_fill(forbidden, EMPTY_LOGIT)

    def forward(self, obs: Tensor, layout: ObservationLayout) -> tuple[Tensor, Tensor]:
        """``obs (B, R) float32`` -> logits ``(B, 1 + J * K)`` of commit and (slot, edit), value ``(B, 1)``."""
        parts = split_observation(obs, layout)
        context = Context.of(parts)
        # contiguous() copies into aligned memory: rounding must not depend on where numpy has put the observation.
        token = self.embed_cluster(parts.cluster.contiguous())
        nodes = self.embed_node(parts.nodes) * context.real[:, :, None]
        rows = parts.jobs.flatten(0, 1)[context.index]
        jobs = self.embed_job(rows)
        for exchange in self.rounds:
            token, jobs = exchange(token, jobs, nodes, context)
        edits = context.spread(self.forbid(self.edit_head(jobs), rows), EMPTY_LOGIT).flatten(1)
        return torch.cat([self.commit_head(token), edits], dim=1), self.value_head(token)
