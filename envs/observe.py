"""Writing an agent's observation: the columns of envs/features.py, block by block."""

from __future__ import annotations

from envs.devices import WHOLE
from envs.features import (
    CLUSTER_COLUMNS,
    GOODPUTS,
    JOB_COLUMNS,
    NO_DEVICE,
    NODE_COLUMNS,
    OFFSET,
    SERVICE_COLUMNS,
    SLOPE,
    TILE,
)
from envs.jit import jit, jit_inline
from envs.layout import ATS, NOT_NEGATIVE, RUNNING
from envs.observe_layers import fill_layers, refresh_layers
from envs.observe_pods import squash, write_services
from envs.online import fitted_goodput
from envs.rates import known_rate
from envs.reclaim import cheapest_node, fair_share
from envs.spec import MAX_TYPES
from envs.tables import FITTED_SHAPES


@jit
def write_cluster(s, row):
    """Write the cluster block."""
    free = most = largest = 0
    for n in range(s.num_nodes):
        free += s.node_free[n]
        most = max(most, s.node_free[n])
        largest = max(largest, s.node_gpus[n])
    row[0] = free / s.num_gpus
    row[1] = most / largest
    row[2] = squash(s.num_waiting, 16.0)
    row[3] = squash(s.num_running, 16.0)
    row[4] = squash(s.num_unfinished - s.num_waiting - s.num_running, 64.0)
    row[5] = (s.job_hi - s.next_job) / max(1, s.job_hi - s.job_lo)
    row[6] = s.edits_left / s.edit_budget
    open_gpus = 0
    for t in range(s.num_types):
        open_gpus += s.type_up[t]
    row[7] = open_gpus / s.num_gpus
    row[8] = squash(s.num_queued, 16.0)


@jit
def write_nodes(s, row, first):
    """Write the nodes block, which starts at ``row[first]``."""
    size, squashed = 0, 0.0
    for n in range(s.num_nodes):
        at = (first + n * NODE_COLUMNS) & NOT_NEGATIVE
        if s.node_gpus[n] != size:
            size = s.node_gpus[n]
            squashed = squash(size, 8.0)
        row[at] = 1.0
        row[at + 1] = s.node_free[n] / size
        row[at + 2] = squashed
        row[at + 3] = (s.node_type[n] + 1) / MAX_TYPES
        row[at + 4] = s.node_pods[n] / size
        row[at + 5] = s.node_asleep[n] / size


@jit
def write_free(s, row, first):
    """Write the only column of the nodes block that an edit changes where there is no inference."""
    for n in range(s.num_nodes):
        row[(first + n * NODE_COLUMNS + 1) & NOT_NEGATIVE] = s.node_free[n] / s.node_gpus[n]


@jit
def write_occupancy(s, row, first, width):
    """Write the occupancy block: ``width`` places a node."""
    if s.num_nodes * width == s.num_gpus:  # equal nodes: devices are numbered as places are
        block = row[first : first + s.num_gpus]
        for g in range(block.shape[0]):
            block[g] = s.gpu_holder[g]
        return
    for n in range(s.num_nodes):
        at = (first + n * width) & NOT_NEGATIVE
        for i in range(s.node_gpus[n]):
            row[at + i] = s.gpu_holder[s.node_first[n] + i]
        for i in range(s.node_gpus[n], width):
            row[at + i] = NO_DEVICE


@jit_inline
def write_job(s, w, j, row, at):
    """Write the row of slot ``j``'s job, which starts at ``row[at]``, its last columns not yet squashed."""
    done, service, waited, pause = s.done[j], s.service[j], s.queueing_delay[j], 0.0
    if s.phase[j] == RUNNING:
        done += s.rate[j] * max(0.0, s.now - s.anchor[j])
        pause = max(0.0, s.anchor[j] - s.now)
        service += s.demand[j] * (s.now - s.held_since[j])
    else:
        waited += s.now - s.waiting_since[j]
    known = s.estimate[j] > 0
    elastic = s.klass[j] >= 0
    total = s.estimate[j] + s.extra_work[j]
    left = 0.0
    if known:
        left = max(0.0, s.estimate[j] * (1.0 - done / s.work[j]) if elastic else total - done)
    row[at] = 1.0
    row[at + 1] = s.gpus[j] > 0
    row[at + 2] = s.held_gpus[j] > 0
    row[at + 3] = s.request[j] / s.num_gpus
    row[at + 4] = s.share[j] * 0.001
    row[at + 5] = known
    row[at + 6] = 1.0 - left / total if known else 0.0
    row[at + 7] = 1 - s.pinned[j]
    row[at + 8] = elastic
    row[at + 9] = s.gpus[j] / s.num_gpus
    row[at + 10] = min(1.0, s.max_gpus[j] / s.num_gpus)
    row[at + 11] = s.yields[j]
    row[at + 12] = s.request[j]
    row[at + 13] = s.now - s.arrival[j]
    row[at + 14] = waited
    row[at + 15] = service
    row[at + 16] = left
    row[at + 17] = left
    row[at + 18] = left * s.request[j] * s.share[j] * 0.001
    row[at + 19] = pause
    row[at + 20] = s.num_preemptions[j]
    row[at + 21] = s.num_rescales[j]
    row[at + 22] = s.num_nodes_held[j]
    row[at + JOB_COLUMNS - 1] = 0.0
    if elastic:
        write_goodputs(s, w, j, row, at + 23)
    if s.num_services > 0 and s.reclaim == ATS and s.share[j] == WHOLE and s.gpus[j] > 0:
        row[at + JOB_COLUMNS - 1] = max(0.0, cheapest_node(s, w, j, fair_share(s))[1])


