"""Files of models on tables of earlier versions are read as models of terms, and answer as they did."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from model_files import assert_refused

import rfgp
from rfgp.saving.container import read_file, write_file
from rfgp.saving.legacy import TABLES
from tests.rfgp.saving.test_fixtures import EXPECTED, FOLDER, inputs_of, load

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")

NAMES = [name for name, expected in EXPECTED.items() if expected["class"] in TABLES]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", NAMES)
def test_an_upgraded_table_is_saved_in_the_present_form(name, tmp_path):
    gp, has_data = load(name), EXPECTED[name]["data"]
    gp.save(tmp_path / "m", data=has_data)
    again = rfgp.load(tmp_path / "m")
    inputs = inputs_of(name, EXPECTED[name]["inputs"])
    a, b = gp.predict(inputs), again.predict(inputs)
    assert torch.equal(torch.as_tensor(a.mean), torch.as_tensor(b.mean))
    assert torch.equal(torch.as_tensor(a.variance), torch.as_tensor(b.variance))
    assert repr(again.kernel) == repr(gp.kernel)
    again.save(tmp_path / "n", data=has_data)
    assert (tmp_path / "n").read_bytes() == (tmp_path / "m").read_bytes()


TERMS = {
    "exact": {"rbf": rfgp.Exact()},
    "exact-unscaled": {"rationalquadratic": rfgp.Exact()},
    "exact-sum-priors": {"matern": rfgp.Exact(), "local": rfgp.Exact()},
    "features-stationary": {"stationary": rfgp.RandomFeatures(10, coupling=rfgp.couplings.by_name("iid"), seed=3)},
    "neighbors-gaussian-column": {"rbf": rfgp.Vecchia(7, block_size=1, seed=7)},
    "golden-neighbors-latent": {"matern": rfgp.Vecchia(6, condition_on="latent", block_size=1, seed=0)},
    "golden-inducing": {"matern": rfgp.InducingPoints(8, method="sor", seed=0)},
    "golden-inducing-vfe": {"matern": rfgp.InducingPoints(8, method="vfe", seed=0)},
    "inducing-pivots-columns": {
        "rbf": rfgp.InducingPoints(9, init="pivoted-cholesky", method="fitc", learn_locations=True, seed=6)
    },
}


@pytest.mark.parametrize("name", TERMS)
def test_terms_have_the_kernels_and_approximations_of_the_table(name):
    gp = load(name)
    assert {term: repr(one.approximation) for term, one in gp.terms.items()} == {
        term: repr(one) for term, one in TERMS[name].items()
    }


def test_starts_and_priors_have_paths():
    gp = load("exact-sum-priors")
    options = gp.spec.options
    assert options.start == {"local.outputscale": 0.3}
    assert set(options.priors) == {"matern.lengthscale", "local.lengthscale", "local.outputscale", "noise"}
    first, local = options.kernel.terms()
    assert first.factors[0].nu == 2.5
    assert local.factors[0].lengthscale == (1.0, 4.0)
    of_noise = load("heteroscedastic-priors").spec.options.priors
    assert set(of_noise) == {"noise.matern.lengthscale", "noise.matern.outputscale", "matern.lengthscale"}


def test_named_columns_go_by_name_and_arrays_by_position():
    name = "inducing-pivots-columns"
    gp, inputs = load(name), np.array(EXPECTED[name]["inputs"])
    frame = pd.DataFrame({"other": 0.0, "north": inputs[:, 1], "east": inputs[:, 0]})
    expected = gp.predict(inputs).mean
    np.testing.assert_array_equal(gp.predict(frame).mean, expected)
    with pytest.raises(rfgp.DataError, match="north"):
        gp.predict(frame[["east"]])
    y = np.arange(5.0)
    a, b = (load(name).condition(rows, y).predict(inputs).mean for rows in (inputs, frame))
    np.testing.assert_array_equal(a, b)


def test_points_of_single_precision_keep_their_jitter(tmp_path):
    """Old files of single precision have a jitter of 1e-5, which other points of the same model have no longer."""
    gp = load("inducing-float32")
    assert gp.spec.term_priors[0].jitter == 1e-5
    gp.save(tmp_path / "m", data=True)
    assert rfgp.load(tmp_path / "m").spec.term_priors[0].jitter == 1e-5
    assert gp.with_approximation(rfgp.InducingPoints(12)).spec.term_priors[0].jitter == 1e-8
    header, _ = read_file(tmp_path / "m")
    assert header["options"]["draws"] == [{"form": "points", "jitter": 1e-5}]


@pytest.mark.parametrize("jitter", [0.0, 1e-13, 2.0, "1e-8", None, float("nan")])
def test_jitters_out_of_range_are_refused(jitter, tmp_path):
    load("inducing-float32").save(tmp_path / "m", data=True)
    assert_refused(tmp_path / "m", lambda options, *_: options["draws"][0].update(jitter=jitter), None)


def test_an_upgraded_average_has_its_members():
    gp = load("golden-average")
    shares = [share for share, _ in gp.members]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)
    assert [type(one.kernel.terms()[0].factors[0]).__name__ for _, one in gp.members] == ["Matern", "RBF", "Matern"]
    assert repr(gp.exact()).endswith("averaged with 2 others)")


def test_an_upgraded_model_fits_again():
    gp = load("golden-average")
    rows = np.array(EXPECTED["golden-average"]["inputs"])
    gp.fit(rows, np.arange(float(len(rows))), max_iterations=2)
    assert gp.members == ()


# --- forged files ------------------------------------------------------------------------------------


def forged(name, tmp_path, change):
    """Write an old file again after change(header, tensors)."""
    header, tensors = read_file(FOLDER / f"{name}.safetensors")
    header = json.loads(json.dumps(header))
    change(header, tensors)
    write_file(tmp_path / "forged", header, tensors)
    return tmp_path / "forged"


CHANGES = {
    "no options": lambda header, _: header.pop("options"),
    "options of another type": lambda header, _: header.update(options=[1]),
    "no hyperparameters": lambda header, _: header.update(hyperparameters=[]),
    "a hyperparameter more": lambda header, _: header["hyperparameters"].append("other"),
    "other hyperparameters": lambda header, _: header.update(hyperparameters=["lengthscale", "noise", "other"]),
    "an unknown spectrum": lambda header, _: header["options"].update(spectrum={"name": "none"}),
    "an unknown likelihood": lambda header, _: header["options"].update(likelihood={"name": "none"}),
    "an unknown coupling": lambda header, _: header["options"].update(coupling={"name": "none"}),
    "unknown features": lambda header, _: header["options"].update(features="wavelets"),
    "features of another type": lambda header, _: header["options"].update(features=["fourier"]),
    "other features": lambda header, _: header["options"].update(features="exact"),
    "a local process": lambda header, _: header["options"].update(local="matern32"),
    "an unknown local process": lambda header, _: header["options"].update(local="none"),
    "too many frequencies": lambda header, _: header["options"].update(num_frequencies=10**12),
    "a seed that is none": lambda header, _: header["options"].update(seed="1"),
    "standardize of another type": lambda header, _: header["options"].update(standardize="yes"),
    "a prior that is none": lambda header, _: header["options"].update(priors={"noise": {"distribution": "none"}}),
    "a prior of nothing": lambda header, _: header["options"].update(priors={"other": None}),
    "names of columns less": lambda header, _: header.update(columns=["a"]),
    "an average": lambda header, _: header["options"].update(average={"weight": 1.0, "members": []}),
    "no lengthscale": lambda _, tensors: tensors.pop("hyperparameters.lengthscale.low"),
    "a bound of zero": lambda _, tensors: tensors["hyperparameters.lengthscale.low"].zero_(),
    "no scaling": lambda _, tensors: tensors.pop("scaling.inputs.scale"),
    "no frequencies": lambda _, tensors: tensors.pop("draw.frequencies"),
    "another number of frequencies": lambda _, tensors: tensors.update(
        {"draw.frequencies": tensors["draw.frequencies"][:3].clone()}
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_forged_old_files_are_no_models(change, tmp_path):
    path = forged("fourier-data", tmp_path, change)
    with pytest.raises(rfgp.ModelFileError):
        rfgp.load(path)


OF_AVERAGE = {
    "a share": lambda average, _: average["members"][0].update(weight=0.9),
    "no quantities": lambda average, _: average["members"][0].pop("quantities"),
    "a member less": lambda average, _: average["members"].pop(),
    "a member that is features": lambda average, _: average["members"][0]["options"].update(features="fourier"),
    "no raw": lambda _, tensors: tensors.pop("draw.members.0.noise.raw"),
    "a number of a member": lambda _, tensors: tensors.update(
        {"draw.members.7.noise.raw": tensors["draw.members.0.noise.raw"].clone()}
    ),
    "a text as its number": lambda _, tensors: tensors.update(
        {"draw.members.x.noise.raw": tensors["draw.members.0.noise.raw"].clone()}
    ),
}


@pytest.mark.parametrize("change", OF_AVERAGE.values(), ids=OF_AVERAGE)
def test_forged_old_averages_are_no_models(change, tmp_path):
    path = forged("golden-average", tmp_path, lambda header, tensors: change(header["options"]["average"], tensors))
    with pytest.raises(rfgp.ModelFileError):
        rfgp.load(path)


@pytest.mark.parametrize(("limit", "expected"), [("inf", np.inf), (0.5, 0.5)])
def test_old_meshes_keep_the_largest_distance(limit, expected, tmp_path):
    path = forged("mesh-data", tmp_path, lambda header, _: header["options"].update(within=limit))
    assert rfgp.load(path).within == expected


@pytest.mark.parametrize(("hops", "limits"), [("rule", None), (1, [1, 3])])
def test_old_rules_for_exact_hops_need_their_limits(hops, limits, tmp_path):
    def change(header, _):
        header["options"]["walks"]["exact_hops"] = hops
        header["options"]["hop_limits"] = limits

    with pytest.raises(rfgp.ModelFileError, match="exact_hops"):
        rfgp.load(forged("graph-walks", tmp_path, change))
