"""``musher/Cluster-v0``: one cluster as a Gymnasium environment, a batch of one.

The scheduler of a GPU cluster is the agent. At a scheduling pass it edits the allocation job by job
and then commits; time advances only on the commit.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from envs.batch import MANUAL, Batch
from envs.layout import COMPLETED, REJECTED, UNFINISHED
from envs.render import draw_cluster
from envs.settings import make_settings
from envs.spec import SpecError

Observation = dict[str, npt.NDArray[np.float32]] | npt.NDArray[np.float32]
Info = dict[str, Any]


class ClusterEnv(gymnasium.Env[Observation, Any]):
    """A GPU cluster with a queue of jobs.

    ## Observation space
    Dict of float32 boxes (``flat=True``: one Box with the same numbers): ``cluster (Fc,)``, ``nodes (N, Fn)``,
    ``jobs (J, Fj)``, ``occupancy (N, G)``, with inference ``services (V, Fs)``, and in scenario layer-elastic
    ``layers (J, Fl)``. Columns: FEATURES in envs/features.py, docs/environment.md.

    ## Action space
    ``Discrete(1 + J * 9 + V * 2)``: 0 commits, ``1 + j * 9 + e`` applies edit e of EDITS (envs/actions.py) to slot j,
    ``1 + J * 9 + v * 2 + e`` edit e of SERVICE_EDITS (envs/service_edits.py) to inference service v.
    The mask of valid actions is ``info["action_mask"]`` and ``action_masks()``, bool; commit is always
    valid. After ``edit_budget`` edits the pass commits by itself. An action outside the mask raises
    SimulatorError and changes nothing, or commits (``on_invalid="commit"``).
    ``action="weights"``: ``Box (J,)`` in [-1, 1], a fifth of the log-weights of the jobs by slot (free slots do not
    count), from which envs/allocator.py makes the allocation of the pass; there is no mask. Not in layer-elastic.

    ## Reward
    At a commit ``- time x unfinished jobs / scale`` up to the next pass (objective ``jct``), else 0: the
    undiscounted return is - sum of JCT / scale. Edits take no time, so do not discount (gamma = 1).
    ``info["reward_terms"]`` has the same number by name. Other objectives: envs/objectives.py.

    ## Starting state
    An empty cluster at the first arrival of a window of ``window_jobs`` jobs, drawn from the seed within
    ``split``, or the one that starts at job ``options["window"]``.

    ## Episode end
    ``terminated`` when every job is done, ``truncated`` at the horizon. ``info["episode_metrics"]`` then has
    mean_jct_s, num_completed, num_rejected and num_unfinished of training jobs, among others, and mean_latency_s,
    slo_violations and warm_share of inference tasks, and mean_residual and max_residual of jobs with layers.

    ## Arguments
    The fields of EnvSettings (envs/settings.py), ``flat`` and ``render_mode``.

    ## Version history
    v0: rigid and elastic jobs, inference tasks, frozen layers.
    """

    metadata = {"render_modes": ["rgb_array", "human"], "render_fps": 4}  # noqa: RUF012 - Gymnasium's convention

    def __init__(self, *, flat: bool = False, render_mode: str | None = None, **settings: Any) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise SpecError(f"unknown render_mode {render_mode!r}; known: {', '.join(self.metadata['render_modes'])}")
        self.settings = make_settings(**settings)
        self.batch = Batch(self.settings, 1, MANUAL, record=render_mode is not None)
        self.render_mode = render_mode
        self.flat = flat
        self.layout = self.settings.layout
        self.observation_space: spaces.Space[Any] = self.layout.flat_space() if flat else self.layout.dict_space()
        self.action_space: spaces.Space[Any] = self.settings.action_space
        self._views = tuple(self.layout.slices.items())
        space = self.action_space
        self._actions = np.zeros((1, *(space.shape or ())), np.int64 if space.shape == () else np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Begin an episode; ``options={"window": i}`` begins it at job ``i`` of the trace."""
        fresh = seed is not None or self._np_random is None
        super().reset(seed=seed)
        if fresh:
            seed = seed if seed is not None else int(self.np_random.integers(1 << 62))
        start = -1 if options is None else int(options.get("window", -1))
        self.batch.reset(np.array([seed], np.int64) if fresh else None, starts=np.array([start], np.int64))
        return self._observe(), {"action_mask": self.batch.mask[0].copy()}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Take one action."""
        batch = self.batch
        if self._actions.ndim > 1 and np.shape(action) != self.action_space.shape:
            raise ValueError(f"the action has shape {np.shape(action)}, expected {self.action_space.shape}")
        self._actions[0] = action
        batch.step(self._actions)
        reward = batch.reward.item()
        info: Info = {"action_mask": batch.mask[0].copy(), "reward_terms": {self.settings.objective: reward}}
        terminated = truncated = False
        if batch.some_ended:
            terminated, truncated = batch.terminated.item(), batch.truncated.item()
            info["episode_metrics"] = episode_metrics(batch, 0)
        if self.render_mode == "human":
            self.render()
        return self._observe(), reward, terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """(A,) bool: what sb3-contrib asks for."""
        return np.array(self.batch.mask[0])

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """The whole state, for search: give it to :meth:`restore` any number of times."""
        return self.batch.snapshot()

    def restore(self, snapshot: dict[str, npt.NDArray[Any]]) -> tuple[Observation, Info]:
        """Go back to a snapshot; its observation and info."""
        self.batch.restore(snapshot)
        return self._observe(), {"action_mask": self.batch.mask[0].copy()}

    def render(self) -> npt.NDArray[np.uint8] | None:
        """A Gantt chart of the last hours of the cluster: (H, W, 3) uint8, or a window (``human``)."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs render_mode='rgb_array' or 'human' at construction")
            return None
        return draw_cluster(self.batch, self.render_mode)

    def _observe(self) -> Observation:
        row: npt.NDArray[np.float32] = self.batch.obs[0].copy()
        if self.flat:
            return row
        return {name: row[a:b].reshape(shape) for name, (a, b, shape) in self._views}


