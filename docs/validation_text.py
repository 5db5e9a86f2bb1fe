"""The prose of docs/validation.md, by section."""

from __future__ import annotations

TEXTS = {
    "head": """
# Validation: our simulator beside published ones

This page is written by `make validation` (with `--studies` also the runs of two of its sections) and by nothing else.
It puts our results on the inputs of published simulators beside their authors' results, and beside what we measured by
running these simulators. The inputs and results lie in `../shared` beside the checkout; they are not part of the
project.

How to read it:

* **published** figures are the authors' own, from the files that came with their simulator; **measured** ones are
  ours, from running their simulator. A job is **equal** if its jct differs by less than half a second.
* **Difference** is ours over theirs, less one. The verdict is `equal` if every job is, `within` if the difference does
  not exceed the tolerance, `outside` if it does, and `–` where we have no result yet.
* A tolerance other than 0 has a reason, which the section gives.
""",
    "osdi": """
## Pollux's simulator: tiresias and optimus, to the second

The simulator that came with Pollux (Qiao et al., OSDI'21) on 16 nodes of 4 T4, rounds of 60 s, the measured step times
that came with it, 8 workloads at each of 4 loads. Both schedulers are deterministic. Ours: `--sim.compat pollux`. The
whole run has to agree for these to be equal: profiles, gradients, pauses, the order of queues, placement, and
rounding.
""",
    "osdi-jobs": """
By workload: mean jct [s] of ours and theirs, share of jobs that are equal, share within 1 %.
""",
    "again": """
The same schedulers against runs that we made of their simulator, which also count restarts and GPU-hours. Restarts are
our `num_rescales + num_preemptions`; GPU-hours are counted as theirs are, a round at a time: whoever holds a GPU in a
round holds it for all of it.
""",
    "pollux": """
## Pollux itself

Rounds of 60 s. Pollux searches placements by a genetic algorithm: its results depend on random numbers, of which we
cannot have the authors'. They published one run of each workload, without a seed; we ran two seeds of each. The
tolerances (4 % at load 1.0, 6 % at the others, for means over 8 workloads) were set beforehand, from the authors' own
statement of about 5 %. A single workload has no verdict of its own.
""",
    "pollux-again": """
Two runs of Pollux that we made of their simulator, at longer rounds, with one seed of theirs and two of ours.
""",
    "interval": """
### Longer and shorter rounds

Load 1.0, mean over 8 workloads, one seed. The published study is one run of each. Runs of `--studies`.
""",
    "interference": """
### Interference

A job on several nodes is slowed down by a share while it is on a node with another such job. With avoidance, Pollux
puts no two such jobs on one node. Load 1.0, mean over 8 workloads, one seed. Runs of `--studies`.
""",
    "tiresias": """
## The Tiresias simulator

The simulator that came with Tiresias (Gu et al., NSDI'19), its own trace of 60 jobs on 2 nodes of 4 GPUs, and a trace
of 480 jobs of ours on 15 nodes of 4 GPUs; GPUs are counted, not placed. Ours: `--sim.compat tiresias`, the shipped
schedulers.
""",
    "deepboot": """
## DeepBoot's simulator

The simulator that came with DeepBoot (Chen et al., TPDS 2023): 160 training jobs on nodes of 4 GPUs, alone
(`pure_train`, 8 and 16 nodes) and beside 3200 inference tasks (`small`, 16 nodes). All figures of theirs are measured:
its authors published none by run. Names are those of the files: their `aryl` is our `lyra`, their `dp` our `deepboot`;
AISS0 is `--sim.no-aiss`, AFE1 `--sim.rescale-cost afe` (else `restart`), P8 `--sim.protect-times 8`. Inference takes
whole nodes of the second half (`--sim.reclaim lyra`) under optimus, afs, aryl and in the run ARYL1, single GPUs (`ats`)
otherwise. Ours: `--sim.compat deepboot`; the last two columns are the same scheduler and settings by our own rules
(`compat none`), and their difference from the original. Mean jct of training jobs:
""",
    "deepboot-shared": """
### Training beside inference

The same runs of `small`: mean latency of the inference tasks (tolerance 3 %), share of them that found a warm pod
(3 points), and how often inference took a GPU from training (10 %).
""",
    "deepboot-causes": """
Why what remains does. Tolerances were set beforehand, by what a scheduler's decisions hang on:

* **Rounding decides who loses a GPU.** Where no model is fitted (tiresias), every job's speed-up is linear and each
  choice of a victim gives the same sum but for its last digits; the original takes the largest. We add in numpy's order
  (`envs/rounding.py`), and every training job and every task is then equal to the second, with warm pods and without.
* **Ties of `aryl`'s knapsack hang on last digits too.** Every job that ends in the first 60,000 s beside inference is
  equal; then a tie falls otherwise. About 30 ways to write its value, all equal but for rounding, give means from 41.9
  to 44.8 thousand seconds where the original's is 42.3, and none fits all of its runs.
* **`dp` hangs on the last digits of fits.** Its counts come from fits of what each job has run in, by an optimiser
  whose last digits ours does not share. The original moves by as much when the start of its own fit is perturbed.
* **One job of `optimus`** with warm pods differs, and nine of `afs` alone on 8 nodes; why, we do not know.
* **Compat off** is another scheduler in two cases: our `tiresias` lowers a job's priority after 3250 and 7200 GPU-s,
  theirs after 16 GPU-hours; our `lyra` serves base demands shortest first, their `aryl` maximises what makes short jobs
  wait. Elsewhere it is the simulator: progress is not rounded to whole seconds, tasks are also placed at passes,
  training is not given GPUs that are stripped from it at once, nor paused because its nodes were sorted.

The original's own scatter, mean jct of training jobs:
""",
    "deepboot-histories": """
Runs with a figure outside its tolerance, job by job, theirs and ours. The original does not keep first starts of
training jobs; its time without GPUs is its jct less run time and pauses.
""",
    "tiny": """
Cases of a few jobs, made to show one rule each, in the Tiresias simulator and in that of Helios (Hu et al., SC'21;
ours: `--sim.compat helios`). Compared are the start and the end of every job and its number of preemptions. Left out:
`gittins`, which the original orders the wrong way round.
""",
    "units": """
## Values of single functions

Throughput, gradients, goodput and the fit of a job's measurements, against values that the code of Sia and of DeepBoot
gave. Where a value depends on no fit it has to agree to rounding. Fits are compared by the step times they predict, at
the measured placements and at 21 others, since parameters that hardly matter may differ.
""",
    "single": """
One job alone in DeepBoot's simulator (Chen et al., TPDS 2023) with a fixed request, from its arrival at 1 s:
completion time. DeepBoot's simulator rounds the end of every epoch to a whole second; we do not round, so that models
of 80 or 100 short epochs differ by up to half a second an epoch. That is the tolerance.
""",
    "fit": """
## How much the errors of our fitted profiles matter

The shipped profiles are fits, with mean errors of the step time of 7 to 12 % on T4 (docs/profiles.md). This study asks
what that does to a comparison of schedulers: the same schedulers on the 8 workloads at load 1.0, by our own rules
(rounds of 60 s, `--sim.rescale-cost restart`), once with the measured step times as the truth and once with the fitted
ones. In both, schedulers know the shipped profiles. Two more columns keep the measured truth and change what
schedulers know: a fit of what each job has run in (`online`), or the truth (`oracle`). Mean jct [s] over the
workloads, and rank in brackets.

What `optimus` and `afs` read is the true iteration times, whatever the others know, and `fifo` and `tiresias` read no
times at all: where these change, the truth has.
""",
    "not": """
## What is not compared here, and why

* Sia's and Gavel's runs: several GPU types, rounds planned by integer or linear programs; not in Musher.
* In DeepBoot's simulator: its own Pollux (another genetic search, one run, no seed) and the study in which inference
  lands on a random node (numbers of Python's own generator).
* Lucid: several jobs on one GPU at speeds from a table of pairs; not in Musher.
* In the Tiresias simulator: `gittins` (inverted, and crashes as shipped), `yarn` placement with preemptive schedules
  (leaks memory, ends early), `dlas` on wide jobs (counts seconds where the paper counts GPU-seconds).

Causes of difference that remain everywhere: the search of Pollux is random; published figures of it are single runs;
in the measured profiles, between measured node counts, the value of a scipy triangulation whose tetrahedra are flat
depends on where the search for the tetrahedron starts, by up to 30 %. We evaluate each point by itself, as the
authors' program does.
""",
    "runs": """
## Every run

Mean jct [s] by workload; a dash is a run without a result. `w*` stands for `w1` to `w8`. CPU seconds are means over
the workloads, without loading and compiling.
""",
    "tau": """
Kendall's tau is 1 where two rankings are the same and -1 where one is the reverse of the other; with 7 schedulers a
pair of neighbours that changes places lowers it by 0.095. "Same best": workloads on which the same scheduler has the
least mean jct.
""",
    "speed": """
## What a run costs

CPU seconds of one run (median), decisions and simulation together, without loading and compiling.
""",
}
