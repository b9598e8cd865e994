"""The kernel and the approximations that options of a table stand for."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rfgp import spectra
from rfgp.approximations import Approximation, Exact, InducingPoints, RandomFeatures, Vecchia
from rfgp.kernels import RBF, Kernel, Matern, RationalQuadratic, Stationary
from rfgp.local.kinds import kind_of, spectrum_of
from rfgp.regression.spec import ModelOptions, ModelSpec
from rfgp.regression.table.offers import FEW_ROWS, OpenOptions
from rfgp.regression.table.options import (
    RESIDUAL,
    FeatureOptions,
    InducingOptions,
    KernelOptions,
    LocalOptions,
)

LOCAL = "local"
"""The name of the term of neighbours beside another one."""
_INITS = {"k-means": "kmeans", "pivots": "pivots"}
_METHODS = {None: "sor", "fitc": "fitc", "vfe": "vfe"}


def kernel_of(spectrum: spectra.Spectrum, *, ard: bool, lengthscale: Any, name: str | None = None) -> Kernel:
    """Return the stationary kernel with a spectrum over all columns. It is named after its class unless it has a name.

    Args:
        spectrum: The spectrum.
        ard: Whether each column has a lengthscale of its own.
        lengthscale: The starting lengthscale. If None, the data decide.
        name: The name of the term.
    """
    known: dict[str, Any] = {"ard": ard, "lengthscale": lengthscale}
    if isinstance(spectrum, spectra.Gaussian):
        kernel: Kernel = RBF(**known)
    elif isinstance(spectrum, spectra.Matern):
        kernel = Matern(nu=spectrum.nu, **known)
    elif isinstance(spectrum, spectra.RationalQuadratic):
        kernel = RationalQuadratic(alpha=spectrum.alpha, **known)
    else:
        kernel = Stationary(spectrum=spectrum, **known)
    return kernel.named(name or type(kernel).__name__.lower())


def model_options(options: KernelOptions) -> ModelOptions:
    """Return the options of a model of terms."""
    main = kernel_of(options.spectrum, ard=options.ard, lengthscale=options.lengthscale)
    name = main.terms()[0].name
    kernel, approximations = main, {str(name): _approximation(options)}
    starts = {f"{name}.outputscale": options.outputscale, "noise": options.noise}
    if options.has_both:
        spectrum, lengthscale = spectrum_of(str(options.local)), options.local_lengthscale
        kernel = main + kernel_of(spectrum, ard=options.ard, lengthscale=lengthscale, name=LOCAL)
        approximations[LOCAL] = Exact() if type(options) is KernelOptions else _neighbors(options)
        starts[f"{LOCAL}.outputscale"] = options.local_outputscale
    return ModelOptions(
        kernel,
        options.likelihood,
        approximations,
        options.inference,
        standardize=options.standardize,
        start={path: value for path, value in starts.items() if value is not None},
        priors={_path(path, str(name), options): prior for path, prior in (options.priors or {}).items()},
        seed=options.seed,
        dtype=options.dtype,
    )


def _path(path: str, main: str, options: KernelOptions) -> str:
    """Return the path of a hyperparameter of one term, which in a sum is the first."""
    return f"{main}.{path}" if options.has_both and path in ("lengthscale", "outputscale") else path


def _approximation(options: KernelOptions) -> Approximation:
    """Return the approximation of the first term."""
    if isinstance(options, FeatureOptions):
        is_learned = options.frequencies == "learned"
        known: dict[str, Any] = {"coupling": options.coupling, "learn_frequencies": is_learned, "seed": options.seed}
        return RandomFeatures(options.num_frequencies, kind=options.features, **known)
    if isinstance(options, InducingOptions):
        known = {"init": _INITS[options.inducing], "method": _METHODS[options.diagonal], "seed": options.seed}
        if options.has_residual:
            known["residual"] = _neighbors(options)
        return InducingPoints(options.num_inducing, learn_locations=options.learn_inducing, **known)
    return _neighbors(options) if isinstance(options, LocalOptions) else Exact()


def _neighbors(options: KernelOptions) -> Vecchia:
    return Vecchia(options.num_neighbors, condition_on=options.condition_on, seed=options.seed)


def table_options(spec: ModelSpec) -> KernelOptions:
    """Return the options that stand for a model of a table, as far as its terms and approximations say.

    Raises:
        AssertionError: it is not such a model.
    """
    chosen = spec.options
    first, *others = chosen.kernel.terms()
    ((factor,), used) = first.factors, spec.approximations or chosen.approximations
    known: dict[str, Any] = {
        "spectrum": factor.measure,
        "ard": factor.ard,
        "lengthscale": factor.lengthscale,
        "outputscale": chosen.start.get(f"{first.name}.outputscale"),
        "noise": chosen.start.get("noise"),
        "likelihood": chosen.likelihood,
        "inference": chosen.inference,
        "standardize": chosen.standardize,
        "priors": chosen.priors or None,
        "dtype": chosen.dtype,
    }
    for term in others:
        known |= {"local": kind_of(term.factors[0].measure), **dict(_of_neighbors(used[str(term.name)]))}
    return _options_of(used[str(first.name)], known, chosen.seed)


def _of_neighbors(approximation: Approximation | None) -> Iterator[tuple[str, Any]]:
    if isinstance(approximation, Vecchia):
        yield "num_neighbors", approximation.num_neighbors
        yield "condition_on", approximation.condition_on


def _options_of(approximation: Approximation, known: dict[str, Any], seed: int) -> KernelOptions:
    if isinstance(approximation, RandomFeatures):
        frequencies = "learned" if approximation.learn_frequencies else "fixed"
        own = {"features": approximation.kind, "coupling": approximation.coupling, "frequencies": frequencies}
        return FeatureOptions(num_frequencies=approximation.num_frequencies, seed=seed, **own, **known)
    if isinstance(approximation, InducingPoints):
        diagonal = None if approximation.method in (None, "sor") else approximation.method
        inducing = {init: name for name, init in _INITS.items()}[approximation.init]
        own = {"inducing": inducing, "diagonal": diagonal, "learn_inducing": approximation.learn_locations}
        if approximation.residual is not None:
            own |= {"local": RESIDUAL, **dict(_of_neighbors(approximation.residual))}
        return InducingOptions(num_inducing=approximation.num_points, seed=seed, **own, **known)
    if isinstance(approximation, Vecchia):
        local = kind_of(known.pop("spectrum"))
        return LocalOptions(local=local, seed=seed, **dict(_of_neighbors(approximation)), **known)
    assert isinstance(approximation, Exact)
    return KernelOptions(**known)


def open_options(candidates: OpenOptions) -> ModelOptions:
    """Return the options of a model of a table, with the kernel and the approximations that it has without a fit.

    If one candidate is left for any rows, it is that one. Otherwise a fit chooses, and without a fit what is open is
    the Gaussian kernel, whose approximation is planned.
    """
    menus = [candidates.menu(rows, streamed) for rows in (2, FEW_ROWS + 1) for streamed in (False, True)]
    if {len(menu) for menu in menus} == {1} and len({repr(menu) for menu in menus}) == 1:
        return model_options(menus[0][0].options)
    if candidates.names_features:
        return model_options(menus[2][0].options)
    return replace(model_options(candidates.standing()), approximations="auto")


def is_settled(candidates: OpenOptions) -> bool:
    """Return whether one candidate is left for any rows."""
    menus = [candidates.menu(rows, streamed) for rows in (2, FEW_ROWS + 1) for streamed in (False, True)]
    return {len(menu) for menu in menus} == {1} and len({repr(menu) for menu in menus}) == 1
