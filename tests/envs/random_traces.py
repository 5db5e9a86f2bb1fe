"""Random small cases with every feature on, for comparing two simulators job by job."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from envs.order import Key, ListOrder
from envs.spec import ClusterSpec, SimConfig
from traces.trace import Trace, make_trace

Case = tuple[Trace, ClusterSpec, ListOrder, SimConfig]

# Key.GIVEN is an order computed outside the simulator.
KEYS = [key for key in Key if key.name != "GIVEN"]
SERVICE_KEYS = (Key.SERVICE, Key.LEVEL, Key.QUEUE, Key.GITTINS)  # these divide or add up GPU-seconds


def random_case(seed: int) -> Case:
    """1-40 jobs whose times are multiples of 1/4 s, so that sums are exact and ties are common."""
    return _case(Random(seed), exact=True)


def near_real_case(seed: int) -> Case:
    """The same with arbitrary float times and shares: no ties but those of the rules themselves."""
    return _case(Random(seed), exact=False)


@dataclass
class Draw:
    """Random numbers of one case; ``exact`` keeps times and shares of a GPU dyadic."""

    rng: Random
    exact: bool
    unit: float

    def time(self, high: float) -> float:
        """A time in [0, high]."""
        return self.rng.randint(0, math.ceil(high / self.unit)) * self.unit if self.exact else self.rng.uniform(0, high)

    def some(self, probability: float) -> bool:
        return self.rng.random() < probability


def _case(rng: Random, exact: bool) -> Case:
    draw = Draw(rng, exact, unit=rng.choice((0.25, 1.0, 5.0)))
    order = _order(draw)
    config = _config(draw, order)
    cluster = _cluster(draw)
    return _trace(draw, cluster, order, config), cluster, order, config


def _cluster(draw: Draw) -> ClusterSpec:
    """1-6 nodes of 1-8 GPUs, equal or mixed, of one unnamed type, one named or two types."""
    types = draw.rng.choice((("",), ("",), ("A",), ("A", "B")))
    sizes = draw.rng.choice(((1,), (2,), (4,), (8,), (2, 4), (1, 2, 4, 8), (3, 4, 5), tuple(range(1, 9))))
    nodes = [(draw.rng.choice(sizes), draw.rng.choice(types)) for _ in range(draw.rng.choice((1, 2, 2, 3, 4, 5, 6)))]
    return ClusterSpec.parse("+".join(f"1x{gpus}" + (f":{gpu_type}" if gpu_type else "") for gpus, gpu_type in nodes))


def _order(draw: Draw) -> ListOrder:
    rng = draw.rng
    key = rng.choice([*KEYS, Key.REMAINING, Key.LEVEL])
    limits: tuple[float, ...] = ()
    values: tuple[float, ...] = ()
    if key in (Key.LEVEL, Key.QUEUE, Key.GITTINS):
        ladder = (8.0, 40.0, 64.0, 150.0, 600.0)
        limits = tuple(sorted(rng.sample(ladder, rng.randint(0, 3))))
    if key == Key.GITTINS:
        values = tuple(rng.choice((1.0, 2.0, 3.5, 5.0, 8.0)) for _ in range(len(limits) + 1))
    promote = rng.choice((0.0, 0.5, 1.0, 2.0)) if key == Key.LEVEL else 0.0
    preemptive, backfill = draw.some(0.7), draw.some(0.5)
    return ListOrder(key, preemptive, backfill, limits, values, promote, quantum_s=rng.choice((8.0, 20.0, 60.0)))


def _config(draw: Draw, order: ListOrder) -> SimConfig:
    """Any settings, but none with which jobs take turns for ever without getting anything done.

    Least attained service and promotion can preempt the same job again and again; what a preemption
    costs then has to stay below what a turn brings.
    """
    rng = draw.rng
    turns = order.preemptive and (order.key == Key.SERVICE or order.promote > 0)
    interval = rng.choice((0.0, 0.0, 10.0, 32.5, 60.0))
    return SimConfig(
        interval_s=interval,
        on_event=draw.some(0.5),
        rescale_cost="constant" if turns else rng.choice(("constant", "constant", "helios")),
        rescale_s=0.0 if order.promote > 0 else rng.choice((0.0, 0.25) if turns else (0.0, 5.0, 12.5, 30.0)),
        checkpoint_s=0.0 if turns else rng.choice((0.0, 0.0, 7.5, 10.0)),
        durations=rng.choice(("oracle", "estimate", "unknown")),
        placement=rng.choice(("consolidated",) * 4 + ("spread", "random", "count", "emptiest")),
        compat=rng.choice(("none",) * 8 + ("tiresias", "none" if turns else "helios")),
    )


def _trace(draw: Draw, cluster: ClusterSpec, order: ListOrder, config: SimConfig) -> Trace:
    rng = draw.rng
    count = rng.randint(1, 40)
    widths = [_width(draw, cluster, order) for _ in range(count)]
    durations = [0.0 if draw.some(0.06) else draw.time(rng.choice((10.0, 60.0, 200.0))) for _ in widths]
    shares = [_share(draw, order) if width == 1 and draw.some(0.4) else 1000 for width in widths]
    work = sum(w * d for w, d in zip(widths, durations, strict=True))
    # From a burst (load without end) to a load of 2/3.
    horizon = work / cluster.num_gpus * rng.choice((0.0, 0.3, 0.7, 1.5))
    start = draw.time(100.0) if draw.some(0.3) else 0.0
    arrivals = sorted(start + draw.time(horizon) for _ in widths)
    estimates = [draw.time(200.0) if draw.some(0.5) else math.nan for _ in widths]
    wanted = ["", "", "", *cluster.types, "C"] if draw.some(0.4) else [""]
    steady = 0.3 if draw.some(0.3) else 0.0
    columns: dict[str, object] = {
        "arrival_s": arrivals,
        "num_gpus": widths,
        "duration_s": durations,
        "share_milli": shares,
        "estimate_s": estimates,
        "gpu_type": [rng.choice(wanted) for _ in widths],
        "preemptible": [not draw.some(steady) for _ in widths],
    }
    return make_trace(f"random-{order.key.name.lower()}-{config.placement}", columns)


def _width(draw: Draw, cluster: ClusterSpec, order: ListOrder) -> int:
    """GPUs of a job: mostly narrow, some of several nodes, a few wider than the cluster."""
    if draw.some(0.03):
        return cluster.num_gpus + draw.rng.randint(1, 3)
    widths: tuple[int, ...] = (1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 8, 9, 12, 16, cluster.num_gpus)
    if draw.exact and order.key in SERVICE_KEYS:
        widths = (1, 1, 1, 2, 2, 4, 8, 16)  # so that limits / GPUs are exact
    return draw.rng.choice([width for width in widths if width <= cluster.num_gpus])


def _share(draw: Draw, order: ListOrder) -> int:
    exact = (125, 250, 500, 750, 875)
    return draw.rng.choice(exact if draw.exact and order.key in SERVICE_KEYS else (*exact, 180, 300, 333, 900, 1))
