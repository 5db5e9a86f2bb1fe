"""The record that is one cluster: every field once, with type, shape, unit and meaning.

A batch of clusters is an array of these records; a snapshot is a copy. Shapes are capacities, in a
few buckets, because each pair of capacities is compiled anew: J slots, N nodes, D = 8 N devices,
L = 64 levels, T = 8 GPU types. Actual sizes are the fields ``num_slots``, ``num_nodes`` ...
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from envs.online_fit import SCRATCH_ROWS
from envs.spec import MAX_TYPES, ClusterSpec, SimConfig, SpecError

SLOT_BUCKETS = (64, 256, 1024, 4096, 16384, 65536, 262144)
NODE_BUCKETS = (16, 64, 256, 1024, 4096, 16384)
DEVICES_PER_NODE = 8  # capacity only: a node may have more if the cluster's devices fit in 8 N
NUM_LEVELS = 64

# Phases of a slot.
FREE, WAITING, RUNNING = 0, 1, 2
# Holders of a device other than a slot.
HOLDER_NONE, HOLDER_INFERENCE, HOLDER_SHARED, HOLDER_DOWN = -1, -2, -3, -4
# Status of a job in its result row.
UNFINISHED, COMPLETED, REJECTED, FAILED = 0, 1, 2, 3
JOB_STATUS = ("unfinished", "completed", "rejected", "failed")
# Status of a record; anything but OK stops it.
OK, SLOTS_FULL, STALLED, LOG_FULL, UNMEASURED = 0, 1, 2, 3, 4
RECORD_STATUS = (
    "ok",
    "no slot was free for an arrival",
    "it stalled",
    "its log of GPU intervals was full",
    "a placement outside the measured profile was chosen",
)
# Placement rules, as in SimConfig.placement.
PLACEMENTS = ("consolidated", "spread", "random", "count", "emptiest")
CONSOLIDATED, SPREAD, RANDOM, COUNT, EMPTIEST = 0, 1, 2, 3, 4
# What a change of an elastic job's GPUs costs, as in SimConfig.rescale_cost.
RESCALE_COSTS = ("constant", "restart", "afe", "helios")
CONSTANT, RESTART, AFE, HELIOS = 0, 1, 2, 3
# An elastic job holds at most this many GPUs, as in Pollux's simulator.
MAX_REPLICAS = 64
MAX_POINTS = 128  # observations kept of a job's runs (knowledge online)
POINT = 5  # nodes, GPUs, micro-batch, gradient time, iteration time
PARAMETERS = 7  # of the throughput model


class Field(NamedTuple):
    """One field of the record. ``shape`` names capacities: "" scalar, "J" per slot, ..."""

    name: str
    dtype: str
    shape: str
    unit: str
    meaning: str


FIELDS: tuple[Field, ...] = (
    # time and bookkeeping
    Field("now", "f8", "", "s", "current time"),
    Field("last_event", "f8", "", "s", "time of the last event"),
    Field("status_slot", "i8", "", "", "slot that the status is about"),
    Field("seed", "i8", "", "", "seed of all counter-based random numbers"),
    Field("status", "i8", "", "", "OK, or why the record stopped"),
    Field("rounds", "i8", "", "", "rounds of events at this instant (watchdog)"),
    Field("quiet_passes", "i8", "", "", "passes since the last arrival or completion (watchdog)"),
    Field("quiet_left", "f8", "", "s", "work left in all when the watchdog last looked"),
    Field("num_events", "i8", "", "", "events handled"),
    Field("num_passes", "i8", "", "", "scheduling passes"),
    Field("jct_integral", "f8", "", "job s", "integral of unfinished jobs over time"),
    # workload: rows job_lo .. job_hi - 1 of the job table
    Field("job_lo", "i8", "", "", "first row of the window"),
    Field("job_hi", "i8", "", "", "one past the last row"),
    Field("next_job", "i8", "", "", "next row to arrive"),
    Field("next_admit", "i8", "", "", "next arrived row to get a slot"),
    Field("origin", "f8", "", "s", "table time at which this record's clock shows 0"),
    Field("backlog_allowed", "i8", "", "", "1: jobs without a slot wait first-come; 0: stop with SLOTS_FULL"),
    Field("num_unfinished", "i8", "", "jobs", "arrived, neither finished nor rejected"),
    Field("num_completed", "i8", "", "jobs", "completed"),
    Field("num_rejected", "i8", "", "jobs", "rejected at arrival"),
    Field("has_elastic", "i8", "", "", "1: the workload has elastic jobs"),
    Field("has_shares", "i8", "", "", "1: the workload has fractions of devices"),
    # settings
    Field("interval", "f8", "", "s", "scheduling interval; 0: none"),
    Field("event_driven", "i8", "", "", "1: schedule at arrivals and completions"),
    Field("skip_idle", "i8", "", "", "1: skip interval passes before which nothing happened"),
    Field("pass_index", "i8", "", "", "next interval pass is at pass_index * interval"),
    Field("epochs_count", "i8", "", "", "1: an epoch's end is a reason for the next interval pass"),
    Field("dirty", "i8", "", "", "1: something happened since the last pass"),
    Field("rescale_pause", "f8", "", "s", "pause of a resumed or migrated job"),
    Field("rescale_cost", "i8", "", "", "CONSTANT, RESTART, AFE or HELIOS"),
    Field("checkpoint", "f8", "", "s", "work between checkpoints; 0: lossless"),
    Field("placement_rule", "i8", "", "", "CONSOLIDATED, SPREAD, RANDOM, COUNT or EMPTIEST"),
    Field("online", "i8", "", "", "1: schedulers know fits of what each job has run in"),
    Field("tuned", "i8", "", "", "1: elastic jobs choose their batch size"),
    Field("pollux", "i8", "", "", "1: whole seconds, and nodes in the order taken, as in Pollux's simulator"),
    Field("interference", "f8", "", "", "share of speed that distributed jobs on a common node lose"),
    Field("mtbf", "f8", "", "s", "mean time until a node fails; 0: never"),
    Field("mttr", "f8", "", "s", "mean time until it is up again"),
    Field("select_by_count", "i8", "", "", "1: preemptive passes choose jobs by GPU count alone"),
    # ordering rule
    Field("order_key", "i8", "", "", "Key of the list scheduler and of the waiting list"),
    Field("preemptive", "i8", "", "", "1: running jobs compete too"),
    Field("backfill", "i8", "", "", "1: jobs behind one that does not fit may start"),
    Field("num_limits", "i8", "", "", "limits in use"),
    Field("limits", "f8", "L", "GPU-s", "service at which the level rises"),
    Field("values", "f8", "L", "", "Gittins index of each level"),
    Field("promote", "f8", "", "", "starvation factor; 0: off"),
    Field("quantum", "f8", "", "s", "time between comparisons of attained service; 0: off"),
    # slots
    Field("num_slots", "i8", "", "", "slots in use"),
    Field("num_running", "i8", "", "", "length of running"),
    Field("num_waiting", "i8", "", "", "length of waiting"),
    Field("num_free_slots", "i8", "", "", "length of free_slots"),
    Field("running", "i8", "J", "slot", "running jobs, by key as of the last pass"),
    Field("waiting", "i8", "J", "slot", "waiting jobs in order of their key"),
    Field("next_finish", "f8", "", "s", "earliest finish of a running job; inf: none"),
    Field("settled", "i8", "", "", "1: no waiting job comes before a running one, and none will by itself"),
    Field("free_slots", "i8", "J", "slot", "stack of free slots"),
    Field("job_id", "i8", "J", "", "row of the job table, relative to job_lo"),
    Field("phase", "i8", "J", "", "FREE, WAITING or RUNNING (committed)"),
    Field("request", "i8", "J", "GPUs", "devices requested"),
    Field("share", "i8", "J", "1/1000 GPU", "share of each device"),
    Field("demand", "f8", "J", "GPUs", "request * share / 1000; of a running elastic job what it holds"),
    Field("klass", "i8", "J", "", "row of Tables.classes; -1: rigid"),
    Field("max_gpus", "i8", "J", "GPUs", "most it may hold"),
    Field("epoch", "i8", "J", "", "present epoch of an elastic job, from 0"),
    Field("shape_id", "i8", "J", "", "row of the rate tables for its placement"),
    Field("factor", "f8", "J", "", "1, or what interference leaves of the rate"),
    Field("option", "i8", "J", "", "batch it runs: column of the tables of batches"),
    Field("profiled", "i8", "J", "GPUs", "most GPUs it has been observed on"),
    Field("seen_sqr", "f8", "J", "", "squared norm of the gradient last seen"),
    Field("seen_var", "f8", "J", "", "its variance"),
    Field("num_points", "i8", "J", "", "observations"),
    Field("points", "f8", "JO", "", "observations: nodes, GPUs, micro-batch, gradient time, iteration time"),
    Field("fitted", "f8", "JF", "", "throughput parameters fitted to them"),
    Field("stale", "i8", "J", "", "1: there are observations that fitted does not know"),
    Field("fit_scratch", "f8", "S", "", "scratch of the fit"),
    Field("gpu_type", "i8", "J", "", "required type; -1: any single type"),
    Field("pinned", "i8", "J", "", "1: must not be preempted"),
    Field("arrival", "f8", "J", "s", "arrival"),
    Field("estimate", "f8", "J", "s", "what schedulers know of the duration; 0: nothing"),
    Field("extra_work", "f8", "J", "s", "work added by preemptions"),
    Field("work", "f8", "J", "s", "work in all; of an elastic job in iterations at its initial batch"),
    Field("done", "f8", "J", "s", "work done at anchor"),
    Field("target", "f8", "J", "s", "work at which the present stretch ends: an epoch's end, or work"),
    Field("rate", "f8", "J", "1/s", "work a second; 1: rigid"),
    Field("anchor", "f8", "J", "s", "time from which the job progresses at this rate"),
    Field("pause_end", "f8", "J", "s", "end of the last pause, or of none"),
    Field("finish", "f8", "J", "s", "end of the present stretch if nothing changes; inf: waiting"),
    Field("saved", "f8", "J", "s", "elastic: work done at the last checkpoint known of"),
    Field("saved_at", "f8", "J", "s", "elastic: when that was"),
    Field("first_start", "f8", "J", "s", "first start; nan: none yet"),
    Field("held_since", "f8", "J", "s", "when the present hold of GPUs began or changed"),
    Field("service", "f8", "J", "GPU-s", "GPU-time held before held_since"),
    Field("paused_gpu_s", "f8", "J", "GPU-s", "of it spent in pauses"),
    Field("waiting_since", "f8", "J", "s", "when it last began to wait"),
    Field("queueing_delay", "f8", "J", "s", "time waited before waiting_since"),
    Field("num_starts", "i8", "J", "", "starts and resumes"),
    Field("num_rescales", "i8", "J", "", "changes of nodes or count while running"),
    Field("num_preemptions", "i8", "J", "", "times all GPUs were taken"),
    Field("level", "i8", "J", "", "limits reached"),
    Field("level_service", "f8", "J", "GPU-s", "service since level 0 was last entered, at level_since"),
    Field("level_since", "f8", "J", "s", "when it last began to run or crossed a level"),
    Field("level_time", "f8", "J", "s", "next crossing if the job keeps running"),
    Field("level_started", "i8", "J", "", "1: has run since it last entered level 0"),
    Field(
        "level_wait", "f8", "J", "s", "waiting time at level 1 or more since it last entered level 0, at waiting_since"
    ),
    Field("start_time", "f8", "J", "s", "first start since it last entered level 0"),
    Field("enter_time", "f8", "J", "s", "arrival or promotion"),
    Field("key1", "f8", "J", "", "first sort key"),
    Field("key2", "f8", "J", "", "second sort key"),
    # what each slot holds now (inside a pass: would hold if it were committed)
    Field("gpus", "i8", "J", "GPUs", "devices held"),
    Field("first_gpu", "i8", "J", "device", "head of the list of devices held; -1: none"),
    Field("node_hash", "i8", "J", "", "order-free hash of the nodes of the devices held"),
    Field("num_nodes_held", "i8", "J", "nodes", "nodes spanned"),
    Field("held_gpus", "i8", "J", "GPUs", "devices held at the last commit"),
    Field("held_hash", "i8", "J", "", "node_hash at the last commit"),
    Field("taken_at", "f8", "J", "s", "when a fraction of a device was taken"),
    Field("touched", "i8", "J", "", "1: listed in touched_slots"),
    Field("num_touched", "i8", "", "", "length of touched_slots"),
    Field("touched_slots", "i8", "J", "slot", "slots whose holding changed in this pass"),
    # nodes and devices
    Field("num_nodes", "i8", "", "", "nodes in use"),
    Field("num_gpus", "i8", "", "GPUs", "devices in use"),
    Field("num_types", "i8", "", "", "GPU types in use"),
    Field("max_node_gpus", "i8", "T", "GPUs", "largest node of each type"),
    Field("type_gpus", "i8", "T", "GPUs", "devices of each type"),
    Field("type_free", "i8", "T", "GPUs", "wholly free devices of each type"),
    Field("node_type", "i8", "N", "", "type of each node"),
    Field("node_gpus", "i8", "N", "GPUs", "devices of each node"),
    Field("node_free", "i8", "N", "GPUs", "wholly free devices of each node"),
    Field("node_first", "i8", "N", "device", "first device of each node"),
    Field("gpu_node", "i8", "D", "", "node of each device"),
    Field("gpu_holder", "i8", "D", "", "slot that holds it, or a HOLDER_ value"),
    Field("gpu_next", "i8", "D", "device", "next device of the same holder; -1: last"),
    Field("gpu_free_milli", "i8", "D", "1/1000 GPU", "free share"),
    Field("gpu_since", "f8", "D", "s", "when it was taken"),
    Field("type_up", "i8", "T", "GPUs", "devices of each type on nodes that are up"),
    Field("node_down", "i8", "N", "", "1: failed"),
    Field("node_toggle", "f8", "N", "s", "when it fails or is up again"),
    Field("node_toggles", "i8", "N", "", "failures and repairs so far"),
    Field("next_toggle", "f8", "", "s", "earliest of these times"),
    Field("log_len", "i8", "", "", "rows written to the log of GPU intervals"),
    # reinforcement-learning environment (unused by simulate())
    Field("episode", "i8", "", "", "episodes begun with this seed"),
    Field("window", "i8", "", "", "first job of the episode's window"),
    Field("last_window", "i8", "", "", "first job of the window before"),
    Field("horizon", "f8", "", "s", "the episode is truncated at this time"),
    Field("edit_budget", "i8", "", "", "edits allowed in a pass"),
    Field("edits_left", "i8", "", "", "edits left in this pass"),
    Field("objective", "i8", "", "", "what the running reward integrates: JOB_TIME, TIME or NOTHING"),
    Field("reward_scale", "f8", "", "", "divisor of the reward"),
    Field("rewarded", "f8", "", "", "integral already paid out as reward"),
    Field("needs_reset", "i8", "", "", "1: the episode is over"),
    # scratch of the placement rules and the list scheduler
    Field("target_node", "i8", "N", "", "nodes of the placement found"),
    Field("target_count", "i8", "N", "GPUs", "devices on each"),
    Field("scratch_free", "i8", "N", "GPUs", "free devices if some jobs were evicted"),
    Field("scratch_left", "i8", "N", "GPUs", "free devices not yet taken while a placement is looked for"),
    Field("scratch_milli", "i8", "D", "1/1000 GPU", "free share if some jobs were evicted"),
    Field("scratch_rank", "f8", "N", "", "random order of nodes"),
    Field("scratch_quota", "i8", "T", "1/1000 GPU", "GPU-time shares not yet given away in the walk"),
    Field("walk_state", "i8", "J", "", "what the walk has decided for a slot"),
)


def record_dtype(fields: list[Any], align: bool = False) -> np.dtype[Any]:
    """A dtype that an ``np.recarray`` keeps as it is.

    Every array of a kind must have the same dtype object: numba looks types up by it, and compares two objects
    field by field, 6 us a call for the record of a cluster.
    """
    return np.dtype((np.record, np.dtype(fields, align=align)))


JOB_DTYPE = record_dtype(
    [
        ("arrival", "f8"),
        ("work", "f8"),
        ("estimate", "f8"),
        ("deadline", "f8"),
        ("num_gpus", "i8"),
        ("share_milli", "i8"),
        ("gpu_type", "i8"),
        ("pinned", "i8"),
        ("kind", "i8"),
        ("klass", "i8"),
        ("max_gpus", "i8"),
        ("isolated_s", "f8"),
        ("serial_s", "f8"),
        ("longest_pause", "f8"),
        ("tenant", "i8"),
        ("fits", "i8"),
    ]
)
RESULT_DTYPE = record_dtype(
    [
        ("first_start", "f8"),
        ("finish", "f8"),
        ("queueing_delay", "f8"),
        ("service", "f8"),
        ("paused_gpu_s", "f8"),
        ("num_rescales", "i8"),
        ("num_preemptions", "i8"),
        ("status", "i8"),
    ]
)
LOG_DTYPE = record_dtype([("gpu", "i8"), ("job", "i8"), ("start", "f8"), ("end", "f8")])


def bucket(size: int, buckets: tuple[int, ...]) -> int:
    """The smallest capacity that holds ``size``."""
    for capacity in buckets:
        if size <= capacity:
            return capacity
    raise SpecError(f"{size} is more than the largest capacity {buckets[-1]}")


def node_bucket(cluster: ClusterSpec) -> int:
    """Node capacity for a cluster; 8 devices a node on average must suffice."""
    nodes = max(cluster.num_nodes, -(-cluster.num_gpus // DEVICES_PER_NODE))
    if nodes > NODE_BUCKETS[-1]:
        raise SpecError(
            f"cluster {cluster} is too large: at most {NODE_BUCKETS[-1]} nodes and "
            f"{NODE_BUCKETS[-1] * DEVICES_PER_NODE} GPUs can be simulated"
        )
    return bucket(nodes, NODE_BUCKETS)


@cache
def state_dtype(slots: int, nodes: int, online: bool = False) -> np.dtype[Any]:
    """Record type for a slot and a node capacity; ``online``: with room for observations of each job."""
    points = (slots, MAX_POINTS) if online else (1, 1)
    sizes: dict[str, tuple[int, ...]] = {
        "J": (slots,),
        "N": (nodes,),
        "D": (nodes * DEVICES_PER_NODE,),
        "L": (NUM_LEVELS,),
        "T": (MAX_TYPES,),
        "JO": (*points, POINT),
        "JF": (points[0], PARAMETERS),
        "S": (SCRATCH_ROWS + points[1], PARAMETERS),
    }
    return record_dtype([(f.name, f.dtype, sizes[f.shape]) if f.shape else (f.name, f.dtype) for f in FIELDS], True)


def make_state(batch: int, num_slots: int, cluster: ClusterSpec, config: SimConfig) -> np.recarray:
    """``batch`` empty clusters, (B,) records, with ``num_slots`` job slots each."""
    config = config.resolve()
    online = config.knowledge == "online"
    dtype = state_dtype(bucket(num_slots, SLOT_BUCKETS), node_bucket(cluster), online)
    states = np.zeros(batch, dtype).view(np.recarray)
    states["num_slots"] = num_slots
    _set_cluster(states, cluster)
    _set_config(states, config)
    return states


def _set_cluster(states: np.recarray, cluster: ClusterSpec) -> None:
    node_gpus, node_type, n = cluster.node_gpus, cluster.node_type, cluster.num_nodes
    states["num_nodes"] = n
    states["num_gpus"] = cluster.num_gpus
    states["num_types"] = len(cluster.types)
    states["node_gpus"][:, :n] = node_gpus
    states["node_type"][:, :n] = node_type
    states["node_first"][:, :n] = np.cumsum(node_gpus) - node_gpus
    states["gpu_node"][:, : cluster.num_gpus] = np.repeat(np.arange(n), node_gpus)
    for t in range(len(cluster.types)):
        states["max_node_gpus"][:, t] = node_gpus[node_type == t].max()
        states["type_gpus"][:, t] = node_gpus[node_type == t].sum()


def _set_config(states: np.recarray, config: SimConfig) -> None:
    states["interval"] = config.interval_s
    states["event_driven"] = config.event_driven
    states["rescale_pause"] = config.rescale_s
    states["rescale_cost"] = RESCALE_COSTS.index(config.rescale_cost)
    states["online"] = config.knowledge == "online"
    states["pollux"] = config.compat == "pollux"
    states["interference"] = config.interference
    states["mtbf"] = config.node_mtbf_s
    states["mttr"] = config.node_mttr_s
    states["checkpoint"] = config.checkpoint_s
    states["placement_rule"] = PLACEMENTS.index(config.placement)
    states["select_by_count"] = config.select_by_count
    states["backfill"] = 1


def grow_slots(states: np.recarray, num_slots: int) -> np.recarray:
    """The same clusters with room for ``num_slots`` jobs; slots keep their numbers."""
    old = int(states["num_slots"][0])
    nodes = states["node_gpus"].shape[1]
    online = bool(states["online"][0])
    grown = np.zeros(len(states), state_dtype(bucket(num_slots, SLOT_BUCKETS), nodes, online)).view(np.recarray)
    for f in FIELDS:
        if f.shape.startswith("J"):
            grown[f.name][:, : states[f.name].shape[1]] = states[f.name]
        else:
            grown[f.name] = states[f.name]
    grown["num_slots"] = num_slots
    grown["first_gpu"][:, old:] = -1
    # Slots are taken from the end of the stack: the lowest new one first.
    for s in grown:
        free = int(s.num_free_slots)
        s.free_slots[num_slots - old : num_slots - old + free] = s.free_slots[:free].copy()
        s.free_slots[: num_slots - old] = np.arange(num_slots - 1, old - 1, -1)
        s.num_free_slots = free + num_slots - old
    return grown
