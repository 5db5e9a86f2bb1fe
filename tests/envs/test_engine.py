"""Tasks in this process, in a pool and on Ray: same results, and failures that reach the caller."""

from __future__ import annotations

import multiprocessing
import os

import pytest

from envs.engine import EngineError, run_tasks


def scale(factor, task):
    return factor * task


def fail_at_three(factor, task):
    if task == 3:
        raise ValueError("three is too many")
    return factor * task


def die_at_three(factor, task):
    if task == 3:
        os._exit(1)
    return factor * task


def run(work, jobs, engine="local"):
    done = []
    return run_tasks(work, 10, list(range(5)), jobs, engine, done.append), sorted(done)


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_tasks(jobs):
    assert run(scale, jobs) == ([0, 10, 20, 30, 40], [0, 1, 2, 3, 4])


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_exception_reaches_the_caller_and_leaves_no_process(jobs):
    with pytest.raises(ValueError, match="three is too many"):
        run(fail_at_three, jobs)
    assert multiprocessing.active_children() == []


def test_a_dead_worker_is_reported():
    with pytest.raises(EngineError, match="a worker process died"):
        run(die_at_three, 2)


def test_ray_is_named_when_it_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(EngineError, match=r"pip install 'gpu-musher\[ray\]'"):
        run(scale, 1, "ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Ray's own
def test_ray_gives_the_same_results():
    pytest.importorskip("ray")
    assert run(scale, 1, "ray") == ([0, 10, 20, 30, 40], [0, 1, 2, 3, 4])
    with pytest.raises(ValueError, match="three is too many"):
        run(fail_at_three, 1, "ray")
