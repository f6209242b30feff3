"""Official image files, in small: the same layout, made here, read row by row."""

import os
import pickle

import h5py
import numpy as np
import pytest
from pindown_papers import packed
from pindown_papers.image_sets import MPI3D, Cars3D, DSprites, KittiMasks, Shapes3D, SmallNORB, ThreeDIdent, in_order
from scipy.io import savemat

image = pytest.importorskip("PIL.Image")
RNG = np.random.default_rng(0)


def bytes_of(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def check(source, pictures, labels):
    """Rows come in any order, as (c, h, w) from 0 to 1, with their labels."""
    pictures = pictures[..., None] if pictures.ndim == 3 else pictures
    rows = np.array([source.n_samples - 1, 0, 2, 0])
    batch = source.take(rows)
    assert batch["x"].dtype == np.float32
    assert batch["x"].shape[1:] == source.shape
    np.testing.assert_allclose(batch["x"], np.moveaxis(pictures[rows], -1, 1) / 255, atol=1e-6)
    np.testing.assert_array_equal(batch["truth"], labels[rows])
    np.testing.assert_array_equal(source.side_variables()["truth"], labels)
    assert len(source.factors) == labels.shape[1]


@pytest.fixture
def dsprites(tmp_path):
    sizes = (1, 3, 2, 2, 2, 2)
    arrays = {"imgs": bytes_of(48, 8, 8) % 2, "latents_classes": in_order(sizes), "latents_values": np.zeros((48, 6))}
    arrays["metadata"] = np.array({"author": "pickled"}, dtype=object)
    np.savez_compressed(tmp_path / "dsprites.npz", **arrays)
    return tmp_path / "dsprites.npz", arrays


def test_dsprites(dsprites, tmp_path):
    path, arrays = dsprites
    for unpacked in (None, tmp_path / "imgs.npy", tmp_path / "imgs.npy"):
        source = DSprites(path, unpacked=unpacked, roles={"signal": "shape", "nuisance": "x"})
        check(source, arrays["imgs"] * 255, arrays["latents_classes"])
        assert isinstance(source.pictures, np.memmap) == (unpacked is not None)
    assert source.take(np.array([20]))["signal"].tolist() == [arrays["latents_classes"][20, 1]]
    assert sorted(os.listdir(tmp_path)) == ["dsprites.npz", "imgs.npy"]


def test_a_large_compressed_file_is_not_read_into_memory_unasked(dsprites, monkeypatch):
    monkeypatch.setattr(packed, "IN_MEMORY", 2_500)
    with pytest.raises(ValueError, match=r"unpacked='pictures\.npy"):
        DSprites(dsprites[0])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_mpi3d(save, tmp_path):
    pictures, sizes = bytes_of(2**5, 6, 6, 3), (2, 2, 2, 1, 1, 2, 2)
    save(tmp_path / "mpi3d.npz", images=pictures)
    source = MPI3D(tmp_path / "mpi3d.npz", sizes=sizes)
    check(source, pictures, in_order(sizes))
    assert isinstance(source.pictures, np.memmap) == (save is np.savez)
    with pytest.raises(ValueError, match="pictures"):
        MPI3D(tmp_path / "mpi3d.npz")


def test_shapes3d(tmp_path):
    pictures, sizes = bytes_of(64, 6, 6, 3), (2,) * 6
    with h5py.File(tmp_path / "3dshapes.h5", "w") as file:
        file["images"], file["labels"] = pictures, in_order(sizes) * 0.25 + 0.75
    source = Shapes3D(tmp_path / "3dshapes.h5", roles={"groups": "shape"})
    check(source, pictures, in_order(sizes))
    assert source.side_variables()["groups"].shape == (64,)


def test_cars3d(tmp_path):
    cars = [bytes_of(6, 6, 3, 5, 2) for _ in range(3)]
    for number, car in enumerate(cars):
        savemat(tmp_path / f"car_{number:03d}_mesh.mat", {"im": car})
    pictures = np.concatenate([car.transpose(4, 3, 0, 1, 2).reshape(10, 6, 6, 3) for car in cars])
    check(Cars3D(tmp_path), pictures, in_order((3, 2, 5))[:, [1, 2, 0]])


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (bytes_of(6, 6, 3, 4, 2), r"got uint8 \(6, 6, 3, 4, 2\) beside \(6, 6, 3, 5, 2\) in car_0"),
        (bytes_of(8, 6, 3, 5, 2), r"got uint8 \(8, 6, 3, 5, 2\)"),
        (RNG.random((6, 6, 3, 5, 2)), "got double"),
    ],
)
def test_a_car_unlike_the_first_is_named(tmp_path, other, said):
    savemat(tmp_path / "car_0.mat", {"im": bytes_of(6, 6, 3, 5, 2)})
    savemat(tmp_path / "car_1.mat", {"im": other})
    with pytest.raises(ValueError, match=rf"^car_1.mat: im must be bytes \(h, w, 3, .*{said}.*official file"):
        Cars3D(tmp_path)


