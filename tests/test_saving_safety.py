"""Files from elsewhere: what they may name, damage that is seen, and disks that are full. One sentence, always."""

import errno
import hashlib
import json
import os
import struct
import subprocess
import sys
from functools import partial
from inspect import signature
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest
import torch
from own_method.regress import Regress
from raising import input_error
from safetensors import safe_open
from safetensors.torch import save_file
from saved import FITS, NEXT, WORDS, X, bent, edited, fitted, quick, small
from sklearn.base import BaseEstimator, clone
from torch import nn

import pindown
from pindown import Classify, Contrast, Dictionary, networks
from pindown.errors import InputError
from pindown.methods import PairLoss
from pindown.saving import FORMAT
from pindown.saving.table import LEFT_OUT, TABLE, look_up, tag_of
from pindown.training import Trainer

pytestmark = pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")

NAME = "contrast in the reals"
THEIRS = """
from torch import nn
from pindown import Contrast

class Turning(nn.Module):
    def __init__(self, n_in, n_out, width):
        super().__init__()
        self.recurrent, self.head = nn.GRU(n_in, width, batch_first=True), nn.Linear(width, n_out)

    def forward(self, x):
        return self.head(self.recurrent(x[:, None])[0][:, -1])

def turning(n_in, n_out, *, width=5):
    return Turning(n_in, n_out, width)

class Plain(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer, self.scale, self.activation = nn.Linear(n_in, n_out), 0.5, nn.functional.silu

    def forward(self, x):
        return self.activation(self.scale * self.layer(x))

class Declared(nn.Module):
    scale: float

    def __init__(self, n_in, n_out):
        super().__init__()
        self.layer, self.scale = nn.Linear(n_in, n_out), 0.5

    def forward(self, x):
        return self.scale * self.layer(x)

class Mine(Contrast):
    pass
"""


@pytest.fixture
def path(tmp_path):
    fitted(NAME).save(tmp_path / "estimator.pindown")
    return tmp_path / "estimator.pindown"


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
    return Contrast(2, encoder=encoder, loss=PairLoss(any_marginal=False), **quick).fit(X, NEXT)


def refused(path, argument="path", **how):
    """Return the sentence with which a file is refused."""
    with pytest.raises(InputError) as told:
        pindown.load(path, **how)
    assert told.value.argument == argument
    assert str(told.value).startswith(str(path))
    assert str(told.value).isprintable()
    return str(told.value)


# ---- the table


@pytest.mark.parametrize("tag", TABLE)
def test_every_entry_of_the_table_is_there_and_has_a_tag_that_leads_to_it(tag):
    assert look_up(tag_of(look_up(tag))) is look_up(tag)


def test_all_public_estimators_are_tried_and_the_defaults_of_their_parameters_are_in_the_table():
    public = {getattr(pindown, name) for name in pindown.__all__}
    estimators = {kind for kind in public if isinstance(kind, type) and issubclass(kind, BaseEstimator)}
    assert estimators <= {type(fitted(name)) for name in FITS}
    for kind in estimators:
        for parameter in signature(kind).parameters.values():
            assert not isinstance(parameter.default, FunctionType) or tag_of(parameter.default), parameter


def test_what_is_left_out_of_files_exists():
    for tag, names in LEFT_OUT.items():
        assert {*names} <= {*signature(look_up(tag)).parameters}


# ---- what is handed over


@pytest.mark.parametrize("width", [None, 7])
def test_a_network_of_one_s_own_comes_back_through_the_function_that_made_it(tmp_path, theirs, width):
    make = theirs.turning if width is None else partial(theirs.turning, width=width)
    estimator = contrast(make)
    path = saved(estimator, tmp_path)
    assert "`trust=[turning]`" in refused(path, "trust")
    state = torch.random.get_rng_state()
    loaded = pindown.load(path, trust=[theirs.turning])
    np.testing.assert_array_equal(loaded.transform(X), estimator.transform(X))
    assert repr(loaded.encoder) == repr(make)
    assert torch.equal(torch.random.get_rng_state(), state)
    second = saved(loaded, tmp_path)
    np.testing.assert_array_equal(pindown.load(second, trust=[theirs.turning]).transform(X), estimator.transform(X))


