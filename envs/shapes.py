"""Kinds of placements that a job's speed depends on: the rows of the rate tables.

In the fitted model a shape is (GPU type, one node or several, GPUs); with measurements also each measured necklace
(GPUs per node, rotated to the least form), and (nodes, GPUs) for what is interpolated between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from envs.layout import MAX_REPLICAS
from envs.spec import ClusterSpec
from envs.tables import NECKLACE_BASE, NECKLACE_NODES, NODES_APART
from traces.profiles import ModelProfile, canonical_type

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Necklace = tuple[int, ...]


@dataclass(frozen=True)
class Shapes:
    """Shapes of a cluster, one row each; ``necklaces`` has () where only (nodes, GPUs) count."""

    types: tuple[str, ...]
    node_gpus: tuple[int, ...]  # of the largest node of each type
    type: Ints
    nodes: Ints
    gpus: Ints
    necklaces: tuple[Necklace, ...]
    pair: Ints  # (T, 17, 65)
    necklace: Ints  # (T, 9^4 or 1)

    @classmethod
    def of(cls, cluster: ClusterSpec, models: Sequence[ModelProfile]) -> Shapes:
        types = tuple(canonical_type(name) for name in cluster.types)
        rows: list[tuple[int, int, int, Necklace]] = []
        pair = np.full((len(types), NODES_APART + 1, MAX_REPLICAS + 1), -1, np.int64)
        measured = any(m.types[t].measured is not None for m in models for t in types if t in m.types)
        necklace = np.full((len(types), NECKLACE_BASE**NECKLACE_NODES if measured else 1), -1, np.int64)
        largest = []
        for t, name in enumerate(types):
            sizes = cluster.node_gpus[cluster.node_type == t]
            largest.append(int(sizes.max()))
            known = {n for m in models if name in m.types for n in _measured(m, name)}
            if known:
                _add_pairs(rows, pair[t], t, min(len(sizes), NODES_APART), largest[-1])
                for digits in sorted(known):
                    if len(digits) <= min(NECKLACE_NODES, len(sizes)) and max(digits) <= largest[-1]:
                        necklace[t, _code(digits)] = len(rows)
                        rows.append((t, len(digits), sum(digits), digits))
            else:
                _add_fitted(rows, pair[t], t)
        kind, nodes, gpus = np.array([row[:3] for row in rows], np.int64).T
        necklaces = tuple(row[3] for row in rows)
        return cls(types, tuple(largest), kind, nodes, gpus, necklaces, pair, necklace)

    @property
    def several(self) -> Ints:
        """(S,) 0: one node, 1: several."""
        return (self.nodes > 1).astype(np.int64)

    def packed(self, t: int, several: int) -> Ints:
        """(64,) shape of 1 .. 64 GPUs of type ``t`` on one node, or on the fewest but at least two; -1: none.

        What is impossible (one GPU on several nodes, more than a node has on one) is taken as the other.
        """
        found = np.full(MAX_REPLICAS, -1, np.int64)
        size = self.node_gpus[t]
        for n in range(1, MAX_REPLICAS + 1):
            digits = (n // 2, n - n // 2) if several and 1 < n <= size else pack(n, size)
            nodes = min(len(digits), NODES_APART)
            row = self.necklace[t, _code(digits)] if self._is_listed(digits) else -1
            found[n - 1] = row if row >= 0 else self.pair[t, nodes, n]
        return found

    def _is_listed(self, digits: Necklace) -> bool:
        return self.necklace.shape[1] > 1 and len(digits) <= NECKLACE_NODES and max(digits) < NECKLACE_BASE

    def times(self, model: ModelProfile, local: Sequence[Ints]) -> tuple[Floats, Floats]:
        """(S, O) times [s] of a micro-step without and with synchronisation for micro-batches (64, O) of each type.

        nan: outside what is measured.
        """
        micro = np.stack([local[t][n - 1] for t, n in zip(self.type, self.gpus, strict=True)]).astype(np.float64)
        grad, step = np.full(micro.shape, np.nan), np.full(micro.shape, np.nan)
        for t, name in enumerate(self.types):
            rows = np.flatnonzero(self.type == t)
            profile = model.types[name]
            if profile.measured is None:
                found = profile.throughput.times(self.several[rows, None], self.gpus[rows, None], micro[rows])
                grad[rows], step[rows] = found
                continue
            alone = np.array([r for r in rows if self.necklaces[r] not in profile.measured.necklaces], np.int64)
            nodes, gpus = (np.broadcast_to(x[alone, None], micro[alone].shape) for x in (self.nodes, self.gpus))
            whole, sync = profile.measured.times_many(nodes, gpus, micro[alone])
            step[alone], grad[alone] = whole, whole - sync
            for r in set(rows.tolist()) - set(alone.tolist()):
                whole, sync = profile.measured.times_on(self.necklaces[r], micro[r])
                step[r], grad[r] = whole, whole - sync
        return grad, step


def pack(gpus: int, node_gpus: int) -> Necklace:
    """GPUs a node on the fewest nodes of ``node_gpus``: a remainder, if any, and whole nodes."""
    rest = (gpus % node_gpus,) if gpus % node_gpus else ()
    return (*rest, *(node_gpus,) * (gpus // node_gpus))


def _measured(model: ModelProfile, gpu_type: str) -> set[Necklace]:
    measured = model.types[gpu_type].measured
    return set() if measured is None else set(measured.necklaces)


def _code(digits: Necklace) -> int:
    """The necklace as a number; the least rotation of ``digits``."""
    rotations = [digits[i:] + digits[:i] for i in range(len(digits))]
    code = 0
    for digit in min(rotations):
        code = code * NECKLACE_BASE + digit
    return code


def _add_pairs(rows: list[tuple[int, int, int, Necklace]], pair: Ints, t: int, nodes: int, size: int) -> None:
    """One shape for each number of nodes and GPUs that a placement may have."""
    for n in range(1, nodes + 1):
        for gpus in range(n, min(MAX_REPLICAS, n * size) + 1):
            pair[n, gpus] = len(rows)
            rows.append((t, n, gpus, ()))


def _add_fitted(rows: list[tuple[int, int, int, Necklace]], pair: Ints, t: int) -> None:
    """One shape for each number of GPUs on one node, and one on several."""
    for several in (0, 1):
        for gpus in range(1 + several, MAX_REPLICAS + 1):
            pair[1 if several == 0 else slice(2, None), gpus] = len(rows)
            rows.append((t, 1 + several, gpus, ()))
