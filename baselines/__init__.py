"""Published schedulers that do not learn, by the name used on the command line."""

from __future__ import annotations

from baselines.afs import Afs
from baselines.avoid_slow import AvoidSlow
from baselines.deepboot import DeepBoot
from baselines.elastic_srtf import ElasticSrtf
from baselines.fifo import Fifo, FifoBackfill
from baselines.freeze_traps import AlwaysMax, GreedyFreeze
from baselines.freezeout import FreezeOut
from baselines.gittins import Gittins
from baselines.icefrog import IceFrog
from baselines.las import Las
from baselines.lyra import Lyra
from baselines.max_min import MaxMin
from baselines.node_by_node import NodeByNode
from baselines.oblivious import Oblivious
from baselines.optimus import Optimus
from baselines.pipetransformer import PipeTransformer
from baselines.pollux import Pollux
from baselines.psr import Psr
from baselines.qssf import Qssf
from baselines.quarantine import Quarantine
from baselines.random import Random
from baselines.reactive import AvoidReactive, Reactive
from baselines.safe_front import SafeFront
from baselines.sjf import Sjf
from baselines.smallest import Smallest
from baselines.srtf import Srtf, SrtfGpu
from baselines.static_aware import StaticAware
from baselines.sync_modes import Asynchronous, Backup, Drop, LbBsp
from baselines.tiresias import Tiresias
from baselines.wrangler import Wrangler

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
    "optimus": Optimus,
    "afs": Afs,
    "elastic-srtf": ElasticSrtf,
    "pollux": Pollux,
    "deepboot": DeepBoot,
    "lyra": Lyra,
    "max-min": MaxMin,
    "icefrog": IceFrog,
    "safe-front": SafeFront,
    "pipetransformer": PipeTransformer,
    "freezeout": FreezeOut,
    "always-max": AlwaysMax,
    "greedy-freeze": GreedyFreeze,
    "oblivious": Oblivious,
    "static-aware": StaticAware,
    "avoid-slow": AvoidSlow,
    "reactive": Reactive,
    "avoid-reactive": AvoidReactive,
    "quarantine": Quarantine,
    "wrangler": Wrangler,
    "lb-bsp": LbBsp,
    "drop": Drop,
    "asynchronous": Asynchronous,
    "backup": Backup,
    "node-by-node": NodeByNode,
    "psr": Psr,
}

__all__ = ["BASELINES"]
