"""The prose of docs/layer-elasticity.md that no result can change."""

from __future__ import annotations

TEXTS = {
    "head": """
# Layer elasticity on a cluster

This page is written by `python -m docs.layer_elasticity` and by nothing else; every figure in it, also in sentences,
comes from the runs.

The question: how much sooner do jobs end if the scheduler may freeze layers that have converged, how much of that
comes from freezing and how much from a scheduler that knows of it, and what does it cost in convergence? IceFrog (Gao
et al., TPDS 2025) is the work that asked it first. **Its full text and code are not public. What runs here under the
name `icefrog` is our reconstruction, and so are the model and its constants**; known are the words *effective
progress*, *layer-aware throughput* and *frozen penalty*, and a claim of a mean jct 36 to 48 % lower than under
schedulers that the abstract does not name.

## Model

The exact definition is [design/004-layers.md](design/004-layers.md). In short: a job has 5 to 14 modules. With the
first k frozen its throughput is that of a model with smaller constants ([layer profiles](layer-profiles.md), measured
by our own profiler on our own definitions of the networks). A module converges once it has been active for a certain
share of the job's progress, which depends on the preset and differs from job to job by up to a fifth; a frozen one
stands still. What the frozen modules lack is lost from the job's speed (the penalty P), and what all modules lack at
the end is the residual Q, our stand-in for lost accuracy. Both are means over modules, 0 to 1.
""",
    "fit": """
How well this predicts: step times of BERT on a V100 at a batch size that the constants were not fitted to within 2 %
relative to nothing frozen, within 3 % in seconds on average (`tests/traces/test_freezing_curves.py`; the largest
batch alone is 6 % off); step times of four networks on two CPU cores within 1.5 % ([layer
profiles](layer-profiles.md)); the loss of a small network that we trained under schedules that the fit had not seen
within 14 %, where ignoring freezing is 33 % off ([measured freezing](freezing-measured.md)). Convergence is thus the
weak part, and the presets are not measured.

## Experiment

160 jobs of `synthetic-layers` (the mix, requests and hours of Pollux's workloads) at a mean gap of 180 s on 12 nodes
of 4 GPUs, where that is a load of 4/3 of what Pollux's evaluation had on 64 GPUs. **Presets, fixed before the first
run:** BERT fine-tunes (`finetune`, activation cache allowed), all other models train from scratch (`middle`). A pass
every 60 s, `--sim.rescale-cost restart`, `--sim.knowledge profile`, `--sim.activation-cache`, `--sim.front noisy`, 5
seeds for the trace, the layers and the schedulers alike. `icefrog` and `safe-front` keep one module behind the front
that they believe in, unless it says otherwise.

* `icefrog:pollux` searches as Pollux does, `icefrog:elastic-srtf` is greedy, shortest effective remaining time first;
  both allocate by effective progress.
* `safe-front:HOST` freezes by the same rule, but HOST allocates as if nothing were ever frozen.
* `pipetransformer:HOST` and `freezeout:HOST` follow the published schedules of these names, as a user would by hand.
* `greedy-freeze` takes the depth of largest effective progress without a guard, `always-max` freezes all that it may.
""",
    "findings": """
## Findings

A change is mean jct over that of what it is compared with, less one, with a paired 95 % bootstrap interval over 5
seeds. *Excess* is the mean residual beyond that of the same jobs without freezing; of the worst model unless it says
otherwise.
""",
    "main": """
## All schedulers

![Change of mean jct against the best scheduler that does not freeze, and excess residual](layer-elasticity/gain.png)
""",
    "models": """
## By model

Mean jct by model, and the excess residual:
""",
    "known": """
## What is known of the front

The front is seen with noise. *Exact* is the oracle: the true front, no margin.
""",
    "presets": """
## Other presets

All jobs have one preset; allocation without freezing does not depend on it.

![Change of mean jct against the own host, by preset](layer-elasticity/presets.png)
""",
    "constants": """
## Other settings

*DDP* is `--sim.ddp plain`, where frozen layers stay in the synchronisation (sig = 1); *no cache*: the outputs of
frozen layers are computed again in every step; *gap*: jobs come half as often again.
""",
    "limits": """
## What this does not show

* No comparison with IceFrog itself: neither its workloads nor its baselines nor its algorithm are public.
* Residual is not accuracy. It is what the model of convergence says, with presets that nobody has measured on these
  networks; the bottom-up order in which layers converge is weaker in published gradient traces than the presets have
  it.
* Schedulers know the shipped speed profiles and the progress of each job; nothing is fitted online here.
* One cluster, one mix, one generator.
""",
}

CONSTANTS = (
    (
        "share of a sample's time that is backward",
        "0.62, YOLOv3 0.45",
        "fitted to V100 traces that IceFrog's first author published in 2022",
    ),
    (
        "share of a step's fixed time that goes with the layers",
        "0.75",
        "between the fits of 0.89 (BERT) and 0.59 (YOLOv3) to the same traces",
    ),
    (
        "a frozen layer's forward pass over a trained one's",
        "0.85 with batch normalisation, else 1",
        "our timings on two CPU cores",
    ),
    (
        "synchronisation that does not shrink with the parameters",
        "0.1 if DDP is built anew, 1 if it is not",
        "our choice; 1 is what the traces show for plain DDP",
    ),
    (
        "presets of convergence",
        "see [the simulator](simulator.md#layers)",
        "chosen so that a job alone gains what public works on freezing report",
    ),
    (
        "penalty that counts as none",
        "0.02",
        "our choice",
    ),
    (
        "noise of a measured front",
        "standard deviation 0.05 of the modules, one reading an interval",
        "our choice",
    ),
    (
        "pause of a change of depth",
        "3 s",
        "our choice, 2 to 5 s to build DDP anew",
    ),
)
