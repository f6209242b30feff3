"""What a file names, and who may be asked for it: nothing of others is imported or called unless the user says so."""

import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from own_method.regress import Regress
from safetensors import safe_open
from saved import NEXT, WORDS, X, bent, edited, fitted, quick, small
from sklearn.base import clone
from torch import nn

import pindown
from pindown import Classify, Contrast, Dictionary, networks
from pindown.saving import names

pytestmark = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")

THEIRS = """
import torch
from torch import nn
from pindown import Contrast

class Turning(nn.Module):
    def __init__(self, n_in, n_out, width):
        super().__init__()
        self.recurrent = nn.GRU(n_in, width, batch_first=True)
        self.turn = nn.utils.parametrizations.weight_norm(nn.Linear(width, n_out))
        self.register_buffer("shift", torch.ones(n_out), persistent=False)
        self.odd = lambda x: x  # what no file can hold

    def forward(self, x):
        return self.odd(self.turn(self.recurrent(x[:, None])[0][:, 0])) + self.shift

def turning(n_in, n_out, *, width=5):
    return Turning(n_in, n_out, width)

class Plain(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer, self.scale, self.activation = nn.Linear(n_in, n_out), 0.5, nn.functional.silu

    def forward(self, x):
        return self.activation(self.scale * self.layer(x))

class Mine(Contrast):
    pass
"""


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A package that somebody else wrote, whose networks hold what pindown does not know."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "their_networks.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(str(folder))
    import their_networks

    yield their_networks
    sys.modules.pop("their_networks", None)


def saved(estimator, tmp_path):
    estimator.save(tmp_path / "estimator.pindown")
    return tmp_path / "estimator.pindown"


def contrast(encoder):
    return Contrast(2, encoder=encoder, any_marginal=False, **quick).fit(X, NEXT)


@pytest.mark.parametrize("width", [None, 7])
def test_a_network_of_one_s_own_comes_back_through_the_function_that_made_it(tmp_path, theirs, width):
    make = theirs.turning if width is None else partial(theirs.turning, width=width)
    estimator = contrast(make)
    path = saved(estimator, tmp_path)
    with pytest.raises(
        ValueError, match=r"names their_networks:turning, .*trust=\['their_networks'\].*using=\[turning\]"
    ):
        pindown.load(path)
    state = torch.random.get_rng_state()
    for how in ({"trust": ["their_networks"]}, {"using": [theirs.turning]}, {"using": [make]}):
        loaded = pindown.load(path, **how)
        np.testing.assert_array_equal(loaded.transform(X), estimator.transform(X))
        assert repr(loaded.encoder) == repr(make)
    assert torch.equal(torch.random.get_rng_state(), state)
    second = saved(loaded, tmp_path)
    np.testing.assert_array_equal(pindown.load(second, using=[make]).transform(X), estimator.transform(X))


def test_a_module_or_a_backbone_of_others_comes_back_on_trust(tmp_path, theirs):
    module = theirs.Plain(4, 3)
    backbones = (nn.Sequential(theirs.Plain(4, 5), nn.Linear(5, 2)), networks.Pretrained(module))
    for encoder in backbones:
        estimator = contrast(encoder)
        path = saved(estimator, tmp_path)
        with pytest.raises(ValueError, match=r"names their_networks:Plain.*using=\[Plain\]"):
            pindown.load(path)
        loaded = pindown.load(path, using=[theirs.Plain])
        np.testing.assert_array_equal(loaded.transform(X), estimator.transform(X))
        np.testing.assert_array_equal(clone(loaded).fit(X, NEXT).transform(X), estimator.transform(X))


def test_a_module_that_no_file_can_hold_is_left_out_of_the_parameters_with_a_word(tmp_path):
    estimator = Contrast(2, encoder=small, any_marginal=False, **quick).fit(X, NEXT)
    hooked = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
    hooked[1].register_forward_hook(lambda module, args, output: output)
    estimator.set_params(encoder=hooked)
    with pytest.warns(UserWarning, match=r"encoder \(a Sequential\) cannot be saved"):
        path = saved(estimator, tmp_path)
    with safe_open(path, framework="pt") as file:
        assert not [name for name in file.keys() if name.startswith("encoder.")]  # noqa: SIM118 (no dict)
    np.testing.assert_array_equal(pindown.load(path).transform(X), estimator.transform(X))


def test_nothing_is_imported_before_it_is_allowed(tmp_path, theirs):
    path = saved(contrast(theirs.turning), tmp_path)
    del sys.modules["their_networks"]
    with pytest.raises(ValueError, match="no part of pindown"):
        pindown.load(path)
    assert "their_networks" not in sys.modules
    pindown.load(path, trust=["their_networks"])


