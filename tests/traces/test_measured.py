"""Folders of measured profiles: interpolation, against the published simulators' values, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from traces.fit import step_error
from traces.measured import necklace, read_profiles
from traces.profiles import ProfileError

PLACEMENTS = {"1": 1.0, "2": 1.2, "11": 2.0, "12": 3.0, "22": 4.0}  # step time [s] at one sample; sync is half
VALIDATION = "progress,iteration,grad_sqr,grad_var\n"


def write_model(folder, suffix="", placements=None):
    """A model of two epochs whose steps take twice as long with two samples a GPU."""
    folder.mkdir(parents=True)
    rows = ["local_bsz,placement,sync_time,step_time"]
    for placement, step in (placements or PLACEMENTS).items():
        rows += [f"{local},{placement},{local * step / 2},{local * step}" for local in (1, 2)]
    (folder / f"placements{suffix}.csv").write_text("\n".join(rows))
    rows = ["num_nodes,num_replicas,local_bsz,step_time,sync_time"]
    rows += [f"16,{gpus},{local},{8 * local},{local}" for gpus in (16, 32) for local in (1, 2)]
    (folder / f"scalability{suffix}.csv").write_text("\n".join(rows))
    (folder / "validation-8.csv").write_text(VALIDATION + "10,10,1,2\n30,20,1,2\n")
    (folder / "validation-32.csv").write_text(VALIDATION + "12,4,3,6\n29,9,3,6\n")


@pytest.fixture
def folder(tmp_path):
    write_model(tmp_path / "mine")
    return tmp_path


@pytest.fixture
def measured(folder):
    return read_profiles(folder)["mine"].types["aws"].measured


def test_a_model_is_read(folder):
    profile = read_profiles(folder)["mine"]
    assert (profile.init_batch, profile.max_batch) == (8, 32)
    assert profile.progress.tolist() == [10.0, 29.0]  # the least of the two files
    assert profile.batches.tolist() == [8.0, 32.0]
    assert profile.grad_sqr.tolist() == [[1.0, 3.0], [1.0, 3.0]]
    assert profile.iterations.tolist() == [[10.0, 4.0], [20.0, 9.0]]
    assert (profile.first_delay_s, profile.next_delay_s) == (30.0, 30.0)
    entry = profile.types["aws"]
    assert (entry.gpu_type, entry.min_local, entry.max_local) == ("aws", 1, 2)
    assert step_error(entry.throughput, entry.measured.observations()) < 0.25


def test_rotations_are_one_necklace_and_orders_are_not():
    assert necklace((4, 1, 3)) == necklace((1, 3, 4)) == (1, 3, 4)
    assert necklace((4, 3, 1)) == (1, 4, 3)
    assert necklace((0, 12, 0, 2)) == (2, 12)
    assert necklace(()) == ()


def test_a_measured_necklace_is_interpolated_over_the_local_batch(measured):
    assert measured.times((2, 1), 1.5) == (4.5, 2.25)
    step, sync = measured.times((0, 1, 2), np.array([1, 2]))
    assert step.tolist() == [3.0, 6.0]
    assert sync.tolist() == [1.5, 3.0]
    assert set(measured.necklaces) == {(1,), (2,), (1, 1), (1, 2), (2, 2)}


def test_a_placement_that_was_not_measured_lies_between_sizes(measured):
    step, sync = measured.times((1,) * 16, 1)
    assert (step, sync) == (8.0, 1.0)
    assert measured.times((1,) * 20 + (2,) * 6, 2) == (16.0, 2.0)  # 26 nodes count as 16; 32 GPUs
    halfway, _ = measured.times((2,) * 12, 1)  # 12 nodes, 24 GPUs: between (2, 4): 4 s and (16, 16..32): 8 s
    assert 4.0 < halfway < 8.0


def test_many_sizes_at_once_are_nan_outside_the_hull(measured):
    step, sync = measured.times_many(np.array([[2], [16]]), np.array([2, 16, 999]), 1)
    assert step.shape == sync.shape == (2, 3)
    assert step[[0, 1], [0, 1]] == pytest.approx([2.0, 8.0])
    assert np.isnan(step[:, 2]).all()
    assert np.isnan(sync[:, 2]).all()


def test_orders_of_one_size_are_averaged_for_other_placements(tmp_path):
    write_model(tmp_path / "mine", placements={"1": 1.0, "2": 2.0, "13": 3.0, "22": 5.0})
    measured = read_profiles(tmp_path)["mine"].types["aws"].measured
    assert measured.times((2, 2), 1)[0] == 5.0
    assert measured.times((1, 3), 1)[0] == 3.0
    assert measured.times_many(2, 4, 1)[0] == 4.0
    seen = measured.observations()
    assert seen.step[(seen.nodes == 2) & (seen.local == 1)].tolist() == [5.0]  # the most even one is fitted


def test_one_node_needs_no_second(tmp_path):
    """All points on one node: the number of nodes is no axis, but other numbers are refused."""
    write_model(tmp_path / "mine", placements={"1": 1.0, "4": 4.0})
    (tmp_path / "mine" / "scalability.csv").write_text(
        "num_nodes,num_replicas,local_bsz,step_time,sync_time\n1,8,1,8,1\n"
    )
    measured = read_profiles(tmp_path)["mine"].types["aws"].measured
    assert measured.times((2,), 1)[0] == pytest.approx(2.0)
    assert measured.times((6,), 1)[0] == pytest.approx(6.0)
    with pytest.raises(ProfileError, match="placement 1-1 with 1 samples"):
        measured.times((1, 1), 1)


@pytest.mark.parametrize("scalability", ["1,1,1,1,0.5", "2,2,1,2,1\n3,3,1,3,1"])
def test_points_without_volume_have_no_hull(tmp_path, scalability):
    write_model(tmp_path / "mine", placements={"1": 1.0})
    header = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
    (tmp_path / "mine" / "scalability.csv").write_text(header + scalability)
    measured = read_profiles(tmp_path)["mine"].types["aws"].measured
    assert measured.times((1,), 2)[0] == 2.0
    assert np.isnan(measured.times_many(2, 3, 1)).all()


@pytest.mark.parametrize(
    ("placement", "local", "message"),
    [
        ((2, 1), 3, "mine on aws: placement 2-1 with 3 samples a GPU lies outside the measured times"),
        ((9, 9), 1, "mine on aws: placement 9-9 with 1 samples a GPU lies outside the measured times"),
        ((1,), [1, 0.5], "mine on aws: placement 1 with 0.5 samples a GPU lies outside the measured times"),
    ],
)
def test_outside_the_measurements(measured, placement, local, message):
    with pytest.raises(ProfileError) as error:
        measured.times(placement, local)
    assert str(error.value) == message


def test_types_come_from_the_file_names(tmp_path):
    write_model(tmp_path / "yolov3", "-aws", {"1": 1.0, "2": 2.0})
    placements = (tmp_path / "yolov3" / "placements-aws.csv").read_text()
    (tmp_path / "yolov3" / "placements-a100.csv").write_text(placements + "\n16,1,1,2")
    scalability = (tmp_path / "yolov3" / "scalability-aws.csv").read_text()
    (tmp_path / "yolov3" / "scalability-a100.csv").write_text(scalability)
    types = read_profiles(tmp_path)["yolov3"].types
    assert {name: entry.max_local for name, entry in types.items()} == {"aws": 2, "dgx-ext": 16}
    assert list(read_profiles(tmp_path, "A100")["yolov3"].types) == ["dgx-ext"]
    with pytest.raises(ProfileError, match="has no measurements of GPU type rtx"):
        read_profiles(tmp_path, "rtx")


def test_plain_files_are_of_one_type_and_hold_yolov3_to_its_limit_on_t4(tmp_path):
    write_model(tmp_path / "yolov3")
    with (tmp_path / "yolov3" / "placements.csv").open("a") as file:
        file.write("\n16,1,1,2")
    assert read_profiles(tmp_path)["yolov3"].types["aws"].max_local == 8
    assert read_profiles(tmp_path, "a100")["yolov3"].types["dgx-ext"].max_local == 16


def test_models_of_another_kind_are_left_out(folder):
    write_model(folder / "gpt_pmp")
    write_model(folder / "infer")
    (folder / "notes.txt").write_text("not a model")
    assert list(read_profiles(folder)) == ["mine"]


def overwrite(name, text):
    return lambda model: (model / name).write_text(text)


def remove(*names):
    return lambda model: [(model / name).unlink() for name in names]


PLACEMENT = "placement,local_bsz,step_time,sync_time\n1,1,2,1\n"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (remove("placements.csv"), "MODEL has no file placements.csv"),
        (remove("scalability.csv"), "MODEL has no file scalability.csv"),
        (remove("validation-8.csv", "validation-32.csv"), "MODEL has no file validation-<total batch>.csv"),
        (
            overwrite("validation-x.csv", VALIDATION),
            "MODEL/validation-x.csv: the name is not validation-<total batch>.csv",
        ),
        (overwrite("validation-8.csv", VALIDATION), "MODEL/validation-8.csv has a header but no rows"),
        (
            overwrite("validation-8.csv", VALIDATION + "1,1,1,1\n"),
            "MODEL: the validation files differ in their number of epochs (8: 1, 32: 2)",
        ),
        (
            overwrite("validation-8.csv", VALIDATION + "1,1,1,1\n1,1,1,1\n"),
            "MODEL: the least progress of the validation files does not grow in row 2",
        ),
        (
            overwrite("validation-8.csv", "progress,iteration,grad_sqr\n1,1,1\n2,1,1\n"),
            "MODEL/validation-8.csv has no column grad_var, only progress, iteration, grad_sqr",
        ),
        (
            overwrite("validation-8.csv", VALIDATION + "1,1,1,1\n2,1,?,1\n"),
            "MODEL/validation-8.csv, line 3: grad_sqr is '?', expected a number",
        ),
        (
            overwrite("placements.csv", "placement,local_bsz,step_time\n1,1,2\n"),
            "MODEL/placements.csv has no column sync_time, only placement, local_bsz, step_time",
        ),
        (
            overwrite("placements.csv", PLACEMENT + "10,1,2,1\n"),
            "MODEL/placements.csv, line 3: placement is '10', expected one digit 1-9 a node",
        ),
        (
            overwrite("placements.csv", PLACEMENT + "1,two,2,1\n"),
            "MODEL/placements.csv, line 3: local_bsz is 'two', expected a number",
        ),
        (
            overwrite("placements.csv", PLACEMENT + "1,0,2,1\n"),
            "MODEL/placements.csv, line 3: local_bsz is 0, expected more than 0",
        ),
        (
            overwrite("placements.csv", PLACEMENT + "1,2,2,-1\n"),
            "MODEL/placements.csv, line 3: sync_time is -1, expected a time >= 0",
        ),
        (
            overwrite("placements.csv", PLACEMENT + "1,2,2,2\n"),
            "MODEL/placements.csv, line 3: sync_time 2 is not below step_time 2",
        ),
        (
            overwrite("scalability.csv", "num_nodes,local_bsz,step_time,sync_time\n1,1,2,1\n"),
            "MODEL/scalability.csv has no column num_replicas, only num_nodes, local_bsz, step_time, sync_time",
        ),
    ],
)
def test_bad_input_is_one_sentence(folder, spoil, message):
    spoil(folder / "mine")
    with pytest.raises(ProfileError) as error:
        read_profiles(folder)
    assert str(error.value).replace(str(folder / "mine"), "MODEL") == message


def test_a_folder_without_models(tmp_path):
    with pytest.raises(ProfileError, match="has no folder of a model"):
        read_profiles(tmp_path)
    with pytest.raises(ProfileError, match="is not a folder of profiles"):
        read_profiles(tmp_path / "missing")


def test_golden_values_of_sias_code(shared):
    golden = json.loads((shared / "reference" / "pollux_sia" / "golden_goodput.json").read_text())
    profiles = read_profiles(shared / "data" / "profiles" / "sia", "aws")
    assert golden["true_throughput"]
    assert golden["grad_stats"]
    for case in golden["true_throughput"]:
        times = profiles[case["model"]].types[case["gpu"]].measured.times(tuple(case["placement"]), case["local_bsz"])
        assert times == pytest.approx((case["step_time"], case["sync_time"]), rel=1e-6)
    for case in golden["grad_stats"]:
        statistics = profiles[case["model"]].gradients(case["epoch"], case["batch"])
        assert statistics == pytest.approx((case["sqr"], case["var"]), rel=1e-6)
    assert profiles["yolov3"].types["aws"].max_local == 16


def test_golden_values_of_deepboots_code(shared):
    golden = json.loads((shared / "reference" / "deepboot" / "golden_units.json").read_text())
    profiles = read_profiles(shared / "data" / "profiles" / "deepboot")
    assert len(golden["throughput"]) == 23
    for model, placement, local, step, sync in golden["throughput"]:
        times = profiles[model].types["aws"].measured.times(tuple(placement), local)
        assert times == pytest.approx((step, sync), rel=1e-6)
    for model, batch, epoch, sqr, var in golden["grad"]:
        assert profiles[model].gradients(epoch, batch) == pytest.approx((sqr, var), rel=1e-6)
    for model, first, second, middle, total in golden["progress"]:
        progress = profiles[model].progress
        half = progress[len(progress) // 2 - 1]
        assert [progress[0], progress[1], half, progress[-1]] == pytest.approx([first, second, middle, total], rel=1e-6)
    assert profiles["yolov3"].types["aws"].max_local == 8
    assert (profiles["imagenet"].first_delay_s, profiles["imagenet"].next_delay_s) == (35.0, 3.0)


def test_pollux_folder_agrees_with_sias_t4_files(shared):
    pollux = read_profiles(shared / "data" / "profiles" / "pollux_osdi21")
    sia = read_profiles(shared / "data" / "profiles" / "sia", "T4")
    assert list(pollux) == list(sia)
    for model in pollux:
        mine, theirs = (profiles[model].types["aws"].measured for profiles in (pollux, sia))
        assert list(mine.necklaces) == list(theirs.necklaces)
        assert np.array_equal(mine.points, theirs.points)
        assert np.array_equal(mine.values, theirs.values)
