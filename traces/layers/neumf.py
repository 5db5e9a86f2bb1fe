"""NeuMF (He et al., WWW'17) for MovieLens-1M: 32 factors, three layers, as Pollux trains it.

A unit takes and returns the pair (MLP's vector, product of the factors), which meet in the prediction.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from traces.layers.workload import Workload, chain

USERS, ITEMS, FACTORS = 6040, 3706, 32
Pair = tuple[Tensor, Tensor]


class Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        sizes = ((USERS, FACTORS), (ITEMS, FACTORS), (USERS, 4 * FACTORS), (ITEMS, 4 * FACTORS))
        self.tables = nn.ModuleList(nn.Embedding(*size) for size in sizes)

    def forward(self, pairs: Tensor) -> Pair:
        """pairs (batch, 2) int64: user and item."""
        user, item, user_deep, item_deep = (table(pairs[:, at % 2]) for at, table in enumerate(self.tables))
        return torch.cat([user_deep, item_deep], -1), user * item


class Layer(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, inputs // 2)

    def forward(self, state: Pair) -> Pair:
        deep, product = state
        return functional.relu(self.linear(deep)), product


class Predict(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * FACTORS, 1)

    def forward(self, state: Pair) -> Tensor:
        out: Tensor = self.linear(torch.cat(state, -1))
        return out.squeeze(-1)


def neumf_ml1m(batch: int) -> Workload:
    units: dict[str, nn.Module] = {"embeddings": Embeddings()}
    units |= {f"mlp{number}": Layer(8 * FACTORS // 2**at) for at, number in enumerate((1, 2, 3))}
    units["predict"] = Predict()
    pairs = torch.stack([torch.randint(USERS, (batch,)), torch.randint(ITEMS, (batch,))], 1)
    seen = torch.randint(2, (batch,)).float()

    def loss(scores: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(scores, seen)

    return Workload(chain(units), (pairs,), loss, optimizer="adam")