def test_a_function_that_makes_another_network_by_now_is_told_apart(tmp_path, theirs, monkeypatch):
    path = saved(contrast(theirs.turning), tmp_path)
    monkeypatch.setattr(theirs.turning, "__kwdefaults__", {"width": 6})
    with pytest.raises(ValueError, match=r"its tensor recurrent.bias_hh_l0 is float32 of shape \(15,"):
        pindown.load(path, trust=["their_networks"])
    monkeypatch.setattr(theirs, "turning", None)
    with pytest.raises(ValueError, match="names their_networks:turning, which is not there"):
        pindown.load(path, trust=["their_networks"])


def test_a_package_that_is_not_installed_is_asked_for(tmp_path, theirs, monkeypatch):
    path = saved(contrast(theirs.turning), tmp_path)
    monkeypatch.setitem(sys.modules, "their_networks", None)
    with pytest.raises(ValueError, match=r"which cannot be imported here .*Install what it needs"):
        pindown.load(path, trust=["their_networks"])


def test_an_estimator_of_another_package_is_loaded_on_trust_or_handed_over(tmp_path):
    estimator = fitted("regress")
    path = saved(estimator, tmp_path)
    with pytest.raises(ValueError, match=r"names .*own_method.regress:Regress.*trust=\['own_method'\]"):
        pindown.load(path)
    for how in ({"trust": ["own_method"]}, {"using": [Regress]}):  # and with it what stands beside it
        np.testing.assert_array_equal(pindown.load(path, **how).transform(X), estimator.transform(X))


def test_a_package_that_registers_its_methods_needs_no_word(tmp_path, theirs):
    estimator = theirs.Mine(2, encoder=small, **quick).fit(X, NEXT)
    path = saved(estimator, tmp_path)
    with pytest.raises(ValueError, match="names their_networks:Mine"):
        pindown.load(path)
    about = tmp_path / "site" / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pindown.methods]\nmine = their_networks:Mine\n")
    np.testing.assert_array_equal(pindown.load(path).transform(X), estimator.transform(X))


@pytest.mark.parametrize("parameter", ["encoder", "optimizer"])
def test_a_lambda_is_left_out_with_a_word_if_the_network_is_known(tmp_path, parameter):
    given = {
        "encoder": lambda n_in, n_out: nn.Sequential(nn.Linear(n_in, 3), nn.ELU(), nn.Linear(3, n_out)),
        "optimizer": lambda *a: pindown.optimizers.adam(*a),
    }
    estimator = Contrast(2, **{"encoder": small} | quick | {parameter: given[parameter]}).fit(X, NEXT)
    with pytest.warns(UserWarning, match=rf"Contrast: {parameter} \(.*lambda>\) cannot be saved.*set_params") as told:
        path = saved(estimator, tmp_path)
    assert told[0].filename == __file__
    loaded = pindown.load(path)
    np.testing.assert_array_equal(loaded.transform(X), estimator.transform(X))
    with pytest.raises(ValueError, match=rf"{parameter} was .*lambda>, which no file can hold.*anew by set_params"):
        loaded.fit(X, NEXT)
    loaded.set_params(**{parameter: given[parameter]}).fit(X, NEXT)


def test_a_lambda_that_made_what_is_not_known_is_refused_before_anything_is_written(tmp_path, theirs):
    estimator = contrast(lambda n_in, n_out: theirs.Turning(n_in, n_out, 5))
    with pytest.raises(
        ValueError,
        match=r"cannot be saved: encoder_.body holds a Turning.*made by .*<lambda>.*top of a module",
    ):
        saved(estimator, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_views_made_by_a_lambda_are_not_needed_to_encode(tmp_path):
    def augment(x, generator):
        return x + torch.randn(x.shape, generator=generator)

    estimator = Classify(2, augment=augment, encoder=small, **quick).fit(X, WORDS)
    with pytest.warns(UserWarning, match="augment"):
        path = saved(estimator, tmp_path)
    loaded = pindown.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(X), estimator.predict_proba(X))
    assert loaded.score(X, WORDS) == estimator.score(X, WORDS)


def test_what_was_learned_must_be_held_by_a_file(tmp_path):
    class Shy:
        weight = 0.1

        def __call__(self, decoder, z, uniform):
            return decoder(z), decoder(z).square().mean()

    estimator = Dictionary(2, penalty=Shy(), encoder=bent, decoder=bent, n_restarts=1, **quick).fit(X)
    with pytest.raises(ValueError, match=r"Dictionary cannot be saved: .*penalty is a Shy, which no file can hold"):
        saved(estimator, tmp_path)
    assert not list(tmp_path.iterdir())