def test_a_network_that_declares_its_attributes_comes_back_by_its_class(tmp_path, theirs):
    estimator = contrast(nn.Sequential(theirs.Declared(4, 5), nn.Linear(5, 2)))
    loaded = pindown.load(saved(estimator, tmp_path), trust=[theirs.Declared])
    np.testing.assert_array_equal(loaded.transform(X), estimator.transform(X))


def test_any_other_network_comes_back_into_one_with_the_same_layers(tmp_path, theirs):
    module = theirs.Plain(4, 3)
    for encoder, like in (
        (nn.Sequential(theirs.Plain(4, 5), nn.Linear(5, 2)), theirs.Plain(4, 5)),
        (networks.Pretrained(module), theirs.Plain(4, 3)),
    ):
        estimator = contrast(encoder)
        path = saved(estimator, tmp_path)
        assert "`trust=[Plain]`" in refused(path, "trust")
        for other in (theirs.Plain, theirs.Plain(4, 9)):
            assert "same layers" in refused(path, trust=[other])
        loaded = pindown.load(path, trust=[like])
        np.testing.assert_array_equal(loaded.transform(X), estimator.transform(X))
        np.testing.assert_array_equal(clone(loaded).fit(X, NEXT).transform(X), estimator.transform(X))


def test_nothing_is_imported_because_a_file_names_it(tmp_path, theirs):
    path = saved(contrast(theirs.turning), tmp_path)
    del sys.modules["their_networks"]
    refused(path, "trust")
    assert "their_networks" not in sys.modules


def test_a_function_that_makes_another_network_by_now_is_recognised(tmp_path, theirs, monkeypatch):
    path = saved(contrast(theirs.turning), tmp_path)
    monkeypatch.setattr(theirs.turning, "__kwdefaults__", {"width": 6})
    assert "tensor head.weight" in refused(path, trust=[theirs.turning])


def test_an_estimator_of_another_package_brings_along_what_stands_next_to_it(tmp_path):
    estimator = fitted("regress")
    path = saved(estimator, tmp_path)
    assert "trust=[Regress" in refused(path, "trust")
    np.testing.assert_array_equal(pindown.load(path, trust=[Regress]).transform(X), estimator.transform(X))


def test_but_no_functions(tmp_path, theirs):
    path = saved(
        theirs.Mine(2, encoder=theirs.turning, loss=PairLoss(any_marginal=False), **quick).fit(X, NEXT), tmp_path
    )
    assert "`trust=[turning]`" in refused(path, "trust", trust=[theirs.Mine])
    pindown.load(path, trust=[theirs.Mine, theirs.turning])


def test_a_method_that_is_registered_is_imported_once_it_is_named(tmp_path, theirs):
    estimator = theirs.Mine(2, encoder=small, **quick).fit(X, NEXT)
    path = saved(estimator, tmp_path)
    about = tmp_path / "site" / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[pindown.methods]\nmine = their_networks:Mine\n")
    del sys.modules["their_networks"]
    assert "`trust=['mine']`" in refused(path, "trust")
    assert "their_networks" not in sys.modules
    np.testing.assert_array_equal(pindown.load(path, trust=["mine"]).transform(X), estimator.transform(X))
    with input_error("trust"):
        pindown.load(path, trust=["theirs"])


def test_trust_is_a_list_of_what_can_be_handed_over(path):
    with pytest.raises(TypeError, match="list"):
        pindown.load(path, trust="own_method")
    with pytest.raises(TypeError, match="functions"):
        pindown.load(path, trust=[3])


# ---- what cannot be saved


