"""From the text of a policy on the command line to a scheduler.

``name[?key=value,key=value]`` is a baseline, ``name:host[?parameters of name]`` one around another (hosts.py), which
has its default parameters, ``package.module:ClassName[?key=value]`` a user's own scheduler (modules in the current
folder are found too), a folder a run of train.py, and ``pretrained:NAME`` a shipped one. How a folder becomes a
scheduler is passed in, since baselines know nothing of agents.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import pandas as pd

from baselines import BASELINES
from baselines.hosts import Freezing, Hosted
from baselines.parameters import PolicyError, parse_parameters, suggest
from envs.order import Key
from envs.scheduler import ListScheduler
from envs.spec import SimConfig


class AnyPolicy(Protocol):
    """A scheduler in Python, an ordering rule, or a learned policy, which has ``act`` instead."""

    @property
    def name(self) -> str: ...

    @property
    def batch(self) -> Literal["fixed", "tuned"]: ...


LoadRun = Callable[[Path], AnyPolicy]

DURATION_KEYS = (Key.DURATION, Key.REMAINING, Key.GPU_TIME, Key.REMAINING_GPU_TIME)


def make_policy(text: str, load_run: LoadRun, pretrained: Path) -> AnyPolicy:
    """The scheduler that ``text`` names; ``pretrained`` is the folder of shipped runs.

    Raises :class:`PolicyError`, and whatever ``load_run`` raises for a folder it cannot read.
    """
    base, question, query = text.partition("?")
    if base.startswith("pretrained:"):
        return _load(text, pretrained / base.removeprefix("pretrained:"), question, load_run, pretrained)
    name, colon, rest = base.partition(":")
    if name in BASELINES:
        return cast(AnyPolicy, make_baseline(text))
    if base and (Path(base).exists() or "/" in base):
        return _load(text, Path(base), question, load_run, None)
    if colon:
        return _build(text, _find_class(text, name, rest), question, query)
    raise PolicyError(f"unknown policy {base!r}{suggest(base, list(BASELINES))}; known are {', '.join(BASELINES)}")


def prepare(scheduler: AnyPolicy, jobs: pd.DataFrame, start: int = 0) -> AnyPolicy:
    """The scheduler as it may be used on rows ``start`` .. of a trace's jobs: with history, if it needs any."""
    with_history = getattr(scheduler, "with_history", None)
    return scheduler if with_history is None else cast(AnyPolicy, with_history(jobs, start))


def oracle_use(scheduler: AnyPolicy, config: SimConfig) -> tuple[str, ...]:
    """True quantities that the scheduler reads; a duration or a straggler probability only where it is the true one.

    A learned policy reads what the observation of a job holds, durations among it.
    """
    learned = hasattr(scheduler, "act")
    reads: tuple[str, ...] = getattr(scheduler, "oracle", ("duration",) if learned else ())
    true = {"duration": config.durations == "oracle", "straggler_p": config.straggler_obs == "oracle"}
    return tuple(name for name in reads if true.get(name, True))


def uses_seed(scheduler: AnyPolicy, config: SimConfig) -> bool:
    """Whether runs with different seeds can differ; a scheduler in Python may say so itself (``stochastic``)."""
    if config.resolve().placement == "random" or config.node_mtbf_s > 0:
        return True
    noisy = config.durations == "estimate"
    if not isinstance(scheduler, ListScheduler):
        return noisy or bool(getattr(scheduler, "stochastic", True))
    key = scheduler.order().key
    return key == Key.RANDOM or (noisy and key in DURATION_KEYS)


def is_published(text: str) -> bool:
    """Whether the policy is one of BASELINES, around a host or not."""
    return text.partition("?")[0].partition(":")[0] in BASELINES


def _load(text: str, folder: Path, question: str, load_run: LoadRun, shipped: Path | None) -> AnyPolicy:
    if question:
        raise PolicyError(f"policy {text}: a trained run takes no parameters")
    if not folder.is_dir():
        if shipped is not None:
            names = sorted(path.name for path in shipped.glob("*") if path.is_dir())
            raise PolicyError(f"policy {text}: shipped runs are {', '.join(names) if names else 'none'}")
        raise PolicyError(f"policy {text}: there is no run folder {folder}")
    return load_run(folder)