def test_hooks_are_not_lost_in_silence(tmp_path):
    estimator = contrast(small)
    estimator.encoder_.register_forward_hook(lambda module, args, output: 2 * output)
    with pytest.raises(ValueError, match="encoder_ has hooks, which no file can hold"):
        saved(estimator, tmp_path)


SCRIPT = """
import sys
import numpy as np, pindown
from torch import nn

class Odd(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer = nn.Linear(n_in, n_out)
    def forward(self, x):
        return self.layer(x).sin()

X = np.random.default_rng(0).normal(size=(40, 3))
if __name__ == "__main__":
    est = pindown.Contrast(2, encoder=Odd, max_iter=2, random_state=0, verbose=False, device="cpu").fit(X, X)
    est.save(sys.argv[1])
    for how in ({"trust": ["__main__"]}, {"using": [Odd]}):
        assert np.array_equal(pindown.load(sys.argv[1], **how).transform(X), est.transform(X))
"""


@pytest.mark.slow
def test_a_network_from_a_script_comes_back_in_it_and_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(SCRIPT)
    path = tmp_path / "file"
    subprocess.run([sys.executable, tmp_path / "script.py", path], check=True, timeout=300)
    with pytest.raises(ValueError, match="names __main__:Odd"):
        pindown.load(path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import script

    assert pindown.load(path, using=[script.Odd]).transform(script.X).shape == (40, 2)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "builtins:eval",
        "torch:load",
        "torch.nn:LSTM",
        "numpy:load",
        "pindown.__main__:app",
        "pindown._files:os.replace",
        "pindown.saving.files:warnings.warn",
        "pindown.networks:linear",
        "pindown.nowhere:nothing",
        "pindown.networks.vectors:nothing",
        "no name",
        3,
    ],
)
def test_names_of_anything_else_are_refused(tmp_path, name):
    path = saved(fitted("mean projection"), tmp_path)
    edited(path, lambda content, tensors: content["names"].append(name))
    with pytest.raises(ValueError, match=f"{path.name} (names|cannot be loaded)"):
        pindown.load(path)


def test_only_functions_that_make_networks_are_called(tmp_path):
    path, prey = saved(contrast(small), tmp_path), tmp_path / "prey"
    prey.write_text("keep me")

    def attack(content, tensors):
        content["names"].append("pindown.saving.files:save")
        made = [{"name": len(content["names"]) - 1}, None, str(prey)]
        content["modules"].insert(0, {"made": made, "tensors": {}, "training": []})

    edited(path, attack)
    with pytest.raises(ValueError, match=r"made by <function save .*, which makes no network here"):
        pindown.load(path)
    assert prey.read_text() == "keep me"


@pytest.mark.parametrize(
    ("kind", "said"),
    [("estimator", "for a BaseEstimator"), ("value", "for a frozen value"), ("module", "for a Module")],
)
def test_functions_are_not_called_in_the_place_of_classes(tmp_path, kind, said):
    path = saved(contrast(small), tmp_path)

    def attack(content, tensors):
        content["names"].append(
            "pindown.networks.vectors:linear" if kind != "value" else "pindown.saving.names:Refused"
        )
        number = len(content["names"]) - 1
        if kind == "estimator":
            content["estimator"]["estimator"]["class"] = number
        elif kind == "value":
            content["estimator"] = {"value": [number, {}]}
        else:
            content["modules"].insert(0, {"class": number})

    edited(path, attack)
    with pytest.raises(ValueError, match=said):
        pindown.load(path)


def test_a_name_that_has_moved_is_followed(tmp_path, monkeypatch):
    estimator = contrast(small)
    path = saved(estimator, tmp_path)

    def age(content, tensors):
        content["names"] = [n.replace("pindown.methods.contrast.estimator:", "pindown.old:") for n in content["names"]]

    edited(path, age)
    with pytest.raises(ValueError, match=r"names pindown.old:.*cannot be imported"):
        pindown.load(path)
    moved = {"pindown.old:Contrast": "pindown.methods.contrast.estimator:Contrast"}
    monkeypatch.setattr(names, "MOVED", moved)
    np.testing.assert_array_equal(pindown.load(path).transform(X), estimator.transform(X))


def test_trust_and_using_are_lists(tmp_path):
    path = saved(fitted("mean projection"), tmp_path)
    with pytest.raises(TypeError, match="trust and using are lists"):
        pindown.load(path, trust="own_method")
    with pytest.raises(TypeError, match="must hold functions and classes, got 3"):
        pindown.load(path, using=[3])
