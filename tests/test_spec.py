"""Methods answer for themselves: no other code asks which they are."""

import ast
from pathlib import Path

import numpy as np
import pytest

import pindown
from pindown import Classify, Contrast, Dictionary, Forget, audit, plan, theory
from pindown.auditing import checks
from pindown.auditing.spec import MethodSpec
from pindown.data.data import Data
from pindown.errors import InputError
from pindown.methods.registry import BUILT_IN, suited

ROOT = Path(pindown.__file__).parent
NAMES = {"Contrast", "Classify", "Forget", "Dictionary", "LatentAction", "InverseDynamics", "Sparse", "SparseBasis"}
ASK = [
    ROOT / "methods" / "planning.py",
    *(p for part in ("auditing", "runs", "cli") for p in (ROOT / part).rglob("*.py")),
]

RNG = np.random.default_rng(0)


def mentions(tree: ast.AST) -> list[str]:
    """Names of estimators in code: imported, called, compared with, matched, or as a text of their own."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name in NAMES:
                found.append(name)
            case ast.Constant(value=str(text)) if text in NAMES:
                found.append(text)
    return found


@pytest.mark.parametrize("path", ASK, ids=lambda path: str(path.relative_to(ROOT)))
def test_who_asks_a_method_does_not_name_it(path):
    assert mentions(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "code", ["isinstance(est, Forget)", "est.name == 'Forget'", "from pindown import Forget", "estimators.Forget()"]
)
def test_such_a_name_would_be_seen(code):
    assert mentions(ast.parse(code)) == ["Forget"]


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.__name__)
def test_one_value_specifies_a_method(kind):
    assert isinstance(kind.spec, MethodSpec)
    assert kind.spec.roles.y in ("signal", "nuisance", "pairs", None)


@pytest.mark.parametrize(
    ("roles", "kind"),
    [
        ((), Dictionary),
        (("signal",), Classify),
        (("pairs",), Contrast),
        (("nuisance",), Forget),
        (("nuisance", "given"), Forget),
        (("nuisance", "pairs"), Contrast),
        (("given",), None),
        (("nuisance", "signal"), None),
    ],
)
def test_side_variables_lead_to_what_uses_all_of_them(roles, kind):
    assert suited(roles) is kind


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")  # that tossed labels say nothing
def test_a_side_variable_that_a_method_cannot_use_is_refused_with_what_could():
    x, labels = RNG.normal(size=(80, 2)), np.arange(80) % 4
    est = Classify(2, max_iter=1, verbose=False, random_state=0).fit(x, labels)
    with pytest.raises(InputError) as error:
        audit(est, Data(x, signal=labels, given=labels))
    assert error.value.argument == "given"


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
def test_an_audit_of_data_is_the_audit_of_its_arrays():
    x, labels = RNG.normal(size=(120, 2)) + np.arange(120)[:, None] % 4, np.arange(120) % 4
    est = Classify(2, max_iter=1, verbose=False, random_state=0).fit(x, labels)
    groups = np.arange(120) // 6
    one = audit(est, Data(x, signal=labels, groups=groups), n_fits=2, random_state=0)
    other = audit(est, x, labels, groups=groups, n_fits=2, random_state=0)
    assert one.to_dict() == other.to_dict()


def test_a_plan_of_data_is_the_plan_of_its_arrays():
    x, labels = RNG.normal(size=(200, 2)) + 3 * np.eye(4, 2)[np.arange(200) % 4], np.arange(200) % 4
    assert str(plan(Data(x, signal=labels))) == str(plan(x, signal=labels))
    assert plan(Data(x, signal=labels), n_components=2).theorem is theory.CLASSIFY_NORMALISED


@pytest.mark.filterwarnings("ignore::pindown.errors.IdentifiabilityWarning")
@pytest.mark.parametrize("partners", [True, False])
@pytest.mark.slow
def test_images_are_planned_checked_and_audited(partners):
    place = RNG.uniform(1, 7, size=(120, 2))
    at = np.arange(8)
    shown = [np.exp(-((at - where[:, None]) ** 2) / 4) for where in place.T]  # (n, 8) each
    images = np.einsum("nh,nw->nhw", *shown)[:, None].astype(np.float32)
    pairs = images + 0.01 * RNG.normal(size=images.shape).astype(np.float32) if partners else np.arange(120) // 2
    est = Contrast(2, max_iter=2, verbose=False, random_state=0).fit(images, pairs)
    assert plan(images, pairs=pairs, n_components=2).theorem is theory.CONTRAST_SPHERE
    assert len(checks.after(est, images, pairs)) == 5
    found = audit(est, images, pairs, n_fits=2, random_state=0)
    assert found.scores[0].name.startswith("positives nearer")
    assert "X, column 0" in found.pictures.colourings
