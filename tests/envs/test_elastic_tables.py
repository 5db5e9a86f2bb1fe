"""Every entry of the rate tables against the scalar reference of traces/profiles.py, and measured placements."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from envs.applying import SimulatorError, apply_decision
from envs.layout import MAX_REPLICAS
from envs.order import Key, ListOrder
from envs.reference import simulate_reference
from envs.scheduler import Decision
from envs.shapes import Shapes
from envs.spec import ClusterSpec, SimConfig
from envs.tables import FITTED_SHAPES, NECKLACES, pair_place
from envs.workload import Workload, make_workload
from tests.envs.core_support import next_pass
from tests.envs.elastic_core_support import AT_EVENTS, EVERY_10, column, jobs, linear, open_run, play
from traces.measured import read_profiles
from traces.profiles import ModelProfile, load_profiles, optimise_batch
from traces.trace import Trace

CLUSTER = ClusterSpec.parse("2x4:aws+2x8:rtx")
TYPES, NODE_GPUS = ("aws", "rtx"), (4, 8)
PROFILE, ORACLE = SimConfig(), SimConfig(knowledge="oracle")


class Entry(NamedTuple):
    """A place in the tables of fitted speeds: epoch, GPU type, 0 one node or 1 several, GPUs."""

    epoch: int
    gpu_type: int
    several: int
    gpus: int


def entries(model: ModelProfile) -> Iterator[Entry]:
    """All that a job may meet; of long models those of the first and the last epoch."""
    last = len(model.progress) - 1
    epochs = range(last + 1) if last < 3 else (0, last)
    for epoch in epochs:
        for t in range(len(TYPES)):
            for gpus in range(1, MAX_REPLICAS + 1):
                if gpus <= NODE_GPUS[t]:
                    yield Entry(epoch, t, 0, gpus)
                if gpus > 1:
                    yield Entry(epoch, t, 1, gpus)


def workload_of(model: str, batch: int, config: SimConfig, tuned: bool, truth: ModelProfile) -> Workload:
    trace = jobs((1, 0, None), model=[model], batch_size=[batch])
    return make_workload(trace, CLUSTER, config, 0, tuned, {model: truth})


def known_of(workload: Workload, e: Entry) -> float:
    w = workload.tables
    of = w.classes[0]
    at = of.known_at + e.epoch * of.known_shapes + e.gpu_type * FITTED_SHAPES + e.several * (MAX_REPLICAS + 1) + e.gpus
    return float(w.floats[at])


def rate_of(workload: Workload, e: Entry) -> float:
    w = workload.tables
    of = w.classes[0]
    return float(
        w.floats[of.rate_at + e.epoch * of.shapes + w.ints[of.pair_at + pair_place(e.gpu_type, 1 + e.several, e.gpus)]]
    )


def expected(truth: ModelProfile, known: ModelProfile, e: Entry, batch: int | None) -> tuple[float, float]:
    """(known, true) speed of the batch that the scalar reference chooses by what is known."""
    name = TYPES[e.gpu_type]
    sqr, var = (float(x) for x in known.gradients(e.epoch, 1.0))
    arguments = (truth.types[name], truth, known.types[name].throughput, sqr, var, 1 + e.several, e.gpus)
    goodput, local, steps = optimise_batch(*arguments, None if batch is None else float(batch))
    if goodput == 0:  # no candidate fits
        _, local, steps = optimise_batch(*arguments, max(truth.init_batch, truth.types[name].min_local * e.gpus))
    total, speeds = float(e.gpus * local * (steps + 1)), []
    for model in (known, truth):
        grad, step = model.types[name].throughput.times(e.several == 1, e.gpus, local)
        speeds.append(float(model.gain(e.epoch, total)) / float(steps * grad + step))
    return speeds[0], speeds[1]


def check_tables(workload: Workload, truth: ModelProfile, known: ModelProfile, batch: int | None) -> int:
    """Assert that all entries are as expected; how many there are."""
    most, count = int(workload.jobs["max_gpus"][0]), 0
    for e in entries(truth):
        believed, rate = expected(truth, known, e, batch)
        if e.gpus > most:
            continue
        assert known_of(workload, e) == pytest.approx(believed, rel=1e-12), e
        assert rate_of(workload, e) == pytest.approx(rate, rel=1e-12), e
        count += 1
    return count


def test_fixed_batches():
    shipped = load_profiles()
    for model, batch in (("bert", 12), ("bert", 53), ("bert", 384), ("cifar10", 1000), ("yolov3", 64)):
        found = workload_of(model, batch, PROFILE, False, shipped[model])
        most = int(found.jobs["max_gpus"][0])
        assert most == min(64, batch // max(shipped[model].types[t].min_local for t in TYPES))
        assert check_tables(found, shipped[model], shipped[model], batch) == 2 * sum(
            most - 1 + min(most, n) for n in NODE_GPUS
        )


@pytest.mark.parametrize("model", ["bert", "yolov3"])
def test_tuned_batches(model: str):
    shipped = load_profiles()[model]
    found = workload_of(model, 0, PROFILE, True, shipped)
    assert int(found.jobs["max_gpus"][0]) == 64
    assert check_tables(found, shipped, shipped, None) == 2 * (2 * 63 + 4 + 8)


def test_tuned_by_what_is_known_run_at_the_true_speed(monkeypatch: pytest.MonkeyPatch):
    """Schedulers believe that bert is deepspeech2 in speed and worth; its memory limits are known."""
    shipped = load_profiles()
    truth, other = shipped["bert"], shipped["deepspeech2"]
    speeds = {t: replace(truth.types[t], throughput=other.types[t].throughput) for t in TYPES}
    believed = replace(truth, types=speeds, grad_var=truth.grad_var * 0.05)
    monkeypatch.setattr("envs.workload.load_profiles", lambda: {"bert": believed})
    found = workload_of("bert", 0, PROFILE, True, truth)
    assert check_tables(found, truth, believed, None) == 2 * (2 * 63 + 4 + 8)
    unaware = [rate_of(found, e) < 0.9 * expected(truth, truth, e, None)[1] for e in entries(truth)]
    assert any(unaware)


@pytest.mark.parametrize("model", ["bert", "yolov3"])
def test_tuned_by_the_truth(model: str):
    """The best batch, as weighed before it is cut to M_max."""
    truth = load_profiles()[model]
    assert check_tables(workload_of(model, 0, ORACLE, True, truth), truth, truth, None) == 2 * (2 * 63 + 4 + 8)


@pytest.mark.parametrize("change", ["progress", "types"])
def test_knowledge_that_does_not_match_the_truth_is_not_used(monkeypatch: pytest.MonkeyPatch, change: str):
    """Another number of epochs, or no profile of a GPU type of the cluster."""
    truth = load_profiles()["bert"]
    believed = replace(truth, grad_var=truth.grad_var * 0.05)
    if change == "progress":
        believed = replace(believed, progress=np.array([9.0]), grad_sqr=np.ones((1, 1)), grad_var=np.ones((1, 1)))
    else:
        believed = replace(believed, types={"aws": believed.types["aws"]})
    monkeypatch.setattr("envs.workload.load_profiles", lambda: {"bert": believed})
    assert check_tables(workload_of("bert", 96, PROFILE, False, truth), truth, truth, 96) > 0


def test_estimates_equal_the_references_when_the_known_length_is_wrong(monkeypatch: pytest.MonkeyPatch):
    """Schedulers believe that m is three times as long as it is: 180 s rather than 60."""
    trace, believed, truth = jobs((1, 0, None), (1, 0, 100.0)), linear(180), linear(60)
    monkeypatch.setattr("envs.workload.load_profiles", lambda: {"m": believed})
    order, cluster = ListOrder(Key.DURATION), ClusterSpec.parse("1x1")
    want = simulate_reference(trace, cluster, order, AT_EVENTS, 0, {"m": truth}, False, {"m": believed})
    got = play(trace, "1x1", order, AT_EVENTS, truth)
    assert column(got, "first_start_s") == list(want["first_start_s"]) == [100, 0]


# --- measured times ---


@pytest.fixture(scope="module")
def bert(shared: Path) -> ModelProfile:
    """bert as measured for Pollux on T4s, four of them a node."""
    return read_profiles(shared / "data" / "profiles" / "pollux_osdi21")["bert"]


def true_rate(model: ModelProfile, row: tuple[int, ...], batch: int, epoch: int = 0) -> float:
    """Speed of a fixed batch on a placement, from the measurements alone."""
    gpus, (profile,) = sum(row), model.types.values()
    share = math.ceil(batch / gpus)
    steps = math.ceil(share / profile.max_local) - 1
    local = math.ceil(share / (steps + 1))
    assert profile.measured is not None
    step, sync = profile.measured.times(row, local)
    return float(model.gain(epoch, float(gpus * local * (steps + 1)))) / float(step + steps * (step - sync))


def rate_on(model: ModelProfile, cluster: str, row: tuple[int, ...], batch: int) -> float:
    """Speed that the core gives a job which was placed on so many GPUs of each node."""
    trace = jobs((1, 0, None), model=["bert"], batch_size=[batch])
    run, view = open_run(trace, cluster, EVERY_10, {"bert": model})
    assert next_pass(run, view)
    apply_decision(run, Decision(np.array([sum(row)]), np.array([row])), "mine")
    return float(run.states[0].rate[0])


@pytest.mark.parametrize(
    "row",
    [
        *[(1, 0, 0, 0), (4, 0, 0, 0), (0, 2, 1, 0), (1, 2, 0, 0), (3, 0, 0, 4), (4, 4, 0, 0)],
        *[(1, 2, 4, 0), (4, 2, 1, 0), (0, 4, 1, 2), (2, 0, 4, 1), (4, 4, 4, 0)],
        *[(1, 2, 3, 4), (4, 3, 2, 1), (2, 3, 4, 1), (1, 3, 2, 4), (4, 4, 4, 4)],
    ],
)
def test_a_placement_runs_at_the_speed_of_its_necklace(bert: ModelProfile, row: tuple[int, ...]):
    used = tuple(n for n in row if n)
    assert rate_on(bert, "4x4", row, 192) == pytest.approx(true_rate(bert, used, 192), rel=1e-12)


def test_the_order_of_nodes_matters_and_their_rotation_does_not(bert: ModelProfile):
    rates = [rate_on(bert, "4x4", row, 192) for row in ((1, 2, 4, 0), (0, 2, 4, 1), (4, 2, 1, 0))]
    assert rates[0] == rates[1]
    assert rates[0] != rates[2]


@pytest.mark.parametrize("row", [(4, 4, 4, 4, 4, 0), (1, 1, 1, 1, 1, 0), (1, 4, 2, 4, 3, 2)])
def test_more_than_four_nodes_are_interpolated_by_size(bert: ModelProfile, row: tuple[int, ...]):
    used = tuple(n for n in row if n)
    assert rate_on(bert, "6x4", row, 192) == pytest.approx(true_rate(bert, used, 192), rel=1e-12)
    assert rate_on(bert, "6x4", row, 192) == rate_on(bert, "6x4", row[::-1], 192)


def test_more_than_sixteen_nodes_run_as_on_sixteen(bert: ModelProfile):
    shapes = Shapes.of(ClusterSpec.parse("20x4"), [bert])
    assert shapes.pair.shape == (1, 17, 65)
    assert shapes.pair[0, 16, 15] == -1
    assert shapes.nodes[shapes.pair[0, 16, 64]] == 16
    assert shapes.nodes.max() == 16


def test_every_measured_necklace_has_its_own_entry(bert: ModelProfile):
    trace = jobs((1, 0, None), model=["bert"], batch_size=[192])
    w = make_workload(trace, ClusterSpec.parse("4x4"), PROFILE, 0, False, {"bert": bert}).tables
    measured, of, checked = bert.types["aws"].measured, w.classes[0], 0
    assert measured is not None
    for digits in measured.necklaces:
        if len(digits) > 4 or max(digits) > 4:
            continue
        code = min(int("".join(map(str, digits[i:] + digits[:i])), 9) for i in range(len(digits)))
        for epoch in range(2):
            got = w.floats[of.rate_at + epoch * of.shapes + w.ints[of.necklace_at + code]]
            assert got == pytest.approx(true_rate(bert, digits, 192, epoch), rel=1e-12), digits
        checked += 1
    assert checked > 60
    assert (w.ints[of.necklace_at : of.necklace_at + NECKLACES] >= 0).sum() == checked


def test_oracles_know_the_measured_packed_times_and_profiles_do_not(bert: ModelProfile):
    trace = jobs((1, 0, None), model=["bert"], batch_size=[192])
    packed = {4: (4,), 6: (2, 4), 8: (4, 4), 11: (3, 4, 4), 16: (4, 4, 4, 4)}
    known: dict[str, Any] = {}
    for config in (PROFILE, ORACLE):
        found = make_workload(trace, ClusterSpec.parse("4x4"), config, 0, False, {"bert": bert})
        known[config.knowledge] = [known_of(found, Entry(1, 0, int(n > 4), n)) for n in packed]
    assert known["oracle"] == pytest.approx([true_rate(bert, row, 192, 1) for row in packed.values()], rel=1e-12)
    shipped = load_profiles()["bert"]
    want = [expected(shipped, shipped, Entry(1, 0, int(n > 4), n), 192)[0] for n in packed]
    assert known["profile"] == pytest.approx(want, rel=1e-12)


def refused(model: ModelProfile, trace: Trace, cluster: str, scheduler: Any) -> str:
    """The sentence with which a run ends."""
    with pytest.raises(SimulatorError) as caught:
        play(trace, cluster, scheduler, EVERY_10, model)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_placement_outside_the_measurements_is_one_sentence(bert: ModelProfile):
    """Nodes of eight GPUs, where four were measured; a list scheduler is told the same."""
    trace = jobs((8, 0, None), model=["bert"], batch_size=[192], job_id=["wide"])
    for scheduler, name in (({0: {0: (8, 0)}}, "mine"), (ListOrder(Key.ARRIVAL), "listed")):
        text = refused(bert, trace, "2x8", scheduler)
        assert re.match(rf"scheduler {name} at 0 s: job wide\b.* 8 GPUs .*outside .*measured .*model bert$", text)
    assert re.search(r" 5\+8 GPUs ", refused(bert, trace, "2x8", {0: {0: (5, 8)}}))
    assert column(play(trace, "2x8", {0: {0: (4, 4)}}, EVERY_10, bert), "status") == ["completed"]


MEASURED = {
    "placements.csv": "placement,local_bsz,step_time,sync_time\n"
    "1,4,1,0\n1,8,2,0\n1,16,4,0\n2,8,3,1\n2,16,5,1\n11,4,3,2\n11,8,4,2\n11,16,6,2\n",
    "scalability.csv": "num_nodes,num_replicas,local_bsz,step_time,sync_time\n2,4,4,3,2\n2,4,16,6,2\n",
    "validation-8.csv": "progress,iteration,grad_sqr,grad_var\n64,64,0,1\n",
    "validation-64.csv": "progress,iteration,grad_sqr,grad_var\n64,8,0,1\n",
}


def test_a_placement_measured_at_fewer_batches_matters_only_when_it_is_used(tmp_path: Path):
    """Two GPUs of a node were measured from 8 samples a GPU on, a batch of 8 gives them 4."""
    (tmp_path / "m").mkdir()
    for name, text in MEASURED.items():
        (tmp_path / "m" / name).write_text(text)
    model = read_profiles(tmp_path)["m"]
    trace = jobs((1, 0, None), batch_size=[8], job_id=["wide"])
    assert column(play(trace, "2x2", {0: {0: (1, 0)}}, EVERY_10, model), "finish_s") == [128]
    assert column(play(trace, "2x2", {0: {0: (1, 1)}}, EVERY_10, model), "finish_s") == [192]
    assert re.search("job wide.* 2 GPUs .*outside", refused(model, trace, "2x2", {0: {0: (2, 0)}}))
