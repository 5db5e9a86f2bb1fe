"""Stand-ins for a ClusterView with stragglers, for schedulers that choose devices."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from envs.order import ListOrder
from envs.straggler_presets import STRAGGLER_PRESETS

DEFAULTS = {
    "gpus": 1,  # requested
    "held": None,  # by node; None: it waits
    "key": 0.0,  # of the order
    "share": 1000,
    "type": -1,
    "elastic": False,
    "preemptible": True,
    "left": 36000.0,
    "waited": 0.0,
    "restarts": 0,
    "comm": 0.2,
    "kappa": (1.0, 1.0, 1.0),
    "class": 0,
    "slowdown": 1.0,
    "sync": 0,
}
CONFIG = {
    "stragglers": "contention",
    "sync": "synchronous",
    "interval_s": 60.0,
    "rescale_s": 180.0,
    "resync_s": 5.0,
    "straggler_io": False,
}


class Gives:
    """A host in Python that gives what it is told, by slot."""

    name = "gives"
    batch = "fixed"

    def __init__(self, decision):
        self.decision = decision
        self.resets = 0

    def reset(self, view):
        self.resets += 1

    def allocate(self, view):
        return self.decision


class Rule:
    """A host that is a rule."""

    name = "rule"
    batch = "fixed"

    def __init__(self, order):
        self._order = order

    def order(self) -> ListOrder:
        return self._order


def straggler_view(
    jobs,
    *,
    node_gpus=(4, 4),
    node_type=None,
    p=0.05,
    load=0.2,
    flagged=(),
    ratio=1.0,
    speed=None,
    now=0.0,
    seed=0,
    **config,
):
    """A view of ``jobs``, dicts of what differs from DEFAULTS; they lie in descending slots, and slot 0 is not in use.

    ``p``, ``load`` and ``ratio`` are broadcast to (N, 2, 2), (N, 2) and (N, 2); ``flagged`` lists (node, cause);
    ``speed`` (D,) of all classes.
    """
    nodes, count = len(node_gpus), len(jobs)
    jobs = [{**DEFAULTS, **job} for job in jobs]
    by_slot = [None, *jobs[::-1]]
    empty = {**DEFAULTS, "gpus": 0, "share": 0, "left": 0.0}

    def column(name, dtype=np.float64):
        return np.array([(job or empty)[name] for job in by_slot], dtype)

    holder, device = _devices(by_slot, node_gpus)
    slots = np.arange(count, 0, -1)
    running = np.array([bool(job and job["held"]) for job in by_slot])
    waiting = np.array([bool(job and not job["held"]) for job in by_slot])
    held = np.array([sum(job["held"]) if job and job["held"] else 0 for job in by_slot])
    key, slowdown = column("key"), column("slowdown")
    flags = np.zeros((nodes, 2), bool)
    for place in flagged:
        flags[place] = True
    speed = np.ones(len(holder)) if speed is None else np.asarray(speed, float)
    seen = SimpleNamespace(
        p=np.broadcast_to(p, (nodes, 2, 2)).astype(float),
        load=np.broadcast_to(load, (nodes, 2)).astype(float),
        ratio=np.broadcast_to(ratio, (nodes, 2)).astype(float),
        flagged=flags,
        slowdown=lambda wanted: slowdown[wanted],
        gpu_speed=np.repeat(speed[:, None], 3, axis=1),
        speed_class=column("class", np.int64),
        comm_share=column("comm"),
        sensitivity=column("kappa"),
        sync=column("sync", np.int64),
        preset=STRAGGLER_PRESETS["contention"],
    )
    node_type = np.zeros(nodes, np.int64) if node_type is None else np.array(node_type)
    node = np.repeat(np.arange(nodes), node_gpus)
    return SimpleNamespace(
        now=now,
        seed=seed,
        num_slots=count + 1,
        slots=slots,
        job_id=np.array([-1, *range(count - 1, -1, -1)]),
        running=running,
        waiting=waiting,
        gpus=held,
        num_gpus=column("gpus", np.int64),
        max_gpus=np.where(column("elastic", bool), 64, column("gpus", np.int64)),
        share_milli=column("share", np.int64),
        gpu_type=column("type", np.int64),
        elastic=column("elastic", bool),
        preemptible=column("preemptible", bool),
        remaining=column("left"),
        service=np.zeros(count + 1),
        queueing_delay=column("waited"),
        num_restarts=column("restarts", np.int64),
        first_start=np.where(running, 0.0, np.nan),
        gpu_holder=holder,
        device=device,
        node_gpus=np.array(node_gpus),
        node_type=node_type,
        node_free=np.bincount(node[holder == -1], minlength=nodes),
        node_pods=np.zeros(nodes, np.int64),
        cluster=SimpleNamespace(types=tuple(f"t{t}" for t in range(node_type.max() + 1))),
        config=SimpleNamespace(**{**CONFIG, **config}),
        ranked=lambda order: slots[np.argsort(key[slots], kind="stable")],
        stragglers=seen,
    )


def _devices(by_slot, node_gpus):
    """Holder of each device (-3: shared), and a device of each slot: the lowest free ones, in order of job."""
    first = np.cumsum(node_gpus) - node_gpus
    holder, spare = np.full(sum(node_gpus), -1), np.full(sum(node_gpus), 1000)
    device = np.full(len(by_slot), -1)
    for slot in range(len(by_slot) - 1, 0, -1):
        job = by_slot[slot]
        for n, count in enumerate(job["held"] or ()):
            own = np.arange(first[n], first[n] + node_gpus[n])
            taken = own[spare[own] >= job["share"]][:count]
            assert len(taken) == count, "the view is overfull"
            spare[taken] -= job["share"]
            holder[taken] = slot if job["share"] == 1000 else -3
            device[slot] = taken[0] if count else device[slot]
    return holder, device


def rows_of(decision, view):
    """Rows by job of a decision for ``view``, as lists; of one that changes nothing what they hold."""
    if decision.placement is None:
        assert decision.gpus.tolist() == view.gpus.tolist()
        return held_rows(view)
    assert decision.placement[0].sum() == 0, "the slot that is not in use"
    return decision.placement[view.slots].tolist()


def held_rows(view):
    """What each job holds by node, as lists."""
    node = np.repeat(np.arange(len(view.node_gpus)), view.node_gpus)
    rows = np.zeros((view.num_slots, len(view.node_gpus)), int)
    for slot in view.slots:
        np.add.at(rows[slot], node[view.gpu_holder == slot], 1)
        if 0 < view.share_milli[slot] < 1000 and view.running[slot]:
            rows[slot, node[view.device[slot]]] = 1
    return rows[view.slots].tolist()


def decide(scheduler, view):
    """Rows by job of a fresh run's first decision."""
    scheduler.reset(view)
    return rows_of(scheduler.allocate(view), view)


def check_valid(decision, view):
    """That a decision keeps to what the simulator checks, and to what all layers allow."""
    placement = decision.placement
    if placement is None:
        assert decision.gpus.tolist() == view.gpus.tolist()
        return
    gpus = np.asarray(decision.gpus)
    assert (placement >= 0).all()
    assert placement.sum(axis=1).tolist() == gpus.tolist()
    whole = view.share_milli == 1000
    assert (placement[whole].sum(axis=0) <= view.node_gpus).all()
    for slot in view.slots:
        if gpus[slot]:
            assert view.elastic[slot] or gpus[slot] == view.num_gpus[slot]
            kinds = set(view.node_type[placement[slot] > 0].tolist())
            assert len(kinds) == 1
            assert view.gpu_type[slot] in (-1, *kinds)
            new = placement[slot].tolist() != held_rows(view)[view.slots.tolist().index(slot)]
            if new and not view.elastic[slot] and gpus[slot] <= view.node_gpus.min():
                assert np.count_nonzero(placement[slot]) == 1
        elif view.running[slot]:
            assert view.preemptible[slot]
