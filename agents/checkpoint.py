"""Checkpoints: JSON and safetensors in a folder, committed by one atomic rename, loaded without pickle.

A checkpoint is a folder with ``manifest.json``, which names every other file with its size and
sha256. New files are written beside old ones under names that carry their digest, flushed to disk,
and only then does the new manifest replace the old one (``os.replace``): at every instant the folder
holds one whole checkpoint or none. Loading reads JSON and safetensors and executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

FORMAT = "musher-checkpoint"
SCHEMA = 1
MANIFEST = "manifest.json"
PARTIAL = ".partial"
PARTS = ("config.json", "weights.safetensors", "state.json", "state.safetensors")


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message is one sentence naming the folder and the reason."""


@dataclass(frozen=True)
class Checkpoint:
    """What one folder holds; ``state`` and ``tensors`` are empty in a checkpoint that cannot be resumed."""

    config: dict[str, Any]
    """How to build the policy, and what it was trained on."""
    weights: dict[str, Tensor]
    """Parameters of the network by name."""
    state: dict[str, Any] = field(default_factory=dict)
    """Counters, schedules and other plain values of the training state."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """Optimiser moments, random generators, environments."""


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint`` to ``folder``, replacing what checkpoint it holds; atomic and durable."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = (
        _to_json(checkpoint.config),
        _to_safetensors(checkpoint.weights),
        _to_json(checkpoint.state),
        _to_safetensors(checkpoint.tensors),
    )
    files: dict[str, dict[str, Any]] = {}
    for name, data in zip(PARTS, contents, strict=True):
        digest = hashlib.sha256(data).hexdigest()
        stem, suffix = name.split(".")
        files[name] = {"file": f"{stem}-{digest[:12]}.{suffix}", "bytes": len(data), "sha256": digest}
        _write_durably(folder / files[name]["file"], data)
    manifest = {"format": FORMAT, "schema": SCHEMA, "files": files}
    _write_durably(folder / MANIFEST, _to_json({**manifest, "sha256": _digest(manifest)}))
    _remove_others(folder, keep={entry["file"] for entry in files.values()})


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint after checking every file against the manifest.

    Raises :class:`CheckpointError` for anything missing, truncated, altered, foreign or of another schema.
    """
    files = _read_manifest(folder)
    config, weights, state, tensors = ((name, _read_checked(folder, name, files[name])) for name in PARTS)
    return Checkpoint(
        config=_from_json(folder, *config),
        weights=_from_safetensors(folder, *weights),
        state=_from_json(folder, *state),
        tensors=_from_safetensors(folder, *tensors),
    )


def load_weights(module: nn.Module, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Copy ``weights`` into ``module``, which must have the same names, shapes and dtypes."""
    expected = module.state_dict()
    for name in sorted(expected.keys() | weights.keys()):
        if name not in weights or name not in expected:
            which = "lacks" if name not in weights else "has an unknown"
            raise CheckpointError(f"checkpoint {folder} {which} tensor {name}: it belongs to another network")
        want, got = expected[name], weights[name]
        if want.shape != got.shape or want.dtype != got.dtype:
            raise CheckpointError(
                f"checkpoint {folder}: tensor {name} is {_kind(got)}, but this network needs {_kind(want)}"
            )
    module.load_state_dict(dict(weights))


def is_checkpoint(folder: Path) -> bool:
    """Whether a finished checkpoint lies here (its files are not checked)."""
    return (folder / MANIFEST).is_file()


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _to_json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, allow_nan=False).encode()


def _to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: t.detach().cpu().contiguous() for name, t in tensors.items()})


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(_to_json(manifest)).hexdigest()


def _write_durably(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` whole or not at all, and on the disk before anything that follows."""
    partial = path.with_name(f"{path.name}{PARTIAL}")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_others(folder: Path, keep: Iterable[str]) -> None:
    """Delete what earlier or interrupted saves left behind."""
    kept = set(keep)
    for pattern in ("config-*", "weights-*", "state-*", f"*{PARTIAL}"):
        for path in folder.glob(pattern):
            if path.name not in kept:
                path.unlink()


def _read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """The manifest's entries, one for each of the four parts."""
    if not folder.is_dir():
        raise CheckpointError(f"checkpoint {folder}: {'a file, not a folder' if folder.exists() else 'no such folder'}")
    if not is_checkpoint(folder):
        raise CheckpointError(f"{folder} is not a checkpoint: it has no {MANIFEST}")
    manifest = _from_json(folder, MANIFEST, (folder / MANIFEST).read_bytes())
    if manifest.get("format") != FORMAT:
        raise CheckpointError(f"{folder} is not a Musher checkpoint: {MANIFEST} does not say format {FORMAT}")
    if manifest.get("schema") != SCHEMA:
        raise CheckpointError(
            f"checkpoint {folder} has schema {manifest.get('schema')!r}, but this version of Musher reads {SCHEMA}"
        )
    recorded = manifest.pop("sha256", None)
    entries: dict[str, dict[str, Any]] = manifest.get("files", {})
    if recorded != _digest(manifest) or entries.keys() != set(PARTS):
        raise CheckpointError(f"checkpoint {folder} is damaged: {MANIFEST} was altered")
    return entries


def _read_checked(folder: Path, name: str, entry: Mapping[str, Any]) -> bytes:
    path = folder / Path(entry["file"]).name  # a name, never a path out of the folder
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} cannot be read ({error.strerror})") from None
    if len(data) != entry["bytes"]:
        raise CheckpointError(
            f"checkpoint {folder} is damaged: {name} has {len(data)} bytes, the manifest says {entry['bytes']}"
        )
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise CheckpointError(f"checkpoint {folder} is damaged: the sha256 of {name} is not the manifest's")
    return data


def _from_json(folder: Path, name: str, data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} is not JSON") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} is not a JSON object")
    return value


def _from_safetensors(folder: Path, name: str, data: bytes) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(data)
    except SafetensorError as error:
        raise CheckpointError(f"checkpoint {folder} is damaged: {name} is not safetensors ({error})") from None
    return tensors


def optimiser_to_plain(optimiser: torch.optim.Optimizer) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """Parameter groups as JSON values, and the moments as tensors named ``optimiser/<parameter>/<moment>``."""
    state = optimiser.state_dict()
    tensors = {f"optimiser/{i}/{key}": value for i, slot in state["state"].items() for key, value in slot.items()}
    return state["param_groups"], tensors


def optimiser_from_plain(
    optimiser: torch.optim.Optimizer, groups: list[dict[str, Any]], tensors: Mapping[str, Tensor]
) -> None:
    """Undo :func:`optimiser_to_plain`."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser/"):
            _, index, key = name.split("/")
            # A copy, since tensors in a loaded file are not aligned as torch's own are, and sums round accordingly.
            state.setdefault(int(index), {})[key] = value.clone()
    groups = [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in groups]
    optimiser.load_state_dict({"state": state, "param_groups": groups})
