"""Every estimator comes back from its file: the same parameters, and the same answers to the bit."""

import copy
import json
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from own_method.regress import Regress
from safetensors import safe_open
from saved import FITS, NEXT, NUMBERS, WORDS, X, answers, fitted, quick, small
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import pindown
from pindown import Classify, Contrast, Dictionary, Forget, networks
from pindown.errors import InputError
from pindown.saving.table import TABLE
from pindown.training import Trainer
from pindown.training.callbacks import ProgressBar

pytestmark = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")


def again(estimator, path, **how):
    estimator.save(path / "estimator.pindown")
    return pindown.load(path / "estimator.pindown", **how)


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.parametrize("name", FITS)
def test_answers_are_the_same_to_the_bit(tmp_path, name):
    estimator = fitted(name)
    loaded = again(estimator, tmp_path, trust=[Regress])
    assert_same(answers(estimator), answers(loaded))
    assert type(loaded) is type(estimator)
    assert loaded.n_features_in_ == 4


@pytest.mark.parametrize("name", FITS)
def test_parameters_and_learned_attributes_come_back(tmp_path, name):
    estimator = fitted(name)
    loaded = again(estimator, tmp_path, trust=[Regress])
    assert repr(loaded.get_params()) == repr(estimator.get_params())
    assert list(vars(loaded)) == list(vars(estimator))
    unfitted = clone(loaded)
    assert repr(unfitted) == repr(estimator)
    assert "n_features_in_" not in vars(unfitted)


@pytest.mark.parametrize("name", FITS)
def test_what_was_loaded_makes_the_same_file(tmp_path, name):
    loaded = again(fitted(name), tmp_path, trust=[Regress])
    loaded.save(tmp_path / "second")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "estimator.pindown").read_bytes()


def test_a_loaded_estimator_can_be_fitted_again(tmp_path):
    estimator = fitted("contrast")
    refitted = clone(again(estimator, tmp_path)).fit(X, NEXT)
    np.testing.assert_array_equal(refitted.transform(X), estimator.transform(X))


def test_encoders_of_images_come_back_with_their_trainer(tmp_path):
    images = np.random.default_rng(0).normal(size=(40, 2, 8, 8)).astype(np.float32)
    trainer = Trainer(precision=torch.bfloat16, accumulate=2)
    estimator = Contrast(2, encoder=networks.convolutional, trainer=trainer, **quick | {"max_iter": 2}).fit(
        images, images + 0.1
    )
    loaded = again(estimator, tmp_path)
    np.testing.assert_array_equal(loaded.transform(images), estimator.transform(images))
    assert loaded.trainer.precision == torch.bfloat16


def test_what_a_fit_reports_to_and_writes_to_is_not_saved(tmp_path):
    trainer = Trainer(callbacks=(ProgressBar(),), checkpoint=tmp_path / "fit.safetensors", accumulate=2)
    loaded = again(Contrast(2, encoder=small, trainer=trainer, **quick), tmp_path)
    assert loaded.trainer == Trainer(accumulate=2)


def test_one_that_was_never_fitted_comes_back_so(tmp_path):
    loaded = again(Forget(3, strength=2.0), tmp_path)
    assert repr(loaded) == "Forget(n_components=3, strength=2.0)"
    with pytest.raises(NotFittedError):
        loaded.transform(X)


def test_what_was_shared_is_shared(tmp_path):
    loaded = again(fitted("dictionary"), tmp_path)
    assert loaded.objective_.encoder is loaded.encoder_
    assert loaded.objective_.decoder is loaded.decoder_
    assert loaded.decoder_[0].weight is loaded.objective_.from_latents.weight


def test_gradients_and_training_mode_are_restored(tmp_path):
    estimator = fitted("dictionary")
    loaded = again(estimator, tmp_path)
    for module, twin in zip(estimator.objective_.modules(), loaded.objective_.modules(), strict=True):
        assert module.training == twin.training
    before = [(name, p.requires_grad) for name, p in estimator.objective_.named_parameters()]
    assert [(name, p.requires_grad) for name, p in loaded.objective_.named_parameters()] == before
    assert list(loaded.objective_.state_dict()) == list(estimator.objective_.state_dict())


def test_names_of_features_and_the_kind_of_output_come_back(tmp_path):
    frame = pd.DataFrame(X, columns=["height", "weight", "age", "größe"])
    estimator = Classify(2, encoder=small, **quick).set_output(transform="pandas").fit(frame, WORDS)
    loaded = again(estimator, tmp_path)
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    pd.testing.assert_frame_equal(loaded.transform(frame), estimator.transform(frame))
    assert loaded.classes_.dtype == estimator.classes_.dtype


