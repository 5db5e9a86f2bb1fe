"""Rounds of exchange between the cluster's token and the sets of jobs, nodes and inference services."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

EMPTY_LOGIT = -1e8  # an empty slot has no valid edit; the value sb3-contrib gives masked actions


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


@dataclass(frozen=True)
class Context:
    """Which slots are occupied, which nodes are real and who holds what, for one batch."""

    occupied: Tensor  # (B, J) bool
    real: Tensor  # (B, N) bool
    held: Tensor  # (B, J, N) float32, see held_share
    index: Tensor  # (M,) int64 position of each occupied slot among the B * J slots
    row: Tensor  # (M,) int64 batch row of each occupied slot

    @classmethod
    def of(cls, jobs: Tensor, nodes: Tensor, occupancy: Tensor) -> Context:
        """Of the blocks of an observation; column 0 of jobs and nodes is 1 for what is there."""
        occupied = jobs[:, :, 0] > 0.5
        num_slots = occupied.shape[1]
        index = occupied.flatten().nonzero().squeeze(1)
        return cls(occupied, nodes[:, :, 0] > 0.5, held_share(occupancy, num_slots), index, index // num_slots)

    def spread(self, rows: Tensor, fill: float = 0.0) -> Tensor:
        """Rows (M, C) of the occupied slots put back into (B, J, C); empty slots get ``fill``."""
        batch, slots = self.occupied.shape
        full = torch.full((batch * slots, rows.shape[1]), fill, dtype=rows.dtype, device=rows.device)
        return full.index_copy(0, self.index, rows).reshape(batch, slots, -1)


class AttentionPool(nn.Module):
    """The token's view of a set: ``heads`` softmax-weighted means of its members."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = dense(width, heads * width, gain=1.0)

    def forward(self, token: Tensor, members: Tensor, present: Tensor | None) -> Tensor:
        """``token (B, D)``, ``members (B, M, D)``, ``present (B, M) bool`` or None: all -> ``(B, heads * D)``.

        Rows that are not present must be zero; a set without members pools to zeros.
        """
        batch, size, width = members.shape
        if size == 0:
            return token.new_zeros(batch, self.query.out_features)
        query = self.query(token).reshape(batch, self.heads, width)
        scores = query @ members.transpose(1, 2) / width**0.5
        if present is not None:
            scores = scores.masked_fill(~present[:, None, :], EMPTY_LOGIT)
        pooled: Tensor = scores.softmax(dim=2) @ members
        return pooled.reshape(batch, self.heads * width)


class Round(nn.Module):
    """One exchange between the cluster token, the nodes, the jobs and the services."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        seen = (1 + 3 * heads) * width
        self.pool_jobs = AttentionPool(width, heads)
        self.pool_nodes = AttentionPool(width, heads)
        self.pool_services = AttentionPool(width, heads)
        self.token_norm = nn.LayerNorm(seen)
        self.token_mlp = nn.Sequential(dense(seen, width), nn.ReLU(), dense(width, width, 1.0))
        self.job_norm = nn.LayerNorm(width)
        self.job_in = dense(width, width)
        self.token_in = dense(width, width)
        self.node_in = dense(width, width)
        self.job_out = dense(width, width, 1.0)
        self.service_norm = nn.LayerNorm(width)
        self.service_in = dense(width, width)
        self.token_to_service = dense(width, width)
        self.service_out = dense(width, width, 1.0)

    def forward(
        self, token: Tensor, jobs: Tensor, nodes: Tensor, services: Tensor, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        """``token (B, D)``, ``jobs (M, D)`` of the M occupied slots, ``nodes (B, N, D)``, ``services (B, V, D)``.

        Returns new token, jobs and services.
        """
        seen = (
            token,
            self.pool_jobs(token, context.spread(jobs), context.occupied),
            self.pool_nodes(token, nodes, context.real),
            self.pool_services(token, services, None),
        )
        token = token + self.token_mlp(self.token_norm(torch.cat(seen, dim=1)))
        on_nodes = (context.held @ self.node_in(nodes)).flatten(0, 1)[context.index]
        hidden = self.job_in(self.job_norm(jobs)) + self.token_in(token)[context.row] + on_nodes
        return token, jobs + self.job_out(hidden.relu()), self._inform(services, token)

    def _inform(self, services: Tensor, token: Tensor) -> Tensor:
        """Services that have read the token."""
        if services.shape[1] == 0:
            return services
        hidden = self.service_in(self.service_norm(services)) + self.token_to_service(token)[:, None]
        informed: Tensor = services + self.service_out(hidden.relu())
        return informed
