"""Read-only tables that a run looks things up in: jobs, classes of elastic jobs, their speeds.

A class is what elastic jobs of a workload share: model and batch (one class a model when batches are tuned). A shape
is a kind of placement; a job's rate depends on class, epoch and shape only. envs/goodput.py fills the tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from envs.features import LAYER_GPUS
from envs.layout import MAX_REPLICAS, record_dtype

NODES_APART = 16  # placements on more nodes are looked up as ones on so many
NECKLACE_NODES, NECKLACE_BASE = 4, 9  # measured one by one: up to 4 nodes of up to 8 GPUs
NECKLACES = NECKLACE_BASE**NECKLACE_NODES
FITTED_SHAPES = 2 * (MAX_REPLICAS + 1)  # of a GPU type in the fitted model: one node or several, and GPUs
RELATIVES = 2 * len(LAYER_GPUS)  # of a GPU type in the table of goodput with frozen layers over that without
FIRST_RUN = 50  # option of a tuned job that has never been observed

CLASS_DTYPE = record_dtype(
    [
        # places in Tables.floats
        ("progress_at", "i8"),  # [epoch] work done by its end [iterations at M0]
        ("rate_at", "i8"),  # [depth][epoch][shape] true speed [iterations at M0 per s]; nan: not measured
        ("known_at", "i8"),  # [depth][epoch][type][one node, several][GPUs] what schedulers know of it; 0: impossible
        ("relative_at", "i8"),  # [depth][epoch][type][one node, several][LAYER_GPUS] x / (x + 1), x: over that at 0
        ("comm_at", "i8"),  # [depth][epoch][shape] share of an iteration that is communication, with stragglers
        ("noise_at", "i8"),  # [depth][epoch][shape] noise scale of the gradients over the total batch, with stragglers
        ("grad_at", "i8"),  # [shape][option] true time of a micro-step without synchronisation [s]
        ("step_at", "i8"),  # [shape][option] true time of one with it [s]
        ("batches_at", "i8"),  # [measured batch] batches at which gradients were measured
        ("sqr_at", "i8"),  # [epoch][measured batch] squared norm of the gradient
        ("var_at", "i8"),  # [epoch][measured batch] its variance
        # places in Tables.ints
        ("local_at", "i8"),  # [type][GPUs][option] micro-batch as goodput weighs it; 0: not possible
        ("run_local_at", "i8"),  # [type][GPUs][option] micro-batch that is run
        ("accum_at", "i8"),  # [type][GPUs][option] accumulation steps
        ("pair_at", "i8"),  # [type][nodes][GPUs] shape by nodes and GPUs; -1: none
        ("necklace_at", "i8"),  # [type][code] shape by necklace; -1: not measured. Itself -1: nothing was
        # sizes and facts
        ("epochs", "i8"),
        ("shapes", "i8"),
        ("known_shapes", "i8"),
        ("num_options", "i8"),
        ("num_batches", "i8"),
        ("init_batch", "f8"),
        ("work", "f8"),
        ("first_delay", "f8"),
        ("next_delay", "f8"),
    ]
)


class Tables(NamedTuple):
    """What the compiled core reads, one argument of few arrays: each costs 7 words at every call."""

    jobs: np.recarray  # (n,) JOB_DTYPE
    classes: np.recarray  # (C,) CLASS_DTYPE
    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]


def pair_place(gpu_type: int, nodes: int, gpus: int) -> int:
    """Place of a number of nodes and GPUs in the table of pairs."""
    return (gpu_type * (NODES_APART + 1) + min(nodes, NODES_APART)) * (MAX_REPLICAS + 1) + gpus


def plain(tables: Tables) -> Tables:
    """The same with plain arrays: numba looks up the type of an np.recarray in Python, 1-2 us each."""
    jobs: Any = tables.jobs.view(np.ndarray)
    classes: Any = tables.classes.view(np.ndarray)
    return tables._replace(jobs=jobs, classes=classes)
