"""CIFAR-10 as batches and as a zip, folders of images, and what is said of those that are not what they should be."""

from __future__ import annotations

import io
import re
import shutil
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.learning import Task, data, images
from emul.learning.data import DataError
from emul.scenario import load as load_scenario

RNG = np.random.default_rng(6)
BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def raises(text: str) -> Any:
    return pytest.raises(DataError, match=f"^{re.escape(text)}$")


def write_batches(folder: Path, records: int = 4) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    found = {}
    for name in BATCHES:
        found[name] = RNG.integers(0, 256, (records, 3073), dtype=np.uint8)
        found[name][:, 0] %= 10
        found[name].tofile(folder / name)
    return found


@pytest.mark.parametrize("below", ["", "cifar10", "cifar10/cifar-10-batches-bin"])
def test_binary_batches_are_read_in_their_order_and_standardised_by_channel(tmp_path: Path, below: str) -> None:
    records = write_batches(tmp_path / "set" / below)
    cifar = data.load({"set": "cifar10", "directory": str(tmp_path / "set")})
    train = np.concatenate([records[name] for name in BATCHES[:5]])
    assert np.array_equal(cifar.train_y, train[:, 0])
    assert np.array_equal(cifar.train_x, train[:, 1:].reshape(-1, 3, 32, 32))
    assert np.array_equal(cifar.test_y, records["test_batch.bin"][:, 0])
    x = cifar.inputs(cifar.test_x)
    assert x.dtype == np.float32
    for channel, (mean, std) in enumerate(zip((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), strict=True)):
        assert np.allclose(x[:, channel], (cifar.test_x[:, channel] / 255 - mean) / std, atol=1e-5)
    plain = data.load({"set": "cifar10", "directory": str(tmp_path / "set"),
                       "normalise": {"mean": 0, "std": [1, 2, 1]}})
    assert np.allclose(plain.inputs(plain.test_x)[:, 1], plain.test_x[:, 1] / 510, atol=1e-6)


def test_what_is_wrong_with_batches_is_said(tmp_path: Path) -> None:
    with raises('data set "cifar10": expected a directory with its files, in the task or in $EMUL_DATA'):
        data.load({"set": "cifar10"})
    with raises(f"{tmp_path}: expected the binary batches of CIFAR-10 (data_batch_1.bin, ...) or cifar-10-images.zip "
                "with train-labels.txt and test-labels.txt"):
        data.load({"set": "cifar10", "directory": str(tmp_path)})
    write_batches(tmp_path / "cifar10")
    spec, bad = {"set": "cifar10", "directory": str(tmp_path)}, tmp_path / "cifar10" / "data_batch_3.bin"
    bad.write_bytes(b"x" * 3074)
    with raises(f"{bad}: expected records of 3073 bytes, found 3074 bytes"):
        data.load(spec)
    bad.write_bytes(bytes([10]) + bytes(3072))
    with raises(f"{bad}: expected labels in 0..9, found 10"):
        data.load(spec)
    bad.unlink()
    text = f"{bad}: expected this file of CIFAR-10; it does not exist"
    assert data.missing(spec) == text


def test_a_wrong_number_of_channels_of_a_folder_is_found_when_it_is_read(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    write_folder(tmp_path)
    with raises('data set "images": expected 1 numbers to normalise with, one for each channel, found 3'):
        data.load({"set": "images", "directory": str(tmp_path), "normalise": {"mean": [0, 0, 0]}})


# --- with Pillow ----------------------------------------------------------------------------------------------------

def encoded(pixels: np.ndarray, suffix: str = "PNG") -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, suffix)
    return file.getvalue()


