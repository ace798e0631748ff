import gzip
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest

from emul.learning import data, own_data
from emul.learning.data import DataError, DataSet, read_idx
from emul.learning.names import DATA

RNG = np.random.default_rng(5)
FILES = {"train-images-idx3-ubyte": RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8),
         "train-labels-idx1-ubyte": RNG.integers(0, 10, 30, dtype=np.uint8),
         "t10k-images-idx3-ubyte": RNG.integers(0, 256, (20, 28, 28), dtype=np.uint8),
         "t10k-labels-idx1-ubyte": RNG.integers(0, 10, 20, dtype=np.uint8)}


def idx(array: np.ndarray) -> bytes:
    """The IDX format as its description says: 0, 0, type, dimensions, sizes big-endian, values."""
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_set(folder: Path, compress: bool, files: dict[str, np.ndarray] = FILES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, array in files.items():
        if compress:
            (folder / f"{stem}.gz").write_bytes(gzip.compress(idx(array), 1))
        else:
            (folder / stem).write_bytes(idx(array))
    return folder


def standardised(raw: np.ndarray, scale: float, mean: float, std: float) -> np.ndarray:
    """(byte / scale - mean) / std, rounded to float32 after each operation."""
    return (raw.astype(np.float32) / np.float32(scale) - np.float32(mean)) / np.float32(std)


def raises(text: str):
    return pytest.raises(DataError, match=f"^{re.escape(text)}$")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "emul" / "data"


def test_digits_are_the_1797_images_of_sklearn_standardised():
    load_digits = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits
    bunch = load_digits()
    digits = data.load({"set": "digits"})
    assert digits.input_shape == (1, 8, 8)
    assert (len(digits.train_y), len(digits.test_y), digits.classes) == (1500, 297, 10)
    x = digits.inputs(np.concatenate([digits.train_x, digits.test_x]))
    y = np.concatenate([digits.train_y, digits.test_y])
    assert x.dtype == np.float32

    def rows(images, labels):
        return sorted((int(label), image.tobytes()) for image, label in zip(images, labels, strict=True))
    assert rows(x[:, 0], y) == rows(standardised(bunch.images, 16, 0.3053, 0.3763), bunch.target)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("subfolder", ["", "mnist"])
@pytest.mark.usefixtures("cache")
def test_idx_files_are_read_plain_and_compressed_from_the_folder_or_the_one_above(tmp_path, compress, subfolder):
    write_set(tmp_path / "set" / subfolder, compress)
    mnist = data.load({"set": "mnist", "directory": str(tmp_path / "set")})
    np.testing.assert_array_equal(mnist.train_x[:, 0], FILES["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(mnist.test_y, FILES["t10k-labels-idx1-ubyte"])
    assert mnist.input_shape == (1, 28, 28)
    np.testing.assert_array_equal(mnist.inputs(mnist.test_x)[:, 0],
                                  standardised(FILES["t10k-images-idx3-ubyte"], 255, 0.1307, 0.3081))


@pytest.mark.usefixtures("cache")
def test_the_directory_may_come_from_the_environment(tmp_path, monkeypatch):
    write_set(tmp_path / "fashion-mnist", True)
    monkeypatch.setenv("EMUL_DATA", str(tmp_path))
    assert len(data.load({"set": "fashion-mnist", "directory": None}).train_y) == 30


def test_without_a_directory_the_message_says_where_to_put_one():
    with raises('data set "mnist": expected a directory with its IDX files, in the task or in $EMUL_DATA'):
        data.load({"set": "mnist"})


def test_a_missing_file_is_named(tmp_path):
    write_set(tmp_path, True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    text = (f"{tmp_path / 't10k-labels-idx1-ubyte'}: expected this IDX file, plain or as t10k-labels-idx1-ubyte.gz; "
            "it does not exist")
    with raises(text):
        data.load({"set": "mnist", "directory": str(tmp_path)})
    assert data.missing({"set": "mnist", "directory": str(tmp_path)}) == text


def test_the_folder_of_the_other_set_is_refused_since_the_file_names_are_the_same(tmp_path):
    folder = write_set(tmp_path / "mnist", True)
    with raises(f'{folder}: expected the folder of data set "fashion-mnist", found that of "mnist"'):
        data.load({"set": "fashion-mnist", "directory": str(folder)})


@pytest.mark.parametrize(("raw", "expectation"), [
    (idx(np.zeros((3, 2, 2), np.uint8))[:-1], "expected 12 bytes for 3 x 2 x 2 values, found 11 bytes"),
    (idx(np.zeros((3, 2, 2), np.uint8)) + b"x", "expected 12 bytes for 3 x 2 x 2 values, found more"),
    (idx(np.zeros((3, 2, 2), np.uint8))[:9], "expected 3 dimensions of 4 bytes after the magic number, found 5 bytes"),
    (idx(np.zeros(3, np.uint8)), "expected an IDX file of unsigned bytes in 3 dimensions (it starts with 00000803), "
                                 "found 00000801"),
    (b"", "expected an IDX file of unsigned bytes in 3 dimensions (it starts with 00000803), found an empty file"),
    (b"\0\0\x08\x03" + b"\xff" * 12, f"expected {(2**32 - 1) ** 3} bytes for 4294967295 x 4294967295 x 4294967295 "
                                     "values, found 0 bytes"),
])
def test_a_garbled_idx_file_is_refused_by_name(tmp_path, raw, expectation):
    for path, content in ((tmp_path / "f", raw), (tmp_path / "f.gz", gzip.compress(raw))):
        path.write_bytes(content)
        with raises(f"{path}: {expectation}"):
            read_idx(path, 3)


def test_a_truncated_gzip_file_is_refused_by_name(tmp_path):
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(idx(RNG.integers(0, 256, (30, 9, 9), dtype=np.uint8)))[:-300])
    with raises(f"{path}: expected a readable gzip IDX file: "
                "Compressed file ended before the end-of-stream marker was reached"):
        read_idx(path, 3)
    path.write_bytes(b"no gzip at all")
    with raises(f"{path}: expected a readable gzip IDX file: Not a gzipped file (b'no')"):
        read_idx(path, 3)


def test_labels_that_do_not_fit_are_refused(tmp_path):
    write_set(tmp_path, False, FILES | {"train-labels-idx1-ubyte": np.zeros(29, np.uint8)})
    with raises(f"{tmp_path / 'train-labels-idx1-ubyte'}: expected 30 labels, as many as images in "
                "train-images-idx3-ubyte, found 29"):
        data.load({"set": "mnist", "directory": str(tmp_path)})
    write_set(tmp_path, False, FILES | {"train-labels-idx1-ubyte": np.full(30, 10, np.uint8)})
    with raises(f"{tmp_path / 'train-labels-idx1-ubyte'}: expected labels in 0..9, found 10"):
        data.load({"set": "mnist", "directory": str(tmp_path)})


def test_arrays_are_decoded_once_and_then_mapped_read_only(tmp_path, cache, monkeypatch):
    spec = {"set": "mnist", "directory": str(write_set(tmp_path / "set", True))}
    first = data.load(spec)
    assert len(list(cache.iterdir())) == 4
    monkeypatch.setattr(data, "read_idx", None)                     # a second decoding would fail
    second = data.load(spec)
    np.testing.assert_array_equal(first.train_x, second.train_x)
    base = second.train_x
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        second.train_x[0] = 0


def test_a_changed_source_is_decoded_anew(tmp_path, cache):
    folder = write_set(tmp_path / "set", False)
    spec = {"set": "mnist", "directory": str(folder)}
    before = data.load(spec).train_y.copy()
    write_set(folder, False, FILES | {"train-labels-idx1-ubyte": 9 - FILES["train-labels-idx1-ubyte"]})
    os.utime(folder / "train-labels-idx1-ubyte", ns=(1, 1))
    np.testing.assert_array_equal(data.load(spec).train_y, 9 - before)


@pytest.mark.parametrize("breakage", ["cut", "header", "empty", "labels", "gone"])
def test_a_broken_cache_file_is_rebuilt(tmp_path, cache, breakage):
    spec = {"set": "mnist", "directory": str(write_set(tmp_path / "set", True))}
    whole = data.load(spec).train_y.copy()
    path, = cache.glob("*-train_y.npy")
    raw = path.read_bytes()
    path.unlink()                                                   # `whole`'s process may still map the old file
    if breakage != "gone":
        path.write_bytes({"cut": raw[:-1], "header": raw[:8] + b"{{{{" + raw[12:], "empty": b"",
                          "labels": raw[:-1] + b"\xff"}[breakage])
    np.testing.assert_array_equal(data.load(spec).train_y, whole)
    assert path.read_bytes() == raw
    assert not [p for p in cache.iterdir() if p.name.startswith(".")]


def test_without_a_place_for_the_cache_the_set_is_still_loaded(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))    # no folder can be made below a file
    spec = {"set": "mnist", "directory": str(write_set(tmp_path / "set", True))}
    assert len(data.load(spec).train_y) == 30
    assert "cannot cache data set mnist, every process keeps its own copy" in caplog.text


def test_inputs_are_scaled_then_normalised():
    raw = np.array([[0, 51, 255]], np.uint8)
    zero = np.zeros(1, np.uint8)
    got = DataSet("x", raw, zero, raw, zero, classes=1, scale=255.0, mean=0.5, std=0.25).inputs(raw)
    np.testing.assert_allclose(got, [[-2.0, -1.2, 2.0]], rtol=1e-6)


def test_a_scenario_may_normalise_otherwise_or_not_at_all():
    def inputs(**spec):
        digits = data.load({"set": "digits", **spec})
        return digits.inputs(digits.test_x)
    pixels = inputs(normalise={"mean": 0, "std": 1})
    np.testing.assert_array_equal(pixels, data.load({"set": "digits"}).test_x / 16)     # exact: 16 is a power of 2
    np.testing.assert_array_equal(inputs(normalise={"mean": 0.5, "std": 2.0}), (pixels - 0.5) / 2)
    for usual in (inputs(), inputs(normalise=None)):
        np.testing.assert_array_equal(usual, standardised(pixels, 1, 0.3053, 0.3763))


def assert_standardised_by_its_own_training_images(spec):
    known, images = data.BUILT_IN[spec["set"]], data.load(spec).train_x
    assert len(images) == known.samples
    counts = sum(np.bincount(part.ravel(), minlength=256) for part in np.array_split(images, 60))   # int64: by parts
    values = np.arange(256) / known.scale
    mean = counts @ values / images.size
    std = np.sqrt(counts @ (values - mean) ** 2 / images.size)
    assert (known.mean, known.std) == (round(float(mean), 4), round(float(std), 4))


def test_the_constants_of_digits_are_the_mean_and_std_of_its_training_images():
    assert_standardised_by_its_own_training_images({"set": "digits"})


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_constants_of_the_real_sets_are_the_mean_and_std_of_their_training_images(shared_data, name):
    assert_standardised_by_its_own_training_images({"set": name, "directory": str(shared_data)})


def test_a_data_set_of_the_user_is_checked(monkeypatch):
    x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 2, 0])
    given = {"train_x": x, "train_y": y, "test_x": x, "test_y": y}
    monkeypatch.setattr(own_data, "find", lambda kind, name, plugins: (lambda spec: given) if kind is DATA else None)
    mine = data.load({"set": "mine"})
    assert (mine.classes, mine.input_shape) == (3, (3,))
    assert (mine.scale, mine.mean, mine.std) == (1.0, 0.0, 1.0)         # only built-in sets are standardised
    x[0] = 7                                                        # the user's own array stays writable
    given["test_y"] = y[:3]
    with raises('data set "mine": expected one target per test sample, found 4 samples in test_x, targets of shape '
                "(3,)"):
        data.load({"set": "mine"})
    del given["test_y"]
    with raises('data set "mine": expected the arrays train_x, train_y, test_x, test_y, test_y not given'):
        data.load({"set": "mine"})


def test_an_unknown_data_set_is_answered_with_the_nearest():
    with raises('unknown data set "fashion_mnist"; did you mean "fashion-mnist"?'):
        data.load({"set": "fashion_mnist"})


@pytest.mark.parametrize(("name", "train", "test"), [
    ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
     [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]),
    ("fashion-mnist", [6000] * 10, [1000] * 10)])
def test_the_real_sets_have_their_published_class_counts(shared_data, name, train, test):
    got = data.load({"set": name, "directory": str(shared_data)})
    assert np.bincount(got.train_y).tolist() == train
    assert np.bincount(got.test_y).tolist() == test
    assert got.train_x.shape == (60000, 1, 28, 28)
