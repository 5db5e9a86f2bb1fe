"""The record that is one cluster, whose fields envs/fields.py describes, and the codes in it.

A batch of clusters is an array of these records; a snapshot is a copy. Shapes are capacities, in a
few buckets, because each pair of capacities is compiled anew: J slots, N nodes, D = 8 N devices,
L = 64 levels, T = 8 GPU types, V = 64 services. Actual sizes are the fields ``num_slots``, ``num_nodes`` ...
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from envs.features import LAYER_COLUMNS
from envs.fields import FIELDS
from envs.online_fit import SCRATCH_ROWS
from envs.spec import MAX_TYPES, ClusterSpec, SimConfig, SpecError
from envs.straggler_calibration import KNOTS, check_sight, forecasts_of, usual_p
from envs.straggler_presets import GPU, IO, KINDS, STRAGGLER_PRESETS
from traces.sensitivity import SPEED_CLASSES

SLOT_BUCKETS = (64, 256, 1024, 4096, 16384, 65536, 262144)
NODE_BUCKETS = (16, 64, 256, 1024, 4096, 16384)
DEVICES_PER_NODE = 8  # capacity only: a node may have more if the cluster's devices fit in 8 N
NUM_LEVELS = 64
MAX_SERVICES = 64
MAX_MODULES = 16  # of a layer profile
# Tells the compiler that an index is not negative: else each access checks for Python's wrap-around.
NOT_NEGATIVE = 0x7FFFFFFF
FRONT_NOISE = 0.05  # standard deviation of a measurement of the front, share of the modules

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
# Who gives up a device to inference, as in SimConfig.reclaim.
RECLAIMS = ("ats", "lyra", "static")
ATS, LYRA, STATIC = 0, 1, 2
# How the workers of a job wait for each other, as in SimConfig.sync.
SYNC_MODES = ("synchronous", "backup", "drop", "asynchronous", "grouped", "lb-bsp")
SYNCHRONOUS, BACKUP, DROP, ASYNCHRONOUS, GROUPED, LB_BSP = range(6)
# Where straggler probabilities come from, as in SimConfig.straggler_obs.
SIGHTS = ("none", "oracle", "noisy", "ewma", "learned")
UNSEEN, ORACLE, NOISY, EWMA, LEARNED = range(5)
# States of a pod.
POD_STATES = ("none", "start", "running", "protect", "sleep")
NO_POD, POD_START, POD_RUNNING, POD_PROTECT, POD_SLEEP = 0, 1, 2, 3, 4
# An elastic job holds at most this many GPUs, as in Pollux's simulator.
MAX_REPLICAS = 64
MAX_POINTS = 128  # observations kept of a job's runs (knowledge online)
POINT = 5  # nodes, GPUs, micro-batch, gradient time, iteration time
PARAMETERS = 7  # of the throughput model


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
        ("service", "i8"),
        ("next_task", "i8"),
        ("start_up", "f8"),
        ("klass", "i8"),
        ("max_gpus", "i8"),
        ("row", "i8"),
        ("modules", "i8"),
        ("max_depth", "i8"),
        ("first_end", "f8"),
        ("last_end", "f8"),
        ("end_shape", "f8"),
        ("usual_first", "f8"),
        ("usual_last", "f8"),
        ("usual_at", "i8"),
        ("backup", "i8"),
        ("comm", "f8"),
        ("kappa", "f8", (3,)),
        ("speed_class", "i8"),
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
        ("warm", "i8"),
        ("residual", "f8"),
        ("depth_changes", "i8"),
        ("lost_gpu_s", "f8"),
        ("straggling_gpu_s", "f8"),
        ("slowed_s", "f8"),
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
def state_dtype(
    slots: int, nodes: int, online: bool = False, layered: bool = False, straggles: bool = False
) -> np.dtype[Any]:
    """Record type for a slot and a node capacity; with room for observations of each job, its layers, or stragglers."""
    straggling = nodes if straggles else 1
    points = (slots, MAX_POINTS) if online else (1, 1)
    sizes: dict[str, tuple[int, ...]] = {
        "J": (slots,),
        "N": (nodes,),
        "D": (nodes * DEVICES_PER_NODE,),
        "L": (NUM_LEVELS,),
        "T": (MAX_TYPES,),
        "V": (MAX_SERVICES,),
        "P": (len(POD_STATES),),
        "JO": (*points, POINT),
        "JF": (points[0], PARAMETERS),
        "JM": (slots if layered else 1, MAX_MODULES),
        "K": (len(KINDS),),
        "JK": (slots, GPU),
        "C": (straggling * (GPU + DEVICES_PER_NODE),),
        "B": (straggling, GPU),
        "NS": (straggling,),
        "NP": (straggling, 2, 2),
        "PP": (2, 2),
        "PK": (2, 2, len(KNOTS) if straggles else 1),
        "NO": (straggling, 2),
        "DQ": (straggling * DEVICES_PER_NODE, len(SPEED_CLASSES)),
        "JR": (slots if layered else 1, LAYER_COLUMNS + LAYER_COLUMNS % 2),  # even: no padding, which copies skip
        "S": (SCRATCH_ROWS + points[1], PARAMETERS),
    }
    return record_dtype([(f.name, f.dtype, sizes[f.shape]) if f.shape else (f.name, f.dtype) for f in FIELDS], True)


def make_state(
    batch: int, num_slots: int, cluster: ClusterSpec, config: SimConfig, layered: bool = False
) -> np.recarray:
    """``batch`` empty clusters, (B,) records, with ``num_slots`` job slots each, ``layered``: of jobs with layers."""
    config = config.resolve()
    online = config.knowledge == "online"
    straggles = config.stragglers != "none"
    dtype = state_dtype(bucket(num_slots, SLOT_BUCKETS), node_bucket(cluster), online, layered, straggles)
    states = np.zeros(batch, dtype).view(np.recarray)
    states["num_slots"] = num_slots
    states["layered"] = layered
    _set_cluster(states, cluster)
    _set_config(states, config, cluster)
    if straggles:
        _set_stragglers(states, config)
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


def _set_config(states: np.recarray, config: SimConfig, cluster: ClusterSpec) -> None:
    states["interval"] = config.interval_s
    states["event_driven"] = config.event_driven
    states["rescale_pause"] = config.rescale_s
    states["rescale_cost"] = RESCALE_COSTS.index(config.rescale_cost)
    states["online"] = config.knowledge == "online"
    states["pollux"] = config.as_pollux
    states["deepboot"] = config.compat == "deepboot"
    states["inference_first"] = cluster.num_nodes - config.count_inference_nodes(cluster)
    states["reclaim"] = RECLAIMS.index(config.reclaim)
    states["aiss"] = config.aiss
    states["protect"] = config.protect_times
    states["freeze_pause"] = config.freeze_s
    states["most_residual"] = config.most_residual
    states["front_noise"] = FRONT_NOISE if config.front == "noisy" else 0.0
    states["slo"] = config.slo_s
    states["interference"] = config.interference
    states["mtbf"] = config.node_mtbf_s
    states["mttr"] = config.node_mttr_s
    states["checkpoint"] = config.checkpoint_s
    states["placement_rule"] = PLACEMENTS.index(config.placement)
    states["select_by_count"] = config.select_by_count
    states["backfill"] = 1


def _set_stragglers(states: np.recarray, config: SimConfig) -> None:
    check_sight(config)
    preset = STRAGGLER_PRESETS[config.stragglers]
    states["straggles"] = 1
    states["straggler_load"] = config.straggler_load
    states["straggler_scale"] = config.straggler_rate
    states["fixed_times"] = config.straggler_times == "exponential"
    states["resync_pause"] = config.resync_s
    states["first_sync"] = SYNC_MODES.index(config.sync)
    states["sojourn"] = 3600.0 * preset.sojourn_h
    states["most_severe"] = preset.most_severe
    states["broken_share"] = preset.broken_share
    states["varies"] = config.gpu_variability
    states["sight"] = SIGHTS.index(config.straggler_obs)
    states["sight_noise"] = config.sight_noise
    states["usual_p"] = usual_p(config)
    states["forecasts"] = forecasts_of(config)
    states["good_detector"] = config.detector == "good"
    for kind, cause in enumerate(preset.causes):
        occurs = cause.excess * config.straggler_severity > 0 and (kind != IO or config.straggler_io)
        states["hot_share"][:, kind] = cause.hot_share
        states["least_rate"][:, kind] = cause.least_rate / 3600.0 if occurs else 0.0
        states["hot_rate"][:, kind] = cause.hot_rate / 3600.0 if occurs else 0.0
        states["episode_s"][:, kind] = 60.0 * cause.mean_min
        states["episode_log_sd"][:, kind] = cause.log_sd
        states["excess"][:, kind] = cause.excess * config.straggler_severity
        states["excess_log_sd"][:, kind] = cause.excess_log_sd


def grow_slots(states: np.recarray, num_slots: int) -> np.recarray:
    """The same clusters with room for ``num_slots`` jobs; slots keep their numbers."""
    old = int(states["num_slots"][0])
    nodes = states["node_gpus"].shape[1]
    extras = [bool(states[name][0]) for name in ("online", "layered", "straggles")]
    dtype = state_dtype(bucket(num_slots, SLOT_BUCKETS), nodes, *extras)
    grown = np.zeros(len(states), dtype).view(np.recarray)
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
