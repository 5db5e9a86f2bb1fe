"""From the name of a model to its profile, and to the check of that profile."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from traces.layer_profiles import LayerModule, LayerProfile
from traces.layers.catalogue import CATALOGUE, EXTRA
from traces.layers.check import Checked, FrozenSteps
from traces.layers.count import count_modules
from traces.layers.meters import clock_for
from traces.layers.times import UnitTimes, device_name, keep_freed_memory
from traces.layers.workload import Workload, load_workload, map_tensors
from traces.profiles import ProfileError


@dataclass(frozen=True)
class Settings:
    units: tuple[str, ...] = ()  # of a model of one's own
    batch: int | None = None  # of a model of the catalogue; None: its own
    rounds: int = 3
    device: str = "cpu"
    threads: int = 1
    check: bool = False


def model_names(model: str) -> list[str]:
    """The models that a name stands for: every one of the shipped table for ``all``."""
    return list(CATALOGUE) if model == "all" else [model]


def profile_model(model: str, settings: Settings) -> tuple[LayerProfile, list[Checked]]:
    """Measure one model; with ``check``, real steps with frozen modules too.

    A model of the catalogue is counted on the meta device, any other on the device itself. Raises ProfileError.
    """
    for name, value in (("rounds", settings.rounds), ("threads", settings.threads), ("batch", settings.batch)):
        if value is not None and value < 1:
            raise ProfileError(f"{name} is {value}, expected at least 1")
    place = _device(settings.device)
    clock = clock_for(place)
    torch.manual_seed(0)
    work, modules = prepare(model, settings, place)
    profile = LayerProfile(model, work.about, work.optimizer, modules)
    torch.set_num_threads(settings.threads)
    keep_freed_memory()
    times = UnitTimes(work, clock)
    steps = FrozenSteps(work, clock, profile.max_frozen) if settings.check else None
    for _ in range(settings.rounds):
        times.sample()
        if steps is not None:
            steps.sample()
    profile = replace(profile, times=times.result(device_name(place)))
    return profile, [] if steps is None else steps.compare(profile)


def prepare(model: str, settings: Settings, place: torch.device) -> tuple[Workload, tuple[LayerModule, ...]]:
    """The workload on a device and its modules' counts."""
    if ":" in model:
        if settings.batch is not None:
            raise ProfileError(f"batch is given for {model}, which brings its own inputs")
        with place:
            work = load_workload(model, settings.units)
        inputs = map_tensors(work.inputs, lambda tensor: tensor.to(place))
        work = replace(work, model=work.model.to(place), inputs=inputs)
        return work, count_modules(work)
    entry = (CATALOGUE | EXTRA).get(model)
    if entry is None:
        known = ", ".join(["all", *CATALOGUE, *EXTRA])
        raise ProfileError(f"model is {model!r}, expected package.module:function or one of {known}")
    if settings.units:
        raise ProfileError(f"units are given for {model}, whose units are fixed")
    with torch.device("meta"):
        modules = count_modules(entry.build(1))
    with place:
        return entry.build(settings.batch or entry.batch), modules


def _device(name: str) -> torch.device:
    try:
        place = torch.device(name)
    except RuntimeError:
        raise ProfileError(f"device is {name!r}, expected cpu, cuda or cuda:N") from None
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ProfileError(f"device is {name}, but this PyTorch sees no GPU")
    return place
