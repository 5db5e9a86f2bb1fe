"""The simulations of docs/layer-elasticity.md: which they are."""

from __future__ import annotations

from typing import Any

from docs.validation_runs import Run
from envs.spec import SimConfig
from traces.freezing import PRESETS

CLUSTER = "12x4"  # 48 GPUs, as many as IceFrog's cluster had
SEEDS = range(5)
JOBS, GAP_S, SHORT_GAP_S = 160, 180.0, 120.0

BASES = ("tiresias", "pollux", "optimus", "max-min")  # the best of them is what icefrog is compared with
HOSTS = ("pollux", "elastic-srtf")
UNFROZEN = (*BASES, "afs", "elastic-srtf")
ICEFROG = tuple(f"icefrog:{host}" for host in HOSTS)
SAFE = tuple(f"safe-front:{host}" for host in ("pollux", "optimus", "max-min", "afs", "elastic-srtf"))
USERS = tuple(f"{schedule}:{host}" for schedule in ("pipetransformer", "freezeout") for host in HOSTS)
TRAPS = ("greedy-freeze:elastic-srtf", "always-max:elastic-srtf")
BY_HOST = tuple(f"{name}:{host}" for host in HOSTS for name in ("icefrog", "safe-front"))

# What is changed in a run beside its scheduler; the first is the one that all others are compared with.
PLAIN = "usual"
CHANGES: dict[str, dict[str, Any]] = {
    PLAIN: {},
    "exact": {"front": "exact"},
    "ddp": {"ddp": "plain"},
    "no cache": {"activation_cache": False},
}
NO_MARGIN = "?margin=0"


def config(**changes: Any) -> SimConfig:
    """Settings of every run, but for ``changes``."""
    return SimConfig(**{"interval_s": 60.0, "rescale_cost": "restart", "activation_cache": True, **changes})


def study_run(policy: str, seed: int, change: str = PLAIN, preset: str = "", gap_s: float = GAP_S) -> Run:
    """A run of the generated workload; ``preset``: of all jobs, by default each model's own."""
    options: dict[str, object] = {"jobs": JOBS, "seed": seed}
    options |= {"preset": preset} if preset else {}
    options |= {"mean_gap_s": f"{gap_s:g}"} if gap_s != GAP_S else {}
    parts = (policy, "" if change == PLAIN else change, preset, "" if gap_s == GAP_S else f"gap{gap_s:g}", f"s{seed}")
    label = "-".join(part for part in parts if part)
    for character in " :?=":
        label = label.replace(character, "-")
    trace = "synthetic-layers?" + ",".join(f"{name}={value}" for name, value in options.items())
    return Run(label, policy, trace, config(**CHANGES[change]), CLUSTER, seed=seed)


def all_runs() -> list[Run]:
    """Every run of the page, seed by seed, the headline's first."""
    return [run for seed in SEEDS for run in main_runs(seed)] + [run for seed in SEEDS for run in other_runs(seed)]


def main_runs(seed: int) -> list[Run]:
    return [study_run(policy, seed) for policy in (*UNFROZEN, *ICEFROG, *SAFE, *USERS, *TRAPS)]


def other_runs(seed: int) -> list[Run]:
    """What shows how far the headline hangs on what is known, on the model's constants and on the load."""
    runs = [study_run(policy + NO_MARGIN, seed, change) for policy in BY_HOST for change in (PLAIN, "exact")]
    runs += [study_run(policy, seed, change) for policy in BY_HOST for change in ("ddp", "no cache")]
    for preset in PRESETS:
        runs += [study_run(policy, seed, preset=preset) for policy in (*HOSTS, *BY_HOST)]
    return runs + [study_run(policy, seed, gap_s=SHORT_GAP_S) for policy in (*UNFROZEN, *BY_HOST)]
