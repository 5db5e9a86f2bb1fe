"""What a scheduler sees of stragglers: :class:`StragglerView`, which is ``view.stragglers``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from envs.spec import SimConfig, SpecError
from envs.straggler_odds import placement_odds
from envs.straggler_presets import STRAGGLER_PRESETS, StragglerPreset
from envs.straggler_sight import look, seen_slowdown, write_flags

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class StragglerView:
    """Read-only picture of what is seen of stragglers at a pass; docs/design/005-stragglers.md, section 6.

    Axes: J slots, N nodes, D devices; causes compute (0) and network (1), horizons 10 (0) and 60 min (1). SpecError if
    no worker straggles. Readings are those of the first look in the present turn of 300 s, and to read one is to look.
    """

    def __init__(self, states: np.recarray, config: SimConfig) -> None:
        if config.stragglers == "none":
            raise SpecError("this scheduler looks at stragglers, and there are none: set sim.stragglers to shared, say")
        self._states, self._s, self._config = states, states[0], config

    def _read(self, name: str, count: int) -> npt.NDArray[Any]:
        column: npt.NDArray[Any] = self._states[name][0][:count].view()
        column.flags.writeable = False
        return column

    def _reading(self, name: str) -> Floats:
        look(self._s)
        return self._read(name, int(self._s.num_nodes))

    def _slots(self, name: str) -> npt.NDArray[Any]:
        return self._read(name, int(self._s.num_slots))

    @property
    def preset(self) -> StragglerPreset:
        """How often, how long and how much components straggle in general."""
        return STRAGGLER_PRESETS[self._config.stragglers]

    @property
    def p(self) -> Floats:
        """(N, 2, 2) probability that a node straggles for a cause within a horizon, by ``config.straggler_obs``."""
        return self._reading("seen_p")

    def placement_p(self, placement: npt.ArrayLike) -> Floats:
        """(..., 2) probability that a placement (..., N) [GPUs] straggles within each horizon, by ``p``."""
        return placement_odds(self.p, placement)

    @property
    def load(self) -> Floats:
        """(N, 2) measured load of the CPUs and of the link."""
        return self._reading("node_load")

    @property
    def ratio(self) -> Floats:
        """(N, 2) smoothed ratio of observed to expected time of the slowest worker, by cause."""
        return self._reading("node_ratio")

    @property
    def flagged(self) -> npt.NDArray[np.bool_]:
        """(N, 2) whether the detector takes a node for slow now, by cause."""
        flags = np.zeros((int(self._s.num_nodes), 2), np.bool_)
        write_flags(self._s, flags)
        return flags

    def slowdown(self, slots: npt.ArrayLike) -> Floats:
        """(n,) how many times as long iterations of slots (n,) seem to take as without stragglers; 1: not running."""
        return np.array([seen_slowdown(self._s, slot) for slot in np.asarray(slots, np.int64)], np.float64)

    @property
    def gpu_speed(self) -> Floats:
        """(D, 3) static slowness of each device for each class of jobs; 1: usual."""
        return self._read("gpu_speed", int(self._s.num_gpus))

    @property
    def speed_class(self) -> Ints:
        """(J,) class of each job: column of ``gpu_speed``."""
        return self._slots("speed_class").astype(np.int64)

    @property
    def comm_share(self) -> Floats:
        """(J,) share of an iteration that is communication where the job spans nodes."""
        return self._slots("comm")

    @property
    def sensitivity(self) -> Floats:
        """(J, 3) how much slow CPUs, links and storage slow each job down."""
        return self._slots("kappa")

    @property
    def sync(self) -> Ints:
        """(J,) how the workers of each job wait for each other: place in SYNC_MODES of envs/layout.py."""
        return self._slots("sync").astype(np.int64)
