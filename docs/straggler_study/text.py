"""The prose of docs/stragglers.md that no result can change."""

from __future__ import annotations

TEXTS = {
    "head": """
# Schedulers that avoid stragglers

This page is written by `python -m docs.straggler_study` and by nothing else; every figure in it, also in sentences,
comes from the runs.

The question: how much of the time that stragglers cost can a scheduler get back by placing jobs where stragglers are
not expected and by moving them away, and how much of that hangs on how well it foresees them? Shen and Zhang,
"Deep Learning Training Job Scheduling for Proactive Straggler Reduction" (CCGrid 2025), is the work that asked it
first. **Neither its text nor its abstract nor any of its figures is public. What runs here under the name `psr` is
PSR-H, our reconstruction, by heuristics, and so are the model of stragglers and its constants.** Nothing on this page
confirms or refutes that paper.

## Model

The exact definition is [design/005-stragglers.md](design/005-stragglers.md). In short: each node has a CPU and a link,
each GPU is a component too, and each of these is normal or slow. A component that is normal becomes slow at a rate that
rises steeply once the load of its node nears a threshold; load is that of the jobs there and of a background of other
tenants, which is hot or calm for hours. So stragglers come in clusters, and jobs bring them upon each other. It stays
slow for a while, by a severity drawn at the onset. Beside that, GPUs of one type differ for good. All workers of a job
wait for the slowest, a job on several nodes for the slowest link, as far as its iterations are communication. All
random numbers belong to components, not to schedulers, so that runs of one seed meet the same stragglers as far as
their loads are the same.

The presets, hazards before frailty and load:
""",
    "constants": """
A is fitted to Greyhound's measurements (arXiv 2410.12588) of jobs on one and on four nodes of a shared cluster: the
hot shares, hazards at full load and severities by hand, durations taken from it. B is a stress test, fitted to nothing.
C was fitted to Greyhound's jobs of 512 GPUs and more. No cluster run on this page uses C.
""",
    "fit": """
How well the presets fit: jobs alone on their nodes, of equal GPUs, 0.4 of an iteration communication; *hit* is one that
is slower by more than 10 % at some time; ± is one standard deviation by the number of probes. Whether Greyhound's mean
excess is over jobs that were hit or over all is not stated; the first is assumed. A was fitted to the first two rows,
so that these are no prediction. What counts as a fit was set with the presets, for C within ten points. C was made with
a coarser calculation, in which 63 % of its jobs were hit, by 27 %, and 11 % were beyond +50 %; in the simulator it fits
no better than the last row says.
""",
    "seen": """
## What is seen

Schedulers never see what is slow, how hot a background is or how frail a component. They see, in turns of 300 s:

* for each node, and apart for compute and network, a probability to straggle within 10 and within 60 minutes. By
  default (`noisy`) that is the true one, its log-odds bent so that it is calibrated, with noise of a standard deviation
  sigma_p = 1 that lasts half an hour, and 5 % of the readings lost. `oracle` is the true one;
* measured loads (5 % off), the smoothed ratio of observed to expected iteration times, a detector that misses 12 % of
  episodes and is wrong in 1.5 % of turns, and the slowdown of each job (1 to 2 % off);
* the static speed of each GPU, as if profiled, exactly, and how long each job runs without stragglers, exactly
  (`--sim.durations oracle`).
""",
    "schedulers": """
## Schedulers

Every one lets a host (here `fifo` without backfilling, in the sweeps also `srtf` and `las`) say who runs, and decides
where. A job that fits on one node goes on one.

* `oblivious`: best fit, larger jobs gather the emptiest nodes, ties at random. What all are compared with.
* `psr` (PSR-H, reconstruction): candidate placements scored whole by expected excess time, static speed, fragmentation
  and the harm done to neighbours; jobs wait up to two rounds for a much better place; every 300 s jobs are moved where
  that pays, or re-batched where compute is slow. `?react=false` only places, `?placement=false` only reacts,
  `?react=false,shuffle=true` places by probabilities of other nodes. Its *oracle run* is the same with
  `--sim.straggler-obs oracle`: an upper bound on what better probabilities would bring this heuristic, not on what can
  be done.
* `static-aware`: the fastest GPUs, after PAL's PM-First. `avoid-slow`: nodes last that have been slow. `reactive`: jobs
  move off flagged nodes once they have lost what moving costs (ski rental), `avoid-reactive`: both. `quarantine`:
  nodes found slow take no jobs for an hour, after Guard. `wrangler`: nodes that will probably straggle take jobs only
  once these have waited, after Wrangler. All are ours, after the idea of the work named.
* `lb-bsp`, `drop`, `asynchronous` and backup workers (`--sim.sync backup`): oblivious placement, other training.
* `node-by-node`: the least risky nodes first, however many; known as a trap from a toy before this study.
""",
    "experiment": """
## Experiment

224 jobs of `synthetic-stragglers` (four days at a load of 0.6, 40 % of the jobs on several nodes) on 32 nodes of 8
GPUs; a pass every 300 s and at each event; a move pauses a job for 180 s. Seeds are those of trace, stragglers and
scheduler alike; 20 in the headline, 10 in ablations, 5 in sweeps. **All of this and what counts as a success was set
before these runs, of which only a few of seeds 0 and 1 had been tried. The parameters of `psr` were chosen on A alone
and are the same in B: tuned on A, tested on B.**
""",
    "findings": """
## Findings

*Straggler loss* is the share of the GPU-time held outside pauses that slow workers cost, against a cluster of equal
GPUs without stragglers. The *recovered share* is (loss of oblivious placement - loss) / loss of oblivious placement, of
means over seeds. *Points* are hundredths of the loss of oblivious placement. Intervals are 95 % paired bootstrap
intervals over seeds.
""",
    "main": """
## All schedulers

![Recovered share of the straggler loss, and change of mean jct, by scheduler](stragglers/recovered.png)

*Oracle* sees true probabilities; *static only* is a straggler rate of 0 with unequal GPUs; *no stragglers* has equal
GPUs as well. Changes are against `oblivious:fifo` of the preset. Under backup workers what these hold counts as lost.
""",
    "more": """
*Straggling*: share of the GPU-time outside pauses of workers 1.2 times as slow as their job's fastest; *slowed*: share
of running time at less than 1 / 1.1 of a job's speed; *run slowdown*: running time without pauses over that in the
trace, mean over jobs and 99th percentile; *moves* include preemptions; CPU time is that of a run.
""",
    "sizes": """
## By size of jobs
""",
    "origin": """
## Where the gain comes from

The *static part* of a scheduler's loss is its loss where nothing straggles for a while and GPUs only differ for good;
*what comes and goes* is the rest. `?placement=false` has 10 seeds.
""",
    "noise": """
## Noise of the probabilities

![Recovered share against the noise of the probabilities](stragglers/noise.png)

1 is the default. Even true probabilities (0) are only probabilities; those of the oracle run lack the losses of
readings as well.
""",
    "ablations": """
## Parts of PSR-H

*Unseen*: the base rate of the preset instead of a probability for each node; *ewma*: the smoothed ratio of observed to
expected times instead; *w_ext = 0* ignores the harm done to neighbours, *w_frag = 0* fragmentation.
""",
    "sweeps": """
## Other worlds

Both sides run in the world that is named, and `psr` is compared with oblivious placement in that world; the usual one
is rate 1, load 0.6, a pause of 180 s, multi 0.4 and `fifo`. Of B there are only worlds that are no harsher than usual.
""",
    "limits": """
## What this does not show

* No comparison with the paper: its method and figures are unknown, and PSR-H is ours.
* Stragglers are modelled, not measured. The shape of the frailty, how steeply onsets depend on load, how much jobs load
  a node, and the cost of asynchrony are guesses; B is fitted to nothing, and the check above says how far C is off.
* The scheduler knows the preset's table, static speeds and run times exactly, and how noisy its probabilities are was
  chosen, not measured. No predictor is trained here.
* The loss counts slow GPUs as well; what static-aware placement could get back is not the merit of foresight.
* The oracle gap of mean jct divides by a difference that may be small: mean jct hangs on queueing, and the oracle run
  is a heuristic with better eyes, so that a noisy run can be better than it by chance.
* Rigid jobs, one cluster, one generator, no failures.
""",
}

