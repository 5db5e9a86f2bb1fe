"""What a layer profile says: how much of a model's work is left when its first k modules are frozen.

A model is K freezable modules in the order in which they run; freezing is by prefix: modules 0 to k - 1 run in eval
mode without autograd, their parameters leave the optimizer and the all-reduce. :func:`load_layer_profiles` reads the
table that ships with the project, which ``python -m traces profile-layers`` measured; see docs/layer-profiles.md.
Every share is (K,) float64 indexed by k = 0 .. K - 1, and 1 at k = 0.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.profiles import Array, ProfileError

SHIPPED = Path(__file__).with_name("layer_profiles.json")
OPTIMIZER_STATES = {"sgd": 1, "adam": 2}  # numbers kept for each trained parameter: momentum; two moments
PARAM_BYTES = 4  # float32
CONTEXT_BYTES = 2.0**30  # what a process holds on a GPU before any model; ours
ACTIVATION_FLOOR = 0.15  # of the activations' slope: left with everything frozen (10-20 % measured on V100)
FREEZABLE = 0.9  # of the modules: the head always trains


@dataclass(frozen=True)
class LayerModule:
    """One freezable module. FLOPs are 2 a multiply-add; FLOPs and bytes are those of one sample, float32.

    What several modules share (a tied weight, a tensor kept for two backward passes) counts in the last of them,
    since it stays until that one is frozen: sums over modules i >= k are exactly what is left.
    """

    name: str
    params: int
    forward_flops: float
    backward_flops: float  # as in a step without freezing
    frontier_backward_flops: float  # as first active module: without the gradient of its input
    saved_activation_bytes: float  # kept for the backward pass, each storage once, parameters and buffers excluded
    boundary_bytes: float  # of its output that the next module reads
    boundary_bytes_with_skips: float  # all that later modules read from it and its predecessors: what a cache stores


@dataclass(frozen=True, eq=False)
class LayerTimes:
    """Times of one training step, by module (K,) float64 [s]: CPU time on a CPU, stream time on a GPU."""

    device: str
    torch: str  # version
    threads: int
    batch: int  # samples a step
    forward_s: Array  # in training mode; the loss counts in the last module
    eval_forward_s: Array  # in eval mode without autograd
    backward_s: Array
    frontier_backward_s: Array
    optimizer_s: Array  # the optimizer's step and the zeroing of gradients


@dataclass(frozen=True)
class LayerProfile:
    """A model's modules in the order in which they run, the optimizer it trains with, and measured times if any."""

    model: str
    about: str
    optimizer: str  # a key of OPTIMIZER_STATES
    modules: tuple[LayerModule, ...]
    times: LayerTimes | None = None

    def __len__(self) -> int:
        """K, the number of modules."""
        return len(self.modules)

    @property
    def params(self) -> int:
        """All parameters that train, shared ones once."""
        return sum(module.params for module in self.modules)

    @property
    def max_frozen(self) -> int:
        """The largest k in use, floor(0.9 K): the head always trains."""
        return int(FREEZABLE * len(self) + 1e-9)

    def column(self, name: str) -> Array:
        """(K,) float64: one field of every module."""
        return np.asarray([getattr(module, name) for module in self.modules], dtype=np.float64)

    def forward_share(self) -> Array:
        """c_k = sum_{i>=k} F_i / F: forward work left if the frozen modules' output is cached."""
        return self._left("forward_flops")

    def backward_share(self) -> Array:
        """b_k = (R_k + sum_{i>k} B_i) / B, R_k being the frontier's backward work; b_0 = 1."""
        return np.asarray(self._backward_flops / self._backward_flops[0])

    def param_share(self) -> Array:
        """q_k = sum_{i>=k} P_i / P: parameters left to the optimizer and the all-reduce."""
        return self._left("params")

    def layer_share(self) -> Array:
        """a_k = 1 - k / K: modules left."""
        return 1 - np.arange(len(self)) / len(self)

    def activation_share(self) -> Array:
        """h_k = sum_{i>=k} A_i / A: bytes left that are kept for the backward pass."""
        return self._left("saved_activation_bytes")

    def relative_flops(self, cached: bool = False) -> Array:
        """FLOPs of a step against those with k = 0: (F + B_k) / (F + B); cached: (c_k F + B_k) / (F + B)."""
        forward = self.column("forward_flops").sum() * (self.forward_share() if cached else np.ones(len(self)))
        return np.asarray((forward + self._backward_flops) / (forward[0] + self._backward_flops[0]))

    def step_s(self) -> Array:
        """Time of a step of ``times.batch`` samples [s] on the measured device, from the times of the k = 0 step.

        Frozen modules run forward in eval mode and no further, the first active one has no input gradient. Raises
        ProfileError for a profile without times.
        """
        if self.times is None:
            raise ProfileError(f"{self.model} has no measured times")
        times = self.times
        frozen = np.concatenate([[0.0], np.cumsum(times.eval_forward_s)[:-1]])
        backward = times.frontier_backward_s + _after(times.backward_s)
        return np.asarray(frozen + _from(times.forward_s) + backward + _from(times.optimizer_s))

    def memory_bytes(self, local: float, context_bytes: float = CONTEXT_BYTES, workspace: float = 1.0) -> Array:
        """(K,) float64: memory of a training process with ``local`` samples.

        M_ctx + 4 P + 4 P q_k (1 + o) + local A max(h_k, 0.15), o = 1 with momentum, 2 with Adam. ``workspace`` scales
        A: on V100s the measured slope is 1.2 (MobileNetV2) to 2.2 (VGG-19) times the saved bytes.
        """
        fixed, slope = self._memory(context_bytes, workspace)
        return np.asarray(fixed + local * slope)

    def max_local(
        self, memory_bytes: float, context_bytes: float = CONTEXT_BYTES, workspace: float = 1.0
    ) -> npt.NDArray[np.int64]:
        """(K,) int64: most samples of which a step fits ``memory_bytes``; 0 where not even the parameters do."""
        fixed, slope = self._memory(context_bytes, workspace)
        return np.floor(np.maximum(memory_bytes - fixed, 0.0) / slope + 1e-9).astype(np.int64)

    def _memory(self, context_bytes: float, workspace: float) -> tuple[Array, Array]:
        states = 1 + OPTIMIZER_STATES[self.optimizer]  # gradients and what the optimizer keeps
        fixed = context_bytes + PARAM_BYTES * self.params * (1 + states * self.param_share())
        saved = workspace * self.column("saved_activation_bytes").sum()
        return fixed, np.asarray(saved * np.maximum(self.activation_share(), ACTIVATION_FLOOR))

    @cached_property
    def _backward_flops(self) -> Array:
        return self.column("frontier_backward_flops") + _after(self.column("backward_flops"))

    def _left(self, name: str) -> Array:
        left = _from(self.column(name))
        return np.asarray(left / left[0])


