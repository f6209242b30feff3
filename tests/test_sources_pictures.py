"""A folder of images is a source. Every image is decoded once, and errors name the file at fault."""

import zlib

import numpy as np
import pytest

from pindown import Classify, Contrast, Data, Forget
from pindown.data import ImageFolder, as_source, images
from pindown.data.images import UnreadableError
from pindown.errors import InputError
from pindown.methods.planning import plan

image = pytest.importorskip("PIL.Image")


def picture(seed=0, size=(8, 6), colours=3):
    return np.random.default_rng(seed).integers(0, 256, (*size, *([colours] if colours > 1 else [])), dtype=np.uint8)


def save(path, array, **options):
    path.parent.mkdir(exist_ok=True)
    image.fromarray(array).save(path, **options)


@pytest.fixture
def folder(tmp_path):
    for number in range(4):
        save(tmp_path / "pictures" / f"{number}.png", picture(number))
    return tmp_path / "pictures"


def write_labels(folder, *lines):
    path = folder.parent / "labels.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_images_come_as_they_are_in_any_order(folder):
    source = ImageFolder(folder)
    assert (source.n_samples, source.shape, source.files[1]) == (4, (3, 8, 6), "1.png")
    batch = source.take(np.array([3, 1]))
    expected = np.stack([picture(3), picture(1)]).transpose(0, 3, 1, 2) / 255
    np.testing.assert_allclose(batch["x"], expected, atol=1e-6)
    assert isinstance(as_source(folder), ImageFolder)


@pytest.mark.parametrize("suffix", ["png", "tiff", "npy"])
def test_lossless_kinds_of_files_give_the_same(tmp_path, suffix):
    grey = picture(0, colours=1)
    path = tmp_path / "a" / f"x.{suffix}"
    path.parent.mkdir()
    np.save(path, grey) if suffix == "npy" else image.fromarray(grey).save(path)
    np.testing.assert_allclose(ImageFolder(path.parent).take(np.array([0]))["x"][0, 0], grey / 255, atol=1e-6)


def test_jpegs_are_read(tmp_path):
    save(tmp_path / "a" / "x.JPG", np.full((8, 8, 3), 128, dtype=np.uint8), format="jpeg")
    assert abs(ImageFolder(tmp_path / "a").take(np.array([0]))["x"].mean() - 128 / 255) < 0.01


def test_sixteen_bits_palettes_and_opaque_alpha_are_read(tmp_path):
    deep = np.random.default_rng(0).integers(0, 65_536, (8, 6)).astype(np.uint16)
    save(tmp_path / "deep" / "x.png", deep)
    np.testing.assert_allclose(ImageFolder(tmp_path / "deep").take(np.array([0]))["x"][0, 0], deep / 65_535, atol=1e-5)
    flat = image.fromarray(picture()).quantize(16)
    (tmp_path / "palette").mkdir()
    flat.save(tmp_path / "palette" / "x.png")
    expected = np.asarray(flat.convert("RGB")).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(ImageFolder(tmp_path / "palette").take(np.array([0]))["x"][0], expected, atol=1e-6)
    opaque = np.dstack([picture(), np.full((8, 6), 255, dtype=np.uint8)])
    save(tmp_path / "opaque" / "x.png", opaque)
    np.testing.assert_allclose(
        ImageFolder(tmp_path / "opaque").take(np.array([0]))["x"][0], picture().transpose(2, 0, 1) / 255, atol=1e-6
    )


def test_grey_stays_grey_where_it_has_an_opacity(tmp_path):
    grey = picture(0, colours=1)
    save(tmp_path / "a" / "plain.png", grey)
    for name, opacity in (("opaque", 255), ("see-through", 51)):
        layers = np.dstack([grey, np.full((8, 6), opacity, dtype=np.uint8)])
        save(tmp_path / "a" / f"{name}.png", layers)
    source = ImageFolder(tmp_path / "a", background=1.0)
    assert source.shape == (1, 8, 6)
    opaque, plain, through = source.take(np.arange(3))["x"]
    np.testing.assert_array_equal(opaque, plain)
    np.testing.assert_allclose(through, 0.2 * plain + 0.8, atol=1e-6)