def write_folder(folder: Path, shape: tuple[int, ...] = (5, 4), kinds: tuple[str, ...] = ("train", "test"),
                 ) -> dict[str, np.ndarray]:
    """{"train/cat/3.png": its pixels}: three cats and two dogs in each part."""
    found = {}
    for kind in kinds:
        for name, count in (("cat", 3), ("dog", 2)):
            (folder / kind / name).mkdir(parents=True)
            for i in range(count):
                pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
                found[f"{kind}/{name}/{i}.png"] = pixels
                (folder / kind / name / f"{i}.png").write_bytes(encoded(pixels))
    return found


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 3)])
def test_a_folder_of_images_is_a_data_set_by_class_and_name(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    files = write_folder(tmp_path / "images", shape, ("train", "valid", "test"))
    (tmp_path / "images" / "train" / "cat" / "notes.txt").write_text("no image")
    found = data.load({"set": "images", "directory": str(tmp_path)})
    assert found.classes == 2
    assert found.train_y.tolist() == [0, 0, 0, 1, 1]
    assert found.input_shape == ((1, 5, 4) if len(shape) == 2 else (3, 5, 4))
    for part, x in (("train", found.train_x), ("test", found.test_x)):
        for i, name in enumerate(["cat/0", "cat/1", "cat/2", "dog/0", "dog/1"]):
            pixels = files[f"{part}/{name}.png"]
            assert np.array_equal(x[i], pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1))
    assert found.inputs(found.train_x).max() <= 1.0
    # a file that changes is read anew, not taken from the cache
    changed = np.zeros(shape, np.uint8)
    (tmp_path / "images" / "train" / "dog" / "1.png").write_bytes(encoded(changed))
    assert not data.load({"set": "images", "directory": str(tmp_path)}).train_x[4].any()
    task = Task({"data": {"set": "images", "directory": str(tmp_path), "held_out": 1}, "model": "logistic",
                 "solver": {"sgd": {"lr": 0.1, "steps": 1}}}, 2, 1)
    assert (task.dimension, task.samples(0)) == (2 * (5 * 4 * (1 if len(shape) == 2 else 3) + 1), 2)


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    spec, folder = {"set": "images", "directory": str(tmp_path)}, tmp_path / "images"
    folder.mkdir()
    with raises(f"{folder / 'train'}: expected a folder with a folder of images for each class; it does not exist"):
        data.load(spec)
    (folder / "train").mkdir()
    with raises(f"{folder / 'train'}: expected a folder of images for each class, found none"):
        data.load(spec)
    (folder / "train").rmdir()
    write_folder(folder)
    (folder / "test" / "cow").mkdir()
    with raises(f"{folder / 'test' / 'cow'}: expected only the classes that {folder / 'train'} has"):
        data.load(spec)
    (folder / "test" / "cow").rmdir()
    bad = folder / "train" / "dog" / "1.png"
    bad.write_bytes(encoded(np.zeros((7, 4), np.uint8)))
    with raises(f"{bad}: expected an image of 4 x 5 pixels, found 4 x 7"):
        data.load(spec)
    bad.write_bytes(b"no image")
    with pytest.raises(DataError, match=rf"^{re.escape(str(bad))}: expected an image: cannot identify image file"):
        data.load(spec)
    bad.write_bytes(encoded(np.zeros((5, 4), np.uint8))[:-20])
    with pytest.raises(DataError, match=rf"^{re.escape(str(bad))}: expected an image: "):
        data.load(spec)
    with raises(f"{folder / 'train' / 'cat' / '0.png'}: expected an image of 32 x 32 pixels, found 4 x 5"):
        data.load({"set": "cinic10", "directory": str(folder)})


def test_the_zip_gives_images_in_the_order_of_the_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    labels = {"train": [6, 0, 6, 9], "test": [0, 0]}
    with zipfile.ZipFile(tmp_path / "cifar-10-images.zip", "w") as archive:
        for kind, values in labels.items():
            (tmp_path / f"{kind}-labels.txt").write_text("".join(f"{v}\n" for v in values))
            seen: dict[int, int] = {}
            for place, label in enumerate(values):
                n = seen[label] = seen.get(label, -1) + 1
                grey = np.full((32, 32, 3), 20 * (place + 1), np.uint8)
                archive.writestr(f"{kind}/{images.CIFAR_CLASSES[label]}/{n:04d}.jpg", encoded(grey, "JPEG"))
    found = data.load({"set": "cifar10", "directory": str(tmp_path)})
    assert found.train_y.tolist() == labels["train"]
    assert np.abs(found.train_x.mean(axis=(1, 2, 3)) - [20, 40, 60, 80]).max() < 2
    assert found.test_x.shape == (2, 3, 32, 32)
    (tmp_path / "train-labels.txt").write_text("6\n0\n6\n6\n")
    with pytest.raises(DataError, match=r"cifar-10-images\.zip: expected a zip of the images of CIFAR-10: .*frog/0002"):
        data.load({"set": "cifar10", "directory": str(tmp_path)})
    (tmp_path / "train-labels.txt").write_text("6\nfrog\n")
    with pytest.raises(DataError, match=r"train-labels\.txt: expected one label a line: invalid literal"):
        data.load({"set": "cifar10", "directory": str(tmp_path)})
    (tmp_path / "train-labels.txt").write_text("6\n")
    monkeypatch.setattr(images, "MOST_BYTES", 100)
    with pytest.raises(DataError, match=r"a zip of the images of CIFAR-10: train/frog/0000\.jpg has \d+ bytes"):
        data.load({"set": "cifar10", "directory": str(tmp_path)})
    (tmp_path / "cifar-10-images.zip").write_bytes(b"no zip")
    with raises(f"{tmp_path / images.CIFAR_ZIP}: expected a zip of the images of CIFAR-10: File is not a zip file"):
        data.load({"set": "cifar10", "directory": str(tmp_path)})