def norb(path, array, magic):
    dimensions = [*array.shape, *[1] * (3 - array.ndim)]
    head = np.array([magic, array.ndim, *dimensions], dtype="<i4")
    path.write_bytes(head.tobytes() + array.tobytes())


@pytest.fixture
def smallnorb(tmp_path):
    pictures, category = bytes_of(12, 2, 8, 8), np.arange(12, dtype="<i4") % 5
    info = np.stack([np.arange(12) % 3 + 4, np.arange(12) % 2, 2 * (np.arange(12) % 4), np.arange(12) % 6], 1).astype(
        "<i4"
    )
    norb(tmp_path / "small-dat.mat", pictures, 0x1E3D4C55)
    norb(tmp_path / "small-cat.mat", category, 0x1E3D4C54)
    norb(tmp_path / "small-info.mat", info, 0x1E3D4C54)
    return tmp_path / "small-dat.mat", pictures, np.c_[category, info - [4, 0, 0, 0]] // [1, 1, 1, 2, 1]


def test_smallnorb(smallnorb):
    path, pictures, labels = smallnorb
    source = SmallNORB(path, roles={"signal": "category"})
    check(source, pictures[:, 0], labels)
    assert isinstance(source.pictures, np.memmap)


def test_3dident(tmp_path):
    (tmp_path / "images").mkdir()
    pictures, latents = bytes_of(5, 8, 8, 3), RNG.normal(size=(5, 10))
    for number, picture in enumerate(pictures):
        image.fromarray(picture).save(tmp_path / "images" / f"{number:06d}.png")
    np.save(tmp_path / "raw_latents.npy", latents)
    check(ThreeDIdent(tmp_path), pictures, latents)
    assert ThreeDIdent(tmp_path, size=(4, 4)).shape == (3, 4, 4)
    for broken in (latents[:, 0], latents[:, :9], np.c_[latents, latents[:, 0]]):
        np.save(tmp_path / "raw_latents.npy", broken)
        with pytest.raises(ValueError, match=r"raw_latents\.npy"):
            ThreeDIdent(tmp_path)
    (tmp_path / "raw_latents.npy").write_bytes(b"half an arr")
    with pytest.raises(ValueError, match=r"raw_latents\.npy"):
        ThreeDIdent(tmp_path)
    np.save(tmp_path / "raw_latents.npy", latents)
    (tmp_path / "images" / "000004.png").unlink()
    with pytest.raises(ValueError, match=r"raw_latents\.npy"):
        ThreeDIdent(tmp_path)


def test_kitti_masks_have_the_frame_that_comes_later(tmp_path):
    frames = [RNG.random((length, 6, 10)) < 0.5 for length in (4, 2, 7)]
    latents = [RNG.normal(size=(len(some), 3)) for some in frames]
    with (tmp_path / "kitti.pickle").open("wb") as file:
        pickle.dump({"pedestrians": frames, "pedestrians_latents": latents}, file)
    source = KittiMasks(tmp_path / "kitti.pickle", gap=2)
    assert source.n_samples == 2 + 0 + 5
    batch = source.take(np.array([1, 2]))
    np.testing.assert_array_equal(batch["x"][:, 0], [frames[0][1], frames[2][0]])
    np.testing.assert_array_equal(batch["pairs"][:, 0], [frames[0][3], frames[2][2]])
    np.testing.assert_array_equal(batch["truth"], [latents[0][1], latents[2][0]])
    with pytest.raises(ValueError, match="sequence"):
        KittiMasks(tmp_path / "kitti.pickle", gap=9)


