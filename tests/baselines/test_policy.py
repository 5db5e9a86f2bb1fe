"""The policy syntax of the command line: what it builds, and one sentence for every mistake."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from baselines import BASELINES
from baselines.afs import Afs
from baselines.freezeout import FreezeOut
from baselines.gittins import Gittins
from baselines.icefrog import IceFrog
from baselines.las import Las
from baselines.optimus import Optimus
from baselines.parameters import PolicyError, parse_value
from baselines.policy import is_published, make_policy, oracle_use, uses_seed
from baselines.pollux import Pollux
from baselines.safe_front import SafeFront
from baselines.tiresias import Tiresias
from envs.spec import SimConfig
from tests.baselines.layer_views import EVERY_POLICY

NOWHERE = Path("/nowhere")

USER_MODULE = """
from dataclasses import dataclass
from envs.order import Key, ListOrder

@dataclass(frozen=True)
class Mine:
    share: float = 0.5
    mode: str | None = None
    fast: bool = False
    name = "mine"
    batch = "fixed"
    def order(self):
        return ListOrder(Key.ARRIVAL)

class Plain:
    name = "plain"
    batch = "fixed"
    def __init__(self, size, depth=3):
        self.size, self.depth = size, depth
    def reset(self, view): ...
    def allocate(self, view): ...

class Nameless:
    def order(self): ...

class NotOne: ...

class Explodes:
    def __init__(self):
        raise KeyError("lost")
    def order(self): ...
