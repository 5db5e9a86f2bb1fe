"""Results of elastic jobs do not depend on how the clock moves, on capacities, batches, threads or the compiler.

And nothing is lost: devices, work and time add up whatever is decided.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.applying import apply_decision
from envs.batch import MANUAL, SAME_STEP, Batch
from envs.env import ClusterEnv
from envs.layout import COMPLETED, RUNNING
from envs.metrics import JOB_COLUMNS
from envs.order import Key, ListOrder
from envs.scheduler import Decision
from envs.settings import EnvSettings
from envs.simulate import Run, simulate
from envs.spec import SimConfig
from envs.view import ClusterView
from tests.envs.core_support import Listed, check_record, finish, finish_list, next_pass
from tests.envs.elastic_core_support import jobs, linear, open_run
from tests.envs.env_support import random_actions
from tests.envs.random_elastic import ElasticCase, listed_case
from traces.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
NAMES = [c.name for c in JOB_COLUMNS]


def opened(seed: int, record: bool = False) -> tuple[ElasticCase, Run]:
    """A random case under a list scheduler, at time 0."""
    case = listed_case(seed)
    assert isinstance(case.scheduler, ListOrder)
    options: dict[str, Any] = {"tuned": case.tuned, "seed": seed, "record": record}
    return case, open_run(case.trace, case.cluster, case.config, case.profiles, case.scheduler, **options)[0]


def bytes_of(run: Run) -> tuple[bytes, bytes]:
    return run.states.tobytes(), run.results.tobytes()


def test_ten_short_advances_equal_a_long_one() -> None:
    ran, paused = 0, 0
    for seed in range(120):
        (_, long), (_, short), (_, whole) = (opened(seed) for _ in range(3))
        finish_list(long, until=600.0)
        for k in range(1, 11):
            finish_list(short, until=60.0 * k)
        assert bytes_of(short) == bytes_of(long), seed
        ran += int((long.states[0].phase == RUNNING).sum())
        paused += int((long.results["paused_gpu_s"] > 0).sum())
        for run in (long, whole):
            finish(run)
        assert bytes_of(long) == bytes_of(whole), seed
    assert min(ran, paused) > 100


def test_slots_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        case = listed_case(seed)
        options: dict[str, Any] = {"seed": seed, "profiles": case.profiles}
        assert isinstance(case.scheduler, ListOrder)
        arguments = (case.trace, case.cluster, Listed(case.scheduler), case.config)
        want = simulate(*arguments, **options)
        with monkeypatch.context() as patch:
            patch.setattr("envs.simulate.FIRST_SLOTS", 1 + seed % 3)
            got = simulate(*arguments, **options)
        assert got.jobs[NAMES].equals(want.jobs[NAMES]), seed
        assert got.num_passes == want.num_passes


def test_recording_and_repetition_make_no_difference() -> None:
    failures = 0
    for seed in range(60):
        (case, plain), (_, recorded) = opened(seed), opened(seed, record=True)
        finish(plain)
        finish(recorded)
        assert plain.results.tobytes() == recorded.results.tobytes()
        failures += case.config.node_mtbf_s > 0
    assert failures > 5


def test_the_seed_decides_failures() -> None:
    config = SimConfig(interval_s=0.0, checkpoint_s=5.0, node_mtbf_s=60.0, node_mttr_s=20.0)
    trace = jobs(*[(1, 10.0 * i, None) for i in range(8)])
    ends = []
    for seed in (1, 1, 2):
        run, _ = open_run(trace, "2x2", config, {"m": linear(40)}, seed=seed)
        finish(run)
        ends.append(run.results["finish"].tolist())
    assert ends[0] == ends[1] != ends[2]


# --- conservation ---

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def random_counts(rng: Random, view: ClusterView, most: int) -> Decision:
    """Counts for random jobs, together at most ``most``, pinned ones first; from 400 s on the request or nothing."""
    gpus = np.zeros(view.num_slots, np.int64)
    fixed = ~view.preemptible & (view.gpus > 0)
    for j in sorted(view.slots.tolist(), key=lambda j: (not fixed[j], view.now < 400 and rng.random(), view.job_id[j])):
        keep, request, limit = int(view.gpus[j]), int(view.num_gpus[j]), int(view.max_gpus[j])
        if fixed[j]:
            wish = keep
        elif view.now >= 400:
            wish = request
        else:
            wish = rng.choice((0, keep, keep, rng.randint(0, limit) if view.elastic[j] else request))
        if wish <= most - gpus.sum():
            gpus[j] = wish
    return Decision(gpus)


@EXAMPLES
@given(seed=st.integers(0, 10**6), rescale=st.sampled_from([("constant", 5.0), ("restart", 0.0), ("afe", 0.0)]))
def test_devices_work_and_time_are_conserved(seed: int, rescale: tuple[Any, float]) -> None:
    """On one node a GPU does one iteration a second, so GPU-time held and not paused is work done."""
    rng = Random(seed)
    rows = [(rng.randint(1, 3), 20.0 * rng.randint(0, 20), None if rng.random() < 0.7 else 55.0) for _ in range(8)]
    trace = jobs(*sorted(rows, key=lambda row: row[1]), preemptible=[rng.random() < 0.8 for _ in rows])
    config = SimConfig(interval_s=20.0, on_event=True, rescale_cost=rescale[0], rescale_s=rescale[1], placement="count")
    model = linear(64, 256, first_delay_s=8.0, next_delay_s=2.0)
    run, view = open_run(trace, "1x8", config, {"m": model}, record=True, seed=seed)
    run.states["skip_idle"] = 0
    while next_pass(run, view):
        apply_decision(run, random_counts(rng, view, 8), "any")
        check_record(run.states[0])
    check_sums(run, trace)


def check_sums(run: Run, trace: Trace) -> None:
    """Assert what must add up at the end of a run on one node."""
    run.drain_log()
    result = run.result("any", np.zeros(0), 0.0)
    table, rows = result.jobs, result.intervals
    assert (run.results["status"] == COMPLETED).all()
    elastic = trace.jobs["duration_s"].isna()
    worked = table["service_gpu_s"] - table["paused_gpu_s"]
    np.testing.assert_allclose(worked[elastic], 256, rtol=1e-9)
    np.testing.assert_allclose(worked[~elastic], (55.0 * table["num_gpus"])[~elastic], rtol=1e-9)
    held = (rows["end_s"] - rows["start_s"]).groupby(rows["job"]).sum().reindex(range(len(table)), fill_value=0.0)
    np.testing.assert_allclose(held, table["service_gpu_s"], rtol=1e-9)
    np.testing.assert_allclose(table["queueing_delay_s"] + holding_time(rows, len(table)), table["jct_s"], rtol=1e-9)
    assert run.states[0].jct_integral == pytest.approx(table["jct_s"].sum(), rel=1e-9)


def holding_time(rows: Any, count: int) -> np.ndarray:
    """(J,) seconds in which each job held a GPU at all."""
    total = np.zeros(count)
    for job, spans in rows.groupby("job"):
        end = -np.inf
        for start, stop in sorted(zip(spans["start_s"], spans["end_s"], strict=True)):
            total[job] += max(0.0, stop - max(start, end))
            end = max(end, stop)
    return total


# --- the environment ---


def world(**given: Any) -> dict[str, Any]:
    """Twelve jobs of two models and rigid ones, for windows of seven."""
    rows = [(1 + i % 3, 25.0 * (i // 2), 40.0 if i % 4 == 3 else None) for i in range(14)]
    names = ["" if d else "mn"[i % 2] for i, (_, _, d) in enumerate(rows)]
    trace = jobs(*rows, model=names, preemptible=[i % 5 != 1 for i in range(14)])
    models = {"m": linear(30, 90), "n": linear(50, name="n", worth=False, first_delay_s=4.0)}
    sim = SimConfig(interval_s=20.0, rescale_cost="restart", checkpoint_s=15.0, interference=0.25, node_mtbf_s=200.0)
    base = {"trace": trace, "cluster": "1x4+2x2", "sim": sim, "profiles": models, "num_slots": 6, "window_jobs": 7}
    return {"scenario": "elastic", **base, "split": "all", "edit_budget": 9, **given}


def advance(batch: Batch, rng: np.random.Generator) -> np.ndarray:
    """Take a random action in every row; the actions."""
    if batch.settings.action == "weights":
        actions: np.ndarray = rng.normal(0, 2, (batch.num_envs, batch.settings.num_slots))
    else:
        actions = random_actions(rng, batch.mask)
    batch.step(actions)
    return actions


@pytest.mark.parametrize("action", ["edits", "weights"])
def test_rows_of_a_batch_equal_single_environments(action: Any) -> None:
    many, rng = Batch(EnvSettings(**world(action=action)), 3, SAME_STEP), np.random.default_rng(0)
    ones = [Batch(EnvSettings(**world(action=action)), 1, SAME_STEP) for _ in range(3)]
    many.reset(np.arange(3))
    for b, one in enumerate(ones):
        one.reset(np.array([b]))
    for _ in range(150):
        actions = advance(many, rng)
        for b, one in enumerate(ones):
            one.step(actions[b : b + 1])
            for name in ("states", "results", "obs", "mask", "reward", "outcome", "final_obs"):
                assert getattr(one, name)[0].tobytes() == getattr(many, name)[b].tobytes(), name
    assert many.states["episode"].min() > 2


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="needs two cores")
def test_threads_make_no_difference() -> None:
    ended = []
    for threads in (1, 2):
        batch, rng = Batch(EnvSettings(**world()), 8, SAME_STEP), np.random.default_rng(0)
        batch.set_threads(threads)
        batch.reset(np.arange(8))
        for _ in range(100):
            advance(batch, rng)
        ended.append((batch.states.tobytes(), batch.results.tobytes(), batch.obs.tobytes()))
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    assert ended[0] == ended[1]


@pytest.mark.parametrize("action", ["edits", "weights"])
def test_a_restored_snapshot_goes_on_as_before(action: Any) -> None:
    env = ClusterEnv(**world(action=action), flat=True)
    env.reset(seed=3)
    for _ in range(20):
        advance(env.batch, np.random.default_rng(1))
    snapshot, seen = env.snapshot(), []
    for _ in range(2):
        env.restore(snapshot)
        rng, rows = np.random.default_rng(7), []
        for _ in range(15):
            advance(env.batch, rng)
            rows.append((env.batch.obs.tobytes(), env.batch.reward.item(), env.batch.states.tobytes()))
        seen.append(rows)
    assert seen[0] == seen[1]


def test_another_seed_is_another_episode_and_the_same_is_the_same() -> None:
    episodes = []
    for seed in (5, 5, 6):
        batch, rng = Batch(EnvSettings(**world()), 1, MANUAL), np.random.default_rng(0)
        batch.reset(np.array([seed]))
        while not (batch.terminated | batch.truncated).any():
            advance(batch, rng)
        episodes.append((batch.results.tobytes(), batch.obs.tobytes()))
    assert episodes[0] == episodes[1] != episodes[2]


# --- the compiler ---


def digests() -> dict[str, str]:
    """Digests of every byte of a few runs and environments, small enough to be interpreted."""
    found = {}
    for seed in range(60):
        case, run = opened(seed, record=True)
        if len(case.trace) > 4 or run.states[0].online:
            continue
        finish(run)
        run.drain_log()
        found[f"run {seed}"] = digest(run.states, run.results, *run.logged)
    for action in ("edits", "weights"):
        batch, rng = Batch(EnvSettings(**world(action=action)), 2, SAME_STEP), np.random.default_rng(0)
        batch.reset(np.arange(2))
        shown = []
        for _ in range(30 if action == "edits" else 8):
            advance(batch, rng)
            shown.append(digest(batch.states, batch.results, batch.obs, batch.mask, batch.reward))
        found[action] = "".join(shown)
    return found


def digest(*arrays: np.ndarray) -> str:
    return sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def test_the_interpreter_gives_the_same_bytes() -> None:
    name = Path(__file__).stem
    code = f"import json; from tests.envs.{name} import digests; print(json.dumps(digests()))"
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    here, there = digests(), json.loads(done.stdout)
    assert len(here) > 8
    assert [name for name in here if there[name] != here[name]] == []


def test_the_sample_has_every_key() -> None:
    keys = {listed_case(seed).scheduler.key for seed in range(120)}  # type: ignore[union-attr]
    assert keys == set(Key) - {Key.GIVEN}
