"""Marks, worked by hand: which training job yields its GPUs to inference first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envs.actions import NUM_EDITS, Edit
from envs.env import ClusterEnv
from envs.layout import POD_PROTECT, POD_SLEEP
from tests.envs.colocated_support import DROP, KEEP, SOON, Training, hand_env, is_valid, open_gpus, pods
from tests.envs.elastic_env_support import MORE, NAMES, commit, edit, held
from tests.envs.env_support import PLAYERS, play

YIELDS = Edit.YIELDS


def column(env: ClusterEnv, name: str, slot: int) -> float:
    return float(env.layout.split(env.batch.obs[0])["jobs"][slot, NAMES.index(name)])


def can_mark(env: ClusterEnv, slot: int) -> bool:
    return bool(env.action_masks()[1 + NUM_EDITS * slot + YIELDS])


@pytest.mark.parametrize(
    ("marks", "loser"),
    [
        # Losses by one GPU less of a fair share of 2: 1, 1/2 and 1/2; job 2 has less service than job 1.
        ([], 2),
        ([0], 0),
        ([1], 1),
        ([2], 2),
        ([0, 1], 1),  # among the marked the loss decides
        ([0, 2], 2),
        ([0, 1, 2], 2),
        ([0, 0], 2),  # twice: no mark
        ([1, 0, 1], 0),
        ([1, 1, 1], 1),
    ],
)
def test_marked_jobs_yield_first(marks: list[int], loser: int):
    """Guards the order of section 3 (c): a mark goes before any loss, then the order is as it was."""
    env = hand_env([(1, 0, 900.0), (2, 0, None), (1, 0, None)], [("s", 15, 2)])
    edit(env, (0, MORE), (1, MORE), (1, MORE), (2, MORE))
    for slot in marks:
        edit(env, (slot, YIELDS))
    before = [sum(held(env, slot)) for slot in range(3)]
    assert before == [1, 2, 1]
    assert commit(env) == 20
    lost = [count - sum(held(env, slot)) for slot, count in enumerate(before)]
    assert lost == [int(slot == loser) for slot in range(3)]
    for slot in range(3):  # no mark is spent
        assert column(env, "yields", slot) == env.batch.states[0].yields[slot] == marks.count(slot) % 2
    assert env.batch.states[0].num_taken == 1


def test_a_marked_gang_is_preempted_whole():
    """Two GPUs lost for one task, and the other is free for training again."""
    env = hand_env([(2, 0, 900.0), (2, 0, None)], [("s", 15, 2)])
    edit(env, (0, MORE), (1, MORE), (1, MORE), (0, YIELDS))
    assert commit(env) == 20
    assert (sum(held(env, 0)), sum(held(env, 1))) == (0, 2)
    assert env.batch.states[0].num_taken == 2
    assert open_gpus(env) == (3, [1])
    assert column(env, "yields", 0) == 1  # it waits, and stays marked


def test_a_mark_costs_nothing_and_changes_nothing_but_itself():
    env = hand_env([(1, 0, 50.0), (1, 0, None)], [("s", 200, 2)], horizon_s=300.0)
    edit(env, (0, MORE), (1, MORE))
    snapshot = env.snapshot()
    for marks in ([], [(0, YIELDS), (1, YIELDS), (0, YIELDS)]):
        env.restore(snapshot)
        edit(env, *marks)
        rewards = play(env, PLAYERS["idle"]).rewards
        table = env.batch.episode_jobs(0)
        assert sum(rewards) == -50 - 300
        assert table["finish_s"][0] == 50
        assert table[["num_rescales", "num_preemptions", "paused_gpu_s"]][:2].to_numpy().sum() == 0


def test_a_mark_ends_with_its_job():
    """The next job of the slot is not marked."""
    env = hand_env([(1, 0, 5.0), (4, 0, None), (1, 12, 50.0)], [("s", 500, 2)], num_slots=2)
    edit(env, (0, MORE), (0, YIELDS), (1, MORE))
    assert column(env, "yields", 0) == 1
    assert commit(env) == 10
    assert column(env, "yields", 0) == 0  # nobody's slot
    assert commit(env) == 20
    assert env.batch.states[0].job_id[0] == 2
    assert column(env, "present", 0) == 1
    assert column(env, "yields", 0) == env.batch.states[0].yields[0] == 0


MIXED: list[Training] = [(1, 0, 900.0), (1, 0, 900.0), (1, 0, 900.0), (1, 0, None), (1, 0, None)]
COLUMNS = {
    "preemptible": [True, False, True, True, False],
    "share_milli": [1000, 1000, 500, 1000, 1000],
}


def test_who_may_be_marked():
    """Whole devices, preemptible; waiting or running; no free slot."""
    env = hand_env(MIXED, [("s", 500, 2)], "1x8", columns=COLUMNS)
    assert [can_mark(env, slot) for slot in range(6)] == [True, False, False, True, False, False]
    edit(env, *[(slot, MORE) for slot in range(5)])
    assert [can_mark(env, slot) for slot in range(6)] == [True, False, False, True, False, False]


@pytest.mark.parametrize("reclaim", ["lyra", "static"])
def test_no_marks_where_whole_nodes_are_reclaimed(reclaim: str):
    env = hand_env(MIXED, [("s", 500, 2)], "2x4", replace(SOON, reclaim=reclaim), columns=COLUMNS)
    assert not any(can_mark(env, slot) for slot in range(6))


def test_no_marks_without_inference():
    env = hand_env(MIXED, [], "1x8", columns=COLUMNS)
    assert len(env.action_masks()) == 1 + 9 * 6
    assert not any(can_mark(env, slot) for slot in range(6))


def test_compat_deepboot_has_none_of_these_edits():
    """There the simulator's own rules decide; idle pods exist, but no edit of them is valid."""
    sim = replace(SOON, compat="deepboot")
    env = hand_env([(1, 0, None), (1, 15, 900.0)], [("s", 1, 2)], "1x4", sim)
    edit(env, (0, MORE))
    seen = []
    for _ in range(6):
        commit(env)
        seen += [state for _, state in pods(env).values()]
        assert not any(can_mark(env, slot) for slot in range(6))
        assert not is_valid(env, 0, KEEP)
        assert not is_valid(env, 0, DROP)
    assert {POD_PROTECT, POD_SLEEP} & set(seen)
