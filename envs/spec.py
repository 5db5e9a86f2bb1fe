"""What is simulated: the cluster, the simulator's settings and named scenarios."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

MAX_TYPES = 8  # GPU types in one cluster
_GROUP = re.compile(r"(\d+)x(\d+)(?::([A-Za-z0-9_.-]+))?")


class SpecError(ValueError):
    """A cluster or setting that cannot be simulated; the message is one sentence."""


@dataclass(frozen=True)
class NodeGroup:
    """``count`` equal nodes of ``gpus`` GPUs; nodes with the same ``gpu_type`` may serve one job."""

    count: int
    gpus: int
    gpu_type: str = ""


@dataclass(frozen=True)
class ClusterSpec:
    """Nodes of a cluster, in node order.

    >>> str(ClusterSpec.parse("321x2+231x8"))
    '321x2+231x8'
    >>> ClusterSpec.parse("16x4").num_gpus
    64
    """

    groups: tuple[NodeGroup, ...]

    def __post_init__(self) -> None:
        if not self.groups or any(g.count < 1 or g.gpus < 1 for g in self.groups):
            raise SpecError("a cluster needs at least one node with at least one GPU")
        if len(self.types) > MAX_TYPES:
            raise SpecError(f"a cluster has at most {MAX_TYPES} GPU types, not {len(self.types)}")

    @classmethod
    def parse(cls, text: str) -> ClusterSpec:
        """Read ``NxG[:type]`` groups joined with ``+``: N nodes of G GPUs each."""
        groups = []
        for part in text.split("+"):
            match = _GROUP.fullmatch(part.strip())
            if match is None:
                raise SpecError(f"cluster {text!r}: {part!r} is not NODESxGPUS or NODESxGPUS:TYPE, such as 16x4")
            groups.append(NodeGroup(int(match[1]), int(match[2]), match[3] or ""))
        return cls(tuple(groups))

    def __str__(self) -> str:
        return "+".join(f"{g.count}x{g.gpus}" + (f":{g.gpu_type}" if g.gpu_type else "") for g in self.groups)

    @property
    def types(self) -> tuple[str, ...]:
        """GPU types in order of first appearance."""
        return tuple(dict.fromkeys(g.gpu_type for g in self.groups))

    @property
    def node_gpus(self) -> npt.NDArray[np.int64]:
        """(N,) int64 [GPUs] of each node."""
        return np.concatenate([np.full(g.count, g.gpus, np.int64) for g in self.groups])

    @property
    def node_type(self) -> npt.NDArray[np.int64]:
        """(N,) int64 index into ``types`` of each node."""
        return np.concatenate([np.full(g.count, self.types.index(g.gpu_type), np.int64) for g in self.groups])

    @property
    def num_nodes(self) -> int:
        return sum(g.count for g in self.groups)

    @property
    def num_gpus(self) -> int:
        return sum(g.count * g.gpus for g in self.groups)


@dataclass(frozen=True)
class SimConfig:
    """Settings of the simulator; each field is a ``--sim.*`` flag of train.py and evaluate.py."""

    interval_s: float = 60.0
    """Scheduling passes happen at multiples of this; 0: only at events [s]."""
    on_event: bool = False
    """Also schedule at every arrival and completion (always so when interval_s is 0)."""
    rescale_cost: Literal["constant", "restart", "afe", "helios"] = "constant"
    """constant: a pause of rescale_s. restart: the model's own restart delay. afe: DeepBoot's cheap elastic rescaling.
    helios: 7, 30 or 60 s of extra work at each preemption."""
    rescale_s: float = 30.0
    """Pause of a job that resumes, changes nodes or count; of an elastic job at its first start too [s]."""
    checkpoint_s: float = 0.0
    """Work between checkpoints; what is newer is lost on preemption. 0: nothing is lost [s]."""
    durations: Literal["oracle", "estimate", "unknown"] = "oracle"
    """What schedulers and agents know of a rigid job's duration."""
    placement: Literal["consolidated", "spread", "random", "count", "emptiest"] = "consolidated"
    """Which GPUs a job gets; count: any free ones, so that a cluster never fragments. emptiest: those of the node with
    most free ones first."""
    batch: Literal["scheduler", "fixed", "tuned"] = "scheduler"
    """Who chooses the batch size of elastic jobs: the request, the optimum of goodput, or as the scheduler says."""
    knowledge: Literal["profile", "oracle", "online"] = "profile"
    """What schedulers know of an elastic job's speed: its model's shipped profile, the truth, or a fit of its runs."""
    interference: float = 0.0
    """Share of its speed that a job on several nodes loses while it shares a node with another such job."""
    node_mtbf_s: float = 0.0
    """Mean time until a node fails; 0: never [s]."""
    node_mttr_s: float = 3600.0
    """Mean time until a failed node is up again [s]."""
    reclaim: Literal["ats", "lyra", "static"] = "ats"
    """What a cold start of an inference task may take. ats: any GPU, from training what costs least goodput. lyra:
    whole servers of the inference part, which training borrows while they are idle. static: the inference part, which
    training never has."""
    inference_nodes: int = -1
    """Nodes of the inference part, the last ones (reclaim lyra and static); -1: half of them."""
    aiss: bool = True
    """Keep the pod of a finished inference task for the next one (DeepBoot's protect and sleep states)."""
    protect_times: float = 1.0
    """Factor on how long an idle pod is protected: min(30 + 15 hits, 120) s."""
    ddp: Literal["rebuilt", "plain"] = "rebuilt"
    """Whether frozen layers leave the synchronisation: DDP built anew at each change of depth, or plain."""
    activation_cache: bool = False
    """Keep the outputs of frozen layers instead of computing them, where a job's preset allows it."""
    freeze_s: float = 3.0
    """Pause of a job that changes its depth of freezing alone [s]."""
    most_residual: float = 1.0
    """A job whose unconverged share is larger at its end trains on, nothing frozen, until it is not; 1: off."""
    front: Literal["noisy", "exact"] = "noisy"
    """What schedulers see of how many first layers have converged."""
    stragglers: Literal["none", "shared", "contention", "dedicated"] = "none"
    """What makes workers slow: a preset of envs/straggler_presets.py."""
    straggler_rate: float = 1.0
    """Factor on how often that happens; 0: never."""
    straggler_load: bool = True
    """Whether load makes it more likely."""
    straggler_times: Literal["lognormal", "exponential"] = "lognormal"
    """How long it lasts."""
    straggler_severity: float = 1.0
    """Factor on how slow they get on average."""
    straggler_io: bool = False
    """Whether nodes' storage straggles too."""
    gpu_variability: bool = True
    """Whether GPUs of a type differ in speed for good."""
    straggler_obs: Literal["none", "oracle", "noisy", "ewma", "learned"] = "noisy"
    """Where schedulers' and agents' straggler probabilities come from."""
    sight_noise: float = 1.0
    """Standard deviation of the noise of noisy probabilities, on the scale of logits."""
    detector: Literal["usual", "good"] = "usual"
    """How well straggling that goes on is noticed."""
    sync: Literal["synchronous", "backup", "drop", "asynchronous", "grouped", "lb-bsp"] = "synchronous"
    """How workers wait for each other, until a scheduler says otherwise."""
    resync_s: float = 5.0
    """Pause of a job that changes that [s]."""
    slo_s: float = 10.0
    """An inference task that waits and starts up longer than this is late; only metrics and rewards read it [s]."""
    compat: Literal["none", "tiresias", "helios", "pollux", "deepboot"] = "none"
    """Named set of another simulator's quirks; overrides the fields it concerns."""

    def __post_init__(self) -> None:
        for name in (
            "interval_s",
            "rescale_s",
            "checkpoint_s",
            "node_mtbf_s",
            "node_mttr_s",
            "slo_s",
            "freeze_s",
            "resync_s",
        ):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise SpecError(f"sim.{name} must be a finite time >= 0, not {value}")
        if not 0 <= self.interference < 1:
            raise SpecError(f"sim.interference must lie in [0, 1), not {self.interference}")
        if not 0 <= self.most_residual <= 1:
            raise SpecError(f"sim.most_residual must lie in [0, 1], not {self.most_residual}")
        if self.inference_nodes < -1:
            raise SpecError(f"sim.inference_nodes must be -1 or a number of nodes, not {self.inference_nodes}")
        for name in ("protect_times", "straggler_rate", "straggler_severity", "sight_noise"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise SpecError(f"sim.{name} must be a finite number >= 0, not {value}")
        if self.stragglers == "none" and self.sync != "synchronous":
            raise SpecError(f"sim.sync {self.sync} needs stragglers: set sim.stragglers to shared, say")

    @property
    def as_pollux(self) -> bool:
        """Whether the quirks hold that DeepBoot's simulator shares with Pollux's, from which it was made."""
        return self.compat in ("pollux", "deepboot")

    @property
    def event_driven(self) -> bool:
        """Whether arrivals and completions start a scheduling pass."""
        return self.on_event or self.interval_s == 0

    @property
    def select_by_count(self) -> bool:
        """Whether preemptive list schedulers choose who runs by GPU count alone, before placing."""
        return self.placement != "consolidated" or self.compat == "helios"

    def count_inference_nodes(self, cluster: ClusterSpec) -> int:
        """Nodes of the inference part of a cluster, the last ones."""
        if self.inference_nodes > cluster.num_nodes:
            raise SpecError(
                f"sim.inference_nodes is {self.inference_nodes}, but cluster {cluster} has {cluster.num_nodes} nodes"
            )
        return cluster.num_nodes // 2 if self.inference_nodes < 0 else self.inference_nodes

    def resolve(self) -> SimConfig:
        """The settings with ``compat`` applied."""
        if self.compat == "tiresias":  # tiresias_gavel_helios.md 1.1: preemption is free, counts only
            return replace(
                self, interval_s=0.0, on_event=True, rescale_cost="constant", rescale_s=0.0, placement="count"
            )
        if self.compat == "helios":  # same page, 2.1-2.3
            return replace(self, interval_s=0.0, on_event=True, rescale_cost="helios", placement="consolidated")
        if self.compat == "pollux":  # pollux_sia.md 2
            interval = self.interval_s or 60.0
            return replace(
                self,
                interval_s=interval,
                on_event=False,
                rescale_cost="constant",
                placement="emptiest",
                knowledge="online",
            )
        if self.compat == "deepboot":  # deepboot.md 3
            return replace(self, interval_s=self.interval_s or 60.0, on_event=False, knowledge="online")
        return self


@dataclass(frozen=True)
class Scenario:
    """A named question: default settings, workload and cluster; flags override each of them."""

    name: str
    question: str
    sim: SimConfig
    trace: str
    cluster: str
    baselines: tuple[str, ...]
    """Published schedulers that answer this question."""
    objective: str = "jct"
    """What an agent is rewarded for: a name in OBJECTIVES."""
    freezes: bool = False
    """Whether an agent sees the layers of jobs, and freezes them."""


SCENARIOS: dict[str, Scenario] = {
    "rigid": Scenario(
        name="rigid",
        question="in which order should jobs of fixed size run?",
        sim=SimConfig(interval_s=0.0, on_event=True),
        trace="synthetic-philly",
        cluster="16x4",
        baselines=(
            "fifo",
            "fifo-backfill",
            "smallest",
            "sjf",
            "qssf",
            "srtf",
            "srtf-gpu",
            "las",
            "tiresias",
            "gittins",
            "random",
        ),
    ),
    "elastic": Scenario(
        name="elastic",
        question="how many GPUs should each job get?",
        sim=SimConfig(interval_s=60.0, rescale_cost="restart"),
        trace="synthetic-pollux?jobs=1600",
        cluster="16x4",
        baselines=("fifo", "srtf", "tiresias", "optimus", "afs", "elastic-srtf", "pollux"),
    ),
    "colocated": Scenario(
        name="colocated",
        question="which training jobs give up GPUs to inference, and which idle pods stay warm?",
        # Pods start up in 4 to 8 s: at an objective of 5 s a cold start decides whether most services keep it.
        sim=SimConfig(interval_s=60.0, rescale_cost="afe", slo_s=5.0),
        trace="synthetic-colocated?jobs=480,load=0.2,mean_duration_s=15",
        cluster="16x4",
        baselines=("fifo", "srtf", "tiresias", "optimus", "afs", "lyra", "deepboot"),
        objective="jct_slo",
    ),
    "layer-elastic": Scenario(
        name="layer-elastic",
        question="how many GPUs should each job get, and how many of its layers be frozen?",
        sim=SimConfig(interval_s=60.0, rescale_cost="restart"),
        trace="synthetic-layers?jobs=1600",
        cluster="12x4",
        baselines=(
            "tiresias",
            "optimus",
            "max-min",
            "elastic-srtf",
            "pollux",
            "safe-front:elastic-srtf",
            "icefrog:elastic-srtf",
            "icefrog",
        ),
        objective="jct_residual",
        freezes=True,
    ),
}


def find_scenario(argv: Sequence[str], default: str = "rigid") -> Scenario:
    """The scenario named by ``--scenario`` in ``argv``, on which the defaults of all other flags depend."""
    name = default
    for flag, following in zip(argv, [*argv[1:], ""], strict=False):
        if flag == "--scenario":
            name = following
        elif flag.startswith("--scenario="):
            name = flag.partition("=")[2]
    if name not in SCENARIOS:
        raise SpecError(f"unknown scenario {name!r}; known are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
