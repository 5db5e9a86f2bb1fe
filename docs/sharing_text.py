"""The prose of docs/sharing.md that no result can change."""

from __future__ import annotations

TEXTS = {
    "head": """
# Training that borrows the GPUs of inference

This page is written by `python -m docs.sharing` and by nothing else; every figure in it, also in sentences, comes from
the runs.

The question: DeepBoot (Chen et al., TPDS 2023) lets training borrow the GPUs of the inference half of a cluster, and
claims a mean training jct that is 38 % lower in simulation than under a scheduler that does not. How much lower is it
here, how much of that does the borrowed capacity explain by itself, and is `deepboot` better than other schedulers that
borrow in the same way, at equal service of inference?

All runs: 16 nodes of 4 GPUs, our own rules (`--sim.compat none`), a pass every 60 s, `--sim.rescale-cost afe`,
`--sim.knowledge online` (which only `deepboot` reads: it learns speeds from its runs; `afs` and `lyra` are told the
true ones, `tiresias` needs none), consolidated placement, warm pods (`--sim.aiss`). *Borrows* is `--sim.reclaim ats`,
*confined* is `static`: training has nodes 0-7 and inference nodes 8-15. Requests above 32 GPUs are cut to 32, since
they would be rejected there. `tiresias-16h` is `tiresias?thresholds=57600`: one threshold of 16 GPU-hours as in
DeepBoot's simulator, where our default, that of Tiresias's authors, lowers priorities after 54 GPU-minutes.

A task **violates** if it waits and starts up for more than 5 s. A new pod needs 4, 6 or 8 s by its model, so that a
cold start violates for four of the six models and never for the other two unless it also waits; above 8 s only waiting
would count, and below 4 s every cold start.
""",
    "findings": """
## Findings

A change is mean training jct over that of what it is compared with, less one: below 0 is better. In brackets, part A:
least and greatest over 5 stretches of the arrivals; part B: paired 95 % bootstrap interval over 5 seeds.
""",
    "measured": """
## Part A: DeepBoot's own workload

160 training jobs and 3200 inference tasks (`small.csv`), measured profiles; needs the data in `../shared`. The tasks
are served in 0.3 GPUs on average, of 64. All arrivals are multiplied by 1, 1 ± 0.001 and 1 ± 0.002: that moves the
instants of decisions, and shows how far a mean hangs on chance, not how far other workloads would differ (part B has
that). *Inference has 2 nodes*: `static` with `--sim.inference-nodes 2`, nothing is borrowed. *No inference*: its tasks
are left out, the upper bound. The other columns are changes against the same scheduler confined.

![Mean training jct against confined, by scheduler](sharing/measured.png)
""",
    "measured-violations": """
Tasks that violate, all jobs, mean over the stretches:
""",
    "sweep": """
## Part B: more inference

`synthetic-colocated` with 160 training jobs and tasks of 10 s on average in 6 services, whose offered load is 10, 20,
40 and 60 % of the inference half; shipped profiles; with all training jobs, and with the largest class left out.

Schedulers differ in how many GPUs they leave idle, and idle GPUs keep pods warm; at equal settings they do not give
inference equal service. So each is run with `--sim.protect-times` 0, 0.25, 1 and 16, which buys fewer violations
with a longer training jct:

![Mean training jct over violations](sharing/curves.png)

Means over seeds; the larger mark is protection x 1. Each scheduler's curve is then read, seed by seed, where it
violates as much as `deepboot` does at protection x 1 (linear in the logarithm of the share, between neighbouring
points). *Reached*: seeds in which the curve gets there; in the others its nearest end stands for it, which flatters a
scheduler that violates more and wrongs one that violates less.

![Mean training jct over deepboot's at equal violations](sharing/equal.png)
""",
    "confined": """
Borrowing against not borrowing, `deepboot`: at two protections, with the share that violates then, and where its curve
violates as much as confined does (else at its nearest end). And `lyra` by its paper's rule (`--sim.reclaim lyra`:
inference takes whole nodes of its half), at protection x 1:
""",
    "limits": """
## What this does not show

* The configuration behind the published 38 % (and 32 % on a testbed) is not public: neither figure is confirmed or
  refuted here.
* The generated workloads have one cluster size, one training load, Poisson arrivals, and tasks of one mean duration.
  Five seeds are few: a bootstrap over 5 has less than its nominal coverage, and with this many comparisons a few
  intervals exclude 0 by chance.
* Confined inference is given half of the cluster whatever it needs. A fixed partition of the right size is the fairer
  baseline; part A has one, part B none.
* `lyra` and `afs` are ours from what is public of them, and are told the true speeds; `optimus` and Pollux are
  not here.
* `deepboot` tunes batch sizes and learns speeds, the others keep the requested batch: part of its lead is that, and
  nothing here tells how much.
* Violations count tasks; how late they are is not looked at.
""",
}
