"""What schedulers see of stragglers, recomputed from the records that they are readings of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import lognorm

from envs.layout import HOLDER_SHARED, RUNNING, make_state
from envs.list_run import run_list
from envs.order import Key, ListOrder, set_order
from envs.rng import Purpose, uniform
from envs.simulate import Run
from envs.spec import ClusterSpec, SimConfig, SpecError
from envs.straggler_calibration import KNOTS, forecasts_of, logit_of, usual_p
from envs.straggler_load import gpu_hazard_share, hazard_share, load_of
from envs.straggler_presets import CPU, GPU, IO, NET
from envs.straggler_sight import flagged, look, noticed, seen_slowdown
from envs.view import ClusterView
from tests.envs.core_support import devices_of
from traces.synthetic_stragglers import synthesise_stragglers
from traces.trace import make_trace

CLUSTER = ClusterSpec.parse("8x8")
NODES = 8
CONFIG = SimConfig(interval_s=0.0, on_event=True, stragglers="contention", straggler_io=True)
TURN = 300.0
ALL = range(240)
SEED = 3


def begin(config: SimConfig, seed: int = SEED) -> Run:
    """A busy small cluster at time 0, first come first served."""
    run = Run(synthesise_stragglers(jobs=200, seed=1, gpus=32, load=1.4), CLUSTER, config, seed)
    set_order(run.states, ListOrder(Key.ARRIVAL))
    run.start()
    return run


def go(run: Run, until: float) -> Any:
    run_list(run.states[0], run.tables, run.results, run.log, until, 1 << 40)
    return run.states[0]


def follow(config: SimConfig, turns: Iterable[int] = ALL, seed: int = SEED, delay: float = 0.0) -> dict[int, Any]:
    """Copies of the record after a look in each of ``turns``, ``delay`` [s] after its beginning."""
    run, seen = begin(config, seed), {}
    for turn in turns:
        look(go(run, turn * TURN + delay))
        seen[turn] = run.states.copy().view(np.recarray)[0]
    return seen


def gauss(index: int, counter: int, seed: int = SEED) -> float:
    """A standard normal number of the readings, from the two of its counters."""
    a, b = (uniform(seed, int(Purpose.SIGHT), index, counter + i) for i in range(2))
    return float(np.sqrt(-2 * np.log(1 - a)) * np.cos(2 * np.pi * b))


def true_p(s: Any, n: int, cause: int, horizon: float) -> float:
    """The probability of contract section 6, from hidden states."""
    kinds = [NET] if cause == 1 else [CPU, IO]
    parts = [(GPU * n + kind, kind, hazard_share(s, n, kind)) for kind in kinds]
    if cause == 0:
        first = int(s.node_first[n])
        parts += [(GPU * NODES + g, GPU, gpu_hazard_share(s, g)) for g in range(first, first + int(s.node_gpus[n]))]
    spared = 1.0
    for c, kind, share in parts:
        onset = 1 - np.exp(-s.comp_rate[c] * share * horizon)
        age, stay = s.now - s.onset[c], 0.0
        if np.isfinite(s.onset[c]):
            sd = s.episode_log_sd[kind]
            tail = lognorm(sd, scale=s.episode_s[kind] * np.exp(-(sd**2) / 2)).sf
            stay = (1.0 if age + 60 < 30 else tail(age + 60)) / (1.0 if age < 30 else tail(age))
        spared *= 1 - (stay + (1 - stay) * onset)
    return float(1 - spared)


def test_the_oracle_sees_the_probabilities_of_the_contract() -> None:
    seen = follow(replace(CONFIG, straggler_obs="oracle"), range(0, 240, 6), delay=37.0)
    slow = 0
    for s in seen.values():
        slow += int(np.isfinite(s.onset[: GPU * NODES + 64]).sum())
        expected = [[[true_p(s, n, c, h) for h in (600.0, 3600.0)] for c in range(2)] for n in range(NODES)]
        assert s.seen_p[:NODES] == pytest.approx(np.array(expected), abs=1e-9)
    assert slow > 20
    assert (s.seen_p[:NODES, :, 1] >= s.seen_p[:NODES, :, 0]).all()


def noise(turn: int, node: int, cause: int) -> float:
    """The AR(1) of half-life 6, from its innovations."""
    kept, error = 0.5 ** (1 / 6), gauss(2 * node + cause, 0)
    for t in range(1, turn + 1):
        error = kept * error + np.sqrt(1 - kept**2) * gauss(2 * node + cause, 8 * t)
    return error


@pytest.mark.parametrize("sigma", [0.0, 1.0, 2.5])
def test_noisy_probabilities_are_forecasts_from_the_true_ones_behind_noise(sigma: float) -> None:
    """So they depend on nothing hidden but the true probability; a lost reading leaves the one before."""
    noisy = replace(CONFIG, sight_noise=sigma)
    table, usual = forecasts_of(noisy), usual_p(noisy)
    truth, seen = follow(replace(CONFIG, straggler_obs="oracle"), range(60)), follow(noisy, range(60))
    expected, lost = np.tile(usual, (NODES, 1, 1)), 0
    for turn in range(60):
        for n in range(NODES):
            for cause in range(2):
                if uniform(SEED, int(Purpose.SIGHT), 2 * n + cause, 8 * turn + 2) < 0.05:
                    lost += 1
                    continue
                z = logit_of(truth[turn].seen_p[n, cause]) + sigma * noise(turn, n, cause)
                expected[n, cause] = [np.interp(z[h], KNOTS, table[cause, h]) for h in range(2)]
        assert seen[turn].seen_p[:NODES] == pytest.approx(expected, abs=1e-9)
    assert 0.03 < lost / (60 * NODES * 2) < 0.07


def test_noise_keeps_half_of_itself_for_six_turns() -> None:
    """Stationary: variance 1, correlation 1/2 after 6 turns; 64 series of 1,000 turns, of which some 6,000 count."""
    run = begin(replace(CONFIG, straggler_rate=0.0))
    errors = []
    for turn in range(1000):
        s = run.states[0]
        s.now, s.num_running = turn * TURN, 0
        look(s)
        errors.append(s.sight_error[:NODES].ravel().copy())
    table = np.array(errors)
    assert table.std() == pytest.approx(1.0, abs=0.06)
    assert (table[6:] * table[:-6]).mean() / table.var() == pytest.approx(0.5, abs=0.06)
    assert (table[60:] * table[:-60]).mean() / table.var() == pytest.approx(0.0, abs=0.06)


def test_without_sight_all_nodes_look_alike() -> None:
    for rate in (1.0, 4.0, 0.0):
        config = replace(CONFIG, straggler_obs="none", straggler_rate=rate)
        for s in follow(config, (0, 30, 60)).values():
            assert (s.seen_p[:NODES] == usual_p(config)).all()
    assert (usual_p(config) == 0).all()
    assert (usual_p(CONFIG)[:, 1] > usual_p(CONFIG)[:, 0]).all()


def observed(s: Any) -> np.ndarray:
    """(N, 2) largest slowness of any worker for causes compute and network; 0: none has one."""
    worst = np.zeros((NODES, 2))
    for j in np.flatnonzero(s.phase[: s.num_slots] == RUNNING):
        devices = devices_of(s, j)
        for g in devices:
            n = int(s.gpu_node[g])
            cpu, net, io = (s.severity[GPU * n + kind] - 1 for kind in (CPU, NET, IO))
            factor = s.severity[GPU * NODES + g] * (1 + s.kappa[j, 0] * cpu) * (1 + s.kappa[j, 2] * io)
            worst[n, 0] = max(worst[n, 0], factor)
            if len({int(s.gpu_node[d]) for d in devices}) > 1:
                worst[n, 1] = max(worst[n, 1], 1 + s.kappa[j, 1] * net)
    return worst


@pytest.mark.parametrize("every", [1, 3])
def test_ratios_are_smoothed_over_the_turns_looked_at(every: int) -> None:
    """Where there is no worker they fade by turns, looked at or not."""
    seen = follow(replace(CONFIG, straggler_obs="ewma"), range(0, 240, every))
    ratio, faded = np.ones((NODES, 2)), 0
    for turn, s in seen.items():
        found = observed(s)
        for n, cause in np.ndindex(NODES, 2):
            if found[n, cause] > 0:
                at = found[n, cause] * (1 + 0.01 * gauss(2 * n + cause, 8 * turn + 3))
                ratio[n, cause] = 0.8 * ratio[n, cause] + 0.2 * at
            else:
                faded += ratio[n, cause] > 1.01
                ratio[n, cause] = 1 + (ratio[n, cause] - 1) * 0.5 ** (every / 12)
        assert s.node_ratio[:NODES] == pytest.approx(ratio, abs=1e-9)
        both = np.repeat(np.clip((ratio - 1) / 0.2, 0, 1)[..., None], 2, axis=2)
        assert s.seen_p[:NODES] == pytest.approx(both, abs=1e-7)
    assert faded > 10
    assert ratio.max() > 1.05


def test_loads_are_measured_with_noise() -> None:
    seen = follow(CONFIG, range(0, 120, 4))
    for turn, s in seen.items():
        for n, cause in np.ndindex(NODES, 2):
            at = load_of(s, n, (CPU, NET)[cause]) * (1 + 0.05 * gauss(2 * n + cause, 8 * turn + 5))
            assert s.node_load[n, cause] == pytest.approx(at)
    assert np.ptp([s.node_load[:NODES] for s in seen.values()]) > 0.5


def test_readings_are_the_same_whatever_was_looked_at_before() -> None:
    """But for ratios, and for what stands in place of a lost reading."""
    often, seldom = follow(CONFIG), follow(CONFIG, (7, 50, 51, 118))
    for turn, s in seldom.items():
        assert (s.sight_error[:NODES] == often[turn].sight_error[:NODES]).all()
        assert (s.node_load[:NODES] == often[turn].node_load[:NODES]).all()
        kept = [
            [uniform(SEED, int(Purpose.SIGHT), 2 * n + c, 8 * turn + 2) >= 0.05 for c in range(2)] for n in range(NODES)
        ]
        assert (s.seen_p[:NODES][kept] == often[turn].seen_p[:NODES][kept]).all()
        assert np.sum(kept) >= 12


def test_the_first_look_in_a_turn_stands() -> None:
    run = begin(CONFIG)
    look(go(run, 40 * TURN + 10.0))
    before = [run.states[name][0][:NODES].copy() for name in ("seen_p", "node_load", "node_ratio", "sight_error")]
    look(go(run, 41 * TURN - 1.0))
    names = ("seen_p", "node_load", "node_ratio", "sight_error")
    assert all((run.states[name][0][:NODES] == old).all() for name, old in zip(names, before, strict=True))
    look(go(run, 41 * TURN))
    assert (run.states["node_load"][0][:NODES] != before[1]).any()


@pytest.mark.parametrize("mode", ["none", "ewma"])
def test_modes_that_see_nothing_hidden_do_not_depend_on_it(mode: str) -> None:
    """Frailties, backgrounds and the states of components that no worker feels make no difference to p."""
    run = begin(replace(CONFIG, straggler_obs=mode))
    s = go(run, 50 * TURN)
    other = run.states.copy().view(np.recarray)
    other["comp_rate"] *= 9.0
    other["hot"] = 1 - other["hot"]
    unused = [GPU * NODES + g for g in range(64) if s.gpu_holder[g] == -1]
    other["severity"][0][unused] = 5.0
    other["onset"][0][unused] = s.now - 100.0
    look(s)
    look(other[0])
    assert len(unused) > 0
    assert (s.seen_p == other[0].seen_p).all()
    assert (s.node_ratio == other[0].node_ratio).all()


def test_learned_probabilities_need_a_predictor() -> None:
    with pytest.raises(SpecError, match="trained predictor"):
        make_state(1, 4, CLUSTER, replace(CONFIG, straggler_obs="learned"))


# --- the detector ---


def busy_node(detector: str = "good", seed: int = SEED) -> Run:
    """All normal, 64 GPUs held by one job on all nodes; time 50 turns."""
    columns = {"num_gpus": [64], "arrival_s": [0.0], "duration_s": [1e6]}
    run = Run(make_trace("one", columns), CLUSTER, replace(CONFIG, straggler_rate=0.0, detector=detector), seed)
    set_order(run.states, ListOrder(Key.ARRIVAL))
    run.start()
    go(run, 50 * TURN)
    return run


def slow(s: Any, c: int, severity: float, age: float, candidate: int = 0) -> None:
    s.severity[c], s.onset[c], s.candidate[c] = severity, s.now - age, candidate


def flags(s: Any) -> list[tuple[int, int]]:
    return [(n, cause) for n, cause in np.ndindex(NODES, 2) if flagged(s, n, cause)]


def test_the_detector_flags_what_a_worker_feels() -> None:
    """Candidate 1 is one that a good detector does not miss, of any component used here."""
    run = busy_node()
    s = run.states[0]
    assert flags(s) == []
    slow(s, GPU * 0 + CPU, 1.5, 10.0, 1)
    slow(s, GPU * 1 + CPU, 1.5, 9.9, 1)  # too young
    slow(s, GPU * 2 + CPU, 1.09, 1000.0, 1)  # too fast
    slow(s, GPU * 3 + IO, 1.1, 10.0, 1)
    slow(s, GPU * 4 + NET, 1.5, 10.0, 1)
    slow(s, GPU * NODES + 8 * 5 + 7, 1.5, 10.0, 1)
    assert flags(s) == [(0, 0), (3, 0), (4, 1), (5, 0)]
    s.gpu_holder[8 * 5 + 7] = -1  # nobody is on that device any more
    assert flags(s) == [(0, 0), (3, 0), (4, 1)]
    s.gpu_holder[:8] = -1  # and nobody on node 0, but then a fraction
    assert flags(s) == [(3, 0), (4, 1)]
    s.gpu_holder[3] = HOLDER_SHARED
    assert flags(s) == [(0, 0), (3, 0), (4, 1)]
    s.num_nodes_held[s.running[0]] = 1  # no job on several nodes: nobody feels the link
    assert flags(s) == [(0, 0), (3, 0)]


@pytest.mark.parametrize(("detector", "missed"), [("usual", 0.12), ("good", 0.02)])
def test_the_detector_misses_some_episodes(detector: str, missed: float) -> None:
    """4,000 episodes: 4 standard deviations of the share are 0.021 and 0.009; each for as long as it lasts."""
    s = busy_node(detector).states[0]
    found = []
    for candidate in range(1000):
        for n, kind in ((0, CPU), (0, NET), (1, CPU), (63, GPU)):
            c = GPU * NODES + n if kind == GPU else GPU * n + kind
            slow(s, c, 2.0, 20.0, candidate)
            found.append(noticed(s, c, kind, n))
            slow(s, c, 3.0, 5000.0, candidate)
            assert noticed(s, c, kind, n) == found[-1]
    assert 1 - np.mean(found) == pytest.approx(missed, abs=4 * np.sqrt(missed * (1 - missed) / 4000))
    assert len({tuple(found[i::4]) for i in range(4)}) == 4


@pytest.mark.parametrize(("detector", "share"), [("usual", 0.015), ("good", 0.0)])
def test_the_detector_raises_false_alarms(detector: str, share: float) -> None:
    """1,000 turns of 16 places: 4 standard deviations of the share are 0.0038; an alarm lasts for its turn."""
    s = busy_node(detector).states[0]
    raised = 0
    for turn in range(1000):
        s.now = turn * TURN
        now = flags(s)
        s.now = (turn + 1) * TURN - 1.0
        assert flags(s) == now
        raised += len(now)
    assert raised / 16_000 == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / 16_000))


def test_slowdowns_are_observed_with_noise() -> None:
    """One reading a turn; 1 % on one node and 2 % on several; 3,000 turns, 4 standard errors of the deviation 5 %."""
    s = busy_node().states[0]
    j = int(s.running[0])
    s.pace[j] = 0.5
    for nodes, spread in ((8, 0.02), (1, 0.01)):
        s.num_nodes_held[j] = nodes
        readings = []
        for turn in range(3000):
            s.now = turn * TURN
            readings.append(seen_slowdown(s, j))
            s.now += 299.0
            assert seen_slowdown(s, j) == readings[-1]
        assert np.mean(readings) == pytest.approx(2.0, abs=0.005)
        assert np.std(readings) / 2.0 == pytest.approx(spread, rel=0.06)
    assert seen_slowdown(s, j + 1) == 1.0


# --- the view ---


def test_the_view_shows_readings_and_what_is_known_of_jobs() -> None:
    run = begin(CONFIG)
    s = go(run, 60 * TURN + 100.0)
    view = ClusterView(run.states, CLUSTER, CONFIG, run.workload)
    seen = view.stragglers
    assert s.seen_turn == -1
    assert seen.p.shape == (NODES, 2, 2)
    assert s.seen_turn == 60
    assert (seen.load == s.node_load[:NODES]).all()
    assert (seen.ratio == s.node_ratio[:NODES]).all()
    assert seen.flagged.tolist() == [[flagged(s, n, c) for c in range(2)] for n in range(NODES)]
    assert seen.slowdown(view.slots).tolist() == [seen_slowdown(s, j) for j in view.slots]
    assert seen.gpu_speed.shape == (64, 3)
    assert len(np.unique(seen.gpu_speed)) > 100
    assert seen.preset.sojourn_h == 12.0
    jobs = run.trace.jobs.iloc[view.job_id[view.slots]]
    assert seen.comm_share[view.slots] == pytest.approx(jobs["comm_share"].to_numpy())
    for name, shape in (("sensitivity", (view.num_slots, 3)), ("speed_class", (view.num_slots,))):
        assert getattr(seen, name).shape == shape
    assert (seen.sync == 0).all()
    for column in (seen.p, seen.load, seen.gpu_speed, seen.sensitivity, view.gpu_holder):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 1
    held = {int(j): np.flatnonzero(view.gpu_holder == j).tolist() for j in view.slots[view.running[view.slots]]}
    assert {j: sorted(devices_of(s, j)) for j in held} == held


def test_a_view_without_stragglers_says_so() -> None:
    config = replace(CONFIG, stragglers="none")
    run = begin(config)
    with pytest.raises(SpecError, match=r"set sim\.stragglers"):
        _ = ClusterView(run.states, CLUSTER, config, run.workload).stragglers


def test_ranks_are_the_order_of_a_list_scheduler() -> None:
    run = begin(CONFIG)
    go(run, 300 * TURN)
    view = ClusterView(run.states, CLUSTER, run.config, run.workload)
    before = run.states.copy()
    slots = view.slots
    assert len(slots) >= 5
    assert view.running[slots].any()
    assert view.waiting[slots].any()
    assert view.ranked(ListOrder(Key.ARRIVAL)).tolist() == slots.tolist()
    keys = {
        Key.NUM_GPUS: view.num_gpus,
        Key.REMAINING: view.remaining,
        Key.REMAINING_GPU_TIME: view.remaining * view.num_gpus,
        Key.DURATION: view.estimate,
        Key.SERVICE: view.service,
    }
    for key, column in keys.items():
        assert view.ranked(ListOrder(key)).tolist() == slots[np.argsort(column[slots], kind="stable")].tolist(), key
    assert run.states.tobytes() == before.tobytes()
