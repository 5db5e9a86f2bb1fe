"""Checkpoints: equal after a round trip, atomic, and every kind of damage is named in one sentence."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save
from torch import nn

from agents import checkpoint as checkpoint_module
from agents.checkpoint import (
    MANIFEST,
    Checkpoint,
    CheckpointError,
    is_checkpoint,
    load_checkpoint,
    load_weights,
    optimiser_from_plain,
    optimiser_to_plain,
    save_checkpoint,
)


def make_checkpoint(seed: int = 0) -> Checkpoint:
    torch.manual_seed(seed)
    return Checkpoint(
        config={"algo": "maskable-ppo", "seed": seed, "lr": 0.1 + 0.2},
        weights={"layer.weight": torch.randn(3, 4), "layer.bias": torch.randn(3)},
        state={"num_timesteps": 640},
        tensors={"rng/torch": torch.get_rng_state(), "clock": torch.tensor(1e9 + 1e-6, dtype=torch.float64)},
    )


def file_of(folder: Path, part: str) -> Path:
    manifest = json.loads((folder / MANIFEST).read_text())
    return folder / manifest["files"][part]["file"]


def rewrite_manifest(folder: Path, **changes: object) -> None:
    """Change the manifest as a careful forger would, its own digest included."""
    manifest = json.loads((folder / MANIFEST).read_text()) | changes
    manifest.pop("sha256")
    digest = hashlib.sha256(json.dumps(manifest, indent=1, sort_keys=True).encode()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest | {"sha256": digest}, indent=1, sort_keys=True))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "step-640", make_checkpoint())
    return tmp_path / "step-640"


def assert_equal(a: Checkpoint, b: Checkpoint) -> None:
    assert (a.config, a.state) == (b.config, b.state)
    for left, right in ((a.weights, b.weights), (a.tensors, b.tensors)):
        assert left.keys() == right.keys()
        assert all(torch.equal(left[name], right[name]) and left[name].dtype == right[name].dtype for name in left)


def test_round_trip_is_exact(folder):
    assert_equal(load_checkpoint(folder), make_checkpoint())


def test_weights_are_plain_safetensors_and_config_is_plain_json(folder):
    assert torch.equal(
        load_file(file_of(folder, "weights.safetensors"))["layer.bias"], make_checkpoint().weights["layer.bias"]
    )
    assert json.loads(file_of(folder, "config.json").read_text())["lr"] == 0.1 + 0.2


def test_saving_again_replaces_and_leaves_no_old_files(folder):
    save_checkpoint(folder, make_checkpoint(seed=1))
    assert_equal(load_checkpoint(folder), make_checkpoint(seed=1))
    assert len(list(folder.iterdir())) == 5


@pytest.mark.parametrize("written", range(5))
def test_a_crash_while_saving_leaves_the_old_checkpoint(folder, monkeypatch, written):
    """The save dies after ``written`` of its five files, the last of them half written."""
    real, count = checkpoint_module._write_durably, iter(range(99))

    def write(path: Path, data: bytes) -> None:
        if next(count) == written:
            path.with_name(f"{path.name}.partial").write_bytes(data[: len(data) // 2])
            raise KeyboardInterrupt
        real(path, data)

    monkeypatch.setattr(checkpoint_module, "_write_durably", write)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(folder, make_checkpoint(seed=1))
    assert_equal(load_checkpoint(folder), make_checkpoint())
    monkeypatch.undo()
    save_checkpoint(folder, make_checkpoint(seed=1))
    assert_equal(load_checkpoint(folder), make_checkpoint(seed=1))
    assert len(list(folder.iterdir())) == 5


def test_a_crash_in_a_new_folder_leaves_no_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path / "new", make_checkpoint())
    assert not is_checkpoint(tmp_path / "new")


@pytest.mark.parametrize("part", ["config.json", "weights.safetensors", "state.json", "state.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "altered", "missing"])
def test_damaged_files_are_named(folder, part, damage):
    path = file_of(folder, part)
    data = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(data[:-1])
    elif damage == "altered":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        path.unlink()
    with pytest.raises(CheckpointError, match=re.escape(part)) as error:
        load_checkpoint(folder)
    assert "\n" not in str(error.value)


def test_an_altered_manifest_is_noticed(folder):
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace('"bytes": ', '"bytes": 1'))
    with pytest.raises(CheckpointError, match=r"manifest\.json was altered"):
        load_checkpoint(folder)


def test_a_half_manifest_is_noticed(folder):
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:100])
    with pytest.raises(CheckpointError, match="not JSON"):
        load_checkpoint(folder)


def test_foreign_folders_files_and_schemas(folder, tmp_path):
    with pytest.raises(CheckpointError, match="no such folder"):
        load_checkpoint(tmp_path / "absent")
    (tmp_path / "model.zip").write_bytes(b"PK")
    with pytest.raises(CheckpointError, match="a file, not a folder"):
        load_checkpoint(tmp_path / "model.zip")
    with pytest.raises(CheckpointError, match=r"no manifest\.json"):
        load_checkpoint(tmp_path)
    rewrite_manifest(folder, schema=2)
    with pytest.raises(CheckpointError, match="schema 2"):
        load_checkpoint(folder)
    rewrite_manifest(folder, format="another")
    with pytest.raises(CheckpointError, match="not a Musher checkpoint"):
        load_checkpoint(folder)


def test_pickled_weights_are_refused_and_not_executed(folder, tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "executed",))

    path = file_of(folder, "weights.safetensors")
    data = pickle.dumps(Trap())
    path.write_bytes(data)
    files = json.loads((folder / MANIFEST).read_text())["files"]
    files["weights.safetensors"] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    rewrite_manifest(folder, files=files)
    with pytest.raises(CheckpointError, match="not safetensors"):
        load_checkpoint(folder)
    assert not (tmp_path / "executed").exists()


def test_a_manifest_cannot_point_out_of_its_folder(folder, tmp_path):
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(save({"layer.weight": torch.zeros(1)}))
    files = json.loads((folder / MANIFEST).read_text())["files"]
    files["weights.safetensors"]["file"] = "../outside.safetensors"
    rewrite_manifest(folder, files=files)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(folder)


def test_weights_of_another_network_are_refused(folder):
    weights = {f"0.{name.split('.')[1]}": tensor for name, tensor in load_checkpoint(folder).weights.items()}
    load_weights(nn.Sequential(nn.Linear(4, 3)), weights, folder)
    with pytest.raises(CheckpointError, match=r"0\.bias is float32 \(3,\), but this network needs float32 \(5,\)"):
        load_weights(nn.Sequential(nn.Linear(4, 5)), weights, folder)
    with pytest.raises(CheckpointError, match=r"lacks tensor 1\.bias"):
        load_weights(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1)), weights, folder)
    with pytest.raises(CheckpointError, match=r"unknown tensor 0\.bias"):
        load_weights(nn.Sequential(nn.Linear(4, 3, bias=False)), weights, folder)
    with pytest.raises(CheckpointError, match="float32"):
        load_weights(nn.Sequential(nn.Linear(4, 3).double()), weights, folder)


@pytest.mark.parametrize("optimiser_class", [torch.optim.Adam, torch.optim.RMSprop])
def test_a_restored_optimiser_takes_the_same_steps(tmp_path, optimiser_class):
    def step(layer: nn.Linear, optimiser: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
        optimiser.zero_grad()
        layer(inputs).square().sum().backward()
        optimiser.step()

    torch.manual_seed(0)
    layer, inputs = nn.Linear(3, 2), torch.randn(4, 3)
    optimiser = optimiser_class(layer.parameters(), lr=0.01)
    step(layer, optimiser, inputs)
    groups, tensors = optimiser_to_plain(optimiser)
    save_checkpoint(tmp_path, Checkpoint({}, dict(layer.state_dict()), {"groups": groups}, tensors))

    loaded = load_checkpoint(tmp_path)
    copy = nn.Linear(3, 2)
    load_weights(copy, loaded.weights, tmp_path)
    copied = optimiser_class(copy.parameters(), lr=0.5)
    optimiser_from_plain(copied, loaded.state["groups"], loaded.tensors)
    for _ in range(3):
        step(layer, optimiser, inputs)
        step(copy, copied, inputs)
    assert torch.equal(layer.weight, copy.weight)
