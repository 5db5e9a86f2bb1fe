"""Built-in workloads by name: each generator takes its own parameters, as whole numbers, numbers or words."""

from __future__ import annotations

import pytest

from traces import GENERATORS, TraceError, load_trace
from traces.synthetic_inference import synthesise_colocated, synthesise_inference


def test_inference_by_name():
    trace = load_trace("synthetic-inference?hours=0.5,pattern=bursty,services=3,durations=exponential,seed=4")
    ours = synthesise_inference(hours=0.5, pattern="bursty", services=3, durations="exponential", seed=4)
    assert trace.jobs.equals(ours.jobs)
    assert trace.provenance == ours.provenance


def test_colocated_by_name():
    trace = load_trace("synthetic-colocated?jobs=20,load=0.02,pattern=diurnal,mean_gap_s=90")
    ours = synthesise_colocated(jobs=20, load=0.02, pattern="diurnal", mean_gap_s=90.0)
    assert trace.jobs.equals(ours.jobs)
    assert (trace.jobs["kind"] == "training").sum() == 20


@pytest.mark.parametrize("name", GENERATORS)
def test_every_parameter_can_be_set_by_name(name):
    """To its default: the trace is the same, so the text was read as the type that the generator takes."""
    generator = GENERATORS[name]
    few = {key: value for key, value in {"hours": 0.5, "jobs": 50}.items() if key in generator.defaults()}
    given = "".join(f",{key}={value}" for key, value in generator.defaults().items() if key not in few)
    small = ",".join(f"{key}={value}" for key, value in few.items())
    assert load_trace(f"{name}?{small}{given}").jobs.equals(load_trace(f"{name}?{small}").jobs)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "synthetic-inference?jobs=3",
            "synthetic-inference has no parameter 'jobs'; it takes hours, seed, load, pattern",
        ),
        ("synthetic-philly?load=3", "synthetic-philly has no parameter 'load'; it takes jobs, seed, mean_gap_s"),
        ("synthetic-inference?load=high", "synthetic-inference: load is 'high', expected a number"),
        ("synthetic-inference?gpus=3.5", "synthetic-inference: gpus is '3.5', expected a whole number"),
        (
            "synthetic-colocated?pattern=",
            "synthetic-inference: pattern is '', expected one of poisson, bursty, diurnal",
        ),
        ("synthetic-colocate", "did you mean synthetic-colocated?"),
        ("toy-packing?load=3", "toy-packing takes no parameters"),
    ],
)
def test_errors(source, message):
    with pytest.raises(TraceError) as error:
        load_trace(source)
    assert message in str(error.value)
