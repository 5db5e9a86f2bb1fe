"""What the results of docs/stragglers.md say, in sentences whose every figure and verdict is computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from docs.sharing_findings import listed
from docs.straggler_study.compare import (
    Find,
    average,
    change,
    cost,
    gained,
    headroom,
    of_oracle,
    of_size,
    recovered,
    recovered_passing,
    still,
)
from docs.straggler_study.runs import (
    ABLATED,
    BACKUP,
    FREE,
    MODES,
    NODE_BY_NODE,
    NOISE,
    OBLIVIOUS,
    ORACLE,
    OTHERS,
    PLACING,
    PSR,
    REACTING,
    SHUFFLED,
    STATIC,
    STATIC_AWARE,
    STUDIED,
    SWEPT,
    UNSEEN,
    Case,
)
from docs.straggler_study.store import SIZES
from docs.validation_tables import NOTHING
from envs.statistics import Estimate

WANTED = 0.7  # of what the oracle run recovers
LOST = 0.5  # of what probabilities bring, if which node they belong to is what matters
TOLERATED = 0.01  # change of mean jct where nothing straggles for a while


def findings(find: Find) -> Iterator[str]:
    """One finding a sentence or two; nothing where a result is missing."""
    parts = (
        *(_headline, _reaction, _jct, _shuffled, _node_by_node, _nothing_to_avoid),
        *(_origin, _others, _modes, _sizes, _gap, _noise, _ablations, _sweeps),
    )
    for preset in STUDIED:
        for part in parts:
            sentences = [f"**{preset}.** {sentence}" for sentence in part(find, preset)]
            if not any(NOTHING in sentence for sentence in sentences):
                yield from sentences


def named(case: Case) -> str:
    """As in the tables."""
    given = {ORACLE: ", oracle", BACKUP: ", backup workers", FREE: ", no stragglers", STATIC: ", static only"}
    return f"`{case.policy}`{given.get(case.change, '')}"


def share(estimate: Estimate, unit: str = "%") -> str:
    """A share and its 95 % interval; a dash where one of these is missing."""
    if np.isnan([*estimate]).any():
        return NOTHING
    return f"{100 * estimate.value:.1f} {unit} ({100 * estimate.ci_low:.1f} to {100 * estimate.ci_high:.1f})"


def signed(estimate: Estimate, unit: str = "%") -> str:
    """The same of a change."""
    if np.isnan([*estimate]).any():
        return NOTHING
    return f"{100 * estimate.value:+.1f} {unit} ({100 * estimate.ci_low:+.1f} to {100 * estimate.ci_high:+.1f})"


def one(value: float) -> str:
    """A share without interval."""
    return NOTHING if np.isnan(value) else f"{100 * value:.1f} %"


def says(verdict: bool) -> str:
    return "holds" if verdict else "does not hold"


def _headline(find: Find, preset: str) -> Iterator[str]:
    psr, oracle = Case(PSR, preset), Case(PSR, preset, ORACLE)
    ours, part = recovered(find, psr), of_oracle(find, preset, "loss")
    holds = part.value >= WANTED and ours.ci_low > 0
    yield (
        f"{named(psr)} (PSR-H, reconstruction) recovers {share(ours)} of the straggler loss of oblivious placement, "
        f"{one(average(find, psr, 'loss'))} instead of {one(average(find, psr.base, 'loss'))}; the oracle run "
        f"recovers {share(recovered(find, oracle))}. Of what the oracle run recovers that is {share(part)}. That it is "
        f"{100 * WANTED:g} % at least and that the interval of psr's recovery lies above 0, {says(holds)}."
    )


def _reaction(find: Find, preset: str) -> Iterator[str]:
    psr, alone = Case(PSR, preset), Case(PLACING, preset)
    more = gained(find, psr, alone)
    yield (
        f"Without reaction to what straggles, {named(alone)}, recovery is {share(recovered(find, alone))}; reaction "
        f"adds {signed(more, 'points')}. That it adds to it {says(more.ci_low > 0)}. Moves a run: "
        f"{_count(average(find, psr, 'moves'))}, pauses {_count(average(find, psr, 'paused_gpu_h'))} GPU-hours of "
        f"{_count(average(find, psr, 'gpu_h'))}."
    )


def _jct(find: Find, preset: str) -> Iterator[str]:
    psr = Case(PSR, preset)
    found, waiting = change(find, psr), change(find, psr, what="queueing_s")
    yield (
        f"Stragglers and unequal GPUs raise the mean jct of oblivious placement by {share(cost(find, preset))}. Under "
        f"{named(psr)} it is {signed(found)} against oblivious placement, its 99th percentile "
        f"{signed(change(find, psr, what='p99_s'))}, the mean queueing delay {signed(waiting)}. That mean jct is not "
        f"worse {says(found.value <= 0)}; that it is better, beyond its interval, {says(found.ci_high < 0)}."
    )


def _shuffled(find: Find, preset: str) -> Iterator[str]:
    place, mixed, blind = Case(PLACING, preset), Case(SHUFFLED, preset), Case(PLACING, preset, UNSEEN)
    brought, fewer = gained(find, place, blind), gained(find, place, mixed)
    lost = fewer.value / brought.value if brought.value else np.nan
    yield (
        f"What the probabilities bring psr's placement: {signed(brought, 'points')} of recovery against the same base "
        f"rate for all nodes, with which it recovers {share(recovered(find, blind))} by static speeds and measured "
        f"loads. With the probabilities of other nodes it recovers {share(recovered(find, mixed))}: {one(lost)} of "
        f"what they bring is lost. That shuffling loses it (half of it at least, beyond the interval) "
        f"{says(lost >= LOST and fewer.ci_low > 0 and brought.ci_low > 0)}."
    )


def _node_by_node(find: Find, preset: str) -> Iterator[str]:
    trap, psr = Case(NODE_BY_NODE, preset), Case(PSR, preset)
    less = gained(find, psr, trap)
    yield (
        f"{named(trap)}, the least risky nodes first, recovers {share(recovered(find, trap))} at a mean jct "
        f"{signed(change(find, trap))} against oblivious placement. That it recovers less than psr "
        f"{says(less.ci_low > 0)} ({share(less, 'points')} between them); that it is worse than oblivious "
        f"placement, as in the toy that warned of it, {says(recovered(find, trap).ci_high < 0)}."
    )


def _nothing_to_avoid(find: Find, preset: str) -> Iterator[str]:
    still_, free = (change(find, Case(PSR, preset, name)) for name in (STATIC, FREE))
    holds = max(still_.value, free.value) <= TOLERATED
    yield (
        f"Where nothing straggles for a while (`--sim.straggler-rate 0`) the mean jct of psr is {signed(still_)} "
        f"against oblivious placement on GPUs of unequal speed, and {signed(free)} on equal ones. That it is at most "
        f"1 % worse {says(holds)}."
    )


def _origin(find: Find, preset: str) -> Iterator[str]:
    psr, place, react, static = (Case(rule, preset) for rule in (PSR, PLACING, REACTING, STATIC_AWARE))
    part = float(still(find, psr.base).mean()) / average(find, psr.base, "loss")
    yield (
        f"Where the gain comes from: {one(part)} of the loss of oblivious placement is there when nothing straggles, "
        f"since GPUs differ. Knowing only that, {named(static)} recovers {share(recovered(find, static))} of the loss, "
        f"psr placing alone {share(recovered(find, place))}, psr reacting alone {share(recovered(find, react))}, both "
        f"{share(recovered(find, psr))}. Of the part that comes and goes psr recovers "
        f"{share(recovered_passing(find, psr))}, {named(static)} {share(recovered_passing(find, static))}. Against "
        f"{named(static)} psr is {signed(change(find, psr, static, 'loss'))} in loss and "
        f"{signed(change(find, psr, static))} in mean jct."
    )


def _others(find: Find, preset: str) -> Iterator[str]:
    psr, cases = Case(PSR, preset), [Case(rule, preset) for rule in OTHERS]
    best = min(cases, key=lambda case: average(find, case, "loss"))
    soonest = min(cases, key=lambda case: average(find, case))
    more = gained(find, psr, best)
    yield (
        f"Of the simpler schedulers {named(best)} has the least loss: it recovers {share(recovered(find, best))}, psr "
        f"{signed(more, 'points')} more. That psr beats it {says(more.ci_low > 0)}. The least mean jct of them has "
        f"{named(soonest)}; psr is {signed(change(find, psr, soonest))} against that."
    )


def _modes(find: Find, preset: str) -> Iterator[str]:
    cases = [*(Case(rule, preset) for rule in MODES), Case(OBLIVIOUS, preset, BACKUP)]
    parts = [f"{named(case)} {signed(change(find, case))}" for case in cases]
    yield f"Training otherwise instead of placing otherwise, mean jct against oblivious placement: {listed(parts)}."


def _sizes(find: Find, preset: str) -> Iterator[str]:
    psr = Case(PSR, preset)
    parts = []
    for size in SIZES[:-1]:
        loss = [one(of_size(find, case, size, "loss")) for case in (psr.base, psr)]
        jct = of_size(find, psr, size, "mean_s") / of_size(find, psr.base, size, "mean_s") - 1
        unit = "GPU" if size == "1" else "GPUs"
        parts.append(f"{size} {unit} {loss[0]} and {loss[1]}, mean jct {_plain(jct)}")
    yield f"By size of jobs, loss under oblivious placement and under psr: {'; '.join(parts)}."


def _gap(find: Find, preset: str) -> Iterator[str]:
    room, part = headroom(find, preset, "mean_s"), of_oracle(find, preset, "mean_s")
    if room.excludes_zero:
        yield f"Oracle gap of mean jct, (oblivious - psr) / (oblivious - oracle): {share(part)}."
    elif not np.isnan(room.ci_low):
        yield (
            f"No oracle gap of mean jct can be given: the oracle run's is {room.value:.0f} s ({room.ci_low:.0f} to "
            f"{room.ci_high:.0f}) below that of oblivious placement, an interval with 0 in it."
        )


def _noise(find: Find, preset: str) -> Iterator[str]:
    parts = [f"{share(recovered(find, Case(PSR, preset, name)))} at {sigma:g}" for sigma, name in NOISE.items()]
    alone = [f"{share(recovered(find, Case(PLACING, preset, name)))} at {sigma:g}" for sigma, name in NOISE.items()]
    yield (
        f"Noise of the probabilities (sigma_p): psr recovers {listed(parts)}; without reaction it is {listed(alone)}."
    )


def _ablations(find: Find, preset: str) -> Iterator[str]:
    psr = Case(PSR, preset)
    parts = [f"{name} {signed(gained(find, Case(r, preset, c), psr), 'points')}" for name, (r, c) in ABLATED.items()]
    yield f"Recovery with a part of psr changed, less that of psr: {listed(parts)}."


def _sweeps(find: Find, preset: str) -> Iterator[str]:
    found = {name: recovered(find, Case(PSR, preset, name)) for name in SWEPT[preset]}
    slower = [name for name in found if change(find, Case(PSR, preset, name)).value > 0]
    least, most = (pick(found, key=lambda name: found[name].value) for pick in (min, max))
    yield (
        f"In {len(found)} other worlds psr recovers from {share(found[least])} ({least}) to {share(found[most])} "
        f"({most}). That its interval lies above 0 in all of them {says(all(e.ci_low > 0 for e in found.values()))}. "
        f"Its mean jct is above that of oblivious placement in {listed(slower) if slower else 'none'}."
    )


def _count(value: float) -> str:
    return NOTHING if np.isnan(value) else f"{value:.0f}"


def _plain(value: float) -> str:
    return NOTHING if np.isnan(value) else f"{100 * value:+.1f} %"
