"""Read-only tables that a run looks things up in: jobs, classes of elastic jobs, their speeds.

A class is what elastic jobs of a workload share: model and batch (one class a model when batches are tuned). A shape
is a kind of placement; a job's rate depends on class, epoch and shape only. envs/goodput.py fills the tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from envs.layout import MAX_REPLICAS, record_dtype

NODES_APART = 16  # placements on more nodes are looked up as ones on so many
NECKLACE_NODES, NECKLACE_BASE = 4, 9  # measured one by one: up to 4 nodes of up to 8 GPUs
FITTED_SHAPES = 2 * (MAX_REPLICAS + 1)  # of a GPU type in the fitted model: one node or several, and GPUs
FIRST_RUN = 50  # option of a tuned job that has never been observed

CLASS_DTYPE = record_dtype(
    [
        ("epochs", "i8"),
        ("progress_at", "i8"),  # first place in Tables.progress: work done by the end of each epoch
        ("rate_at", "i8"),  # in Tables.rate: [epoch][shape]
        ("shapes", "i8"),
        ("known_at", "i8"),  # in Tables.known: [epoch][type][one node, several][GPUs]
        ("known_shapes", "i8"),
        ("num_options", "i8"),
        ("options_at", "i8"),  # in Tables.local ...: [type][GPUs][option]
        ("times_at", "i8"),  # in Tables.grad_s, step_s: [shape][option]
        ("gradients_at", "i8"),  # in Tables.grad_sqr, grad_var: [epoch][measured batch]
        ("batches_at", "i8"),  # in Tables.batches
        ("num_batches", "i8"),
        ("init_batch", "f8"),
        ("work", "f8"),
        ("first_delay", "f8"),
        ("next_delay", "f8"),
    ]
)


class Tables(NamedTuple):
    """What the compiled core reads, one argument."""

    jobs: np.recarray  # (n,) JOB_DTYPE
    classes: np.recarray  # (C,) CLASS_DTYPE
    progress: npt.NDArray[np.float64]  # [iterations at M0]
    rate: npt.NDArray[np.float64]  # true speed [iterations at M0 per s]; nan: not measured
    known: npt.NDArray[np.float64]  # what schedulers know of it; 0: impossible
    pair: npt.NDArray[np.int64]  # (T, NODES_APART + 1, MAX_REPLICAS + 1) shape by nodes and GPUs; -1: none
    necklace: npt.NDArray[np.int64]  # (T, 9^4) or (T, 1) shape by necklace; -1: not measured
    local: npt.NDArray[np.int64]  # micro-batch of an option as goodput weighs it; 0: not possible
    run_local: npt.NDArray[np.int64]  # micro-batch that is run
    accum: npt.NDArray[np.int64]  # accumulation steps
    grad_s: npt.NDArray[np.float64]  # true time of a micro-step without synchronisation
    step_s: npt.NDArray[np.float64]  # true time of one with it
    batches: npt.NDArray[np.float64]  # batches at which gradients were measured
    grad_sqr: npt.NDArray[np.float64]
    grad_var: npt.NDArray[np.float64]


def plain(tables: Tables) -> Tables:
    """The same with plain arrays: numba looks up the type of an np.recarray in Python, 1-2 us each."""
    jobs: Any = tables.jobs.view(np.ndarray)
    classes: Any = tables.classes.view(np.ndarray)
    return tables._replace(jobs=jobs, classes=classes)
