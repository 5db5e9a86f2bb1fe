"""Run many independent tasks: in this process, in a pool of processes, or on a Ray cluster.

Every engine calls the same function with the same arguments, and results are returned in the order
of the tasks, so what is computed does not depend on where.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from typing import Any, Literal, TypeVar

C = TypeVar("C")
T = TypeVar("T")
R = TypeVar("R")

Engine = Literal["local", "ray"]
Stream = Generator[tuple[int, R], None, None]  # index of a task and its result, as they end


class EngineError(RuntimeError):
    """Tasks that could not be run where they were asked to; the message is one sentence."""


def run_tasks(
    work: Callable[[C, T], R],
    context: C,
    tasks: Sequence[T],
    jobs: int,
    engine: Engine,
    on_done: Callable[[T], None],
) -> list[R]:
    """``[work(context, task) for task in tasks]``; ``on_done`` hears of each task as it ends.

    ``jobs`` processes are used (engine local); ``work`` and its arguments must be picklable then.
    An exception of a task, or Ctrl-C, stops the others and is raised here.
    """
    results: dict[int, R] = {}
    runner = _ray if engine == "ray" else _pool if min(jobs, len(tasks)) > 1 else _here
    with closing(runner(work, context, tasks, jobs)) as finished:
        for index, result in finished:
            results[index] = result
            on_done(tasks[index])
    return [results[index] for index in range(len(tasks))]


def _here(work: Callable[[C, T], R], context: C, tasks: Sequence[T], jobs: int) -> Stream[R]:
    for index, task in enumerate(tasks):
        yield index, work(context, task)


# The work and context of a pool's process: sent once, not with each task.
_work: Callable[[Any, Any], Any]
_context: Any


def _start_process(work: Callable[[C, T], R], context: C) -> None:
    global _work, _context
    _work, _context = work, context
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends its pool


def _run_in_process(task: T) -> Any:
    return _work(_context, task)


def _pool(work: Callable[[C, T], R], context: C, tasks: Sequence[T], jobs: int) -> Stream[R]:
    """Spawned rather than forked processes: a fork would copy locks of numba's and torch's threads."""
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)), multiprocessing.get_context("spawn"), _start_process, (work, context)
    )
    try:
        futures: dict[Future[R], int] = {pool.submit(_run_in_process, task): i for i, task in enumerate(tasks)}
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool:
        raise EngineError("a worker process died, probably for want of memory; try fewer --jobs") from None
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)  # waits until the pool's own thread has joined every process


def _ray(work: Callable[[C, T], R], context: C, tasks: Sequence[T], jobs: int) -> Stream[R]:
    """On the cluster of RAY_ADDRESS, or else on this machine's cores."""
    try:
        import ray
    except ModuleNotFoundError:
        raise EngineError("--engine ray needs Ray: pip install 'gpu-musher[ray]'") from None
    own = not ray.is_initialized()
    if own:
        path = os.pathsep.join(folder for folder in sys.path if folder)  # so that workers find what we find
        ray.init(
            address=os.environ.get("RAY_ADDRESS"),
            runtime_env={"env_vars": {"PYTHONPATH": path}},
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    try:
        remote = ray.remote(num_cpus=1)(work)
        shared = ray.put(context)
        waiting = {remote.remote(shared, task): index for index, task in enumerate(tasks)}
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            try:
                result = ray.get(done[0])
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            yield waiting.pop(done[0]), result
    finally:
        if own:
            ray.shutdown()
