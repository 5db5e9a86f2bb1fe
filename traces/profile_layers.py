"""``python -m traces profile-layers``: PyTorch is imported when it runs, not before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from traces.fit import write_table
from traces.layer_profiles import LayerProfile, layer_table
from traces.profiles import ProfileError

if TYPE_CHECKING:
    from traces.layers.check import Checked


@dataclass(frozen=True)
class ProfileLayers:
    """Measure a PyTorch model module by module: time, FLOPs, parameters, bytes; and write its layer profile."""

    model: Annotated[str, tyro.conf.arg(metavar="MODEL"), tyro.conf.Positional]
    """a model of the shipped table, all of them (all), or a function of one's own (package.module:function)"""
    out: Annotated[Path | None, tyro.conf.arg(metavar="OUT.json"), tyro.conf.Positional] = None
    """table of layer profiles to write (default: only print)"""
    check: bool = False
    """also measure steps with frozen modules, and compare them with what the profile predicts"""
    units: tuple[str, ...] = ()
    """freezable submodules of a model of one's own, in the order in which they run (default: its children)"""
    batch: int | None = None
    """samples a step (default: small enough for a CPU)"""
    rounds: int = 3
    """measurements, of which the least counts"""
    device: str = "cpu"
    """cpu, cuda or cuda:N"""
    threads: int = 1
    """of PyTorch on the CPU"""

    def __call__(self) -> None:
        from traces.layers.profiler import Settings, model_names, profile_model

        if self.out is not None and not self.out.parent.is_dir():  # known before minutes of measuring
            raise ProfileError(f"{self.out} cannot be written: there is no folder {self.out.parent}")
        settings = Settings(self.units, self.batch, self.rounds, self.device, self.threads, self.check)
        console, profiles = Console(), {}
        for model in model_names(self.model):
            profiles[model], checked = profile_model(model, settings)
            console.print(modules_table(profiles[model]))
            if checked:
                console.print(check_table(model, checked))
        if self.out is not None:
            write_table(layer_table(profiles, f"python -m traces profile-layers {self.model}"), self.out)


def modules_table(profile: LayerProfile) -> Table:
    """Shares and times of every module."""
    times = profile.times
    assert times is not None, "the profiler measures times"
    title = f"{profile.model}: {profile.params:,} parameters, {profile.column('forward_flops').sum() / 1e9:.4g} GFLOP"
    title += f" and {profile.column('saved_activation_bytes').sum() / 1e6:.4g} MB a sample forward;"
    title += f" times of {times.batch} samples on {times.device}"
    table = Table(title=title, title_justify="left")
    for name in ("module", "forward", "backward", "parameters", "activations"):
        table.add_column(name, justify="left" if name == "module" else "right")
    for name in ("forward [ms]", "in eval mode", "backward [ms]", "as frontier"):
        table.add_column(name, justify="right")
    fields = ("forward_flops", "backward_flops", "params", "saved_activation_bytes")
    shares = [profile.column(name) / profile.column(name).sum() for name in fields]
    by_module = (times.forward_s, times.eval_forward_s, times.backward_s, times.frontier_backward_s)
    for number, module in enumerate(profile.modules):
        figures = [f"{share[number]:.1%}" for share in shares] + [f"{1e3 * column[number]:.3g}" for column in by_module]
        table.add_row(module.name, *figures)
    return table


def check_table(model: str, checked: list[Checked]) -> Table:
    """Measured steps with k frozen modules against the prediction; the mean is over k > 0."""
    frozen = checked[1:]
    ours, rule = (np.abs([getattr(row, name) for row in frozen]) for name in ("error", "flops_error"))
    title = f"{model}: a step with k frozen modules; mean error {ours.mean():.1%}, largest {ours.max():.1%}"
    table = Table(title=f"{title} (by FLOPs alone {rule.mean():.1%}, {rule.max():.1%})", title_justify="left")
    for name in ("k", "measured [ms]", "predicted [ms]", "error", "by FLOPs alone"):
        table.add_column(name, justify="right")
    for row in checked:
        figures = (f"{1e3 * row.measured_s:.4g}", f"{1e3 * row.predicted_s:.4g}")
        table.add_row(str(row.frozen), *figures, f"{row.error:+.1%}", f"{row.flops_error:+.1%}")
    return table
