"""The simulations of docs/stragglers.md: which they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from docs.validation_runs import Run
from envs.spec import SimConfig

CLUSTER, JOBS = "32x8", 224
SEEDS, ABLATION_SEEDS, SWEEP_SEEDS = range(20), range(10), range(5)
PRESETS = {"A": "shared", "B": "contention", "C": "dedicated"}
STUDIED = ("A", "B")


@dataclass(frozen=True)
class Study(Run):
    """A run on the generated workload."""

    code: ClassVar[tuple[str, ...]] = ("traces.synthetic_stragglers",)


@dataclass(frozen=True)
class Probe(Run):
    """``count`` jobs, each alone on a cluster of just its size, by seed; 0.4 of their iterations is communication."""

    gpus: int = 4
    minutes: float = 80.0
    count: int = 100
    code: ClassVar[tuple[str, ...]] = ("traces.trace",)


@dataclass(frozen=True)
class Change:
    """What is set otherwise than usual in a run. ``world``: oblivious placement feels it too."""

    sim: Mapping[str, Any] = field(default_factory=dict)
    trace: Mapping[str, Any] = field(default_factory=dict)
    host: str = "fifo"
    seeds: range = SEEDS
    world: bool = False


PLAIN, ORACLE, BACKUP, STATIC, FREE, UNSEEN = "usual", "oracle", "backup", "static only", "no stragglers", "unseen"
NOISE = {0.0: "noise 0", 1.0: PLAIN, 2.0: "noise 2", 3.0: "noise 3"}  # by sigma_p
CHANGES: dict[str, Change] = {
    PLAIN: Change(),
    ORACLE: Change({"straggler_obs": "oracle"}),
    BACKUP: Change({"sync": "backup"}),
    STATIC: Change({"straggler_rate": 0.0}, world=True),
    FREE: Change({"straggler_rate": 0.0, "gpu_variability": False}, world=True),
    UNSEEN: Change({"straggler_obs": "none"}),
    "ewma": Change({"straggler_obs": "ewma"}, seeds=ABLATION_SEEDS),
    **{name: Change({"sight_noise": x}, seeds=ABLATION_SEEDS) for x, name in NOISE.items() if name != PLAIN},
}

# What is swept: heading of a row, and what is set.
SWEEPS: dict[str, Change] = {
    **{f"rate {x:g}": Change({"straggler_rate": x}) for x in (0.5, 2.0, 4.0)},
    **{f"load {x:g}": Change(trace={"load": f"{x:g}"}) for x in (0.4, 0.8, 0.95)},
    **{f"pause {x:g} s": Change({"rescale_s": x}) for x in (30.0, 600.0)},
    **{f"multi {x:g}": Change(trace={"multi": f"{x:g}"}) for x in (0.2, 0.6)},
    **{f"host {name}": Change(host=name) for name in ("srtf", "las")},
    "onsets by background alone": Change({"straggler_load": False}),
    "exponential durations": Change({"straggler_times": "exponential"}),
    "severity 1.5": Change({"straggler_severity": 1.5}),
}
SWEEPS = {name: Change(given.sim, given.trace, given.host, SWEEP_SEEDS, world=True) for name, given in SWEEPS.items()}
CHANGES |= SWEEPS
# Of B only what is not harsher: even as it is, 40 % lost of a load of 0.6 leaves oblivious placement hardly a reserve.
TOO_HARSH = ("rate 2", "rate 4", "load 0.8", "load 0.95", "multi 0.6", "severity 1.5")
SWEPT = {"A": tuple(SWEEPS), "B": tuple(name for name in SWEEPS if name not in TOO_HARSH)}

# Rules are written without their host: psr?react=false is psr:fifo?react=false.
OBLIVIOUS, STATIC_AWARE, NODE_BY_NODE = "oblivious", "static-aware", "node-by-node"
PSR, PLACING, REACTING = "psr", "psr?react=false", "psr?placement=false"
SHUFFLED = "psr?react=false,shuffle=true"
OTHERS = (STATIC_AWARE, "avoid-slow", "reactive", "avoid-reactive", "quarantine", "wrangler")
MODES = ("lb-bsp", "drop", "asynchronous")
SPLIT = (OBLIVIOUS, STATIC_AWARE, "lb-bsp", PSR)  # whose static part of the loss is measured
ABLATED = {
    UNSEEN: (PSR, UNSEEN),
    "ewma": (PSR, "ewma"),
    "w_ext = 0": ("psr?w_ext=0", PLAIN),
    "w_frag = 0": ("psr?w_frag=0", PLAIN),
}


class Case(NamedTuple):
    """A rule in one setting, in runs over all its seeds."""

    rule: str
    preset: str = "A"
    change: str = PLAIN

    @property
    def seeds(self) -> range:
        return ABLATION_SEEDS if self.rule in SHORT else CHANGES[self.change].seeds

    @property
    def policy(self) -> str:
        """The scheduler as on the command line."""
        name, mark, query = self.rule.partition("?")
        return f"{name}:{CHANGES[self.change].host}{mark}{query}"

    @property
    def base(self) -> Case:
        """Oblivious placement in the same world."""
        return Case(OBLIVIOUS, self.preset, self.change if CHANGES[self.change].world else PLAIN)


SHORT = (REACTING, *(rule for rule, _ in ABLATED.values() if "?" in rule))  # not in all seeds


def headline(preset: str) -> list[Case]:
    """What is compared in all seeds."""
    cases = [(OBLIVIOUS, PLAIN), (PSR, PLAIN), (PSR, ORACLE), (PLACING, PLAIN), (PLACING, UNSEEN), (SHUFFLED, PLAIN)]
    cases += [(rule, PLAIN) for rule in (*OTHERS, *MODES)]
    cases += [(OBLIVIOUS, BACKUP), (NODE_BY_NODE, PLAIN)]
    return [Case(rule, preset, change) for rule, change in cases]


def references(preset: str) -> list[Case]:
    """Without stragglers: of equal GPUs, and of GPUs as they are."""
    free = [Case(rule, preset, FREE) for rule in (OBLIVIOUS, PSR)]
    return [*free, *(Case(rule, preset, STATIC) for rule in SPLIT)]


def ablations(preset: str) -> list[Case]:
    """What parts of psr bring, and what noise of its probabilities costs."""
    parts = [Case(REACTING, preset), *(Case(rule, preset, change) for rule, change in ABLATED.values())]
    noisy = [Case(rule, preset, name) for rule in (PSR, PLACING) for name in NOISE.values() if name != PLAIN]
    return parts + noisy


def sweeps(preset: str) -> list[Case]:
    """Both sides in other worlds."""
    return [Case(rule, preset, change) for change in SWEPT[preset] for rule in (OBLIVIOUS, PSR)]


def study_run(case: Case, seed: int) -> Study:
    """A run of the generated workload."""
    given = CHANGES[case.change]
    options = {"jobs": JOBS, "seed": seed, **given.trace}
    trace = "synthetic-stragglers?" + ",".join(f"{name}={value}" for name, value in options.items())
    label = "-".join((case.preset, case.rule, "" if case.change == PLAIN else case.change, f"s{seed}"))
    for character in " ?=,":
        label = label.replace(character, "-")
    return Study(label.replace("--", "-"), case.policy, trace, _config(case.preset, **given.sim), CLUSTER, seed=seed)


def _config(preset: str, **changes: Any) -> SimConfig:
    usual = {"interval_s": 300.0, "on_event": True, "rescale_s": 180.0, "stragglers": PRESETS[preset]}
    return SimConfig(**{**usual, **changes})


def probes() -> list[Probe]:
    """Jobs as in Greyhound's measurements, to see whether the presets straggle as its clusters did."""
    return [
        probe("A", nodes=1, node_gpus=4, minutes=80.0, count=3000),
        probe("A", nodes=4, node_gpus=2, minutes=300.0, count=1500),
        probe("C", nodes=64, node_gpus=8, minutes=1440.0, count=200),
    ]


def probe(preset: str, nodes: int, node_gpus: int, minutes: float, count: int) -> Probe:
    """Rigid jobs that have ``nodes`` nodes to themselves."""
    sim = _config(preset, interval_s=0.0, rescale_s=0.0, gpu_variability=False)
    cluster, gpus = f"{nodes}x{node_gpus}", nodes * node_gpus
    return Probe(f"probe-{preset}-{cluster}", "fifo", "", sim, cluster, gpus=gpus, minutes=minutes, count=count)


def all_runs() -> list[Run]:
    """Every run of the page, seed by seed, the headline's first."""
    return [*_by_seed(headline), *probes(), *_by_seed(references), *_by_seed(ablations), *_by_seed(sweeps)]


def _by_seed(part: Any) -> Iterator[Study]:
    for seed in SEEDS:
        cases = [case for preset in STUDIED for case in part(preset)]
        yield from (study_run(case, seed) for case in cases if seed in case.seeds)