@pytest.mark.parametrize(
    ("suffix", "array"),
    [
        ("npy", np.full((4, 4), 255)),
        ("npy", np.full((4, 4), 255, dtype=np.uint32)),
        ("npy", np.full((4, 4), 1j)),
        ("npy", np.full((4, 4), "white")),
        ("npy", np.full((4, 4), 255.0)),
        ("npy", np.full((4, 4), -9, dtype=np.int16)),
        ("npy", np.array([[0.5, np.nan]])),
        ("tif", np.full((4, 4), 255, dtype=np.int32)),
        ("tif", np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)),
    ],
)
def test_numbers_without_a_value_for_white_are_unreadable(tmp_path, suffix, array):
    np.save(tmp_path / "x.npy", array) if suffix == "npy" else image.fromarray(array).save(tmp_path / "x.tif")
    with pytest.raises(UnreadableError, match=f"x.{suffix}"):
        ImageFolder(tmp_path).take(np.array([0]))
    with pytest.raises(UnreadableError):
        ImageFolder(tmp_path, skip_corrupt=True)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.full((4, 4), 16_384, dtype=np.int16), 16_384 / 32_767),
        (np.full((4, 4), True), 1.0),
        (np.full((4, 4), 1.0002), 1.0),  # rounded
        (np.full((4, 4), 0.25, dtype=np.float16), 0.25),
    ],
)
def test_numbers_that_do_are_brought_between_0_and_1(tmp_path, array, expected):
    np.save(tmp_path / "x.npy", array)
    assert ImageFolder(tmp_path).take(np.array([0]))["x"].max() == np.float32(expected)


def test_transparent_pixels_need_a_background(tmp_path):
    clear = np.dstack([picture(), np.zeros((8, 6), dtype=np.uint8)])
    save(tmp_path / "clear" / "x.png", clear)
    with pytest.raises(InputError, match="background"):
        ImageFolder(tmp_path / "clear").take(np.array([0]))
    assert (ImageFolder(tmp_path / "clear", background=1.0).take(np.array([0]))["x"] == 1).all()


def test_images_are_upright_as_the_camera_says(tmp_path):
    held = image.Exif()
    held[0x0112] = 6  # a quarter turn
    save(tmp_path / "a" / "x.png", picture(0), exif=held)
    source = ImageFolder(tmp_path / "a")
    assert source.shape == (3, 6, 8)
    expected = np.rot90(picture(0), -1).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(source.take(np.array([0]))["x"][0], expected, atol=1e-6)


def test_a_file_with_several_pages_is_unreadable(tmp_path):
    pages = [image.fromarray(picture(seed)) for seed in range(3)]
    pages[0].save(tmp_path / "stack.tif", save_all=True, append_images=pages[1:])
    with pytest.raises(UnreadableError, match=r"stack.tif"):
        ImageFolder(tmp_path)
    save(tmp_path / "x.tif", picture(0))
    assert ImageFolder(tmp_path, skip_corrupt=True).files == ("x.tif",)


@pytest.mark.parametrize("budget", [1 << 30, 8 * 6 * 3 * 2, 0], ids=["all fit", "some fit", "none fit"])
def test_images_are_decoded_once_if_they_fit_in_memory(folder, monkeypatch, budget):
    monkeypatch.setattr(images, "CACHE_BYTES", budget)
    decoded, plain = [], images._decode_image
    monkeypatch.setattr(images, "_decode_image", lambda path: decoded.append(path.name) or plain(path))
    source = ImageFolder(folder)
    assert not decoded
    first, again = (source.take(np.array([3, 0, 2, 1, 0]))["x"] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[0], plain(folder / "3.png"))
    assert len(decoded) == {1 << 30: 4, 8 * 6 * 3 * 2: 6, 0: 8}[budget]


