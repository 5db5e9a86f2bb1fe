"""The throughput fit: known parameters are found again, and the shipped table is what the fit gives."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import check_grad

from docs import profiles_tables
from traces.__main__ import main
from traces.fit import Observations as Seen
from traces.fit import _objective, compute_error, fit_throughput, noise_scale, step_error, table_of, write_table
from traces.measured import read_profiles
from traces.profiles import PARAMETERS, SHIPPED, ModelProfile, ProfileError, Throughput, load_profiles

TRUTH = Throughput(alpha_c=0.1, beta_c=0.01, alpha_n=0.4, beta_n=0.02, alpha_r=0.08, beta_r=0.01, gamma=1.5)
SIZES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 8), (4, 16))


def observe(sizes=SIZES, local=(8, 16, 64), truth=TRUTH, noise=0.0):
    """What a job of these parameters would measure."""
    nodes, gpus, batch = np.array([(*size, m) for size, m in product(sizes, local)], dtype=np.float64).T
    grad, step = truth.times(nodes > 1, gpus, batch)
    factor = np.exp(noise * np.random.default_rng(1).normal(size=len(step)))
    return Seen(nodes, gpus, batch, grad * factor, step * factor)


def test_known_parameters_are_found_again():
    fit = fit_throughput(observe())
    assert step_error(fit, observe()) < 0.01
    assert compute_error(fit, observe()) < 0.01
    assert fit.beta_c == pytest.approx(TRUTH.beta_c, rel=0.02)
    assert fit == fit_throughput(observe())


def test_errors_by_hand():
    seen = Seen(*np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 2.0], [1.0, 2.0], [2.0, 4.0]]))
    fit = Throughput(0.0, 1.5, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert compute_error(fit, seen) == 0.5  # 1.5 for 1, 3 for 2
    assert step_error(fit, seen) == 0.25  # 1.5 for 2, 3 for 4


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_gradient_of_the_objective(weight):
    seen = observe(noise=0.1)
    x = np.array([-2.0, -4.0, -1.0, -3.5, -2.0, -4.5, 1.8])
    slopes = _objective(x, seen, weight)[1]
    error = check_grad(lambda x: _objective(x, seen, weight)[0], lambda x: _objective(x, seen, weight)[1], x)
    assert error < 1e-5 * np.linalg.norm(slopes)


def test_objective_is_that_of_pollux():
    """One GPU, one batch: compute 1 s for e s measured, step the same: two errors of 1, and the penalties."""
    seen = Seen(*np.array([[1.0], [1.0], [1.0], [np.e], [np.e]]))
    x = np.array([*np.log([0.5, 0.5, 0.2, 0.1, 0.2, 0.04]), 2.0])
    assert _objective(x, seen)[0] == pytest.approx(1 + 1 + 1e-3 + 1e-2 * (0.25 + 0.04))


def test_parameters_without_measurements_are_pinned():
    one_gpu = fit_throughput(observe(((1, 1),)))
    assert [one_gpu.alpha_r, one_gpu.beta_r] == pytest.approx([1e-8, 1e-8])
    assert [one_gpu.alpha_n, one_gpu.beta_n] == pytest.approx([1.1e-8, 1.1e-8])
    two_gpus = fit_throughput(observe(((1, 1), (1, 2))))
    assert two_gpus.alpha_r > 0.01
    assert two_gpus.beta_r == pytest.approx(1e-8)
    assert two_gpus.alpha_n == pytest.approx(1.1 * two_gpus.alpha_r)
    several = fit_throughput(observe(((1, 1), (2, 8))))
    assert several.alpha_n > 0.1
    assert several.alpha_r == pytest.approx(1e-8)
    one_batch = fit_throughput(observe(local=(16,)))
    assert one_batch.alpha_c == pytest.approx((0.1 + 0.01 * 16) / 2)


def profile(**changes):
    plain = ModelProfile(
        "mine",
        10,
        20,
        np.array([1.0, 2.0, 3.0]),
        np.array([10.0, 20.0]),
        np.ones((3, 2)),
        np.ones((3, 2)),
        None,
        9.0,
        2.0,
        {},
    )
    return replace(plain, **changes)


def test_noise_scale_is_a_geometric_mean_of_what_is_usable():
    mine = profile(
        grad_sqr=np.array([[1.0, 1.0], [0.0, 1.0], [-1.0, 0.0]]),
        grad_var=np.array([[2.0, 8.0], [1.0, 3.0], [1.0, 0.0]]),
    )
    assert noise_scale(mine) == pytest.approx([40.0, 30.0, 0.0])  # sqrt(20 x 80); 10 / 0 left out; nothing left


def test_refitting_gives_the_shipped_numbers(shared):
    """One type is enough: the fits of a folder do not know of each other."""
    table = table_of(read_profiles(shared / "data" / "profiles" / "sia", "quad"), "sia")
    shipped = json.loads(SHIPPED.read_text())
    assert shipped["source"] == table["source"]
    for model, row in table["models"].items():
        theirs = shipped["models"][model]
        entry, known = row.pop("types"), theirs.pop("types")
        assert row == theirs
        assert {name: entry["quad"][name] for name in ("min_local", "max_local")} == {
            name: known["quad"][name] for name in ("min_local", "max_local")
        }
        # The best fit is found to the sixth digit of its value, not of its parameters.
        assert entry["quad"]["fit"]["step_error"] == pytest.approx(known["quad"]["fit"]["step_error"], rel=1e-3)
        for name in PARAMETERS:
            assert entry["quad"]["throughput"][name] == pytest.approx(known["quad"]["throughput"][name], rel=1e-2)


def test_shipped_errors_are_no_worse_than_the_best_of_the_original_objective(shared):
    """Recomputed from the measurements, at the same points as the reference's figures."""
    best = json.loads((shared / "reference" / "pollux_sia" / "perf_params.json").read_text())
    measured = read_profiles(shared / "data" / "profiles" / "sia")
    shipped = json.loads(SHIPPED.read_text())["models"]
    compared = 0
    for model, mine in load_profiles().items():
        for gpu_type, entry in mine.types.items():
            seen = measured[model].types[gpu_type].measured.observations()
            theirs = best[gpu_type][model]["best_of_40_starts_same_objective"]
            error = step_error(entry.throughput, seen)
            assert len(seen.step) == theirs["n_points"]
            assert step_error(Throughput(**theirs["params"]), seen) == pytest.approx(
                theirs["mean_rel_err_step"], rel=1e-5
            )
            assert error <= theirs["mean_rel_err_step"]
            figures = shipped[model]["types"][gpu_type]["fit"]
            assert figures["step_error"] == pytest.approx(error, rel=1e-5)
            assert figures["compute_error"] == pytest.approx(compute_error(entry.throughput, seen), rel=1e-5)
            compared += 1
    assert compared == 36