def episode_metrics(batch: Batch, b: int) -> dict[str, float]:
    """Metrics of row ``b``'s episode that has just finished; means are over completed jobs, NaN if there are none."""
    start, results = batch.episode_results(b)
    arrival = batch.arrival[start : start + len(results)]
    status = results["status"]
    training = batch.jobs["service"][start : start + len(results)] < 0
    done = (status == COMPLETED) & training
    count = int(done.sum())
    jct = results["finish"][done] - (arrival[done] - arrival[0])
    return {
        "mean_jct_s": float(jct.sum() / count) if count else np.nan,
        "mean_queueing_delay_s": float(results["queueing_delay"][done].sum() / count) if count else np.nan,
        "num_rescales": float(results["num_rescales"].sum()),
        "num_preemptions": float(results["num_preemptions"].sum()),
        "num_completed": float(count),
        "num_rejected": float((status == REJECTED).sum()),
        "num_unfinished": float(((status == UNFINISHED) & training).sum()),
        **_task_metrics(batch, results[~training], arrival[~training] - arrival[0]),
        **_layer_metrics(batch, results[done & (batch.jobs["modules"][start : start + len(results)] > 0)]),
    }


def _layer_metrics(batch: Batch, jobs: npt.NDArray[Any]) -> dict[str, float]:
    """Of the completed jobs of an episode whose layers may be frozen; nothing where the workload has none of them."""
    if not batch.states["layered"][0]:
        return {}
    if not len(jobs):
        return {"mean_residual": np.nan, "max_residual": np.nan}
    return {"mean_residual": float(jobs["residual"].mean()), "max_residual": float(jobs["residual"].max())}


def _task_metrics(batch: Batch, tasks: npt.NDArray[Any], arrival: npt.NDArray[np.float64]) -> dict[str, float]:
    """Of the completed inference tasks of an episode; nothing where the workload has no services."""
    if not batch.settings.workload.services:
        return {}
    done = tasks["status"] == COMPLETED
    if not done.any():
        return {"mean_latency_s": np.nan, "slo_violations": np.nan, "warm_share": np.nan}
    tasks = tasks[done]
    late = tasks["queueing_delay"] + tasks["paused_gpu_s"] > batch.settings.sim.slo_s
    return {
        "mean_latency_s": float((tasks["finish"] - arrival[done]).mean()),
        "slo_violations": float(late.mean()),
        "warm_share": float(tasks["warm"].mean()),
    }
