"""Public traces: where they are published, under which terms, and which reader reads them.

Nothing is downloaded: the data sets move, some are Git-LFS objects, and several have no licence that would let us hand
them on. What follows are directions for a person, checked against copies of the files but not against the network.
"""

from __future__ import annotations

import difflib
from typing import NamedTuple

from traces.trace import TraceError


class Published(NamedTuple):
    """A public trace. ``reader`` is a name of READERS, or empty if only our own CSV can carry it so far."""

    title: str
    where: str
    files: str
    licence: str
    cite: str
    reader: str


PUBLISHED: dict[str, Published] = {
    "philly": Published(
        "Microsoft Philly, 2017, original log",
        "GitHub, msr-fiddle/philly-traces",
        "trace-data.tar.gz (1.1 GB, a Git-LFS object); cluster_job_log inside",
        "CC-BY-4.0",
        "Jeon et al., USENIX ATC 2019",
        "",
    ),
    "philly-flat": Published(
        "Microsoft Philly, flat file of 82,247 jobs",
        "GitHub, siasosp23/artifacts",
        "sia-simulator/traces/philly.csv",
        "no licence file in the repository; derived from a CC-BY-4.0 trace",
        "Jeon et al., USENIX ATC 2019; Jayaram Subramanya et al., SOSP 2023",
        "philly",
    ),
    "tiresias": Published(
        "Jobs of the Tiresias simulator",
        "GitHub, SymbioticLab/Tiresias",
        "60_job.csv",
        "Apache-2.0",
        "Gu et al., NSDI 2019",
        "tiresias",
    ),
    "pollux": Published(
        "Workloads of Pollux, 160 elastic jobs each",
        "GitHub, petuum/adaptdl, branch osdi21-artifact",
        "benchmark/workloads*/workload-*.csv",
        "Apache-2.0",
        "Qiao et al., OSDI 2021",
        "pollux",
    ),
    "sia": Published(
        "Workloads of Sia on Philly and Helios arrivals",
        "GitHub, siasosp23/artifacts",
        "the workload-*.csv files",
        "no licence file in the repository",
        "Jayaram Subramanya et al., SOSP 2023",
        "pollux",
    ),
    "deepboot": Published(
        "Workloads of DeepBoot: training and inference",
        "GitHub, czq693497091/DeepBoot",
        "small.csv, middle.csv, large.csv, pure_train.csv",
        "no licence file in the repository",
        "Chen et al., DeepBoot",
        "pollux",
    ),
    "helios": Published(
        "SenseTime Helios, 2020, four clusters",
        "GitHub, S-Lab-System-Group/HeliosData",
        "data.zip (36 MB); cluster_log.csv of each cluster inside",
        "CC-BY-4.0",
        "Hu et al., SC 2021",
        "",
    ),
    "elasticflow": Published(
        "Microsoft ITP, 2021, ten clusters",
        "GitHub, microsoft/elasticflow-traces",
        "raw-traces.tar.gz, elasticflow-traces.tar.gz",
        "MIT",
        "Gu et al., ASPLOS 2023",
        "",
    ),
    "acme": Published(
        "Shanghai AI Lab Acme, 2023, clusters Seren and Kalos",
        "GitHub, InternLM/AcmeTrace",
        "trace_seren.csv, trace_kalos.csv",
        "CC-BY-4.0",
        "Hu et al., NSDI 2024",
        "",
    ),
    "pai": Published(
        "Alibaba PAI, 2020",
        "GitHub, alibaba/clusterdata, folder cluster-trace-gpu-v2020",
        "pai_job_table, pai_task_table, pai_instance_table",
        "CC-BY-4.0",
        "Weng et al., NSDI 2022",
        "",
    ),
}


def published(name: str) -> Published:
    """Directions for one public trace; TraceError for an unknown name, with the nearest one."""
    if name not in PUBLISHED:
        near = difflib.get_close_matches(name, PUBLISHED, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise TraceError(f"no directions for a public trace {name!r}{hint}; known: {', '.join(PUBLISHED)}")
    return PUBLISHED[name]