@pytest.mark.parametrize("parameter", ["encoder", "trainer"])
def test_a_lambda_is_left_out_with_a_warning_if_the_network_is_known(tmp_path, parameter):
    given = {
        "encoder": lambda n_in, n_out: nn.Sequential(nn.Linear(n_in, 3), nn.ELU(), nn.Linear(3, n_out)),
        "trainer": Trainer(optimizer=lambda *a: pindown.optimizers.adam(*a)),
    }
    estimator = Contrast(2, **{"encoder": small} | quick | {parameter: given[parameter]}).fit(X, NEXT)
    with pytest.warns(UserWarning, match=f"`{parameter}`") as told:
        path = saved(estimator, tmp_path)
    assert told[0].filename == __file__
    loaded = pindown.load(path)
    np.testing.assert_array_equal(loaded.transform(X), estimator.transform(X))
    with pytest.raises(ValueError, match=rf"`{parameter}` was .* Pass it to set_params"):
        loaded.fit(X, NEXT)
    loaded.set_params(**{parameter: given[parameter]}).fit(X, NEXT)


def test_a_lambda_that_made_what_is_not_known_is_refused_before_anything_is_written(tmp_path, theirs):
    estimator = contrast(lambda n_in, n_out: theirs.Turning(n_in, n_out, 5))
    with pytest.raises(ValueError, match=r"encoder_\.body"):
        saved(estimator, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_network_with_hooks_is_left_out_of_the_parameters_with_a_warning(tmp_path):
    estimator = contrast(small)
    hooked = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 2))
    hooked[1].register_forward_hook(lambda module, args, output: output)
    estimator.set_params(encoder=hooked)
    with pytest.warns(UserWarning, match="Sequential"):
        path = saved(estimator, tmp_path)
    with safe_open(path, framework="pt") as file:
        assert not [name for name in file.keys() if name.startswith("encoder.")]  # noqa: SIM118 (no dict)
    np.testing.assert_array_equal(pindown.load(path).transform(X), estimator.transform(X))
    estimator.encoder_.register_forward_hook(lambda module, args, output: 2 * output)
    with pytest.raises(ValueError, match="encoder_"):
        saved(estimator, tmp_path)


def test_views_made_by_a_lambda_are_not_needed_to_encode(tmp_path):
    def augment(x, generator):
        return x + torch.randn(x.shape, generator=generator)

    estimator = Classify(2, augment=augment, encoder=small, **quick).fit(X, WORDS)
    with pytest.warns(UserWarning, match="augment"):
        path = saved(estimator, tmp_path)
    loaded = pindown.load(path)
    np.testing.assert_array_equal(loaded.predict_proba(X), estimator.predict_proba(X))


def test_what_was_learned_must_be_held_by_a_file(tmp_path):
    class Shy:
        weight = 0.1

        def __call__(self, decoder, z, uniform):
            return decoder(z), decoder(z).square().mean()

    estimator = Dictionary(2, penalty=Shy(), encoder=bent, decoder=bent, n_restarts=1, **quick).fit(X)
    with pytest.raises(ValueError, match="Dictionary"):
        saved(estimator, tmp_path)
    assert not list(tmp_path.iterdir())


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
    assert np.array_equal(pindown.load(sys.argv[1], trust=[Odd]).transform(X), est.transform(X))
