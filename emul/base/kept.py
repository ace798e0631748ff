"""Files that a run leaves beside its record: arrays that nodes keep, and their last models.

    artefacts/<node>/<name>.npy         NumPy's format, without pickle
    models/<node>.safetensors           float32 tensors by their names in the model; one key of metadata
    models/round-<n>/<node>.safetensors the same, as it was in round n

Names of nodes and arrays are names of files as `emul.base.files.as_file_name` makes them.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emul.base.errors import InputError
from emul.base.files import as_file_name, from_file_name, write_atomically

ARTEFACTS, MODELS = "artefacts", "models"
_ROUND = "round-"
_METADATA = "emul"                  # one key: the order of several is not the same twice


class KeptError(InputError):
    """An array cannot be kept, or a file of one is not what emul wrote; the text says which."""


@dataclass(frozen=True)
class KeptModel:
    """The last parameters that a node reported. `tensors` in the order of the vector that it reported."""

    node: str
    round: int
    digest: str                         # of the vector, as in the journal's `report` row
    tensors: Mapping[str, np.ndarray]
    by: str = ""                        # its evaluation in the run: `emul.workers.evaluations.how`

    def vector(self) -> np.ndarray:
        """(d,) float32, as it was reported."""
        parts = [tensor.reshape(-1) for tensor in self.tensors.values()]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def array_bytes(array: object) -> bytes:
    """An array as NumPy's file. Raises KeptError for what is none of plain numbers or text of fixed length."""
    found = np.asarray(array)
    if found.dtype.hasobject:
        raise KeptError(f"an array of {type(array).__name__} objects cannot be kept: plain numbers only")
    out = io.BytesIO()
    np.lib.format.write_array(out, found, allow_pickle=False)
    return out.getvalue()


def write_array(directory: Path, node: str, name: str, content: bytes) -> None:
    """Leave what `array_bytes` gave, whole or not at all; in place of what was there under this name."""
    file = array_file(directory, node, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as path:
        path.write_bytes(content)


def array_file(directory: Path, node: str, name: str) -> Path:
    """The file of an array that `node` kept."""
    return directory / ARTEFACTS / as_file_name(node) / f"{as_file_name(name)}.npy"


def read_array(directory: Path, node: str, name: str) -> np.ndarray:
    """An array that `node` kept. Raises KeptError: there is none, or its file is damaged."""
    path = array_file(directory, node, name)
    if path.exists() and not path.is_file():            # to open a pipe would wait for ever
        raise KeptError(f"{path}: expected a regular file")
    try:
        with path.open("rb") as file:
            # Its header and its length are looked at first: of one changed byte NumPy makes a header of 660 MB, which
            # it reads, or an array that it makes room for.
            if (version := np.lib.format.read_magic(file)) != (1, 0):
                raise ValueError(f"version {version[0]}.{version[1]} of NumPy's format, expected 1.0")
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            expected = file.tell() + math.prod(shape) * dtype.itemsize
            if (size := os.fstat(file.fileno()).st_size) != expected:
                raise ValueError(f"{size:,} bytes, expected {expected:,}")
            file.seek(0)
            array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise KeptError(f"{path}: {node} kept no array {name!r}") from None
    except Exception as e:      # NumPy lets out what its parser makes of a garbled header: SyntaxError, TokenError, ...
        raise KeptError(f"{path}: no array: {' '.join(str(e).split())[:200]}") from None
    return array


def model_file(directory: Path, node: str, round_: int | None = None) -> Path:
    """The file of a node's model: the last one, or that of a round."""
    folder = directory / MODELS if round_ is None else directory / MODELS / f"{_ROUND}{round_}"
    return folder / f"{as_file_name(node)}.safetensors"


def write_model(directory: Path, model: KeptModel, round_: int | None = None) -> None:
    """Leave a node's model, whole or not at all: its last, or that of a round."""
    from safetensors.numpy import save

    file = model_file(directory, model.node, round_)
    file.parent.mkdir(parents=True, exist_ok=True)
    told = {"round": model.round, "digest": model.digest, "order": list(model.tensors), "by": model.by}
    content = save({name: np.ascontiguousarray(t) for name, t in model.tensors.items()}, {_METADATA: json.dumps(told)})
    with write_atomically(file) as path:
        path.write_bytes(content)


def read_model(directory: Path, node: str, round_: int | None = None) -> KeptModel:
    """The model that `node` left: its last, or that of a round. Raises KeptError: there is none, its file is damaged,
    or is another vector's."""
    from safetensors import SafetensorError, safe_open

    path = model_file(directory, node, round_)
    if round_ is None and not path.is_file() and (rounds := model_rounds(directory, node)):
        path = model_file(directory, node, rounds[-1])      # of a run that has not come to its end
    if not path.is_file():
        raise KeptError(f"{path}: {node} left no model{'' if round_ is None else f' of round {round_}'}")
    try:
        with safe_open(path, "numpy") as file:
            told = json.loads((file.metadata() or {})[_METADATA])
            found = KeptModel(node, int(told["round"]), str(told["digest"]),
                              {name: file.get_tensor(name) for name in told["order"]}, str(told.get("by", "")))
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as e:
        raise KeptError(f"{path}: no model of emul: {' '.join(str(e).split())[:200]}") from None
    if digest_of(found.vector()) != found.digest:
        raise KeptError(f"{path}: the model has not the digest {found.digest} that it was written with")
    return found


def digest_of(vector: np.ndarray) -> str:
    """Of (d,) float32, C order: what a `report` row has."""
    return hashlib.sha256(vector.data).hexdigest()


def models(directory: Path) -> list[str]:
    """The nodes that left a model, by name: a last one, or one of a round."""
    files = (path for pattern in ("*.safetensors", f"{_ROUND}*/*.safetensors")
             for path in (directory / MODELS).glob(pattern))
    return sorted({from_file_name(path.stem) for path in files})


def model_rounds(directory: Path, node: str) -> list[int]:
    """The rounds of which a model of `node` is kept beside its last."""
    found = (path.parent.name.removeprefix(_ROUND)
             for path in (directory / MODELS).glob(f"{_ROUND}*/{glob.escape(as_file_name(node))}.safetensors"))
    return sorted(int(number) for number in found if number.isdecimal())


def artefacts(directory: Path) -> dict[str, list[str]]:
    """node -> names of the arrays that it kept."""
    found: dict[str, list[str]] = {}
    for path in (directory / ARTEFACTS).glob("*/*.npy"):
        found.setdefault(from_file_name(path.parent.name), []).append(from_file_name(path.stem))
    return {node: sorted(names) for node, names in sorted(found.items())}