def test_labels_of_every_kind_come_back(tmp_path):
    labels = [
        np.array([True, False, True, True])[np.arange(240) % 4],
        np.arange(240, dtype=np.uint16) % 3,
        np.array(["2026-01-01", "2026-01-02"], dtype="datetime64[D]")[np.arange(240) % 2].astype(str),
        np.array(["a", 3], dtype=object)[np.arange(240) % 2].astype(str).astype(object),
    ]
    for y in labels:
        estimator = Classify(1, encoder=small, space=pindown.networks.spaces.Reals(), **quick).fit(X, y)
        loaded = again(estimator, tmp_path)
        assert loaded.classes_.dtype == estimator.classes_.dtype
        np.testing.assert_array_equal(loaded.predict(X), estimator.predict(X))


def test_warnings_of_the_fit_are_not_repeated(tmp_path, recwarn):
    estimator = Classify(2, encoder=small, **quick).fit(X, NUMBERS % 2)  # warns of too few classes
    assert recwarn.pop(pindown.IdentifiabilityWarning)
    recwarn.clear()
    again(estimator, tmp_path).transform(X)
    assert not recwarn.list


def test_the_latents_of_a_sample_do_not_depend_on_the_others_after_loading_either(tmp_path):
    loaded = again(fitted("forget"), tmp_path)
    np.testing.assert_allclose(loaded.transform(X[3:4]), loaded.transform(X)[3:4], rtol=1e-12)


def test_the_file_says_what_is_in_it(tmp_path):
    fitted("contrast").save(tmp_path / "file")
    with safe_open(tmp_path / "file", framework="np") as file:
        (entry,) = file.metadata().values()
        assert "encoder_.preprocess.mean" in file.keys()  # noqa: SIM118 (no dict)
    entry = json.loads(entry)
    assert list(entry) == ["sha256", "format", "versions", "content"]
    assert {"pindown", "torch", "numpy", "scikit-learn", "python"} == entry["versions"].keys()
    assert {"Contrast", "Encoder", "PairObjective"} <= {*entry["content"]["names"]} <= {*TABLE}


def test_networks_go_to_the_requested_device(tmp_path):
    loaded = again(fitted("contrast"), tmp_path, device="cpu")
    assert next(loaded.encoder_.parameters()).device == torch.device("cpu")
    with pytest.raises(InputError) as refused:
        pindown.load(tmp_path / "estimator.pindown", device="cuda:77")
    assert refused.value.argument == "device"


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator")
def test_what_was_trained_on_a_gpu_comes_back_there_or_on_the_cpu(tmp_path):
    kind = torch.accelerator.current_accelerator().type
    estimator = Dictionary(2, max_iter=5, n_restarts=1, random_state=0, verbose=False, device=kind).fit(X)
    loaded = again(estimator, tmp_path)
    assert next(loaded.encoder_.parameters()).device.type == kind
    assert_same(answers(estimator), answers(loaded))
    on_cpu = pindown.load(tmp_path / "estimator.pindown", device="cpu")
    assert next(on_cpu.encoder_.parameters()).device.type == "cpu"
    np.testing.assert_allclose(on_cpu.transform(X), estimator.transform(X), rtol=1e-5, atol=1e-6)


def test_a_file_from_a_gpu_loads_where_there_is_none(tmp_path, monkeypatch):
    class Elsewhere(torch.Tensor):
        """A tensor that says it lies on a GPU."""

        @property
        def device(self):
            return torch.device("cuda", 0)

    estimator = copy.deepcopy(fitted("contrast"))
    whiten = estimator.encoder_.preprocess
    whiten._buffers["mean"] = whiten.mean.as_subclass(Elsewhere)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    loaded = again(estimator, tmp_path)
    assert b'"device":"cuda"' in (tmp_path / "estimator.pindown").read_bytes().replace(b"\\", b"")
    assert loaded.encoder_.preprocess.mean.device.type == "cpu"
    np.testing.assert_array_equal(loaded.transform(X), fitted("contrast").transform(X))


@pytest.mark.parametrize("name", FITS)
def test_estimators_pickle_and_copy(name):
    estimator = fitted(name)
    expected = answers(estimator)
    assert_same(expected, answers(pickle.loads(pickle.dumps(estimator))))
    assert_same(expected, answers(copy.deepcopy(estimator)))


@pytest.mark.slow
def test_estimators_travel_to_the_workers_of_joblib():
    estimator = fitted("classify")
    parts = joblib.Parallel(n_jobs=2)(joblib.delayed(estimator.transform)(part) for part in np.split(X, 2))
    np.testing.assert_allclose(np.vstack(parts), estimator.transform(X), rtol=1e-12)