"""


@pytest.mark.slow
def test_a_network_from_a_script_comes_back_in_it_and_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "script.py").write_text(SCRIPT)
    path = tmp_path / "file"
    subprocess.run([sys.executable, tmp_path / "script.py", path], check=True, timeout=300)
    assert "__main__:Odd" in refused(path, "trust")
    monkeypatch.syspath_prepend(str(tmp_path))
    import script

    assert pindown.load(path, trust=[script.Odd]).transform(script.X).shape == (40, 2)


# ---- hostile files, signed as if they were real; see fuzzing.py for many more


def name(name, use="estimator"):
    """Return an edit by which a file names something, and uses it for something."""

    def change(content, tensors):
        content["names"].append(name)
        number = len(content["names"]) - 1
        call = {"partial": [{"name": number}, {"tuple": []}, {"dict": [["command", "touch prey"]]}]}
        match use:
            case "estimator":
                content["estimator"]["estimator"]["class"] = number
            case "value":
                content["estimator"] = {"value": [number, {}]}
            case "module":
                content["modules"].insert(0, {"class": number, "attributes": {}, "training": False})
            case "maker":
                content["modules"].insert(0, {"made": [call, 1, 1], "tensors": {}, "training": []})
            case "forward":
                identity = {"layer": "Identity", "arguments": {}, "attributes": {"forward": call}, "training": False}
                content["modules"].insert(0, identity)
            case _:
                content["estimator"]["estimator"]["learned"][use] = call

    return change


@pytest.mark.parametrize("use", ["estimator", "value", "module", "maker", "forward", "transform", "a_"])
@pytest.mark.parametrize(
    "foreign",
    [
        *("os:system", "builtins:eval", "torch:load", "nn.LSTM", "numpy:load", "pindown.__main__:app", "Reader"),
        *("load", "pindown._files:os.replace", "pindown.saving.values:Reader", "no name", "antigravity:fly", ""),
    ],
)
def test_names_of_anything_else_are_refused(path, foreign, use):
    edited(path, name(foreign, use))
    refused(path, "trust")


@pytest.mark.parametrize(
    ("ours", "use"),
    [
        *(("Contrast", use) for use in ("value", "module", "maker", "forward", "transform")),
        *(("adam", use) for use in ("estimator", "value", "module", "maker", "forward", "transform")),
        *(("linear", use) for use in ("estimator", "value", "module", "maker", "forward", "transform")),
        *(("Encoder", use) for use in ("estimator", "value", "maker", "forward", "transform")),
    ],
)
def test_names_of_the_table_are_taken_for_what_they_are_only(path, ours, use):
    edited(path, name(ours, use))
    refused(path)


def first_linear(content):
    return next(part for part in content["modules"] if part.get("layer") == "Linear")


def unknown_class(content, tensors):
    content["names"] = [name.replace("Contrast", "Contrast2") for name in content["names"]]


def missing_tensor(content, tensors):
    del tensors["encoder_.preprocess.matrix"]


def other_shape(content, tensors):
    tensors["encoder_.preprocess.matrix"] = tensors["encoder_.preprocess.matrix"][:, :2].contiguous()


def other_type(content, tensors):
    tensors["encoder_.preprocess.matrix"] = tensors["encoder_.preprocess.matrix"].double()


def nan(content, tensors):
    tensors["encoder_.preprocess.matrix"][0, 0] = torch.nan


def absurd(content, tensors):
    tensors["encoder_.body.linear.weight"][0, 0] = 1e30


def one_more(content, tensors):
    tensors["more"] = torch.zeros(2)


def other_width(content, tensors):
    first_linear(content)["arguments"]["in_features"] += 1


def tensor_for_an_argument(content, tensors):
    layer = first_linear(content)
    layer["arguments"]["bias"] = layer["parameters"]["bias"]


def missing_bias(content, tensors):
    del first_linear(content)["parameters"]["bias"]


def unknown_layer(content, tensors):
    first_linear(content)["layer"] = "Bomb"


def hook(content, tensors):
    first_linear(content)["parts"] = {"_forward_hooks": {"module": 0}}


def unknown_kind(content, tensors):
    content["estimator"]["estimator"]["learned"]["n_iter_"] = {"pickle": "gASVBQ=="}


def odd_parameter(content, tensors):
    content["estimator"]["estimator"]["parameters"]["speed"] = 3


def where_a_fit_writes(content, tensors):
    trainer = content["estimator"]["estimator"]["parameters"]["trainer"]["value"]
    trainer[1]["checkpoint"] = "/etc/passwd"


def module_too_early(content, tensors):
    content["modules"].reverse()


def number_for_a_module(content, tensors):
    part = next(part for part in content["modules"] if part.get("parts"))
    part["parts"] = dict.fromkeys(part["parts"], 3)


def counted_from_the_end(content, tensors):
    content["estimator"]["estimator"]["learned"]["encoder_"]["module"] = -2


def another_encoder(content, tensors):
    content["estimator"]["estimator"]["learned"]["n_components_"] = 3


def far_apart(content, tensors):
    content["estimator"]["estimator"]["learned"]["loss_curve_"]["array"]["strides"] = [2**50]


def addresses(content, tensors):
    content["estimator"]["estimator"]["learned"]["loss_curve_"]["array"]["dtype"] = "|O"


def text_that_is_cut(content, tensors):
    texts = {"texts": {"dtype": "<U3", "shape": [1], "values": ["long"]}}
    content["estimator"]["estimator"]["learned"]["n_iter_"] = texts


def much_room(content, tensors):
    texts = {"texts": {"dtype": "<U1000000000", "shape": [1], "values": ["a"]}}
    content["estimator"]["estimator"]["learned"]["n_iter_"] = texts


def method(content, tensors):
    content["estimator"]["estimator"]["learned"]["transform"] = 3


def private(content, tensors):
    content["estimator"]["estimator"]["learned"]["_repr_html_"] = "x"


def no_estimator(content, tensors):
    del content["estimator"]


def deep(content, tensors):
    content["estimator"] = json.loads("[" * 900 + "]" * 900)


def shared_again_and_again(content, tensors):
    identity = {"layer": "Identity", "arguments": {}, "training": False}
    content["modules"].append(identity)
    for _ in range(40):
        parts = {name: {"module": len(content["modules"]) - 1} for name in "01"}
        content["modules"].append({"layer": "Sequential", "arguments": {}, "parts": parts, "training": False})
    content["estimator"]["estimator"]["learned"]["more_"] = {"module": len(content["modules"]) - 1}


def much_memory(content, tensors):
    content["names"].append("linear")
    made = [{"name": len(content["names"]) - 1}, 10**6, 10**6]
    content["modules"].append({"made": made, "tensors": {}, "training": []})
    content["estimator"]["estimator"]["learned"]["more_"] = {"module": len(content["modules"]) - 1}


def beyond_its_memory(content, tensors):
    tensors["key"] = torch.zeros(4 * 624, dtype=torch.uint8)
    key = {"array": {"at": "key", "dtype": "<u4", "shape": [624]}}
    state = {"random_state": {"tuple": ["MT19937", key, 10**6, 0, 0.0]}}
    content["estimator"]["estimator"]["parameters"]["random_state"] = state


def function_for_an_encoder(content, tensors):
    content["names"].append("linear")
    content["estimator"]["estimator"]["learned"]["encoder_"] = {"name": len(content["names"]) - 1}


@pytest.mark.parametrize(
    "change",
    [
        *(
            text_that_is_cut,
            shared_again_and_again,
            tensor_for_an_argument,
            much_memory,
            beyond_its_memory,
            function_for_an_encoder,
        ),
        *(missing_tensor, other_shape, other_type, nan, absurd, one_more, other_width, missing_bias, unknown_layer),
        *(hook, unknown_kind, odd_parameter, where_a_fit_writes, module_too_early, number_for_a_module, no_estimator),
        *(counted_from_the_end, another_encoder, far_apart, addresses, much_room, method, private, deep),
    ],
)
def test_a_file_that_was_changed_and_signed_again_is_refused_by_its_contents(path, change):
    edited(path, change)
    refused(path)


def test_a_class_of_a_later_version_is_named(path):
    edited(path, unknown_class)
    assert "Contrast2" in refused(path, "trust")


def test_two_thousand_mutated_files_do_nothing_and_are_refused_or_are_what_they_say():
    script = Path(__file__).parent / "fuzzing.py"
    done = subprocess.run([sys.executable, script, "2000"], capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    assert found["failures"] == []
    assert sum(found["counts"].values()) == 2_000
    assert found["counts"]["accepted as it is"] > 20  # or the mutations would be too coarse


# ---- damage


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_file_that_is_not_whole_says_so(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    assert "copy the file again" in refused(path)


def test_every_flipped_bit_is_seen(path):
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    before = set(sys.modules)
    for place in [*range(120), *rng.integers(8, header, size=150), *rng.integers(header, len(whole), size=50)]:
        content = bytearray(whole)
        content[place] ^= 1 << rng.integers(8)
        path.write_bytes(content)
        refused(path)
    assert not set(sys.modules) - before


def test_a_file_of_the_future_asks_for_an_update(path):
    edited(path, lambda content, tensors: None, format=FORMAT + 1)
    assert "Update pindown" in refused(path)


@pytest.mark.parametrize("entries", [{"format": 0}, {"format": True}, {"format": "2"}, {"more": 1}])
def test_entries_that_save_does_not_write_are_refused(path, entries):
    edited(path, lambda content, tensors: None, **entries)
    refused(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (r"\"n_components_\":2", r"\"n_components_\":3,\"n_components_\":2"),
        (r"\"n_iter_\":", r"\"n_iter_\":NaN,\"a_\":"),
        ('"__metadata__":{', '"__metadata__":{"pindown":"{}"},"__metadata__":{'),
    ],
)
def test_json_with_a_key_twice_or_nan_is_refused(path, before, after):
    whole = path.read_bytes()
    size = 8 + struct.unpack("<Q", whole[:8])[0]
    header = whole[8:size].decode()
    start, _, end = header.rpartition(before)  # the entry of metadata comes first, and so does its checksum
    header = f"{start}{after}{end}"
    assert before in whole.decode("latin-1")
    data = struct.pack("<Q", len(header)) + header.encode() + whole[size:]
    checksum = 8 + header.index(r"\"sha256\":\"") + len(r"\"sha256\":\"")
    zeros = data[:checksum] + b"0" * 64 + data[checksum + 64 :]
    path.write_bytes(data[:checksum] + hashlib.sha256(zeros).hexdigest().encode() + data[checksum + 64 :])
    refused(path)


def test_files_of_other_programs_are_recognised(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "other", metadata={"made": "elsewhere"})
    refused(tmp_path / "other")
    np.save(tmp_path / "array.npy", X)
    refused(tmp_path / "array.npy")
    for entry in ("null", "[1]", '{"format":"1"}', '{"format":1,"sha256":3,"content":[]}', "[" * 10**5):
        save_file({}, tmp_path / "odd", metadata={"pindown": entry})
        refused(tmp_path / "odd")


def test_a_folder_and_a_file_that_is_not_there_are_named(tmp_path):
    with pytest.raises(IsADirectoryError, match="folder"):
        pindown.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        pindown.load(tmp_path / "nowhere")


# ---- disks


def test_an_unwritable_place_is_named_and_nothing_is_left(tmp_path):
    estimator = fitted(NAME)
    with pytest.raises(IsADirectoryError, match=r"estimator\.pindown"):
        estimator.save(tmp_path)
    (tmp_path / "plain").write_text("no folder")
    for place in ("nowhere", "plain"):
        with pytest.raises(OSError, match=f"{place}/file'"):
            estimator.save(tmp_path / place / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_a_full_or_closed_disk_leaves_the_old_file_as_it_was(path, monkeypatch, kind):
    old = path.read_bytes()
    written = type(path).write_bytes

    def half(self, content):
        written(self, content[: len(content) // 2])
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr(type(path), "write_bytes", half)
    with pytest.raises(OSError, match=f"{os.strerror(kind)}: .*{path.name}'"):
        fitted("dictionary").save(path)
    assert path.read_bytes() == old
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_file_may_be_read_by_whom_its_folder_lets(path):
    mask = os.umask(0)
    os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~mask
