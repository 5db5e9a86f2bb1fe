"""The compiled core equals the same code interpreted, bit for bit, and touches nothing beyond its arrays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from hashlib import sha256
from pathlib import Path
from random import Random

import numpy as np
import pytest

from envs.batch import Batch
from envs.layout import PLACEMENTS
from envs.settings import EnvSettings
from envs.spec import SimConfig
from tests.envs.core_support import begin, finish, hand
from tests.envs.random_traces import KEYS, Case, near_real_case, random_case
from traces.trace import Trace

ROOT = Path(__file__).resolve().parents[2]
Digests = dict[str, str]


@cache
def sample(most_jobs: int) -> dict[int, Case]:
    """Random cases of so many jobs, by seed: interpreted, an event takes milliseconds."""
    cases = {seed: (near_real_case if seed % 2 else random_case)(seed) for seed in range(400)}
    return {seed: case for seed, case in cases.items() if len(case[0]) <= most_jobs}


def run_digest(seed: int, case: Case) -> str:
    """Digest of every byte of record, results and log of a list scheduler's run."""
    run = begin(*case, seed=seed, record=True)
    finish(run)
    run.drain_log()
    digest = sha256()
    for array in (run.states, run.results, *run.logged):
        digest.update(array.tobytes())
    return digest.hexdigest()


def env_trace() -> Trace:
    """Jobs that use every branch of observation and mask: wide, fractional, pinned, of a type, too wide."""
    jobs = [(1, 0, 9), (4, 0, 20), (2, 0, 7.5), (1, 1, 30), (1, 1, 3), (6, 2, 11), (2, 3, 8), (1, 3, 6), (99, 4, 1)]
    jobs += [(3, 5, 12.25), (1, 40, 5), (2, 41, 0), (4, 60, 10), (1, 61, 10)]
    shares = [1000, 1000, 1000, 400, 500, 1000, 1000, 300, 1000, 1000, 250, 1000, 1000, 1000]
    types = ["", "", "B", "", "A", "", "", "", "", "A", "", "", "", "B"]
    return hand(jobs, share_milli=shares, gpu_type=types, preemptible=[j % 5 != 1 for j in range(len(jobs))])


def env_digest(placement: str) -> str:
    """Digest of everything that a batch of environments shows during steps with random valid actions."""
    sim = SimConfig(interval_s=10.0, on_event=placement != "spread", placement=placement)
    settings = EnvSettings(
        trace=env_trace(), cluster="2x4:A+1x2:A+2x3:B", sim=sim, num_slots=6, window_jobs=9, split="all", edit_budget=5
    )
    batch, rng, digest = Batch(settings, 3), Random(placement), sha256()
    batch.reset(np.arange(3))
    for _ in range(60):
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in batch.mask], np.int64)
        batch.step(actions)
        for array in (batch.states, batch.results, batch.obs, batch.final_obs, batch.mask, batch.reward, batch.outcome):
            digest.update(array.tobytes())
    assert batch.states["episode"].max() > 1, "no episode ended"
    return digest.hexdigest()


def digests(most_jobs: int) -> Digests:
    found = {str(seed): run_digest(seed, case) for seed, case in sample(most_jobs).items()}
    return found | {placement: env_digest(placement) for placement in PLACEMENTS}


def elsewhere(most_jobs: int, **variables: str) -> Digests:
    """The same digests from a fresh interpreter with other settings of numba; any warning is an error there."""
    name = Path(__file__).stem
    code = f"import json; from tests.envs.{name} import digests; print(json.dumps(digests({most_jobs})))"
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(("variable", "most_jobs"), [("NUMBA_DISABLE_JIT", 11), ("NUMBA_BOUNDSCHECK", 40)])
def test_other_builds_give_the_same_bytes(variable: str, most_jobs: int) -> None:
    here, there = digests(most_jobs), elsewhere(most_jobs, **{variable: "1"})
    assert [name for name in here if there[name] != here[name]] == []


def test_the_sample_covers_the_core() -> None:
    seen: Counter[object] = Counter()
    for trace, cluster, order, config in sample(11).values():
        jobs, settings = trace.jobs, config.resolve()
        seen.update([order.key, (settings.placement, order.preemptive), config.compat, len(cluster.types)])
        seen["fractions", order.preemptive] += bool((jobs["share_milli"] < 1000).any())
        seen["pinned", order.preemptive] += not jobs["preemptible"].all()
        seen["promotions"] += order.promote > 0
    wanted: list[object] = [*KEYS, *((rule, mode) for rule in PLACEMENTS for mode in (False, True))]
    wanted += ["tiresias", "helios", 1, 2, "promotions"]
    wanted += [(what, mode) for what in ("fractions", "pinned") for mode in (False, True)]
    assert [feature for feature in wanted if seen[feature] == 0] == []