@jit
def known_goodput(s, w, j, t, gpus):
    """What schedulers know of slot ``j``'s goodput on ``gpus`` GPUs of type ``t``, packed [work/s]; 0: impossible."""
    if gpus > s.max_gpus[j]:
        return 0.0
    several = 1 if gpus > s.max_node_gpus[t] else 0
    if s.online:
        return fitted_goodput(s, w, j, t, several, gpus)
    return known_rate(w, s.klass[j], 0, s.epoch[j], t, several, gpus)


@jit_inline
def write_goodputs(s, w, j, row, at):
    """Write goodput on 1, 2, 4, 8, 16 GPUs of elastic slot ``j`` from ``row[at]`` on, not yet squashed."""
    t = max(0, s.gpu_type[j])
    if s.gpus[j] > 0:
        t = s.node_type[s.gpu_node[s.first_gpu[j]]]
    if s.online:
        write_fitted(s, w, j, t, row, at)
        return
    table = w.classes[s.klass[j]]
    first = table.known_at + s.epoch[j] * table.known_shapes + t * FITTED_SHAPES
    alone = w.floats[first + 1]
    row[at] = alone * 3600.0 / s.work[j]
    scale = 1.0 / alone
    for i in range(len(GOODPUTS)):
        gpus = GOODPUTS[i]
        place = first + gpus + (FITTED_SHAPES // 2 if gpus > s.max_node_gpus[t] else 0)
        row[at + 1 + i] = w.floats[place] * scale if gpus <= s.max_gpus[j] else 0.0


@jit
def write_fitted(s, w, j, t, row, at):
    """The same columns by the fit of slot ``j``'s own runs, on GPUs of type ``t``; 0: not observed yet."""
    alone = known_goodput(s, w, j, t, 1)
    row[at] = alone * 3600.0 / s.work[j]
    for i in range(len(GOODPUTS)):
        row[at + 1 + i] = known_goodput(s, w, j, t, GOODPUTS[i]) / alone if alone > 0 else 0.0


@jit
def squash_rows(row, first, stop):
    """Squash the job rows that lie in ``row[first:stop]``."""
    for tile in range(first, stop, TILE):
        part = row[tile : min(stop, tile + TILE)]
        for i in range(part.shape[0]):
            part[i] = part[i] / (SLOPE[i] * part[i] + OFFSET[i])


@jit
def write_jobs(s, w, row, jobs, slots, count):
    """Write the rows of the first ``count`` of ``slots``; the jobs block starts at ``row[jobs]``. The last slot."""
    last = -1
    for i in range(count):
        j = slots[i]
        last = max(last, j)
        write_job(s, w, j, row, (jobs + j * JOB_COLUMNS) & NOT_NEGATIVE)
    return last


@jit
def fill_observation(s, w, row, width):
    """Write the whole row (R,) float32; ``width`` is the layout's GPUs per node."""
    jobs = CLUSTER_COLUMNS + s.num_nodes * NODE_COLUMNS
    end = jobs + s.num_slots * JOB_COLUMNS
    write_cluster(s, row)
    write_nodes(s, row, CLUSTER_COLUMNS)
    block = row[jobs:end]
    for i in range(block.shape[0]):
        block[i] = 0.0
    last = write_jobs(s, w, row, jobs, s.waiting, s.num_waiting)
    last = max(last, write_jobs(s, w, row, jobs, s.running, s.num_running))
    squash_rows(row, jobs, jobs + (last + 1) * JOB_COLUMNS)
    if s.freezes:
        end = fill_layers(s, w, row, end)
    write_services(s, row, end)
    write_occupancy(s, row, end + s.num_services * SERVICE_COLUMNS, width)


@jit
def refresh_observation(s, w, row, width, j):
    """Bring the row up to date after an edit of slot ``j``, which takes no time."""
    jobs = CLUSTER_COLUMNS + s.num_nodes * NODE_COLUMNS
    at = (jobs + j * JOB_COLUMNS) & NOT_NEGATIVE
    end = jobs + s.num_slots * JOB_COLUMNS
    write_cluster(s, row)
    write_job(s, w, j, row, at)
    squash_rows(row, at, at + JOB_COLUMNS)
    if s.freezes:
        end = refresh_layers(s, w, row, end, j)
    if s.num_services > 0:  # a job may have taken the devices of sleeping pods
        write_nodes(s, row, CLUSTER_COLUMNS)
        write_services(s, row, end)
    else:
        write_free(s, row, CLUSTER_COLUMNS)
    write_occupancy(s, row, end + s.num_services * SERVICE_COLUMNS, width)
