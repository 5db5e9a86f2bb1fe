"""Many environments stepped at once: the batch that the RL faces are views of.

The only parallel loop of the project is here. Rows are independent and every random number is a
function of the row's seed, so results do not depend on the batch size or the number of threads.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd

from envs.actions import COMMIT, num_actions
from envs.allocator import allocate, make_scratch
from envs.applying import SimulatorError
from envs.commit import commit
from envs.episode import (
    COMMITTED,
    HALTED,
    INVALID_ACTION,
    NOTHING,
    RUNNING_ON,
    TERMINATED,
    TRUNCATED,
    begin_episode,
    draw_window,
    observe,
    run_to_pass,
    step_episode,
    take_reward,
)
from envs.jit import jit, jit_inline, prange
from envs.layout import LOG_DTYPE, LOG_FULL, OK, RECORD_STATUS, make_state, record_dtype
from envs.objectives import terminal_reward
from envs.order import Key, ListOrder, set_order
from envs.settings import MAX_LOG_WEIGHT, EnvSettings
from envs.simulate import job_frame
from envs.spec import SpecError
from envs.tables import plain
from envs.workload import empty_results, set_inference

SAME_STEP, NEXT_STEP, MANUAL = 0, 1, 2  # when a finished row begins its next episode
FEW = 8  # below this many rows a parallel loop costs more than it gains

Bools = npt.NDArray[np.bool_]


@jit
def begin_row(b, states, w, results, log, settings, windows):
    """Begin row ``b``'s next episode on a window drawn from its seed."""
    s = states[b]
    return begin_episode(s, w, results[b, s.episode % 2], log, draw_window(s, windows), settings)


@jit_inline
def step_row(b, states, w, results, log, settings, windows, actions, obs, mask, final_obs, reward, outcome):
    """Step row ``b``: action, reward, autoreset, observation, mask. Returns the outcome."""
    s = states[b]
    reward[b] = 0.0
    if s.needs_reset:
        return reset_row(b, states, w, results, log, settings, windows, obs, mask)
    half = (s.episode - 1) % 2
    code, slot = step_episode(s, w, results[b, half], log, mask[b], actions[b])
    if code == INVALID_ACTION:
        if not settings.commit_invalid:
            return code
        code, slot = step_episode(s, w, results[b, half], log, mask[b], COMMIT)
    return finish_row(b, states, w, results, log, settings, windows, code, slot, obs, mask, final_obs, reward)


@jit
def reset_row(b, states, w, results, log, settings, windows, obs, mask):
    """Begin the next episode of row ``b``, whose last one is over."""
    code = begin_row(b, states, w, results, log, settings, windows)
    observe(states[b], w, obs[b], mask[b], settings.width, -1)
    return HALTED if code == HALTED else RUNNING_ON


@jit
def finish_row(b, states, w, results, log, settings, windows, code, slot, obs, mask, final_obs, reward):
    """Reward, autoreset and observation of row ``b`` after step_episode(), which led to ``code`` and ``slot``."""
    s = states[b]
    if slot == COMMITTED:
        reward[b] = take_reward(s)
    if code in (TERMINATED, TRUNCATED):
        if settings.autoreset == SAME_STEP:
            observe(s, w, final_obs[b], mask[b], settings.width, -1)
            if begin_row(b, states, w, results, log, settings, windows) == HALTED:
                code = HALTED
        else:
            s.needs_reset = settings.autoreset == NEXT_STEP
    observe(s, w, obs[b], mask[b], settings.width, slot)
    return code


@jit
def step_weights(states, w, results, log, settings, windows, weights, scratch, obs, mask, final_obs, reward, outcome):
    """Step every row by log-weights (B, J) of its jobs; the largest outcome."""
    worst = 0
    for b in range(states.shape[0]):
        s = states[b]
        reward[b] = 0.0
        if s.needs_reset:
            code = reset_row(b, states, w, results, log, settings[0], windows, obs, mask)
        else:
            allocate(s, w, weights[b], scratch[0], log)
            commit(s, w, log)
            code = run_to_pass(s, w, results[b, (s.episode - 1) % 2], log)
            code = finish_row(
                b, states, w, results, log, settings[0], windows, code, COMMITTED, obs, mask, final_obs, reward
            )
        outcome[b] = code
        worst = max(worst, code)
    return worst