def test_errors_by_size_add_up():
    for model in json.loads(SHIPPED.read_text())["models"].values():
        for entry in model["types"].values():
            parts = entry["fit"]["step_error_by_size"].values()
            assert sum(part["points"] for part in parts) == entry["fit"]["points"]
            total = sum(part["points"] * part["step_error"] for part in parts)
            assert total / entry["fit"]["points"] == pytest.approx(entry["fit"]["step_error"], rel=1e-4)


def test_shipped_efficiency_is_near_the_measured_one(shared):
    """One noise scale an epoch instead of one a batch size: iterations after the first epoch within 16 %."""
    measured = read_profiles(shared / "data" / "profiles" / "sia", "aws")
    for model, mine in load_profiles().items():
        for batch in measured[model].batches:
            theirs = replace(measured[model], iterations=None).iterations_left(0, batch)
            assert mine.iterations_left(0, batch) == pytest.approx(theirs, rel=0.16)


def test_command_prints_errors_and_writes_a_table(tmp_path, capsys):
    folder, out = tmp_path / "profiles", tmp_path / "table.json"
    (folder / "mine").mkdir(parents=True)
    seen = observe()
    times = ["placement,local_bsz,step_time,sync_time"]
    for nodes, gpus, local, grad, step in zip(*asdict(seen).values(), strict=True):
        times.append(f"{str(int(gpus / nodes)) * int(nodes)},{local:g},{step},{step - grad}")
    (folder / "mine" / "placements.csv").write_text("\n".join(times))
    (folder / "mine" / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,6,8,2,1\n"
    )
    (folder / "mine" / "validation-16.csv").write_text("progress,iteration,grad_sqr,grad_var\n10,10,1,2\n")
    assert main(["fit", str(folder)]) == 0
    assert "mine" in capsys.readouterr().out
    assert main(["fit", str(folder), str(out), "--gpu-type", "A100"]) == 0
    assert f"{out}: 1 models" in capsys.readouterr().out.replace("\n", "")
    row = json.loads(out.read_text())["models"]["mine"]
    assert row["noise_scale"] == [32.0]
    assert row["types"]["dgx-ext"]["fit"]["points"] == len(seen.step) + 1
    assert main(["fit", str(tmp_path / "missing")]) == 2
    assert capsys.readouterr().err == f"python -m traces: {tmp_path / 'missing'} is not a folder of profiles\n"


def test_a_table_that_cannot_be_written(tmp_path):
    with pytest.raises(ProfileError, match="cannot be written: Is a directory"):
        write_table({"source": "", "models": {}}, tmp_path)


@pytest.mark.parametrize("table", [profiles_tables.models, profiles_tables.errors])
def test_documented_tables_show_every_model(table):
    lines = table().splitlines()
    assert len({line.count("|") for line in lines}) == 1
    for model in load_profiles():
        assert any(line.startswith(f"| `{model}` |") for line in lines)