def _from(values: Array) -> Array:
    """sum_{i>=k} of values, for every k."""
    return np.cumsum(values[::-1])[::-1]


def _after(values: Array) -> Array:
    """sum_{i>k} of values, for every k."""
    return np.append(_from(values)[1:], 0.0)


def load_layer_profiles(path: Path = SHIPPED) -> dict[str, LayerProfile]:
    """The layer profiles of a table by model, default the shipped one.

    Raises ProfileError, one sentence that names the file, and the model, module and field at fault.
    """
    return dict(_shipped() if path == SHIPPED else _read(path))


@cache
def _shipped() -> dict[str, LayerProfile]:
    return _read(SHIPPED)


def _read(path: Path) -> dict[str, LayerProfile]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        models = dict(table["models"])
    except OSError as error:
        raise ProfileError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ProfileError(f"{path} is not a table of layer profiles: JSON with a field models is expected") from None
    try:
        return {model: _profile(model, row) for model, row in models.items()}
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None


def layer_table(profiles: Mapping[str, LayerProfile], source: str) -> dict[str, Any]:
    """The table that :func:`load_layer_profiles` reads: a list a field, times with six significant digits."""
    return {"source": source, "models": {model: _row(profile) for model, profile in profiles.items()}}


COUNTS = tuple(field.name for field in fields(LayerModule))
TIMES = tuple(field.name for field in fields(LayerTimes))
BY_MODULE = tuple(name for name in TIMES if name.endswith("_s"))


