"""The convergence model against hand arithmetic, its fit against planted constants, and a tiny training run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from traces import freezing_train
from traces.__main__ import main
from traces.freezing_fit import (
    Constants,
    Curve,
    Measurements,
    at_bounds,
    converged_at,
    count_frozen,
    fit,
    fitted,
    follow,
    follow_share,
    ignore_freezing,
    leave_one_out,
    mean_error,
    predict,
)
from traces.freezing_report import PREDICTORS, summarise
from traces.freezing_train import Images, Trainer, Training
from traces.measure_freezing import MODULES, SCHEDULES, SHIPPED, load_measured

CURVE = Curve(np.array([0.25, 0.5, 1.0]), np.array([0.8, 0.4, 0.1]))
TINY = Training(batches=2, batch=8, width=4, test_images=16)
FIVE = ["first", "half", "greedy", "thaw", "pipe"]


def planted(constants: Constants) -> Measurements:
    """What would be measured of every schedule if the model were true."""
    depths = np.array([schedule.depths(24) for schedule in SCHEDULES.values()])
    blank = Measurements(list(SCHEDULES), depths, np.ones(len(depths)), CURVE, MODULES)
    return Measurements(blank.names, depths, predict(constants, blank), CURVE, MODULES)


@pytest.mark.parametrize(
    ("depths", "progress", "residual", "excess"),
    [
        ([0, 0, 0, 0], 1.0, 0.0, 0.0),
        # Module 0 has converged at 0.5, when it is frozen: nothing is lost.
        ([0, 0, 1, 1], 1.0, 0.0, 0.0),
        # P = w_0 u_0 = 0.5 while frozen: p = 2 x 0.25 x 0.5 = 0.25; then c_0 = 0.5 and c_1 = 0.75 are enough.
        ([1, 1, 0, 0], 0.75, 0.0, 0.0),
        # p = 4 x 0.125; u_0 = 1 and u_1 = 1 - 0.5 / 0.75 = 1 / 3, which an unfrozen run at p = 0.5 has too.
        ([1, 1, 1, 1], 0.5, 0.5 + 1 / 6, 0.5),
        # Everything that counts is frozen from the start: P stops at 0.95, so that p = 0.05.
        ([2, 2, 2, 2], 0.05, 1.0, 1.0 - (0.5 * 0.9 + 0.5 * (1 - 0.05 / 0.75))),
        # u_0 = 1 - 0.25 / 0.5, P = 0.25: p = 0.25 + 3 x 0.1875; u_1 = 0 by then.
        ([0, 1, 1, 1], 0.8125, 0.25, 0.25),
    ],
)
def test_model_by_hand(depths, progress, residual, excess):
    """K = 3, weights 1/2, 1/2, 0, converged at 0.5, 0.75, 1."""
    found = follow(np.array(depths), 4, converged_at(0.5, 1.0, 1.0, 3))
    assert found.progress == pytest.approx(progress)
    assert found.residual == pytest.approx(residual)
    assert found.excess == pytest.approx(excess)


def test_runs_are_followed_together_as_alone():
    depths = np.array([schedule.depths(12) for schedule in SCHEDULES.values()])
    ends = converged_at(np.array([0.1, 0.6]), np.array([0.9, 0.5]), np.array([1.0, 2.0]), MODULES)
    together = follow(depths, 12, ends[:, None, :])
    for row, end in enumerate(ends):
        for column, depth in enumerate(depths):
            assert together.progress[row, column] == follow(depth, 12, end).progress


def test_curve_is_a_line_between_logarithms_both_ways():
    shares = np.array([0.125, 0.25, 2**-1.5, 1.0])
    values = np.array([1.6, 0.8, 0.8 / 2**0.5, 0.1])
    assert CURVE.at(shares) == pytest.approx(values)
    assert CURVE.share_of(values) == pytest.approx(shares)
    flat = Curve(np.array([0.5, 0.75, 1.0]), np.array([0.4, 0.2, 0.2]))
    assert flat.share_of(np.array(0.1)) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("constants", "extra"),
    [
        (Constants(0.2, 0.8, 1.5), None),
        (Constants(0.7, 0.3, 0.6), None),
        (Constants(0.3, 0.9, 1.0, slope=0.8), "slope"),
        (Constants(0.3, 0.9, 1.0, scale=1.3), "scale"),
    ],
)
def test_fit_recovers_planted_constants(constants, extra):
    found = fit(planted(constants), extra)
    assert found == pytest.approx(constants, abs=1e-3)
    assert at_bounds(found) == []


def test_constants_beyond_the_bounds_are_named():
    assert at_bounds(fit(planted(Constants(0.002, 0.6, 1.0)))) == ["first"]


def test_held_out_error_is_small_only_for_the_model_that_is_true():
    measured = planted(Constants(0.25, 0.9, 1.0))
    error = {
        p: mean_error(leave_one_out(measured, p), measured.loss) for p in (ignore_freezing, count_frozen, follow_share)
    }
    assert mean_error(leave_one_out(measured, fitted()), measured.loss) < 1e-4
    assert min(error.values()) > 0.1


def test_each_schedule_is_predicted_from_the_others_only():
    measured = planted(Constants(0.25, 0.9, 1.0))
    seen = []

    def mean_of_the_others(train):
        seen.append(train.names)
        assert len(train.names) == len(train.loss) == len(train.depths)
        return lambda asked: np.full(len(asked.names), train.loss.mean())

    found = leave_one_out(measured, mean_of_the_others)
    count, total = len(measured.names), measured.loss.sum()
    assert found == pytest.approx((total - measured.loss) / (count - 1))
    assert [set(measured.names) - set(names) for names in seen] == [{name} for name in measured.names]


def test_baselines_by_hand():
    depths = np.array([[0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 2, 2]])
    measured = Measurements(["a", "b", "c"], depths, np.array([0.1, 0.2, 0.2]), CURVE, 3)
    assert ignore_freezing(measured)(measured) == pytest.approx([0.1, 0.1, 0.1])
    # Weights 1/2: b loses half of every epoch; c 0.95 of two, so that p = 0.525.
    assert count_frozen(measured)(measured) == pytest.approx(CURVE.at(np.array([1.0, 0.5, 0.525])))
    # Shares 0, 1/2, 1/2 and rises of log 2: the slope is 2 log 2.
    assert follow_share(measured)(measured) == pytest.approx([0.1, 0.2, 0.2])


def test_mean_error_is_a_factor_either_way():
    assert mean_error(np.array([1.1, 1.0]), np.array([1.0, 1.1])) == pytest.approx(0.1)


def test_schedules_leave_the_head_and_say_what_they_do():
    for schedule in SCHEDULES.values():
        assert max(schedule.depths(24)) in range(1, MODULES)
    assert SCHEDULES["thaw"].depths(10) == [0, 0, 5, 5, 5, 0, 0, 0, 0, 0]
    # Module i at 0.5 + i / 14: 0.5, 0.571, 0.643, 0.714, 0.786, 0.857, 0.929.
    assert SCHEDULES["freezeout"].depths(10) == [0, 0, 0, 0, 0, 1, 2, 3, 5, 6]
    # 8 (1 - exp(-t)) passes 1 at t = 0.134, 2 at 0.288, 3 at 0.470, 4 at 0.693, 5 at 0.981.
    assert SCHEDULES["pipe"].depths(10) == [0, 0, 1, 2, 2, 3, 3, 4, 4, 4]


def test_images_come_from_their_seed_and_never_twice():
    stream, again, other = Images(TINY, 0, 1), Images(TINY, 0, 1), Images(TINY, 0, 2)
    images, labels = stream.draw(8)
    same, same_labels = again.draw(8)
    assert images.shape == (8, 3, 32, 32)
    assert torch.equal(images, same)
    assert torch.equal(labels, same_labels)
    assert not torch.equal(images, stream.draw(8)[0])
    assert not torch.equal(images, other.draw(8)[0])


def state_of(trainer: Trainer) -> list[list[torch.Tensor]]:
    return [[value.clone() for value in module.state_dict().values()] for module in trainer.modules]


def test_frozen_modules_stand_still_and_the_others_move():
    trainer = Trainer(TINY, 0, 0, [0, 3, 3])
    trainer._set_depth(0)
    trainer._step(0, 0.1)
    before = state_of(trainer)
    trainer._set_depth(3)
    for _ in range(2):
        trainer._step(3, 0.1)
    moved = [
        any(not torch.equal(a, b) for a, b in zip(old, new, strict=True))
        for old, new in zip(before, state_of(trainer), strict=True)
    ]
    assert moved == [False] * 3 + [True] * 5
    held = [param for module in trainer.modules[:3] for param in module.parameters()]
    assert not any(param in trainer.optimizer.state for param in held)
    trainer._set_depth(0)
    trainer._step(0, 0.1)
    assert all(param in trainer.optimizer.state for param in held)


def test_a_run_is_measured_at_its_end_and_repeats():
    first, second = (list(Trainer(TINY, 0, 5, [0, 2]).run()) for _ in range(2))
    assert first == second
    assert [measured.epoch for measured in first] == [2]
    assert 0.0 <= first[0].accuracy <= 1.0


def test_interrupted_command_goes_on_with_the_runs_it_has(tmp_path, monkeypatch, capsys):
    out, started = tmp_path / "measured.json", []
    command = ["measure-freezing", str(out), "--epochs", "2", "--batches", "1", "--seeds", "1", "--schedules", *FIVE]
    real = freezing_train.Trainer.run

    def run(trainer):
        started.append(trainer.depths)
        if len(started) == 4:
            raise KeyboardInterrupt
        return real(trainer)

    monkeypatch.setattr(freezing_train.Trainer, "run", run)
    assert main(command) == 130
    assert "goes on from there" in capsys.readouterr().err
    kept = json.loads(out.read_text())["runs"]
    assert [(row["schedule"], row["epochs"]) for row in kept] == [("none", 1), ("none", 2), ("first", 2)]

    assert main(command) == 0
    table = json.loads(out.read_text())
    assert table["command"].endswith("measured.json --epochs 2 --batches 1 --seeds 1")
    assert table["runs"][:3] == kept
    assert [row["schedule"] for row in table["runs"][2:]] == FIVE
    assert set(table["schedules"]) == set(FIVE)
    assert set(table["fit"]["held_out"]) == set(PREDICTORS)
    assert len(started) == 4 + 4

    assert main(command) == 0
    assert len(started) == 8
    assert main([*command, "--task", "1"]) == 2
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--schedules", *FIVE, "noon"], "there is no schedule 'noon'"),
        (["--schedules", "first", "half"], "2 schedules are too few"),
        (["--epochs", "1"], "epochs is 1, expected at least 2"),
        (["--seeds", "0"], "seeds is 0, expected at least 1"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, capsys, arguments, message):
    assert main(["measure-freezing", str(tmp_path / "out.json"), *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_file_of_something_else_is_refused(tmp_path, capsys):
    out = tmp_path / "out.json"
    out.write_text("[]")
    assert main(["measure-freezing", str(out)]) == 2
    assert "is no file of measure-freezing" in capsys.readouterr().err


def test_shipped_results_follow_from_the_shipped_runs():
    table = load_measured(SHIPPED)
    made = summarise(table)
    for name, row in made["schedules"].items():
        assert row["loss"] == table["schedules"][name]["loss"]
        assert row["predicted"] == pytest.approx(table["schedules"][name]["predicted"], rel=0.02, abs=0.005)
    for name, judged in made["fit"]["held_out"].items():
        assert judged["mean"] == pytest.approx(table["fit"]["held_out"][name]["mean"], rel=0.02)
