"""What arrives: readers of public traces, synthetic workloads and toys, all as one validated table of jobs."""

from traces.generators import GENERATORS, Generator
from traces.load import load_trace
from traces.musher_csv import write_trace
from traces.published import PUBLISHED
from traces.readers import READERS, Reader
from traces.summary import offered_load, statistics
from traces.toys import TOYS, Toy
from traces.trace import COLUMNS, SPLIT_BOUNDS, Column, Split, Trace, TraceError, make_trace

__all__ = [
    "COLUMNS",
    "GENERATORS",
    "PUBLISHED",
    "READERS",
    "SPLIT_BOUNDS",
    "TOYS",
    "Column",
    "Generator",
    "Reader",
    "Split",
    "Toy",
    "Trace",
    "TraceError",
    "load_trace",
    "make_trace",
    "offered_load",
    "statistics",
    "write_trace",
]
