"""The cap on depths and its hysteresis, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from baselines.front import TrustedFront
from baselines.safe_front import SafeFront
from tests.baselines.layer_views import Gives, depths, layer_view


def read(front, *readings, interval_s=60.0):
    """Let ``front`` see one job's front at each (time, front); the view of the last."""
    for now, seen in readings:
        view = layer_view([{"front": seen}], now=now, interval_s=interval_s)
        front.read(view)
    return view


def test_the_median_of_the_last_readings():
    # Sorted: 4; 4 6; 2 4 6; 2 4 4 6; 2 3 4 4 6; and without the first 4: 1 2 3 4 6. Of two in the middle the lower.
    front, steady, slots = TrustedFront(1, 5), [], np.array([1])
    for turn, seen in enumerate([4, 6, 2, 4, 3, 1]):
        view = read(front, (60.0 * turn, seen))
        steady.append(int(front.steady(view, slots)[0]))
    assert steady == [4, 4, 4, 4, 4, 3]
    assert front.cap(view, slots).tolist() == [2]


@pytest.mark.parametrize(("margin", "cap"), [(0, 4), (1, 3), (4, 0), (6, 0)])
def test_the_margin_is_left_active(margin, cap):
    front = TrustedFront(margin, 5)
    assert front.cap(read(front, (0, 4)), np.array([1])).tolist() == [cap]


def test_the_cap_is_at_most_what_may_be_frozen():
    front = TrustedFront(0, 1)
    view = read(front, (0, 9))
    view.max_depth = np.array([0, 0])  # as while a job trains on at its end
    assert front.cap(view, np.array([1])).tolist() == [0]


def test_one_reading_a_turn():
    front = TrustedFront(0, 5)
    assert front.steady(read(front, (0, 8), (20, 2), (59, 2)), np.array([1])).tolist() == [8]
    assert front.steady(read(front, (60, 5), (119, 3)), np.array([1])).tolist() == [5]
    event_driven = TrustedFront(0, 5)
    view = read(event_driven, (0, 8), (59, 2), (61, 6), (62, 1), interval_s=0.0)
    assert event_driven.steady(view, np.array([1])).tolist() == [6], "turns of 60 s"


def test_readings_are_kept_by_job_not_by_slot():
    front = TrustedFront(0, 5)
    front.read(layer_view([{"job_id": 7, "front": 3}, {"job_id": 8, "front": 6}]))
    view = layer_view([{"job_id": 8, "front": 6}, {"job_id": 9, "front": 1}], now=60.0)
    front.read(view)
    assert front.steady(view, view.slots).tolist() == [6, 1]
    again = layer_view([{"job_id": 7, "front": 5}], now=120.0)
    front.read(again)
    assert front.steady(again, again.slots).tolist() == [5], "what was forgotten is read anew"


def test_a_job_that_arrives_inside_a_turn_is_read_at_once():
    front = TrustedFront(0, 5)
    front.read(layer_view([{"front": 3}]))
    view = layer_view([{"front": 9}, {"front": 2}], now=30.0)
    front.read(view)
    assert front.steady(view, view.slots).tolist() == [3, 2]


def decide(gpus=1, margin=1, freeze_s=3.0, **job):
    """Depth of one job that runs on one GPU and gets ``gpus``, after one reading."""
    scheduler, view = SafeFront(Gives([0, gpus]), margin), layer_view([job], freeze_s=freeze_s)
    scheduler.reset(view)
    return depths(scheduler, view)[0]


@pytest.mark.parametrize(("depth", "then"), [(2, 3), (3, 3), (4, 4), (5, 3), (9, 3)])
def test_thawed_only_above_the_steady_front(depth, then):
    """It is 4, so that the cap is 3."""
    assert decide(front=4, depth=depth) == then


@pytest.mark.parametrize(("left", "then"), [(65.9, 0), (66.1, 1)])
def test_freezing_must_save_twice_its_pause(left, then):
    # At speeds 1 and 1.1 a job of 66 iterations has 66 and 60 s left: 6 s are twice the pause of 3 s.
    assert decide(front=2, left=left) == then


def test_the_saving_counts_from_the_present_depth():
    # From speed 1.1 to 1.2, 79.2 iterations take 72 and 66 s.
    assert decide(front=3, depth=1, left=79.1) == 1
    assert decide(front=3, depth=1, left=79.3) == 2


def test_without_a_pause_any_saving_is_worth_it():
    assert decide(front=2, left=0.001, freeze_s=0.0) == 1
    assert decide(front=2, left=0.001, freeze_s=0.0, speed=np.ones(10)) == 0


def test_the_depth_of_largest_effective_progress_below_the_cap():
    speed = np.array([1.0, 1.2, 1.5, 1.4, 1.3, 1.9, 2, 2, 2, 2])
    assert decide(front=5, speed=speed) == 2
    assert decide(front=6, speed=speed) == 5
    assert decide(front=5, depth=3, speed=speed) == 3, "no shallower while its devices stay"
    penalty = np.linspace(0, 0.5, 10)
    assert decide(front=5, speed=speed, penalty=penalty) == 2, "speed is effective progress"


def test_a_change_of_devices_makes_the_change_of_depth_free():
    speed = np.array([1.0, 1.2, 1.5, 1.4, 1.3, 1.9, 2, 2, 2, 2])
    assert decide(gpus=2, front=5, left=0.001, speed=speed) == 2
    assert decide(gpus=2, front=5, depth=3, speed=speed) == 2
    assert decide(gpus=2, front=3, depth=9, speed=speed) == 2
    assert decide(gpus=2, front=1, depth=1, speed=speed) == 0


def test_speeds_are_those_at_the_gpus_that_the_job_gets():
    far = np.array([1.0, 1.0, 0.1] + [1.0] * 7)  # on several nodes depth 2 is slow
    assert decide(gpus=4, front=3, far=far) == 2
    assert decide(gpus=5, front=3, far=far) == 1
