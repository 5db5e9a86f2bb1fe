"""Edits of inference services: which idle pods stay warm.

Edit ``e`` of SERVICE_EDITS on service ``v`` is action ``1 + J * K + v * 2 + e``. It takes effect at once, not at the
commit: pods are inference's own, and training pays for no change of theirs.
"""

from __future__ import annotations

from enum import IntEnum

from envs.jit import jit
from envs.layout import POD_PROTECT, POD_SLEEP
from envs.pods import LONGEST_PROTECT_S, drop_idle, keep_idle


class ServiceEdit(IntEnum):
    """What one action does to the idle pods of one service."""

    KEEP = 0
    DROP = 1


SERVICE_EDITS: tuple[tuple[str, str], ...] = (
    ("keep", "protect its idle pods for 120 s (x protect_times) from now: nobody may take their GPUs"),
    ("drop", "end its idle pods: their GPUs are free for all, and its next task starts cold"),
)
NUM_SERVICE_EDITS = len(SERVICE_EDITS)


@jit
def mask_services(s, mask, first):
    """Write the validity of the edits of all services to ``mask[first:]``."""
    until = s.now + LONGEST_PROTECT_S * s.protect
    for g in range(s.num_gpus):
        state = s.pod_state[g]
        if state in (POD_SLEEP, POD_PROTECT):
            at = first + s.pod_service[g] * NUM_SERVICE_EDITS
            mask[at + ServiceEdit.DROP] = True
            if until > s.now and (state == POD_SLEEP or s.pod_until[g] < until):
                mask[at + ServiceEdit.KEEP] = True


@jit
def apply_service_edit(s, action):
    """Apply a valid edit; ``action`` counts from the first edit of the first service."""
    v = action // NUM_SERVICE_EDITS
    if action % NUM_SERVICE_EDITS == ServiceEdit.KEEP:
        keep_idle(s, v)
    else:
        drop_idle(s, v)
