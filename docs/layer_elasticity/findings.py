"""What the results of docs/layer-elasticity.md say, in sentences whose every figure and verdict is computed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from docs.layer_elasticity.compare import (
    Case,
    Find,
    best_base,
    excess,
    mean_excess,
    most_excess,
    values,
    versus_base,
    versus_host,
)
from docs.layer_elasticity.runs import HOSTS, ICEFROG, NO_MARGIN, SAFE, SHORT_GAP_S, TRAPS, USERS
from docs.sharing_findings import change, interval, listed
from envs.statistics import paired_ratio
from traces.freezing import PRESETS

WANTED, LEAST = -0.25, -0.20  # of the change against the best base, and of its interval's upper end
ALLOWED = 0.02  # excess residual of any model
PAPER = "36 to 48 % lower"


def findings(find: Find) -> Iterator[str]:
    """One finding a sentence or two; nothing where a result is missing."""
    for finding in (_headline, _parts, _unaware, _oracle, _users, _traps, _presets, _settings):
        sentences = list(finding(find))
        if not any("nan" in sentence or "–" in sentence for sentence in sentences):
            yield from sentences


def lack(value: float) -> str:
    return "nan" if np.isnan(value) else f"{value:+.3f}"


def _headline(find: Find) -> Iterator[str]:
    base = best_base(find)
    for policy in ICEFROG:
        case = Case(policy)
        found, worst = versus_base(find, case), excess(find, case)
        model = max(worst, key=lambda name: worst[name])
        holds = found.value <= WANTED and found.ci_high <= LEAST and worst[model] <= ALLOWED
        yield (
            f"`{policy}` against `{base.policy}`, the best of tiresias, pollux, optimus, max-min: {interval(found)}, "
            f"excess {lack(worst[model])} at most ({model}). That it is 25 % lower, 20 % at the interval's end, with "
            f"an excess of at most {ALLOWED:g} in every model, {'holds' if holds else 'does not hold'}. The paper's "
            f"claim is {PAPER}, against schedulers and on workloads that we do not know."
        )


def _parts(find: Find) -> Iterator[str]:
    parts = [f"`{policy}` {interval(versus_host(find, Case(policy)))}" for policy in ICEFROG]
    others = [Case(host) for host in HOSTS if Case(host) != best_base(find)]
    hosts = [
        f"`{case.policy}` without freezing is {interval(versus_base(find, case))} against the best base"
        for case in others
    ]
    yield f"Against their own hosts without freezing: {listed(parts)}; {listed(hosts)}."


def _unaware(find: Find) -> Iterator[str]:
    best, least = (
        min((Case(policy) for policy in policies), key=lambda case: float(values(find, case).mean()))
        for policies in (SAFE, ICEFROG)
    )
    pairs = [(Case(policy), Case(f"safe-front:{host}")) for policy, host in zip(ICEFROG, HOSTS, strict=True)]
    parts = [
        f"{interval(paired_ratio(values(find, aware), values(find, unaware)))} against `{unaware.policy}`"
        for aware, unaware in pairs
    ]
    yield (
        f"Of the schedulers that do not know what they freeze, `{best.policy}` has the least mean jct: "
        f"{interval(versus_base(find, best))} against the best base. Allocating by effective progress as well is "
        f"{listed(parts)}; and `{least.policy}` is {interval(paired_ratio(values(find, least), values(find, best)))} "
        f"against `{best.policy}`."
    )


def _oracle(find: Find) -> Iterator[str]:
    for policy in ICEFROG:
        usual, bold, exact = Case(policy), Case(policy + NO_MARGIN), Case(policy + NO_MARGIN, "exact")
        gaps = [interval(paired_ratio(values(find, case), values(find, exact))) for case in (usual, bold)]
        lacks = [lack(most_excess(find, case)) for case in (usual, bold, exact)]
        yield (
            f"The oracle's front would bring `{policy}` {interval(versus_base(find, exact))} against the best base, "
            f"excess {lacks[2]}. Against that, the noisy front is {gaps[0]} with a margin of one module (excess "
            f"{lacks[0]}), and {gaps[1]} without (excess {lacks[1]})."
        )


def _users(find: Find) -> Iterator[str]:
    cases = map(Case, USERS)
    parts = [f"`{c.policy}` {interval(versus_host(find, c))}, excess {lack(most_excess(find, c))}" for c in cases]
    yield f"Users' schedules against their hosts without freezing: {listed(parts)}."


def _traps(find: Find) -> Iterator[str]:
    cases = map(Case, TRAPS)
    parts = [f"`{c.policy}` {interval(versus_host(find, c))}, excess {lack(mean_excess(find, c))}" for c in cases]
    yield f"Traps, against the host without freezing, excess over all jobs: {'; '.join(parts)}."


def _presets(find: Find) -> Iterator[str]:
    for policy in ICEFROG:
        cases = {name: Case(policy, preset=name) for name in PRESETS}
        parts = [f"{change(versus_base(find, case).value)} with `{name}`" for name, case in cases.items()]
        worst = max(most_excess(find, case) for case in cases.values())
        yield f"`{policy}` against the best base, one preset for all: {listed(parts)}; excess at most {lack(worst)}."


def _settings(find: Find) -> Iterator[str]:
    for policy in ICEFROG:
        plain, uncached = (versus_base(find, Case(policy, name)) for name in ("ddp", "no cache"))
        busy = versus_base(find, Case(policy, gap_s=SHORT_GAP_S))
        yield (
            f"`{policy}` against the best base: {interval(plain)} with plain DDP, {interval(uncached)} without the "
            f"activation cache, {interval(busy)} at the higher load."
        )
