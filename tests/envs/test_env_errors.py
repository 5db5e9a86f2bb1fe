"""What users get wrong is answered with one clear sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest

from envs.env import ClusterEnv
from envs.spec import SimConfig, SpecError
from envs.vector_env import ClusterVectorEnv
from tests.envs.core_support import hand
from tests.envs.env_support import mixed_trace
from traces.trace import TraceError, make_trace

GOOD: dict[str, Any] = {"trace": hand([(1, 0, 10)] * 9), "cluster": "1x2", "num_slots": 4, "window_jobs": 4}


def message(error: type[Exception], make: type, **wrong: Any) -> str:
    with pytest.raises(error) as caught:
        make(**{**GOOD, **wrong})
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("make", [ClusterEnv, ClusterVectorEnv])
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"scenario": "elastik"}, "unknown scenario 'elastik'; known: rigid, elastic, colocated, layer-elastic"),
        (
            {"objective": "speed"},
            "unknown objective 'speed'; known: jct, jct_slo, jct_residual, makespan, p99_slowdown, "
            "finish_time_fairness",
        ),
        ({"num_slots": 0}, "num_slots must be at least 1, not 0"),
        ({"window_jobs": 0}, "window_jobs must be at least 1, not 0"),
        ({"edit_budget": -1}, "edit_budget must be at least 1, not -1"),
        ({"slo_penalty_s": -1.0}, "slo_penalty_s must be a finite time >= 0, not -1.0"),
        ({"slo_penalty_s": math.inf}, "slo_penalty_s must be a finite time >= 0, not inf"),
        ({"slo_penalty_s": math.nan}, "slo_penalty_s must be a finite time >= 0, not nan"),
        ({"reward_scale": 0.0}, "reward_scale must be positive, not 0.0"),
        ({"reward_scale": float("nan")}, "reward_scale must be positive, not nan"),
        ({"cluster": "16 by 4"}, "cluster '16 by 4': '16 by 4' is not NODESxGPUS or NODESxGPUS:TYPE, such as 16x4"),
        ({"cluster": "0x4"}, "a cluster needs at least one node with at least one GPU"),
    ],
)
def test_settings(make, wrong, text):
    assert message(SpecError, make, **wrong) == text


def test_render_mode():
    assert message(SpecError, ClusterEnv, render_mode="ansi") == "unknown render_mode 'ansi'; known: rgb_array, human"
    assert "use ClusterEnv" in message(SpecError, ClusterVectorEnv, render_mode="rgb_array")


def test_traces(tmp_path):
    assert "'filly' is not a built-in workload; built in: synthetic-philly" in message(
        TraceError, ClusterEnv, trace="filly"
    )
    (tmp_path / "empty.csv").write_text("")
    assert "empty.csv" in message(TraceError, ClusterEnv, trace=tmp_path / "empty.csv")
    assert (
        message(TraceError, ClusterEnv, split="validation", window_jobs=8)
        == "the validation split of trace hand has 2 jobs, fewer than one window of 8"
    )


def test_jobs_that_cannot_be_simulated():
    columns = {
        "arrival_s": [0.0, 1.0], "num_gpus": [1, 1], "duration_s": [5.0, 5.0], "kind": ["training", "inference"],
        "service": ["", "chat"], "model": ["", "mine"],
    }  # fmt: skip
    trace = make_trace("mine", columns)
    text = message(TraceError, ClusterEnv, trace=trace)
    assert text.startswith("trace mine, job 1: start_up_s is missing, and model 'mine' has no start-up time (known: ")
    columns["start_up_s"] = [math.nan, 4.0]
    trace = make_trace("mine", columns)
    for settings, expected in (
        ({"node_mtbf_s": 100.0}, "sim.node_mtbf_s must be 0 with inference tasks"),
        ({"reclaim": "lyra", "inference_nodes": 0}, "sim.reclaim lyra leaves inference no node to run on"),
        ({"inference_nodes": 1000}, "sim.inference_nodes is 1000, but cluster"),
    ):
        assert message(SpecError, ClusterEnv, trace=trace, sim=SimConfig(**settings)).startswith(expected)


def test_a_window_outside_the_trace():
    env = ClusterEnv(**GOOD)
    with pytest.raises(SpecError, match="window 9 lies outside the trace of 9 jobs"):
        env.reset(options={"window": 9})


def test_render_without_a_render_mode_warns():
    env = ClusterEnv(**GOOD)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"on_invalid": "ignore"}, "on_invalid"),
        ({"horizon_s": -1.0}, "horizon_s"),
        ({"horizon_s": float("nan")}, "horizon_s"),
        ({"split": "dev"}, "split"),  # KeyError: 'dev'
        ({"nodes": 3}, "nodes"),  # TypeError: EnvSettings.__init__() got an unexpected keyword argument
        ({"cluster": 4}, "cluster"),  # AttributeError: 'int' object has no attribute 'split'
        ({"num_slots": 2.5}, "num_slots"),  # TypeError: 'float' object cannot be interpreted as an integer
    ],
)
def test_settings_that_nobody_checks(wrong, text):
    assert text in message(SpecError, ClusterEnv, **wrong)


def test_a_negative_window():
    with pytest.raises(SpecError, match="window -5"):
        ClusterEnv(**GOOD).reset(options={"window": -5})


def test_no_rows():
    assert "num_envs" in message(SpecError, ClusterVectorEnv, num_envs=0)


def test_the_split_of_a_trace_of_one_window_is_not_looked_at():
    assert ClusterEnv(trace=mixed_trace(4), cluster="1x40", window_jobs=4, split="test").settings.length == 4
