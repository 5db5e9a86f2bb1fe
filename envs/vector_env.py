"""Many clusters as one ``gymnasium.vector.VectorEnv``, with each of Gymnasium's autoreset modes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.batch import MANUAL, NEXT_STEP, SAME_STEP, Batch
from envs.env import Info, Observation, episode_metrics
from envs.settings import make_settings
from envs.spec import SpecError

_MODES = {
    AutoresetMode.SAME_STEP: SAME_STEP,
    AutoresetMode.NEXT_STEP: NEXT_STEP,
    AutoresetMode.DISABLED: MANUAL,
}


class ClusterVectorEnv(VectorEnv[Observation, npt.NDArray[Any], npt.NDArray[Any]]):
    """B clusters with the same settings; row b seeded with s is ClusterEnv seeded with s.

    ``copy=False`` hands out the batch's own arrays, which the next step overwrites. ``threads``: rows
    are stepped on this many threads (no effect on results). Other arguments: fields of EnvSettings and
    ``flat``, as for ClusterEnv; ``max_episode_steps``, which Gymnasium passes, is ignored, since the
    horizon ends an episode. ``infos["action_mask"]`` is (B, A) bool. NEXT_STEP: the step after an end
    ignores its action, gives reward 0 and the first observation of the next episode. SAME_STEP: it
    begins at once, ``infos["final_obs"]`` and ``infos["final_info"]`` tell of the end. DISABLED: give
    ``reset(options={"reset_mask": mask})`` the rows to begin anew.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        threads: int = 1,
        flat: bool = False,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        **settings: Any,
    ) -> None:
        if render_mode is not None:
            raise SpecError("a batch of environments cannot be rendered; use ClusterEnv")
        if num_envs < 1:
            raise SpecError(f"num_envs must be at least 1, not {num_envs}")
        self.settings = make_settings(**settings)
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.batch = Batch(self.settings, num_envs, _MODES[self.autoreset_mode])
        self.batch.set_threads(threads)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.num_envs = num_envs
        self.copy, self.flat = copy, flat
        self.layout = self.settings.layout
        self.single_observation_space = self.layout.flat_space() if flat else self.layout.dict_space()
        self.single_action_space: spaces.Space[Any] = self.settings.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._seeded = False

    def reset(
        self,
        *,
        seed: int | list[int | None] | npt.NDArray[np.int64] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
        """Begin new episodes in all rows, or in those of ``options["reset_mask"]``; seeds are s, s + 1, ..."""
        options = options or {}
        rows = np.ones(self.num_envs, np.bool_)
        if "reset_mask" in options:
            rows = np.asarray(options["reset_mask"], np.bool_)
            if rows.shape != (self.num_envs,):
                raise SpecError(f"reset_mask has shape {rows.shape}, expected ({self.num_envs},)")
        starts = np.broadcast_to(np.asarray(options.get("window", -1), np.int64), (self.num_envs,)).copy()
        self.batch.reset(self._seeds(seed), rows, starts)
        return self._observe(self.batch.obs), {"action_mask": self.action_masks()}

    def step(
        self, actions: npt.NDArray[Any]
    ) -> tuple[Observation, npt.NDArray[np.float64], npt.NDArray[np.bool_], npt.NDArray[np.bool_], Info]:
        """Take one action in every row: (B,) edits, or (B, J) log-weights."""
        batch = self.batch
        weights = self.settings.action == "weights"
        actions = np.ascontiguousarray(actions, np.float64 if weights else np.int64)
        expected = (self.num_envs, *(self.single_action_space.shape or ()))
        if actions.shape != expected:
            raise ValueError(f"actions have shape {actions.shape}, expected {expected}")
        batch.step(actions)
        info: Info = {
            "action_mask": self.action_masks(),
            "reward_terms": {self.settings.objective: batch.reward.copy()},
        }
        ended = batch.terminated | batch.truncated
        if ended.any():
            self._tell_ends(info, ended)
        observation = self._observe(batch.obs)
        if not self.copy:
            return observation, batch.reward, batch.terminated, batch.truncated, info
        return observation, batch.reward.copy(), batch.terminated.copy(), batch.truncated.copy(), info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """(B, A) bool."""
        return self.batch.mask.copy() if self.copy else self.batch.mask

    def _seeds(self, seed: int | list[int | None] | npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64] | None:
        if seed is None:
            if self._seeded:
                return None
            seed = int(self.np_random.integers(1 << 62))
        self._seeded = True
        if isinstance(seed, int | np.integer):
            self._np_random = np.random.default_rng(int(seed))
            return int(seed) + np.arange(self.num_envs, dtype=np.int64)
        drawn = [int(self.np_random.integers(1 << 62)) if s is None else int(s) for s in seed]
        return np.array(drawn, np.int64)

    def _observe(self, rows: npt.NDArray[np.float32]) -> Observation:
        rows = rows.copy() if self.copy else rows
        return rows if self.flat else self.layout.split(rows)

    def _tell_ends(self, info: Info, ended: npt.NDArray[np.bool_]) -> None:
        """Add what Gymnasium expects of finished rows."""
        rows = np.flatnonzero(ended)
        found = [episode_metrics(self.batch, int(b)) for b in rows]
        metrics: Info = {}
        for name in found[0]:
            metrics[name] = np.zeros(self.num_envs)
            metrics[name][rows] = [row[name] for row in found]
            metrics[f"_{name}"] = ended.copy()
        info["episode_metrics"], info["_episode_metrics"] = metrics, ended.copy()
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            final = self.batch.final_obs.copy()
            finals = np.full(self.num_envs, None, object)
            for b in np.flatnonzero(ended):
                finals[b] = final[b] if self.flat else self.layout.split(final[b])
            info["final_obs"], info["_final_obs"] = finals, ended.copy()
            info["final_info"] = {"episode_metrics": metrics, "_episode_metrics": ended.copy()}
            info["_final_info"] = ended.copy()