"""


def never(folder):
    raise AssertionError(f"nothing to load at {folder}")


def make(text, load_run=never, pretrained=NOWHERE):
    return make_policy(text, load_run, pretrained)


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """A module ``my_own_policies`` in the current folder."""
    (tmp_path / "my_own_policies.py").write_text(USER_MODULE)
    (tmp_path / "broken_policies.py").write_text("import no_such_module_at_all")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_own_policies", None)


@pytest.mark.parametrize("text", EVERY_POLICY)
def test_every_baseline_by_name(text):
    name, _, host = text.partition(":")
    made = make(text)
    assert type(made) is BASELINES[name]
    assert made.name == text
    if host:
        assert made.host == BASELINES[host]()


def test_icefrog_alone_is_icefrog_around_pollux():
    assert make("icefrog") == make("icefrog:pollux") == IceFrog(Pollux())


def test_parameters_behind_a_host_are_the_wrappers():
    assert make("safe-front:afs?margin=2,memory=3") == SafeFront(Afs(), margin=2, memory=3)
    assert make("freezeout:optimus?cubed=false") == FreezeOut(Optimus(), cubed=False)
    assert make("icefrog?margin=0").name == "icefrog:pollux"


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [
        ("tiresias?thresholds=100/200/300,promote=2", Tiresias((100.0, 200.0, 300.0), promote=2.0)),
        ("las?quantum_s=1e3", Las(1000.0)),
        ("gittins?history=trace,num_levels=5", Gittins("trace", 5)),
    ],
)
def test_parameters_are_typed(text, scheduler):
    assert make(text) == scheduler


def test_users_own_scheduler(user_module):
    mine = make("my_own_policies:Mine?share=0.25,mode=x,fast=true")
    assert (mine.share, mine.mode, mine.fast) == (0.25, "x", True)
    assert make("my_own_policies:Mine?mode=none").mode is None
    plain = make("my_own_policies:Plain?size=big,depth=4")
    assert (plain.size, plain.depth) == ("big", 4)


def test_run_folder_and_shipped_run(tmp_path):
    for name in ("mine", "shipped"):
        (tmp_path / name).mkdir()
    loaded = []
    make(str(tmp_path / "mine"), load_run=lambda folder: loaded.append(folder) or Las())
    make("pretrained:shipped", load_run=lambda folder: loaded.append(folder) or Las(), pretrained=tmp_path)
    assert loaded == [tmp_path / "mine", tmp_path / "shipped"]
    with pytest.raises(PolicyError, match="shipped runs are mine, shipped"):
        make("pretrained:other", pretrained=tmp_path)


def test_a_learned_policy_reads_the_durations_that_it_observes():
    learned = SimpleNamespace(name="runs/x", batch="fixed", act=lambda obs, mask: None)
    assert oracle_use(learned, SimConfig()) == ("duration",)
    assert oracle_use(learned, SimConfig(durations="estimate")) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fifoo", r"unknown policy 'fifoo' \(did you mean fifo\?\); known are fifo, .*random"),
        ("", "unknown policy ''"),
        ("tiresias?promot=1", r"no parameter 'promot' \(did you mean promote\?\); it has thresholds, within, promote"),
        ("fifo?x=1", "no parameter 'x'; it has none"),
        ("tiresias?promote", "'promote' is not key=value"),
        ("fifo?", "'' is not key=value"),
        ("tiresias?promote=1,promote=2", "promote is given twice"),
        ("tiresias?promote=often", "promote='often' must be a number"),
        ("tiresias?thresholds=1/x", "thresholds='1/x' must be a number"),
        ("tiresias?thresholds=200/100", "thresholds must be 1 to 63 ascending numbers > 0"),
        ("tiresias?promote=nan", "promote must be a finite number >= 0"),
        ("las?quantum_s=0", "quantum_s must be a finite time > 0"),
        ("gittins?history=later", "history='later' must be one of before, trace"),
        ("gittins?num_levels=2.5", "num_levels='2.5' must be a whole number"),
        ("gittins?num_levels=64", "num_levels must lie between 2 and 63"),
        ("gittins?sample=-1", "finite GPU-times"),
        ("srtf:fifo", "srtf does not take a host"),
        ("afs:", "afs does not take a host"),
        (
            "freezeout",
            "freezeout needs a host, such as freezeout:elastic-srtf; hosts are afs, deepboot, elastic-srtf, ",
        ),
        ("freezeout:", "freezeout needs a host"),
        (
            "safe-front:polux",
            r"unknown host 'polux' \(did you mean pollux\?\); hosts are afs, .*, max-min, .*, pollux$",
        ),
        ("safe-front:json:loads", "unknown host 'json:loads'; hosts are"),
        ("safe-front:srtf", "srtf decides by an ordering rule in compiled code; hosts are afs, "),
        ("safe-front:icefrog", "icefrog cannot be a host, since it takes one itself; hosts are afs, "),
        ("safe-front:icefrog:pollux", "icefrog cannot be a host, since it takes one itself"),
        ("safe-front:pollux?host=afs", "no parameter 'host'; it has margin, memory"),
        ("safe-front:pollux?generations=5", "no parameter 'generations'; it has margin, memory"),
        ("icefrog?margin=-1", "margin must be a whole number >= 0, not -1"),
        ("safe-front:afs?memory=0", "memory must be a whole number >= 1, not 0"),
        ("pipetransformer:afs?epochs=0", "epochs must be a whole number >= 1, not 0"),
        ("freezeout:afs?start=1.5", "start must lie between 0 and 1, not 1.5"),
        ("runs/none", "there is no run folder runs/none"),
        ("pretrained:none", "shipped runs are none"),
        ("no_such_module:Thing", "neither a baseline nor a module no_such_module"),
        ("json:loads", "module json has no class 'loads'"),
        ("json:JSONDecoder", "neither order nor allocate"),
        ("runs/x?seed=1", "a trained run takes no parameters"),
        ("pretrained:x?seed=1", "a trained run takes no parameters"),
        ("my_own_policies:Your", "no class 'Your'; it has Mine, Plain, Nameless, Explodes"),
        ("my_own_policies:NotOne", "NotOne is no scheduler, since it has neither order nor allocate"),
        ("my_own_policies:Nameless", "Nameless has no attribute name"),
        ("my_own_policies:Explodes", "KeyError: 'lost'"),
        ("my_own_policies:Plain", "missing 1 required positional argument: 'size'"),
        ("my_own_policies:Mine?fast=yes", "fast='yes' must be true or false"),
        ("broken_policies:Mine", "broken_policies needs no_such_module_at_all, which is not installed"),
    ],
)
def test_mistakes_get_one_sentence(text, message, user_module):
    with pytest.raises(PolicyError, match=message) as error:
        make(text)
    assert "\n" not in str(error.value)


def test_values_of_other_kinds_are_refused():
    with pytest.raises(ValueError, match="nothing that can be written as text"):
        parse_value("x", dict[str, int])


@pytest.mark.parametrize(
    ("text", "published"),
    [("fifo", True), ("icefrog:pollux?margin=0", True), ("safe-front:afs", True), ("mine:Fifo", False)],
)
def test_what_counts_as_published(text, published):
    assert is_published(text) is published


def test_a_wrapper_reads_what_its_host_reads():
    assert oracle_use(make("safe-front:optimus"), SimConfig()) == ("iteration_s", "iterations_left")
    assert oracle_use(make("icefrog"), SimConfig()) == ()
    assert (make("safe-front:optimus").batch, make("icefrog").batch) == ("fixed", "tuned")


class Declared:
    name: ClassVar[str] = "declared"
    batch: ClassVar[str] = "fixed"
    stochastic: ClassVar[bool] = False

    def reset(self, view): ...

    def allocate(self, view): ...


@pytest.mark.parametrize(
    ("scheduler", "config", "expected"),
    [
        (make("sjf"), SimConfig(), False),
        (make("sjf"), SimConfig(durations="estimate"), True),
        (make("fifo"), SimConfig(durations="estimate"), False),
        (make("fifo"), SimConfig(placement="random"), True),
        (make("fifo"), SimConfig(placement="random", compat="tiresias"), False),
        (make("random"), SimConfig(), True),
        (make("safe-front:afs"), SimConfig(), True),
        (Declared(), SimConfig(), False),
        (Declared(), SimConfig(durations="estimate"), True),
    ],
)
def test_who_needs_several_seeds(scheduler, config, expected):
    assert uses_seed(scheduler, config) is expected
