"""How good is the network now? Its schedules of the validation windows, judged as evaluate.py judges them.

The best policy is the one with the lowest *measure* there: the mean jct, or what the objective counts besides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg

from agents.network import ClusterNetwork
from agents.policy import LearnedPolicy, choose
from envs.actions import COMMIT
from envs.batch import MANUAL, Batch
from envs.metrics import METRICS
from envs.objectives import OBJECTIVES
from envs.plots import clip_for_gantt, draw_gantt, mostly_done
from envs.results import Outcome, Policy
from envs.rollout import rollout
from envs.settings import EnvSettings
from envs.simulate import RunResult, inference_accounts

MEAN_JCT, COST = "mean_jct_s", "cost_s"
WORDS = {MEAN_JCT: "mean jct", COST: "cost (mean jct + penalties)"}  # measures, for people
PATIENCE = 100  # decisions a job after which an episode counts as unfinished


@dataclass(frozen=True)
class Validation:
    """Means over the windows, by name, see judge(); NaN if a window was not finished."""

    greedy: dict[str, float]
    sampled: dict[str, float]
    unfinished: int
    """Windows that the greedy policy did not finish."""


def measure_of(objective: str) -> str:
    """Which number of judge() the best policy has least of."""
    counts = OBJECTIVES[objective]
    return COST if counts.counts_late or counts.counts_residual else MEAN_JCT


def judge(run: RunResult, settings: EnvSettings) -> dict[str, float]:
    """METRICS of envs/metrics.py and, where late tasks or residuals count, COST [s].

    COST is the reward's sum a training job: mean jct + (``late_penalty`` x late tasks + ``residual_cost`` x sum of
    residual x isolated run time) / completed training jobs; NaN without these.
    """
    metrics = run.metrics()
    if measure_of(settings.objective) == MEAN_JCT:
        return metrics
    jobs = run.jobs[run.jobs["status"] == "completed"]
    late = (jobs["kind"] == "inference") & (jobs["queueing_delay_s"] + jobs["paused_gpu_s"] > run.config.slo_s)
    training = int((jobs["kind"] == "training").sum())
    cost = settings.late_penalty * int(late.sum())
    cost += settings.residual_cost * float((jobs["residual"] * jobs["isolated_s"]).sum())
    per_job = cost / training if training else np.nan
    return {**metrics, COST: metrics[MEAN_JCT] + per_job}


class Validator:
    """Runs a network on ``windows`` evenly spaced windows of the validation split, all at once.

    Each window is scheduled twice: with the likeliest actions and with sampled ones.
    """

    def __init__(self, settings: EnvSettings, windows: int, seed: int) -> None:
        self.settings = replace(settings, split="validation", on_invalid="raise")
        starts = self.settings.windows
        self.measure = measure_of(settings.objective)
        self.starts = starts[np.unique(np.linspace(0, len(starts) - 1, windows).round().astype(np.int64))]
        self.seed = seed

    def __call__(self, network: ClusterNetwork, step: int) -> Validation:
        """Draws depend on the seed and ``step`` alone."""
        twice = np.concatenate([self.starts, self.starts])
        batch = Batch(self.settings, len(twice), MANUAL)
        batch.reset(np.full(len(twice), self.seed, np.int64), starts=twice)
        finished = self._play(network, batch, np.random.default_rng([self.seed, step]))
        half = len(self.starts)
        rows = [self._judge(batch, b) if finished[b] else None for b in range(len(twice))]
        greedy, sampled = (_means(part, self.measure) for part in (rows[:half], rows[half:]))
        return Validation(greedy, sampled, int((~finished[:half]).sum()))

    def _play(self, network: ClusterNetwork, batch: Batch, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Play all rows, the first half greedily; (B,) bool: which of them ended with every job done."""
        half = batch.num_envs // 2
        layout, finished = batch.layout, np.zeros(batch.num_envs, np.bool_)
        over = finished.copy()
        for _ in range(PATIENCE * self.settings.length):
            greedy = choose(network, batch.obs[:half], batch.mask[:half], layout, None)
            drawn = choose(network, batch.obs[half:], batch.mask[half:], layout, rng)
            batch.step(np.where(over, COMMIT, np.concatenate([greedy, drawn])))
            finished |= batch.terminated & ~over
            over |= batch.terminated | batch.truncated
            if over.all():
                break
        return finished

    def _judge(self, batch: Batch, b: int) -> dict[str, float]:
        """judge() of row ``b``'s finished window."""
        settings, start = self.settings, int(batch.states["window"][b])
        trace, jobs = settings.source.window(start, settings.length), batch.episode_jobs(b)
        unknown = (np.full(1, np.nan), 0, 0, 0.0)  # intervals of GPUs and times of decisions are not recorded
        accounts = inference_accounts(batch.states[b])
        run = RunResult(
            trace, settings.cluster, settings.sim, self.seed, "agent", jobs, jobs.head(0), *unknown, *accounts
        )
        return judge(run, settings)

    def draw(self, policy: LearnedPolicy) -> npt.NDArray[np.uint8]:
        """Gantt chart of the first window, until 9 of 10 jobs are done, as ``(height, width, 3) uint8``."""
        settings = self.settings
        trace = settings.source.window(int(self.starts[0]), settings.length)
        profiles = settings.models
        run = rollout(trace, settings.cluster, settings.sim, policy, seed=self.seed, record=True, profiles=profiles)
        clip = clip_for_gantt(trace, run.intervals)
        judged = Policy(policy.name, policy.batch, (), published=False)
        outcome = Outcome(judged, 0, self.seed, {}, run.jobs, run.jobs.head(0), clip)
        figure = draw_gantt(outcome, settings.cluster, mostly_done([outcome]))
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # type: ignore[no-untyped-call]
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()  # type: ignore[no-untyped-call]


def _means(rows: list[dict[str, float] | None], measure: str) -> dict[str, float]:
    """Means over windows; all NaN if one of them was not finished, since its jobs' jct is unknown."""
    finished = [row for row in rows if row is not None]
    whole = len(finished) == len(rows)
    names = (*(metric.name for metric in METRICS), measure)
    return {name: float(np.mean([row[name] for row in finished])) if whole else np.nan for name in names}