def _row(profile: LayerProfile) -> dict[str, Any]:
    row: dict[str, Any] = {"about": profile.about, "optimizer": profile.optimizer}
    row["modules"] = {name: [_plain(getattr(module, name)) for module in profile.modules] for name in COUNTS}
    if profile.times is not None:
        times = {name: getattr(profile.times, name) for name in TIMES}
        row["times"] = times | {name: [_plain(value) for value in times[name]] for name in BY_MODULE}
    return row


def _plain(value: Any) -> Any:
    """Whole numbers as such, others with six digits."""
    if isinstance(value, str):
        return value
    return int(value) if float(value).is_integer() else float(f"{value:.6g}")


def _profile(model: str, row: Any) -> LayerProfile:
    for name, kind in (("about", str), ("optimizer", str), ("modules", dict)):
        if not isinstance(row, dict) or not isinstance(row.get(name), kind):
            raise ProfileError(f"model {model}: field {name} is missing or not a {kind.__name__}")
    if row["optimizer"] not in OPTIMIZER_STATES:
        raise ProfileError(
            f"model {model}: optimizer is {row['optimizer']!r}, expected {' or '.join(OPTIMIZER_STATES)}"
        )
    names = row["modules"].get("name")
    if not isinstance(names, list) or not names or len(set(map(str, names))) < len(names):
        raise ProfileError(f"model {model}: field name is not a list of different module names")
    columns = {name: _numbers(model, names, name, row["modules"].get(name)) for name in COUNTS[1:]}
    modules = tuple(
        LayerModule(str(name), int(columns["params"][i]), *(float(columns[key][i]) for key in COUNTS[2:]))
        for i, name in enumerate(names)
    )
    for total in ("params", "forward_flops", "saved_activation_bytes"):
        if columns[total].sum() <= 0:
            raise ProfileError(f"model {model}: field {total} is 0 in every module")
    if columns["frontier_backward_flops"][0] + columns["backward_flops"][1:].sum() <= 0:
        raise ProfileError(f"model {model}: field backward_flops is 0 in every module")
    times = row.get("times")
    return LayerProfile(
        model, row["about"], row["optimizer"], modules, None if times is None else _times(model, names, times)
    )


def _times(model: str, names: list[Any], row: Any) -> LayerTimes:
    if not isinstance(row, dict) or not set(TIMES) <= row.keys():
        missing = [name for name in TIMES if not isinstance(row, dict) or name not in row]
        raise ProfileError(f"model {model}: times lack the field {missing[0]}")
    columns = {name: _numbers(model, names, name, row[name]) for name in BY_MODULE}
    batch, threads = (int(_numbers(model, [name], name, [row[name]])[0]) for name in ("batch", "threads"))
    return LayerTimes(str(row["device"]), str(row["torch"]), threads, batch, **columns)


def _numbers(model: str, names: list[Any], field: str, values: Any) -> Array:
    """(K,) float64 of a field's list; every value is finite and not negative."""
    if not isinstance(values, list) or len(values) != len(names):
        raise ProfileError(f"model {model}: field {field} is not a list of {len(names)} numbers, one a module")
    for name, value in zip(names, values, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise ProfileError(f"model {model}, module {name}: {field} is {value!r}, expected a number of at least 0")
    return np.array(values, dtype=np.float64)