def test_without_pillow_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train" / "cat").mkdir(parents=True)
    (tmp_path / "test" / "cat").mkdir(parents=True)
    for kind in ("train", "test"):
        (tmp_path / kind / "cat" / "0.png").write_bytes(b"")

    def no_module(name: str) -> Any:
        raise ImportError(name)
    monkeypatch.setattr(images.importlib, "import_module", no_module)
    with raises(f"{tmp_path}: images are read with Pillow, which is not installed: pip install 'emul[images]'"):
        data.load({"set": "images", "directory": str(tmp_path)})


@pytest.mark.slow
def test_the_real_zip_has_5000_images_of_each_class(shared_data: Path) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    cifar = data.load({"set": "cifar10", "directory": str(shared_data)})
    assert cifar.train_x.shape == (50_000, 3, 32, 32)
    assert np.bincount(cifar.train_y[:10_000]).tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert np.bincount(cifar.test_y).tolist() == [1000] * 10
    x = cifar.inputs(cifar.train_x)
    assert np.abs(x.mean(axis=(0, 2, 3))).max() < 0.02
    assert np.abs(x.std(axis=(0, 2, 3)) - 1).max() < 0.02


def write_images(folder: Path, images: dict[str, Any]) -> None:
    """{"cat/a.png": pixels or bytes}, the same in train and test."""
    for kind in ("train", "test"):
        for name, image in images.items():
            place = folder / kind / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(image if isinstance(image, bytes) else encoded(image, {"tif": "TIFF", "pgm": "PPM"}.get(
                name.rpartition(".")[2], "PNG")))


def png_of_16_bits(pixels: np.ndarray) -> bytes:
    """(height, width, 3) uint16 as a PNG, which Pillow cannot write."""
    def chunk(kind: bytes, held: bytes) -> bytes:
        return struct.pack(">I", len(held)) + kind + held + struct.pack(">I", zlib.crc32(kind + held))

    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def folder_of(folder: Path, **more: Any) -> Any:
    return data.load({"set": "images", "directory": str(folder), **more})