@jit
def step_serial(states, w, results, log, settings, windows, actions, obs, mask, final_obs, reward, outcome):
    """Step every row, one after another; the largest outcome."""
    worst = 0
    for b in range(states.shape[0]):
        outcome[b] = step_row(
            b, states, w, results, log, settings[0], windows, actions, obs, mask, final_obs, reward, outcome
        )
        worst = max(worst, outcome[b])
    return worst


@numba.njit(cache=True, error_model="numpy", fastmath=False, parallel=True)
def step_parallel(states, w, results, log, settings, windows, actions, obs, mask, final_obs, reward, outcome):
    """Step every row on all threads; the largest outcome."""
    for b in prange(states.shape[0]):
        outcome[b] = step_row(
            b, states, w, results, log, settings[0], windows, actions, obs, mask, final_obs, reward, outcome
        )
    return outcome.max()


@jit
def reset_rows(states, w, results, log, settings, windows, chosen, starts, obs, mask):
    """Begin a new episode in the chosen rows, on window ``starts[b]`` or, if that is -1, on a drawn one."""
    worst = 0
    for b in range(states.shape[0]):
        if not chosen[b]:
            continue
        s = states[b]
        start = starts[b] if starts[b] >= 0 else draw_window(s, windows)
        code = begin_episode(s, w, results[b, s.episode % 2], log, start, settings[0])
        worst = max(worst, code)
        observe(s, w, obs[b], mask[b], settings[0].width, -1)
    return worst


@jit
def resume_row(states, w, results, log, settings, obs, mask):
    """Go on in a batch of one that stopped to have its log emptied; outcome and reward."""
    s = states[0]
    code = run_to_pass(s, w, results[0, (s.episode - 1) % 2], log)
    observe(s, w, obs[0], mask[0], settings[0].width, -1)
    return code, take_reward(s)


_SETTINGS = record_dtype(
    [
        ("length", "i8"),
        ("width", "i8"),
        ("autoreset", "i8"),
        ("commit_invalid", "i8"),
        ("own_clock", "i8"),
        ("has_training", "i8"),
        ("horizon", "f8"),
        ("scale", "f8"),
    ]
)