def make_baseline(text: str) -> Any:
    """The baseline that ``text`` names, which must be one of BASELINES, around a host if it takes one."""
    base, question, query = text.partition("?")
    name, colon, host = base.partition(":")
    cls = BASELINES[name]
    if issubclass(cls, Hosted):
        return _build(text, cls, question, query, host=_make_host(text, cls, host))
    if colon:
        raise PolicyError(f"policy {text}: {name} does not take a host")
    return _build(text, cls, question, query)


def _make_host(text: str, cls: type[Hosted], host: str) -> Any:
    """The host of ``cls`` with its defaults; one that freezes layers may host those that choose devices."""
    inner, _, rest = host.partition(":")
    kind = BASELINES.get(inner, object)
    if cls.takes_rules and issubclass(kind, Freezing):
        return kind(_make_host(text, kind, rest))
    return _find_host(text, cls, host)()


def _find_host(text: str, cls: type[Hosted], name: str) -> type:
    """The baseline that the wrapper ``cls`` is to hold; "": its default."""
    hosts = sorted(known for known, kind in BASELINES.items() if _may_host(kind, cls.takes_rules))
    known = f"hosts are {', '.join(hosts)}"
    name = name or cls.default_host
    if name in hosts:
        return BASELINES[name]
    if not name:
        raise PolicyError(f"policy {text}: {cls.rule} needs a host, such as {cls.rule}:elastic-srtf; {known}")
    inner = name.partition(":")[0]
    if issubclass(BASELINES.get(inner, object), Hosted):
        raise PolicyError(f"policy {text}: {inner} cannot be a host, since it takes one itself; {known}")
    if name in BASELINES:
        raise PolicyError(f"policy {text}: {name} decides by an ordering rule in compiled code; {known}")
    raise PolicyError(f"policy {text}: unknown host {name!r}{suggest(name, hosts)}; {known}")


def _may_host(cls: type, rules: bool) -> bool:
    return (rules or hasattr(cls, "allocate")) and not issubclass(cls, Hosted)


def _build(text: str, cls: type, question: str, query: str, **apart: object) -> AnyPolicy:
    """An instance of ``cls`` with the parameters of ``query`` and those ``apart``."""
    values = parse_parameters(text, cls, query, tuple(apart)) if question else {}
    try:
        scheduler: Any = cls(**values, **apart)
    except Exception as error:
        reason = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise PolicyError(f"policy {text}: {reason}") from None
    for attribute in ("name", "batch"):
        if not hasattr(scheduler, attribute):
            raise PolicyError(f"policy {text}: {cls.__name__} has no attribute {attribute}")
    return cast(AnyPolicy, scheduler)


def _find_class(text: str, module_name: str, class_name: str) -> type:
    if str(Path.cwd()) not in sys.path:  # last, so that no file of the user's hides an installed module
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise PolicyError(
                f"policy {text}: there is neither a baseline nor a module {module_name}"
                f"{suggest(module_name, list(BASELINES))}"
            ) from None
        raise PolicyError(f"policy {text}: module {module_name} needs {error.name}, which is not installed") from None
    except Exception as error:
        raise PolicyError(f"policy {text}: importing {module_name} raised {type(error).__name__}: {error}") from None
    cls = getattr(module, class_name, None)
    if not inspect.isclass(cls):
        classes = [name for name, value in vars(module).items() if _is_scheduler(value)]
        known = f"; it has {', '.join(classes)}" if classes else ""
        raise PolicyError(f"policy {text}: module {module_name} has no class {class_name!r}{known}")
    if not _is_scheduler(cls):
        raise PolicyError(f"policy {text}: {class_name} is no scheduler, since it has neither order nor allocate")
    return cls


def _is_scheduler(value: object) -> bool:
    return inspect.isclass(value) and (hasattr(value, "order") or hasattr(value, "allocate"))