CONSTANTS = (
    ("frailty of a component", "Gamma of mean 1, shape 2", "guessed, so that components differ"),
    ("threshold and width of the load at which onsets begin", "0.8, 0.05", "guessed"),
    ("load of the background, hot / calm", "0.9 / 0.2", "guessed"),
    (
        "load of a node that one job fills, CPU / link",
        "0.4 kappa / 0.5 omega",
        "guessed, so that the usual load alone brings few onsets",
    ),
    ("CPUs of a node that one job has to itself", "never slow", "measured: Greyhound's whole-node jobs had none"),
    ("deviation of log speed of GPUs", "0.026, 0.009, 0.002 by class of job", "fitted to PAL's published profiles"),
    ("share of its variance that is the node's", "0.26", "fitted to the same profiles"),
    ("GPUs 1.12 times as slow", "3 %", "fitted to the same profiles"),
    ("nodes 1.1 times as slow for good", "0.5 %", "MegaScale; that their GPUs straggle 10 times as often is guessed"),
    ("sensitivities of jobs", "see [traces](traces.md)", "throttling measurements in the group's public code (STAR)"),
    ("share of communication of a job", "0.05 to 0.5", "guessed"),
    ("speed of asynchronous training", "0.7 of the mean worker's", "guessed"),
    ("pause of a move / of re-batching", "180 s / 5 s", "our choice, within what Greyhound reports"),
    ("noise of probabilities", "sigma_p 1", "our choice"),
    ("detector", "misses 12 %, wrong in 1.5 %", "Greyhound's sliding window"),
)