@pytest.mark.parametrize(
    ("frames", "latents", "said"),
    [
        ([], [], "there are 0 sequences of pedestrians and 0 of their latents"),
        (None, [], "there are 0 sequences"),
        ([np.ones((2, 4, 4))], [], "there are 1 sequences of pedestrians and 0 of their latents"),
        ([np.ones((3, 4, 4))] * 2, [np.ones((3, 3)), np.ones((2, 3))], r"sequence 1 has masks \(3, 4, 4\) and latents"),
        ([np.ones((3, 4, 4)), []], [np.ones((3, 3)), []], r"sequence 1 has masks \(0,\) and latents \(0,\)"),
        ([np.ones((3, 4, 4)), np.ones((3, 4, 5))], [np.ones((3, 3))] * 2, r"sequence 1 has masks \(3, 4, 5\)"),
        ([[np.ones((4, 4)), np.ones((4, 5))]], [np.ones((2, 3))], "sequence 0 is no array of masks"),
    ],
)
def test_a_sequence_of_masks_that_is_not_whole_is_named(tmp_path, frames, latents, said):
    (tmp_path / "kitti.pickle").write_bytes(pickle.dumps({"pedestrians": frames, "pedestrians_latents": latents}))
    with pytest.raises(ValueError, match=rf"^kitti.pickle: {said}"):
        KittiMasks(tmp_path / "kitti.pickle")


class Evil:
    def __reduce__(self):
        return os.system, ("touch owned",)


def test_a_pickle_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kitti.pickle").write_bytes(pickle.dumps({"pedestrians": Evil(), "pedestrians_latents": []}))
    with pytest.raises(ValueError, match="pickle"):
        KittiMasks("kitti.pickle")
    assert os.listdir(tmp_path) == ["kitti.pickle"]


def test_other_files_are_refused(tmp_path, smallnorb, dsprites):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(ValueError, match="latents_classes"):
        DSprites(tmp_path / "other.npz")
    (tmp_path / "broken.npz").write_bytes(dsprites[0].read_bytes()[:300])
    with pytest.raises(ValueError, match=r"broken\.npz"):
        DSprites(tmp_path / "broken.npz")
    with pytest.raises(FileNotFoundError, match="file"):
        MPI3D(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="factor"):
        DSprites(dsprites[0], roles={"signal": "shap"})
    with pytest.raises(ValueError, match="factor"):
        DSprites(dsprites[0], roles={"signl": "shape"})
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["x"] = np.zeros(3)
    with pytest.raises(ValueError, match="images"):
        Shapes3D(tmp_path / "x.h5")
    with pytest.raises(FileNotFoundError, match="files"):
        Cars3D(tmp_path / "none")
    np.savez(tmp_path / "wide.npz", images=np.zeros((1, 4, 4, 3), dtype=np.int64))
    with pytest.raises(ValueError, match="int64"):
        MPI3D(tmp_path / "wide.npz", sizes=(1,) * 7)
    savemat(tmp_path / "a.mat", {"im": np.zeros((3, 3))})
    for other in ("small-cat.mat", "small-info.mat"):
        (tmp_path / other).rename(tmp_path / f"{other}.kept")
    with pytest.raises(FileNotFoundError, match="small-cat"):
        SmallNORB(smallnorb[0])
    smallnorb[0].write_bytes(smallnorb[0].read_bytes()[:100])
    with pytest.raises(ValueError, match=r"small\-dat\.mat"):
        SmallNORB(smallnorb[0])
    with pytest.raises(ValueError, match=r"\-dat\.mat"):
        SmallNORB(tmp_path / "a.mat")


def test_labels_of_a_set_of_official_size_are_all_that_is_held(tmp_path):
    """A sparse file of 480,000 × 64 × 64 × 3 bytes: nothing of its 5.9 GB is read but the rows asked for."""
    shape = (480_000, 64, 64, 3)
    np.lib.format.open_memmap(tmp_path / "pictures.npy", "w+", np.uint8, shape).flush()
    np.savez(tmp_path / "small.npz", images=np.zeros(1))
    source = MPI3D(tmp_path / "small.npz", unpacked=tmp_path / "pictures.npy", sizes=(10, 10, 10, 8, 4, 15, 1))
    assert source.n_samples == 480_000
    assert source.labels.nbytes < 2**25
    assert source.take(np.array([479_999, 7]))["x"].shape == (2, 3, 64, 64)