@pytest.mark.filterwarnings("ignore")  # five steps learn nothing
def test_a_fit_decodes_every_image_once(tmp_path, monkeypatch):
    for n in range(120):
        save(tmp_path / f"{n:03}.png", picture(n))
    decoded, plain = [], images._decode_image
    monkeypatch.setattr(images, "_decode_image", lambda path: decoded.append(path.name) or plain(path))
    Contrast(2, max_iter=5, random_state=0, verbose=False).fit(ImageFolder(tmp_path), np.arange(120) // 2)
    assert len(decoded) == 120


def test_different_sizes_are_named_and_resized_on_request(folder):
    save(folder / "9.png", picture(9, (16, 12)))
    with pytest.raises(InputError, match="size"):
        ImageFolder(folder)
    source = ImageFolder(folder, size=(8, 6))
    assert source.shape == (3, 8, 6)
    small = picture(9, (16, 12)).reshape(8, 2, 6, 2, 3).mean((1, 3)).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(source.take(np.array([4]))["x"][0], small, atol=1e-5)  # a mean of four pixels


def test_grey_images_among_colour_are_named_and_converted_on_request(folder):
    save(folder / "9.png", picture(9, colours=1))
    with pytest.raises(InputError, match="channels"):
        ImageFolder(folder)
    x = ImageFolder(folder, channels=3).take(np.array([4]))["x"][0]
    assert (x[0] == x[1]).all()
    assert ImageFolder(folder, channels=1).take(np.array([0]))["x"].shape == (1, 1, 8, 6)


@pytest.mark.parametrize(
    "options",
    [
        {"channels": 4},
        {"background": 255},
        {"background": float("nan")},
        *({"size": size} for size in (8, (0, 8), (8,), (8.5, 8), "8x8")),
    ],
)
def test_bad_options_raise(folder, options):
    with pytest.raises(InputError) as error:
        ImageFolder(folder, **options)
    assert error.value.argument == next(iter(options))


@pytest.mark.parametrize("kept", [0, 30, 90])
def test_a_corrupt_file_is_named_and_left_out_on_request(folder, kept):
    (folder / "2.png").write_bytes((folder / "2.png").read_bytes()[:kept])
    with pytest.raises(UnreadableError, match=r"2\.png"):
        ImageFolder(folder).take(np.arange(4))
    source = ImageFolder(folder, skip_corrupt=True)
    assert source.files == ("0.png", "1.png", "3.png")
    assert "2.png" in source.notes[0]


def test_labels_go_with_their_images_by_name(folder):
    labels = write_labels(folder, "age,file,scanner", "4.5,3.png,b", "1.5,0.png,a", "2.5,1.png,a", "3.5,2.png,b")
    source = ImageFolder(folder, labels=labels, nuisance="scanner", signal="age", groups=["scanner", "age"])
    batch = source.take(np.array([3, 0]))
    assert batch["nuisance"].tolist() == ["b", "a"]
    assert batch["signal"].tolist() == [4.5, 1.5]
    assert source.side_variables()["groups"].shape == (4, 2)


def test_a_label_file_that_misses_some_images_is_refused(folder):
    labels = write_labels(folder, "file,scanner", "0.png,a", "1.png,b", "7.png,b")
    with pytest.raises(InputError, match=r"2\.png"):
        ImageFolder(folder, labels=labels, nuisance="scanner")
    source = ImageFolder(folder, labels=labels, nuisance="scanner", skip_unlabelled=True)
    assert source.files == ("0.png", "1.png")
    left_out, ignored = source.notes
    assert "2.png, 3.png" in left_out
    assert "7.png" in ignored


@pytest.mark.parametrize("cell", ["NA", "none", "null", "nan", "", " n/a "])
def test_a_cell_that_tables_read_as_empty_is_no_label(folder, cell):
    labels = write_labels(folder, "file,scanner", "0.png,a", f"1.png,{cell}", "2.png, b", "3.png,a")
    with pytest.raises(InputError, match=r"1\.png"):
        ImageFolder(folder, labels=labels, nuisance="scanner")
    source = ImageFolder(folder, labels=labels, nuisance="scanner", skip_unlabelled=True)
    assert source.side_variables()["nuisance"].tolist() == ["a", "b", "a"]
    assert "1.png" in source.notes[0]


def test_a_path_may_say_that_it_starts_in_the_folder(folder):
    labels = write_labels(folder, "file,scanner", *(f"./{n}.png,{n}" for n in range(4)), ",")
    source = ImageFolder(folder, labels=labels, nuisance="scanner")
    assert source.side_variables()["nuisance"].tolist() == [0, 1, 2, 3]
    assert source.notes == ()


@pytest.mark.parametrize(
    "lines",
    [
        ["file,scanner", "a.png,b"],
        ["file,scanner"],
        ["file", "0.png"],
        ["file,scanner", "0.png,a", "0.png,b"],
        ["file,scanner", "0.png,a", "1.png, ", "2.png", "3.png,b"],
        ["file,scanner", *(f"{n}.png," for n in range(4))],
        ["file,skanner", *(f"{n}.png,a" for n in range(4))],
    ],
    ids=["other images", "no lines", "no labels", "twice", "short line", "empty column", "misspelt column"],
)
def test_bad_label_files_raise(folder, lines):
    with pytest.raises(InputError) as error:
        ImageFolder(folder, labels=write_labels(folder, *lines), nuisance="scanner")
    assert error.value.argument == "labels"


def test_tables_of_offices_are_read_and_other_alphabets_are_named(folder):
    labels = write_labels(folder, "\ufefffile;scanner", *(f"{n}.png;{'ab'[n % 2]}" for n in range(4)))
    assert ImageFolder(folder, labels=labels, nuisance="scanner").side_variables()["nuisance"].tolist() == [
        "a",
        "b",
        "a",
        "b",
    ]
    labels.write_bytes("file,scanner\n0.png,nørd\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"labels.csv"):
        ImageFolder(folder, labels=labels, nuisance="scanner")


def test_images_that_are_all_equal_raise():
    black, scanner = np.zeros((60, 3, 8, 8), dtype=np.float32), np.arange(60) % 2
    for learn in (Forget(2, verbose=False).fit, lambda X, y: plan(Data(X, nuisance=y), n_components=2)):
        with pytest.raises(InputError) as error:
            learn(black, scanner)
        assert error.value.argument == "X"


def test_other_mistakes_are_named(tmp_path, folder):
    with pytest.raises(FileNotFoundError):
        ImageFolder(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty"):
        ImageFolder(tmp_path / "empty")
    with pytest.raises(InputError, match="labels"):
        ImageFolder(folder, nuisance="scanner")
    with pytest.raises(FileNotFoundError):
        ImageFolder(folder, labels=tmp_path / "none.csv")
    np.save(tmp_path / "empty" / "x.npy", np.zeros((2, 3, 4, 5)))
    with pytest.raises(UnreadableError, match=r"x.npy"):
        ImageFolder(tmp_path / "empty")


def test_an_estimator_learns_from_a_folder(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["file,scanner"]
    (tmp_path / "pictures").mkdir()
    for number in range(60):
        dark = number % 3
        array = np.full((8, 8, 3), [200, 40, 40]) if dark == 0 else np.full((8, 8, 3), [40, 40 + 160 * (dark - 1), 120])
        save(tmp_path / "pictures" / f"{number:03d}.png", (array + rng.integers(0, 40, (8, 8, 3))).astype(np.uint8))
        lines.append(f"{number:03d}.png,{'abc'[dark]}")
    source = ImageFolder(tmp_path / "pictures", labels=write_labels(tmp_path / "pictures", *lines), signal="scanner")
    classify = Classify(2, max_iter=60, random_state=0).fit(source)
    assert classify.transform(source).shape == (60, 2)
    assert classify.score(source[np.arange(60)], source.side_variables()["signal"]) > 0.9


def test_an_image_whose_header_promises_billions_of_pixels_is_refused(tmp_path):
    def chunk(kind, content):
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    header = chunk(b"IHDR", 2 * (60_000).to_bytes(4, "big") + bytes([8, 0, 0, 0, 0]))
    pixels = chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + pixels)
    with pytest.raises(UnreadableError, match="exceeds limit"):
        ImageFolder(tmp_path)