class Batch:
    """B environments with the same workload, cluster and settings.

    After :meth:`reset` or :meth:`step`: ``obs`` (B, R) float32, ``mask`` (B, A) bool, ``reward`` (B,)
    float64, ``terminated`` and ``truncated`` (B,) bool, and ``final_obs`` (B, R), the last observation
    of rows that finished when ``autoreset`` is SAME_STEP. The arrays are written in place. ``record`` keeps
    who held each GPU when (a batch of one only). ``own_clock``: times are the trace's, instead of counting
    from the window's first arrival.
    """

    def __init__(
        self,
        settings: EnvSettings,
        num_envs: int,
        autoreset: int = SAME_STEP,
        record: bool = False,
        own_clock: bool = False,
    ) -> None:
        if record and num_envs != 1:
            raise ValueError("only a batch of one can record GPU intervals")
        self.settings, self.num_envs, self.layout, self.autoreset = settings, num_envs, settings.layout, autoreset
        self.jobs, self.windows = settings.workload.jobs, settings.windows
        layered = bool((self.jobs["modules"] > 0).any())
        self.states = make_state(num_envs, settings.num_slots, settings.cluster, settings.sim, layered)
        set_inference(self.states, self.jobs)
        set_order(self.states, ListOrder(Key.ARRIVAL))
        self.states["skip_idle"] = 1
        self.states["backlog_allowed"] = 1
        self.states["tuned"] = settings.workload.tuned
        self.states["epochs_count"] = 1
        self.states["has_elastic"] = bool((self.jobs["klass"] >= 0).any())
        self.states["has_shares"] = bool((self.jobs["share_milli"] < 1000).any())
        self.states["edit_budget"] = settings.edit_budget
        self.states["objective"] = settings.objective_code
        self.states["late_penalty"] = settings.late_penalty
        self.states["residual_penalty"] = settings.residual_cost
        self.states["freezes"] = settings.freezes
        self.results = empty_results((num_envs, 2, settings.most_rows))
        self.log = np.zeros(8 * settings.cluster.num_gpus + 65536 if record else 0, LOG_DTYPE).view(np.recarray)
        self.logged: list[npt.NDArray[np.void]] = []
        self._record = np.zeros(1, _SETTINGS).view(np.recarray)
        self._record[0] = (
            settings.length,
            self.layout.gpus_per_node,
            autoreset,
            settings.on_invalid == "commit",
            own_clock,
            bool((self.jobs["service"] < 0).any()),
            settings.horizon_s or 0.0,
            settings.reward_scale or 0.0,
        )
        self.obs = np.zeros((num_envs, self.layout.size), np.float32)
        self.final_obs = np.zeros_like(self.obs)
        self.mask = np.zeros((num_envs, num_actions(settings.num_slots, len(settings.workload.services))), np.bool_)
        self.reward = np.zeros(num_envs)
        self.outcome = np.zeros(num_envs, np.int64)
        self.terminated = np.zeros(num_envs, np.bool_)
        self.truncated = np.zeros(num_envs, np.bool_)
        self.some_ended = False
        self._step: Any = step_serial
        slots, gpus = settings.num_slots, settings.cluster.num_gpus
        self._scratch = make_scratch(1, slots, gpus) if settings.action == "weights" else None
        # Plain arrays: numba looks up the type of an np.recarray in Python, 1-2 us each.
        states, *others = (x.view(np.ndarray) for x in (self.states, self.results, self.log, self._record))
        self._args: tuple[Any, ...] = (states, plain(settings.workload.tables), *others, self.windows)
        # Fields of plain arrays too: those of an np.recarray cost 1-2 us each, which adds up over episodes.
        self._episode, self._window, self._last_window = (states[f] for f in ("episode", "window", "last_window"))
        self.arrival = self._args[1].jobs["arrival"]
        self._outputs = (self.obs, self.mask, self.final_obs, self.reward, self.outcome)

    def set_threads(self, threads: int) -> None:
        """Step on this many threads; batches of fewer than 8 rows stay on one."""
        numba.set_num_threads(threads)
        self._step = step_parallel if threads > 1 and self.num_envs >= FEW else step_serial

    def reset(
        self,
        seeds: npt.NDArray[np.int64] | None = None,
        rows: Bools | None = None,
        starts: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Begin new episodes in ``rows`` (default all).

        ``seeds`` (B,): restart the row's random numbers. ``starts`` (B,): first job of the window, -1:
        drawn from the seed.
        """
        rows = np.ones(self.num_envs, np.bool_) if rows is None else rows
        if seeds is not None:
            self.states["seed"][rows] = seeds[rows]
            self.states["episode"][rows] = 0
        if starts is None:
            starts = np.full(self.num_envs, -1, np.int64)
        for start in starts[rows]:
            if not -1 <= start < len(self.jobs):
                raise SpecError(f"window {start} lies outside the trace of {len(self.jobs)} jobs")
        code = reset_rows(*self._args, rows, starts, self.obs, self.mask)  # type: ignore[call-arg]
        if code == HALTED:
            self._raise_halted()
        self.terminated[rows] = False
        self.truncated[rows] = False
        self.logged.clear()

    def step(self, actions: npt.NDArray[Any]) -> None:
        """Take one action in every row: edits (B,) int64, or weights (B, J) float64 in [-1, 1].

        Raises SimulatorError on an invalid edit unless it commits.
        """
        if self._scratch is None:
            worst = self._step(*self._args, actions, *self._outputs)
        else:
            weights = np.ascontiguousarray(np.clip(actions, -1.0, 1.0) * MAX_LOG_WEIGHT, np.float64)
            if not np.isfinite(weights).all():
                raise ValueError("weights must be finite numbers")
            worst = step_weights(*self._args, weights, self._scratch, *self._outputs)  # type: ignore[call-arg]
        if worst == RUNNING_ON and not self.some_ended:
            return
        np.equal(self.outcome, TERMINATED, out=self.terminated)
        np.equal(self.outcome, TRUNCATED, out=self.truncated)
        self.some_ended = worst != RUNNING_ON
        if self.some_ended:
            self._after_step(actions)

    def _after_step(self, actions: npt.NDArray[np.int64]) -> None:
        """Deal with rows that did not simply run on: finished, refused, or stopped."""
        invalid = np.flatnonzero(self.outcome == INVALID_ACTION)
        if len(invalid):
            raise SimulatorError(
                f"environment {invalid[0]}: action {actions[invalid[0]]} is not valid now (see the mask)"
            )
        while (self.outcome == HALTED).any():
            if len(self.log) == 0 or self.states["status"][0] != LOG_FULL:
                self._raise_halted()
            self.drain_log()
            code, reward = resume_row(*self._args[:5], self.obs, self.mask)  # type: ignore[call-arg]
            self.outcome[0] = code
            self.reward[0] += reward
            self.terminated[0], self.truncated[0] = code == TERMINATED, code == TRUNCATED
        if self.settings.objective_code == NOTHING:
            for b in np.flatnonzero(self.terminated | self.truncated):
                self.reward[b] += terminal_reward(
                    self.settings.objective, self.episode_jobs(int(b)), self.settings.cluster.num_gpus
                )

    def _raise_halted(self) -> None:
        b = int(np.flatnonzero(self.states["status"] != OK)[0])
        s = self.states[b]
        raise SimulatorError(
            f"environment {b} stopped at {s.now:g} s with {s.num_waiting} jobs waiting and {s.num_running} running: "
            f"{RECORD_STATUS[int(s.status)]}"
        )

    def drain_log(self) -> None:
        """Move the logged GPU intervals out of the buffer of a batch of one."""
        s = self.states[0]
        self.logged.append(self.log[: int(s.log_len)].copy())
        s.log_len = 0
        s.status = OK

    def episode_results(self, b: int) -> tuple[int, npt.NDArray[Any]]:
        """First job of the window, and RESULT_DTYPE rows, of row ``b``'s episode that has just finished."""
        # Under SAME_STEP the record has begun the next episode; the results are in the other half.
        begun = self.autoreset == SAME_STEP
        start = int((self._last_window if begun else self._window)[b])
        half = (int(self._episode[b]) - (2 if begun else 1)) % 2
        rows = self.settings.source.window_stop(start, self.settings.length) - start
        return start, self._args[2][b, half, :rows]

    def episode_jobs(self, b: int) -> pd.DataFrame:
        """Job table, as RunResult.jobs, of row ``b``'s episode that has just finished."""
        start, results = self.episode_results(b)
        source = self.settings.source.window(start, self.settings.length)
        return job_frame(source, results, self.jobs[start : start + len(source)])

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that changes from step to step, as copies."""
        names = ["states", "results", "obs", "final_obs", "mask", "reward", "outcome", "terminated", "truncated"]
        snapshot = {name: getattr(self, name).copy() for name in names}
        if len(self.log):
            snapshot["log"] = self.log.copy()
            snapshot["logged"] = np.concatenate([*self.logged, np.zeros(0, LOG_DTYPE)])
        return snapshot

    def restore(self, snapshot: dict[str, npt.NDArray[Any]]) -> None:
        """Go back to a snapshot."""
        for name, value in snapshot.items():
            if name == "logged":
                self.logged = [value]
            else:
                getattr(self, name)[...] = value
        self.some_ended = bool((self.terminated | self.truncated).any())
