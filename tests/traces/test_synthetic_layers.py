"""The elastic workload whose layers may be frozen."""

from __future__ import annotations

import pytest

from traces.load import load_trace
from traces.synthetic_layers import synthesise_layers
from traces.synthetic_pollux import synthesise_pollux
from traces.trace import TraceError


def test_the_jobs_are_those_of_synthetic_pollux():
    ours, theirs = synthesise_layers(60, 3, 90.0), synthesise_pollux(60, 3, 90.0)
    assert ours.jobs.drop(columns="freezing").equals(theirs.jobs.drop(columns="freezing"))


def test_presets_go_by_model_or_are_all_one():
    jobs = synthesise_layers(200).jobs
    assert jobs.groupby("model")["freezing"].unique().map(list).to_dict() == {
        "bert": ["finetune"],
        **{name: ["middle"] for name in ("cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")},
    }
    assert set(load_trace("synthetic-layers?jobs=20,preset=egeria").jobs["freezing"]) == {"egeria"}


def test_a_preset_must_be_known():
    with pytest.raises(
        TraceError, match=r"^synthetic-layers: preset is 'deep', expected one of conservative, middle, "
    ):
        synthesise_layers(preset="deep")
