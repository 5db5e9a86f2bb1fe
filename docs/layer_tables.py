"""The tables of docs/layer-profiles.md, from the shipped table of layer profiles."""

from __future__ import annotations

from collections.abc import Iterable

from traces.freezing import PRESETS
from traces.layer_profiles import LayerProfile, load_layer_profiles
from traces.profiles import Array


def presets() -> str:
    """When modules converge."""
    rows = [
        (f"`{name}`", f"{preset.first:.0%}", f"{preset.last:.0%}", "yes" if preset.may_cache else "no", preset.meaning)
        for name, preset in PRESETS.items()
    ]
    return _table(["preset", "first module converges at", "last module", "outputs may be kept", "meant for"], rows)


def totals() -> str:
    """Modules, parameters, FLOPs and bytes of each model, and what is left with half and with most modules frozen."""
    header = ("model", "what it is", "K", "parameters [M]", "forward [GFLOP]", "backward / forward", "activations [MB]")
    shares = ("FLOPs left", "parameters left", "activations left")
    return _table([*header, *shares], [_totals(profile) for profile in load_layer_profiles().values()])


def times() -> str:
    """Times of a step of each model, and what is left of them."""
    header = ("model", "samples", "step [ms]", "backward / forward", "in eval mode / forward", "time left", "by FLOPs")
    return _table(header, [_times(profile) for profile in load_layer_profiles().values()])


def _totals(profile: LayerProfile) -> list[str]:
    forward = profile.column("forward_flops").sum()
    return [
        f"`{profile.model}`",
        profile.about,
        f"{len(profile)}",
        f"{profile.params / 1e6:.2f}",
        f"{forward / 1e9:.4g}",
        f"{profile.column('backward_flops').sum() / forward:.2f}",
        f"{profile.column('saved_activation_bytes').sum() / 1e6:.3g}",
        *(_left(profile, share) for share in (profile.relative_flops(), profile.param_share())),
        _left(profile, profile.activation_share()),
    ]


def _times(profile: LayerProfile) -> list[str]:
    seen = profile.times
    assert seen is not None, "the shipped profiles have times"
    steps = profile.step_s()
    return [
        f"`{profile.model}`",
        f"{seen.batch}",
        f"{1e3 * steps[0]:.4g}",
        f"{seen.backward_s.sum() / seen.forward_s.sum():.2f}",
        f"{seen.eval_forward_s.sum() / seen.forward_s.sum():.2f}",
        _left(profile, steps / steps[0]),
        _left(profile, profile.relative_flops()),
    ]


def _left(profile: LayerProfile, shares: Array) -> str:
    return f"{shares[len(profile) // 2]:.2f}, {shares[profile.max_frozen]:.2f}"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(line) for line in (header, *rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
