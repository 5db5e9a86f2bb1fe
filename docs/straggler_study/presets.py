"""The tables of docs/stragglers.md on the presets: what they are, and how they fit what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt

from docs.straggler_study.compare import Find
from docs.straggler_study.findings import one
from docs.straggler_study.runs import PRESETS, Probe, probes
from docs.straggler_study.store import Probed
from docs.validation_tables import NOTHING, table
from envs.straggler_presets import STRAGGLER_PRESETS, StragglerPreset

# Of Greyhound (arXiv 2410.12588): what was probed, share hit, what counts as a fit, excess jct of those hit, share of
# all beyond +50 %.
MEASURED = (
    ("392 probes of 4 GPUs on a node, 70 to 90 min", "1.5 %", (0.01, 0.022), "11.8 %", ""),
    ("107 probes of 8 GPUs on 4 nodes, about 5 h", "40 %", (0.33, 0.42), "15.5 %", ""),
    ("27 jobs of 512 to 1024 GPUs, one month", "59 %", (0.49, 0.69), "34.6 %", "20 %"),
)


def preset_table() -> str:
    """The presets as they are in the code; hazards an hour, times in minutes."""
    found = [STRAGGLER_PRESETS[name] for name in PRESETS.values()]
    header = ("", *(f"{letter}, `{name}`" for letter, name in PRESETS.items()))
    return table(header, ([name, *(get(preset) for preset in found)] for name, get in _constants()))


def _constants() -> Iterator[tuple[str, Callable[[StragglerPreset], str]]]:
    yield "share of time that the background is hot, CPU / link", lambda p: f"{p.cpu.hot_share:g} / {p.net.hot_share:g}"
    yield "mean stretch hot or calm [h]", lambda p: f"{p.sojourn_h:g}"
    yield "least hazard, CPU / link [1/h]", lambda p: f"{p.cpu.least_rate:g} / {p.net.least_rate:g}"
    yield "hazard at full load, CPU / link [1/h]", lambda p: f"{p.cpu.hot_rate:g} / {p.net.hot_rate:g}"
    yield "hazard of a GPU [1/h]", lambda p: f"{p.gpu.least_rate:g}"
    for what, name in (("mean duration [min]", "mean_min"), ("its log deviation", "log_sd")):
        yield f"{what}, CPU / link / GPU", lambda p, name=name: _each(p, name)  # type: ignore[misc]
    for what, name in (("mean excess of severity", "excess"), ("its log deviation", "excess_log_sd")):
        yield f"{what}, CPU / link / GPU", lambda p, name=name: _each(p, name)  # type: ignore[misc]
    yield "largest severity", lambda p: f"{p.most_severe:g}"
    yield "share of GPUs 2.1 times as slow", lambda p: f"{p.broken_share:g}"


def _each(preset: StragglerPreset, name: str) -> str:
    return " / ".join(f"{getattr(cause, name):g}" for cause in (preset.cpu, preset.net, preset.gpu))


def fit_table(find: Find) -> str:
    """Probes of ours beside Greyhound's."""
    rows = []
    for run, (what, hit, fits, excess, far) in zip(probes(), MEASURED, strict=True):
        found = find(run)
        ours = _shares(found)
        rows.append([_described(run), ours[0], hit, _verdict(found, fits), ours[1], excess, ours[2], far, what])
    header = ("ours", "hit", "Greyhound", "fits", "jct of those hit", "Greyhound", "beyond +50 %", "Greyhound")
    return table((*header, "its probes"), rows)


def _verdict(found: Probed | None, fits: tuple[float, float]) -> str:
    low, high = fits
    wanted = f"{100 * low:g} to {100 * high:.3g} %"
    return NOTHING if found is None else f"{'yes' if low <= found.hit <= high else '**no**'} ({wanted})"


def _described(run: Probe) -> str:
    letter = next(letter for letter, name in PRESETS.items() if name == run.sim.stragglers)
    nodes, devices = run.cluster.split("x")
    return f"{letter}: {run.count} of {nodes} x {devices} GPUs, {run.minutes:g} min"


def _shares(found: Probed | None) -> list[str]:
    """Shares with a standard deviation by their number, and the excess."""
    if found is None:
        return [NOTHING] * 3
    spread = [sqrt(x * (1 - x) / found.count) for x in (found.hit, found.far)]
    return [f"{one(found.hit)} ± {one(spread[0])}", f"+{one(found.excess)}", f"{one(found.far)} ± {one(spread[1])}"]