@pytest.mark.parametrize("name", ["a/0.png", "a/0.tif", "a/0.pgm"])
def test_images_of_16_bits_are_scaled_by_their_own_depth(tmp_path: Path, name: str) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    deep = (np.arange(20).reshape(5, 4) * 3449).astype(np.uint16)
    write_images(tmp_path, {name: deep})
    found = folder_of(tmp_path)
    assert np.array_equal(found.train_x[0, 0], deep // 256)
    assert np.allclose(found.inputs(found.train_x)[0, 0], deep / 65535, atol=1 / 255)
    write_images(tmp_path, {"a/1.png": png_of_16_bits(np.stack([deep, deep // 2, deep // 4], 2))})
    colours = folder_of(tmp_path)
    assert np.array_equal(colours.train_x[0], [deep // 256] * 3)            # a grey one among colours
    assert np.array_equal(colours.train_x[1], [deep // 256, deep // 2 // 256, deep // 4 // 256])
    assert np.array_equal(folder_of(tmp_path, channels=1).train_x[0, 0], deep // 256)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_photograph_stands_upright_however_the_camera_was_held(tmp_path: Path, kind: str) -> None:
    image, turning = (pytest.importorskip(f"PIL.{name}", reason="needs Pillow") for name in ("Image", "ImageOps"))
    seen = np.zeros((4, 6, 3), np.uint8)
    seen[:2, :3], seen[2:, :3], seen[:2, 3:] = (200, 0, 0), (0, 200, 0), (0, 0, 200)
    names = []
    for way in range(1, 9):
        how = image.Exif()
        how[0x0112] = way
        pixels = seen if way < 5 else seen.swapaxes(0, 1)       # all of them 6 wide as they are looked at
        image.fromarray(pixels).save(out := io.BytesIO(), kind, exif=how)
        names.append(f"a/{way}.{kind.lower()}")
        write_images(tmp_path, {names[-1]: out.getvalue()})
    found = folder_of(tmp_path)
    for way, name in enumerate(names, 1):
        looked_at = turning.exif_transpose(image.open(tmp_path / "train" / name)).convert("RGB")
        assert np.array_equal(found.train_x[way - 1].transpose(1, 2, 0), looked_at), way


def test_a_tiff_whose_rows_are_columns_is_refused(tmp_path: Path) -> None:
    """Pillow garbles it."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    how = image.Exif()
    how[0x0112] = 6
    image.fromarray(np.zeros((4, 4), np.uint8)).save(out := io.BytesIO(), "TIFF", exif=how)
    write_images(tmp_path, {"a/0.tif": out.getvalue()})
    with pytest.raises(DataError, match=r"0\.tif: .*: a TIFF whose rows are columns .*; save it upright$"):
        folder_of(tmp_path)


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("LA", 1), ("1", 1), ("P", 3), ("RGBA", 3), ("CMYK", 3)])
def test_modes_of_images_are_grey_or_colours(tmp_path: Path, mode: str, channels: int) -> None:
    image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    seen = np.zeros((4, 6, 3), np.uint8)
    seen[:2] = 255
    image.fromarray(seen).convert(mode).save(out := io.BytesIO(), "TIFF")
    write_images(tmp_path, {"a/0.tif": out.getvalue()})
    found = folder_of(tmp_path)
    assert found.input_shape == (channels, 4, 6)
    assert np.array_equal(found.train_x[0], [seen[..., 0]] * channels)


@pytest.mark.parametrize(("kind", "said"), [(np.float32, "found floats"), (np.int32, "found 32 bits")])
def test_pixels_whose_white_nobody_knows_are_refused(tmp_path: Path, kind: Any, said: str) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    write_images(tmp_path, {"a/0.tif": np.full((2, 2), 3, kind)})
    with pytest.raises(DataError, match=rf"^{re.escape(str(tmp_path))}/train/a/0\.tif: expected an image of 8 or 16 "
                                        f"bits a channel, {said}, "):
        folder_of(tmp_path)


def test_channels_are_those_of_all_images_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    red = np.zeros((5, 4, 3), np.uint8)
    red[..., 0] = 200
    write_images(tmp_path, {"a/0.png": red[..., 0], "b/1.png": red, "b/more/2.PNG": red, ".hidden/0.png": red,
                            "a/._0.png": b"\0\5\x16\7", "b/.more/3.png": b"none", "__MACOSX/0.png": b"none"})
    found = folder_of(tmp_path)
    assert (found.classes, found.train_y.tolist(), found.input_shape) == (2, [0, 1, 1], (3, 5, 4))
    assert found.train_x[:, :, 0, 0].tolist() == [[200] * 3, [200, 0, 0], [200, 0, 0]]
    assert folder_of(tmp_path, channels=1).input_shape == (1, 5, 4)


def test_what_a_run_refuses_of_a_folder_check_refuses(tmp_path: Path) -> None:
    pytest.importorskip("PIL", reason="needs Pillow")
    pixels = np.zeros((5, 4), np.uint8)
    write_images(tmp_path, {"a/0.png": pixels, "b/1.png": pixels})

    def wrong(said: str, **task: Any) -> None:
        with pytest.raises(ScenarioError) as found:
            small({"data": {"set": "images", "directory": str(tmp_path)}, **task})
        assert said in found.value.problems[0].expected

    small({"data": {"set": "images", "directory": str(tmp_path)}})
    wrong("mnist_classic takes samples of shape (1, 28, 28), the data have (1, 5, 4)", model="mnist_classic")
    wrong("expected 1 (grey) or 3", data={"set": "images", "directory": str(tmp_path), "channels": 2})
    (tmp_path / "train" / "c").mkdir()
    wrong(f"{tmp_path / 'train' / 'c'}: expected images")
    (tmp_path / "train" / "c").rmdir()
    (tmp_path / "test" / "c").mkdir()
    wrong(f"{tmp_path / 'test' / 'c'}: expected only the classes")
    (tmp_path / "test" / "c").rmdir()
    (tmp_path / "test" / "b" / "1.png").write_bytes(encoded(np.zeros((4, 5), np.uint8)))
    wrong("1.png: expected an image of 4 x 5 pixels, found 5 x 4")
    shutil.rmtree(tmp_path / "test")
    wrong(f"{tmp_path / 'test'}: expected a folder")


def small(task: dict[str, Any]) -> Any:
    return load_scenario({
        "emul": 1, "name": "small", "seed": 1, "topology": {"generator": "star", "clients": 2},
        "links": [{"match": "*", "latency": "1 ms"}], "compute": {"mode": "zero"}, "schemes": ["fedavg"],
        "task": {"model": "logistic", "solver": {"sgd": {"lr": 0.5, "steps": 1, "batch": 2}}, **task},
        "stop": {"rounds": 1}})
