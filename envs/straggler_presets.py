"""What makes workers slow, how often and for how long: the presets of ``--sim.stragglers``.

From shared/design/stragglers.md, section 3.7. ``shared`` is fitted to Greyhound's probes (arXiv 2410.12588) of a shared
cluster, ``dedicated`` to its large jobs; ``contention`` is a stress test. The share of hot links of ``shared`` is 0.07
instead of 0.085: since CPUs and GPUs straggle too, 40 % of probes of 8 GPUs on 4 nodes are hit then, as Greyhound's
were. docs/design/005-stragglers.md, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

TURN_S = 300.0  # schedulers get new readings so often
HORIZONS_S = (600.0, 3600.0)  # of the probabilities that they see
CPU, NET, IO, GPU = range(4)
KINDS = ("cpu", "net", "io", "gpu")
HOT, CALM = 0.9, 0.2  # load of the background
# Load of a node whose devices all serve jobs of kappa 1, of comm_share 1. Workers that do not wait (STAR) add more.
CPU_DEMAND, NET_DEMAND, ASYNCHRONOUS_DEMAND = 0.4, 0.5, 1.3
THETA, WIDTH = 0.8, 0.05  # the load at which onsets come half as often as at most, and how sharply
UTIL = 0.5  # by how much more often a GPU that is held begins to straggle
SHORTEST_S, LONGEST_S = 30.0, 36000.0  # episodes are cut to these
# Some nodes are degraded: share of all (MegaScale), slowdown of their GPUs, factor on these GPUs' hazard.
DEGRADED_SHARE, DEGRADED_SLOWDOWN, DEGRADED_RATE = 0.005, 1.1, 10.0
NODE_SHARE = 0.26  # of the variance of a GPU's speed that its node has in common
SLOW_GPU, SLOW_SHARE = 1.12, 0.03  # some GPUs are slower by this
BROKEN_GPU = 2.1


@dataclass(frozen=True)
class Cause:
    """One kind of component. Hazards are per hour, times in minutes."""

    hot_share: float
    """Share of time that its background is hot."""
    least_rate: float
    """Onsets of a component without load."""
    hot_rate: float
    """Onsets that full load adds."""
    mean_min: float
    log_sd: float
    excess: float
    """Mean of the severity less 1; 0: there are none of this kind."""
    excess_log_sd: float


@dataclass(frozen=True)
class StragglerPreset:
    """All kinds of a preset; GPUs have no background, and their hot_rate is UTIL times their least_rate."""

    cpu: Cause
    net: Cause
    gpu: Cause
    sojourn_h: float
    """Mean length of an epoch of the background."""
    most_severe: float
    broken_share: float
    """Share of GPUs that are BROKEN_GPU times slower."""

    @property
    def causes(self) -> tuple[Cause, Cause, Cause, Cause]:
        """By kind: CPU, NET, IO (as CPU), GPU."""
        return self.cpu, self.net, self.cpu, self.gpu


def _gpu(rate: float, mean_min: float, log_sd: float, excess_log_sd: float) -> Cause:
    return Cause(0.0, rate, UTIL * rate, mean_min, log_sd, 0.25, excess_log_sd)


STRAGGLER_PRESETS: dict[str, StragglerPreset] = {
    "shared": StragglerPreset(
        cpu=Cause(0.010, 0.002, 8.0, 10.0, 1.0, 0.35, 0.4),
        net=Cause(0.07, 0.002, 2.0, 24.0, 1.2, 1.8, 0.6),
        gpu=_gpu(5e-4, 10.0, 1.0, 0.4),
        sojourn_h=12.0,
        most_severe=8.0,
        broken_share=0.0,
    ),
    "contention": StragglerPreset(
        cpu=Cause(0.20, 0.02, 6.0, 10.0, 1.0, 0.60, 0.5),
        net=Cause(0.25, 0.02, 3.0, 24.0, 1.2, 2.5, 0.8),
        gpu=_gpu(1e-3, 10.0, 1.0, 0.5),
        sojourn_h=12.0,
        most_severe=8.0,
        broken_share=0.01,
    ),
    "dedicated": StragglerPreset(
        cpu=Cause(0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0),
        net=Cause(0.0075, 0.0, 1.2, 72.0, 1.0, 5.0, 1.0),
        gpu=_gpu(1e-4, 30.0, 1.0, 0.4),
        sojourn_h=24.0,
        most_severe=12.0,
        broken_share=0.0,
    ),
}
