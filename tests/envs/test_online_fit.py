"""The fit of throughput parameters: its formulas, the published simulators' own fits, and scipy's L-BFGS-B."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import Bounds, minimize

from envs.online_fit import FTOL, FTOL_SIA, LOWER, SCRATCH_ROWS, UPPER, fit, objective, predict, prepare

ROOT = Path(__file__).resolve().parents[2]
PLACES = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 2), (2, 4), (2, 8), (3, 12), (4, 16), (8, 32)]
# Placements at which a fit is judged, seen or not.
GRID = [(nodes, gpus, local) for nodes, gpus in PLACES for local in (32, 100, 400)]


def scratch_for(points: np.ndarray, fill: float = np.nan) -> np.ndarray:
    return np.full((SCRATCH_ROWS + len(points), 7), fill)


def fitted(points: np.ndarray, ftol: float = FTOL) -> np.ndarray:
    params = np.full(7, np.nan)
    fit(points, len(points), params, scratch_for(points), ftol)
    return params


def steps(params: np.ndarray, places: list | np.ndarray) -> np.ndarray:
    return np.array([predict(params, nodes > 1, gpus, local)[1] for nodes, gpus, local, *_ in places])


def random_points(rng: np.random.Generator, count: int, noise: float) -> np.ndarray:
    """Points of a job with random parameters, all different in (nodes, GPUs, batch)."""
    params = np.exp(rng.normal(np.log([0.05, 1e-3, 0.2, 0.01, 0.05, 0.005, 2.0]), 0.5))
    params[6] = min(max(params[6], 1.0), 10.0)
    places = [(*place, local) for place in PLACES for local in (32, 64, 91, 128, 256, 512)]
    chosen = [places[i] for i in rng.permutation(len(places))[:count]]
    times = [predict(params, nodes > 1, gpus, local) for nodes, gpus, local in chosen]
    return np.column_stack([chosen, np.array(times) * np.exp(rng.normal(0, noise, (count, 2)))])


def formula(x: np.ndarray, points: np.ndarray) -> float:
    """The objective as it is published, in numpy."""
    nodes, gpus, local, grad_time, step_time = points.T
    others = np.maximum(gpus - 2, 1e-8)
    net = np.where(nodes > 1, x[2] + x[3] * others, np.where(gpus > 1, x[4] + x[5] * others, 1e-8))
    grad = x[0] + x[1] * local
    step = (grad ** x[6] + net ** x[6]) ** (1 / x[6])
    errors = [np.sqrt(np.mean(np.log(a / b) ** 2)) for a, b in ((grad, grad_time), (step, step_time))]
    return sum(errors) + 1e-3 * (x[6] - 1) ** 2 + 1e-2 * ((x[3] / x[2]) ** 2 + (x[5] / x[4]) ** 2)


@pytest.mark.parametrize("seed", range(5))
def test_the_objective_and_its_gradient_are_those_of_the_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, x, grad = random_points(rng, 12, 0.3), np.exp(rng.normal(-2, 1, 7)), np.empty(7)
    x[6] = 1 + 3 * rng.random()
    scratch = scratch_for(points)
    prepare(points, len(points), np.empty(7), scratch)
    assert objective(x, scratch[SCRATCH_ROWS:], len(points), grad) == pytest.approx(formula(x, points), rel=1e-12)
    for i, step in enumerate(np.diag(1e-6 * x)):
        slope = (formula(x + step, points) - formula(x - step, points)) / (2 * step[i])
        assert grad[i] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_predictions_follow_the_formula() -> None:
    params = np.array([0.1, 0.001, 0.3, 0.02, 0.05, 0.01, 2.0])
    assert predict(params, 0, 1, 100) == pytest.approx((0.2, 0.2))
    assert predict(params, 0, 4, 100) == pytest.approx((0.2, np.hypot(0.2, 0.07)))
    assert predict(params, 1, 4, 100) == pytest.approx((0.2, np.hypot(0.2, 0.34)))
    params[6] = 1.0
    assert predict(params, 1, 2, 100) == pytest.approx((0.2, 0.5))


def test_fits_of_sias_artifact(shared: Path) -> None:
    cases = json.loads((shared / "reference/pollux_sia/golden_goodput.json").read_text())["fit"]
    assert len(cases) == 25
    for case in cases:
        keys = ("num_nodes", "num_replicas", "local_bsz", "accum_time", "step_time")
        points = np.column_stack([case[key] for key in keys])
        params, theirs = fitted(points, FTOL_SIA), np.array(case["params"])
        assert steps(params, points) == pytest.approx(steps(theirs, points), rel=1e-3)
        assert steps(params, GRID) == pytest.approx(steps(theirs, GRID), rel=1e-3)


def test_fits_of_deepboots_simulator(shared: Path) -> None:
    """They run at scipy's own tolerance."""
    with (shared / "data/profiles/deepboot/cifar10/placements.csv").open() as file:
        rows = list(csv.DictReader(file))

    def point(nodes: int, gpus: int, local: int) -> tuple[float, ...]:
        place = str(gpus // nodes) * nodes
        lines = [
            [float(row[c]) for c in ("local_bsz", "step_time", "sync_time")]
            for row in rows
            if row["placement"] == place
        ]
        table = np.array(sorted(lines)).T
        step, sync = (np.interp(local, table[0], column) for column in table[1:])
        return nodes, gpus, local, step - sync, step

    for case in json.loads((shared / "reference/deepboot/golden_units.json").read_text())["fit"]:
        params = fitted(np.array([point(*key) for key in case["profile"]]))
        assert params == pytest.approx(np.array(case["theta"]), rel=1e-3)


def scipy_fit(points: np.ndarray) -> tuple[np.ndarray, float]:
    start, scratch = np.empty(7), scratch_for(points)
    several = prepare(points, len(points), start, scratch)

    def value_and_gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        grad = np.empty(7)
        return objective(x, scratch[SCRATCH_ROWS:], len(points), grad), grad

    bounds = Bounds(scratch[LOWER], scratch[UPPER])
    found = minimize(value_and_gradient, start, jac=True, bounds=bounds, method="L-BFGS-B")
    params = found.x.copy()
    if not several:
        params[2:4] = np.maximum(params[2:4], 1.1 * params[4:6])
    return params, found.fun


def test_the_search_ends_where_scipys_does() -> None:
    """Not always: objectives with kinks amplify the last bit of long searches, scipy's own too."""
    rng = np.random.default_rng(1)
    close, values = [], []
    for case in range(60):
        points = random_points(rng, 1 + case % 30, 0.1)
        params, (theirs, value) = np.empty(7), scipy_fit(points)
        values.append((fit(points, len(points), params, scratch_for(points)), value))
        close.append(np.allclose(steps(params, GRID), steps(theirs, GRID), rtol=1e-2))
    assert np.mean(close) >= 0.9
    ours, scipys = np.mean(values, axis=0)
    assert ours == pytest.approx(scipys, rel=0.02)


def test_what_was_not_seen_is_optimistic() -> None:
    def params_of(*places: tuple[int, int, int]) -> np.ndarray:
        truth = np.array([0.05, 0.001, 0.2, 0.02, 0.1, 0.01, 1.5])
        return fitted(np.array([(*place, *predict(truth, place[0] > 1, *place[1:])) for place in places], float))

    alone = params_of((1, 1, 100), (1, 1, 200))
    assert alone[2:6] == pytest.approx([1.1e-8, 1.1e-8, 1e-8, 1e-8], rel=1e-12)
    assert alone[:2] == pytest.approx([0.05, 0.001], rel=1e-2)
    one_batch = params_of((1, 1, 100), (1, 2, 100))
    assert one_batch[0] == pytest.approx(0.15 / 2)
    assert one_batch[5] == 1e-8  # no more than two GPUs
    assert one_batch[2] == 1.1 * one_batch[4] > 1e-4
    one_node = params_of((1, 1, 100), (1, 2, 200), (1, 4, 100))
    assert list(one_node[2:4]) == list(1.1 * one_node[4:6])
    assert one_node[5] > 1e-8
    several = params_of((1, 1, 100), (2, 2, 200), (2, 4, 100))
    assert several[2] > 1e-4
    assert several[3] > 1e-8
    assert list(several[4:6]) == [1e-8, 1e-8]
    pair = params_of((1, 2, 100), (2, 2, 200))
    assert list(pair[[3, 5]]) == [1e-8, 1e-8]


def test_only_the_first_points_count_and_scratch_is_overwritten() -> None:
    points = random_points(np.random.default_rng(3), 9, 0.1)
    expected = fitted(points[:6].copy())
    longer, params, scratch = points.copy(), np.empty(7), scratch_for(points, 1e300)
    longer[6:] = np.nan
    fit(longer, 6, params, scratch)
    assert list(params) == list(expected)
    assert (scratch[-3:] == 1e300).all()
    assert np.array_equal(longer[:6], points[:6])


def digest() -> str:
    """Of the fits of a growing set of points."""
    found = sha256()
    points = random_points(np.random.default_rng(5), 12, 0.1)
    for count in (1, 2, 3, 5, 8, 12):
        found.update(fitted(points[:count].copy()).tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("variable", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_other_builds_give_the_same_bytes(variable: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error::RuntimeWarning",
            "-c",
            f"from tests.envs.{Path(__file__).stem} import digest; print(digest())",
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), variable: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.strip() == digest()
