"""A job of the slow reference simulator: its state, and what a change of its GPUs or its speed does to it.

Written from docs/design/001-core.md, sections 2 and 6, 002-elastic.md, section 3, 004-layers.md, 005-stragglers.md and
006-full.md alone. Inference tasks and their pods are in reference_inference.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from envs.reference_layers import Layers
from envs.reference_pace import Workers
from envs.reference_training import Training
from envs.spec import SimConfig
from traces.sensitivity import DEFAULT, SENSITIVITIES, Sensitivity

WHOLE = 1000  # a device, in thousandths
SLOWED = 1.1  # a job that takes this many times as long counts as slowed down


@dataclass
class Job:
    """A job and all that happens to it; times in seconds, ``devices`` empty while it waits.

    An elastic job has a ``training``, and its work is counted in iterations at its first batch; a rigid one's in
    seconds, at rate 1.
    """

    job_id: int
    arrival_s: float
    num_gpus: int  # requested
    share_milli: int  # of each device
    duration_s: float
    gpu_type: str
    preemptible: bool
    estimate: float
    work: float
    training: Training | None = None
    layers: Layers | None = None  # of a job that may freeze them
    max_gpus: int = 0
    feels: Sensitivity = SENSITIVITIES[DEFAULT]
    comm_share: float = 0.0  # of a rigid job
    backup: int = 0  # workers among num_gpus that it does not need
    sync: str = "synchronous"  # how its workers wait for each other
    wanted_sync: str | None = None  # what the decision of the present pass gives it
    config: SimConfig = field(default_factory=SimConfig)
    limits: tuple[float, ...] = (math.inf,)  # of levels [GPU-s]
    status: str = "unarrived"  # then active, completed or rejected
    devices: list[int] = field(default_factory=list)
    where: tuple[str, tuple[int, ...]] = ("", ())  # type and GPUs per node of the devices
    held: float = 0.0  # GPUs, shares counted as such; of the last hold while it waits
    epoch: int = 0
    speed: float = 1.0  # work a second without interference
    factor: float = 1.0  # what interference leaves of it
    pace: float = 1.0  # and what stragglers leave
    straggling: int = 0  # workers
    counted_at: float = math.nan  # time up to which the next three are counted
    lost_gpu_s: float = 0.0
    straggling_gpu_s: float = 0.0
    slowed_s: float = 0.0
    done: float = 0.0  # at anchor
    anchor: float = math.nan
    saved: float = 0.0  # work in the last checkpoint known of
    saved_at: float = math.nan
    finish_s: float = math.nan  # while it runs: the end of its epoch
    first_start_s: float = math.nan
    hold_start: float = math.nan  # when it last got GPUs, or another number of them
    pause_start: float = math.nan  # when its GPUs last changed
    pause_end: float = math.nan
    wait_start: float = math.nan
    queueing_delay_s: float = 0.0
    service_gpu_s: float = 0.0  # up to hold_start
    paused_gpu_s: float = 0.0
    num_starts: int = 0
    num_rescales: int = 0
    num_preemptions: int = 0
    level: int = 0
    level_service: float = 0.0  # at level_since
    level_since: float = math.nan
    crossing: float = math.inf
    level_wait: float = 0.0  # waiting time since level 0 was last entered, of finished waits
    started: bool = False  # since level 0 was last entered
    entry: float = math.nan  # when that start, or the entry into the waiting set, happened
    queue: tuple[float, ...] = ()  # level, time of entry into it, job_id

    @property
    def request(self) -> float:
        return self.num_gpus * self.share_milli / WHOLE

    @property
    def rate(self) -> float:
        return self.speed * self.factor * self.pace

    @property
    def present_training(self) -> Training | None:
        """Of an elastic job at its present depth."""
        return self.training if self.layers is None else self.layers.trainings[self.layers.depth]

    @property
    def target(self) -> float:
        """The work at which the present epoch ends."""
        if self.training is None or (self.layers is not None and self.layers.caught_up):
            return self.work
        return float(self.training.truth.progress[self.epoch])

    @property
    def residual(self) -> float:
        """What its modules lack at the job's end."""
        if self.layers is None or self.status != "completed":
            return 0.0
        return self.layers.convergence.residual()

    @property
    def depth_changes(self) -> int:
        return 0 if self.layers is None else self.layers.changes

    def done_at(self, now: float) -> float:
        return self.done + self.rate * max(0.0, now - self.anchor) if self.devices else self.done

    def remaining_at(self, now: float) -> float:
        """Estimated run time left."""
        if self.training is not None:
            return self.estimate * (1 - self.done_at(now) / self.work)
        return max(0.0, self.estimate + (self.work - self.duration_s) - self.done_at(now))

    def service_at(self, now: float) -> float:
        return self.service_gpu_s + (self.held * (now - self.hold_start) if self.devices else 0.0)

    # What a change of GPUs does; ``done`` is the work done at this instant, ``where`` that of the new devices.
    def start(self, now: float, where: tuple[str, tuple[int, ...]]) -> None:
        self.queueing_delay_s += now - self.wait_start
        self.level_wait += now - self.wait_start if self.level > 0 else 0.0
        self.first_start_s = now if self.num_starts == 0 else self.first_start_s
        self.hold_start = self.level_since = now
        self.begin_stretch(now, 0, where)
        self.num_starts += 1
        if not self.started:
            self.started, self.entry = True, now

    def rescale(self, now: float, done: float, before: int, where: tuple[str, tuple[int, ...]]) -> None:
        """Other nodes or another number of GPUs than the ``before`` held so far."""
        self.done = done
        self.settle_pause(now)
        if len(self.devices) != before:
            self.settle_service(now)
        self.begin_stretch(now, before, where)
        self.num_rescales += 1

    def preempt(self, now: float, done: float) -> None:
        step = self.config.checkpoint_s
        if self.training is not None:
            self.done = self.last_save(now)[0] if step > 0 else done
            if self.layers is not None:
                self.layers.count(done)
                self.layers.count(self.done)
        else:
            self.done = math.floor(done / step) * step if step > 0 else done
            if self.config.rescale_cost == "helios":
                self.work += 7.0 if self.num_gpus == 1 else 30.0 if self.num_gpus <= 8 else 60.0
        self.settle_service(now)
        self.settle_pause(now)
        self.wait_start = now
        self.num_preemptions += 1

    def begin_stretch(self, now: float, before: int, where: tuple[str, tuple[int, ...]]) -> None:
        self.held = self.request if self.training is None else len(self.devices)
        self.crossing = self.next_crossing()
        self.pause_start = self.counted_at = now
        self.anchor = self.pause_end = self.saved_at = now + self.pause_after(before)
        self.saved = self.done
        self.where = where
        if self.layers is not None:
            self.layers.take_up(self.done)
        self.take_up_sync()
        self.set_speed()

    def pause_after(self, before: int) -> float:
        """The pause of a change from ``before`` GPUs to those held now."""
        cost, after = self.config.rescale_cost, len(self.devices)
        if self.training is None:
            return self.config.rescale_s if cost != "helios" and self.num_starts > 0 else 0.0
        if cost in ("constant", "helios"):
            return self.config.rescale_s
        first, following = self.training.truth.first_delay_s, self.training.truth.next_delay_s
        if cost == "restart" or before in (0, after):
            return first
        return following + (first - following) * max(0, after - before) / after

    def settle_pause(self, now: float) -> None:
        self.count_loss(now)
        self.paused_gpu_s += self.held * max(0.0, min(self.pause_end, now) - self.pause_start)

    def settle_service(self, now: float) -> None:
        self.service_gpu_s += self.held * (now - self.hold_start)
        self.level_service += self.held * (now - self.level_since)
        self.hold_start = self.level_since = now

    # Epochs, changes of speed, checkpoints
    def set_speed(self) -> None:
        """The speed of the present GPUs and epoch, and when the epoch ends at it."""
        if self.training is not None:
            self.speed = (self.layers or self.training).rate(*self.where, self.epoch)
        finish = self.anchor + (self.target - self.done) / self.rate
        if self.training is not None and self.config.compat == "pollux":
            whole = float(round(finish))
            finish = whole + 1e-6 if whole < finish and whole % self.config.interval_s == 0 else whole
        self.finish_s = finish

    def end_epoch(self) -> None:
        self.done = self.saved = self.target
        self.anchor = self.saved_at = self.finish_s
        if self.layers is not None and self.done >= self.work:
            self.work += self.layers.catch_up(self.config.most_residual)
        else:
            self.epoch += 1
        self.set_speed()

    def trains_on(self) -> bool:
        """Whether the end of the present epoch is not the job's end."""
        if self.target < self.work:
            return True
        return self.layers is not None and self.layers.lacks(self.target, self.config.most_residual)

    def follow_wishes(self, now: float) -> None:
        """Take up the depth and the way to wait that a decision gave, where nothing else has changed."""
        done = self.done_at(now)
        if self.layers is not None and self.layers.take_up(done):
            self.pause(now, done, self.config.freeze_s)
        if self.take_up_sync():
            self.pause(now, done, self.config.resync_s)

    def take_up_sync(self) -> bool:
        before, self.sync, self.wanted_sync = self.sync, self.wanted_sync or self.sync, None
        return self.sync != before

    def pause(self, now: float, done: float, seconds: float) -> None:
        """Lengthen a pause to ``seconds``, or begin one, after ``done`` work."""
        self.done = self.saved = done
        self.settle_pause(now)
        self.pause_end = max(self.pause_end, now + seconds)
        self.pause_start = now
        self.anchor = self.saved_at = self.pause_end
        self.set_speed()

    def set_factors(self, now: float, factor: float, pace: float) -> None:
        """Go on at another share of the speed; a pause goes on too."""
        if self.config.checkpoint_s > 0:
            self.saved, self.saved_at = self.last_save(now)
        self.done, self.anchor = self.done_at(now), max(self.anchor, now)
        self.factor, self.pace = factor, pace
        self.set_speed()

    # Stragglers
    def communication(self) -> tuple[float, float]:
        """Share of an iteration that is communication, and noise scale over total batch."""
        training = self.present_training
        if training is None:
            return self.comm_share, math.inf
        return training.communication(*self.where, self.epoch)

    def set_workers(self, now: float, workers: Workers) -> None:
        """Go on at the pace of workers that are as slow as these."""
        pace, straggling = workers.pace(self.sync), workers.straggling
        if (pace, straggling) != (self.pace, self.straggling):
            self.count_loss(now)
        self.straggling = straggling
        if pace != self.pace:
            self.set_factors(now, self.factor, pace)

    def count_loss(self, now: float) -> None:
        """What stragglers have cost since it was last counted, pauses left out."""
        ran = max(0.0, now - max(self.counted_at, self.pause_end))
        self.lost_gpu_s += ran * (self.held - (self.held - self.backup) * self.pace)
        self.straggling_gpu_s += ran * self.straggling
        self.slowed_s += ran if self.pace < 1 / SLOWED else 0.0
        self.counted_at = now

    def last_save(self, now: float) -> tuple[float, float]:
        """Work in an elastic job's last checkpoint, and its time."""
        step = self.config.checkpoint_s
        saves = math.floor((now - self.saved_at) / step)
        if saves <= 0:
            return self.saved, self.saved_at
        at = self.saved_at + saves * step
        return self.done + self.rate * (at - self.anchor), at

    # Levels
    def next_crossing(self) -> float:
        return self.level_since + (self.limits[self.level] - self.level_service) / self.held

    def cross_levels(self, now: float) -> bool:
        """Whether limits were reached by now; raise the level by each of them."""
        before = self.level
        while self.crossing <= now:
            self.level_service, self.level_since = self.limits[self.level], self.crossing
            self.level += 1
            self.crossing = self.next_crossing()
        return self.level > before
