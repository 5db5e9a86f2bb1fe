"""Published schedulers that do not learn, by the name used on the command line."""

from __future__ import annotations

from baselines.fifo import Fifo, FifoBackfill
from baselines.gittins import Gittins
from baselines.las import Las
from baselines.qssf import Qssf
from baselines.random import Random
from baselines.sjf import Sjf
from baselines.smallest import Smallest
from baselines.srtf import Srtf, SrtfGpu
from baselines.tiresias import Tiresias

BASELINES: dict[str, type] = {
    "fifo": Fifo,
    "fifo-backfill": FifoBackfill,
    "smallest": Smallest,
    "sjf": Sjf,
    "qssf": Qssf,
    "srtf": Srtf,
    "srtf-gpu": SrtfGpu,
    "las": Las,
    "tiresias": Tiresias,
    "gittins": Gittins,
    "random": Random,
}

__all__ = ["BASELINES"]
