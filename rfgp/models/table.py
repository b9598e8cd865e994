"""The front door for tables: what suits a table best by measurement, or what the user says."""

from collections.abc import Mapping
from typing import Any

import torch

from rfgp import couplings, spectra
from rfgp.ambient import plain
from rfgp.likelihoods import Likelihood
from rfgp.models.given import options_from
from rfgp.models.gp import GP
from rfgp.models.process import Process
from rfgp.parameters import Hyperprior
from rfgp.regression import (
    FeatureOptions,
    InducingOptions,
    KernelOptions,
    LocalOptions,
    OpenOptions,
)
from rfgp.regression.spec import ModelSpec
from rfgp.regression.table import is_settled, open_options, table_options
from rfgp.regression.table.offers import AUTO
from rfgp.selection.table_space import TableSpace


class TableGP(GP):
    """The front door for tables: whatever suits the table best, or what you say.

    `TableGP()` leaves everything open: `fit` measures candidates on the rows at hand (exact kernels, fixed and learned
    frequencies, neighbours, both, inducing points), says which it took and why in `selection`, and fits that to all rows.
    What you name is kept, and only the rest is measured; where one candidate is left nothing is. A choice depends on
    the rows, the options and the seed, never on a clock (but for `time_limit`).

    Up to 2,000 rows the candidates are exact kernels, and of one output with normal noise they are averaged rather than
    one taken: rows that hyperparameters have seen do not tell which is best (`rfgp.selection.stacking` has figures).
    Predictions are then mixtures of normal laws (`rfgp.inference.MixturePrediction`); `members` are the processes with
    their shares, and what a process has one of, `hyperparameters`, `log_marginal_likelihood()` and the report, is that
    of the largest share. Name `spectrum` and `local` for one process.

    f = Phi w + g: coupled random features carry what is smooth over the whole table, and a nearest-neighbour (Vecchia)
    process g, independent and with lengthscales of its own, what is local. All hyperparameters are learned by the one
    likelihood. Each row is conditioned on its `num_neighbors` nearest predecessors in a random order, so the cost is
    linear in the rows. Predictions use twice as many: means and variances are those of one
    point at a time; covariances and samples of several are of the joint law in which new points may be neighbours of
    each other. A model with a local process keeps its rows, is not for rows in blocks or Dask, and has no functions
    to sample but at given points.

    Args:
        features: "auto"; "fourier"; "laplace" (positive; Gaussian spectrum only); "nystrom", of inducing points, which
            know the rows; "exact", the exact kernel, O(n^3); or None, the local process alone.
        spectrum: "auto"; or that of the features or the exact kernel, by name ("matern12" to "matern52" too) or as a
            `Spectrum`.
        num_frequencies: m; Fourier features number 2m.
        coupling: The frequencies' coupling, by name or as a `Coupling`; "auto" is "energy", tuned to the features.
        frequencies: "fixed": drawn once, never learned. "learned": `fit` learns them with the other hyperparameters,
            starting from the draw (Lazaro-Gredilla et al. 2010): far more accurate where m is small for the
            lengthscale, but no longer an estimate of the spectrum's kernel. Fourier features only. Of rows that are
            read in blocks a random sample of 32,768 is learned from. Beside a local process at most n / (10 d) are
            learned, and only where that is better on kept-out rows.
        num_inducing: M, the number of inducing points and of "nystrom" features; fewer where there are fewer distinct
            rows. A process through them alone is the subset of regressors (deterministic training conditional).
        inducing: How they are chosen, among a sample of rows in the lengthscales, and by `fit` again where these have
            moved and it is likelier: "k-means", centres of max(10,000, 20 M) rows; "pivots", of max(10,000, 2 M) rows
            those drawn by the variance that the ones before leave (randomly pivoted Cholesky, Chen et al. 2023).
        learn_inducing: Whether `fit` then moves them by the likelihood of at most 16,384 rows.
        diagonal: What becomes of the variance that the features of inducing points miss at a point. None: nothing, so
            that far from the points there is none.
            "fitc": it is noise of each observation, weights counting several (fully independent training conditional,
            Snelson and Ghahramani 2006); the noise found is then too small. "vfe": rows say nothing of it, it is there
            at new points, and `fit` maximises a lower bound of the exact log marginal likelihood (Titsias 2009); the
            noise found is too large. With both, joint laws of points are known and functions to sample are not.
        local: The kernel of the local process: "matern12", "matern32", "matern52", "gaussian", None for none, or
            "auto". Beside "exact" it is added to the kernel, exactly.
            Beside "nystrom", "residual": what its points leave of their own kernel, k - phi phi^T, so that there is one
            kernel and no second set of lengthscales (Vecchia-inducing-points full-scale approximation, Gyger, Furrer
            and Sigrist 2025); of those kernels only, computed in double precision, neighbours near in the lengthscales.
            Without neighbours it would be FITC, with all of them it is the exact process.
        num_neighbors: k, the most that a row is conditioned on; exact where it is n - 1. Costs grow like k^3.
        condition_on: What the neighbours of a row are. "responses": noise and all, by one factorisation. "latent":
            the values of the local process, which is far closer to the exact posterior where the noise hides what few
            neighbours say of a point. A sparse factor solves it exactly if it is small (`rfgp.solvers.bordered`), else
            conjugate gradients: the log marginal likelihood then has a standard error (`fit_report.likelihood_error`),
            deviations at more than 256 points one of 9 % at most, and rows are left out by observations. "auto": latent
            where the noise is more than ten times what a row's neighbours would leave of the process if their values
            were known and a millionth of its variance, up to 2^18 rows, if a factor or 50 iterations solve for them.
            Hyperparameters are searched by the likelihood of observations, whatever is chosen: each conditional is
            exact, so its gradient is 0 on average at the truth with any neighbours.
        ard: One lengthscale per column, or one for all (of the standardised columns).
        standardize: Whether inputs and targets are standardised inside.
        lengthscale: Starting value in the user's units, () or (d,); with ard=False and
            standardize=True a single number is in standard deviations. None: sqrt(d) of them.
        outputscale: Starting value; None: the targets' variance.
        noise: Starting value of the noise variance; None: a tenth of the targets' variance.
        local_lengthscale: Starting value of the local process beside features, () or (d,); None: half the other. Of a
            local process alone `lengthscale` and `outputscale` are the names.
        local_outputscale: Starting value, of that process; None: a quarter of the targets' variance.
        likelihood: The law of an observation given the process: "normal"; "bernoulli" (targets 0 and 1), "poisson" and
            "negative-binomial" (counts), "gamma" (positive targets), "student-t" (targets with outliers),
            "heteroscedastic" (normal, with the logarithm of the noise another function of the inputs); or one of
            `rfgp.likelihoods`, whose parameters are held where they are given. Under others than the normal one
            `predict` is the law of the latent function, of a logit or the logarithm of a mean, and
            `predict(X).observed()` that of an observation. They have fixed frequencies, and neither a local process nor
            a diagonal.
        inference: How the posterior under another than the normal likelihood is approximated. "laplace": around its
            mode (Rasmussen and Williams 2006, Section 3.4). "variational": by the normal law that is nearest in
            KL(approximation || posterior) (Opper and Archambeau 2009), closer to the posterior where that is skewed, at
            some times the cost and with all rows in memory; for log densities that are concave, and "heteroscedastic".
            Several functions are independent in that law. None: variational for classes of up to 4,000 rows in memory
            (several without features: 500) and for "heteroscedastic", else by Laplace; `gp.regression.approximation`
            says which.
        priors: Log densities (objects with `log_prob`) of named hyperparameters, in the user's units; a
            lengthscale shared by standardised columns counts in standard deviations.
        seed: An integer, or None for one from the system, kept as `.seed`.
        dtype: Of the features; None: the data's. Sums and factorisations are float64 always, products of features
            where the noise is small (`rfgp.solvers.lowrank.model`), and features of inducing points where their
            rounding errors are not small beside it. Means from float32 features are within 0.004 of the target's
            standard deviation of those from float64, standard deviations within 2 %: with noise down to a thousandth of
            the target's variance, through inducing points down to a millionth.

        memory: The most predicted bytes of the fit: a number, "500MB" or "4GB". If None, 8 GB.
        time_limit: The most predicted seconds of the selection and the fit: a number, "30s", "5min" or "2h". By the
            clock nothing more is scored after it. If None, 60 s and 8 ms for each row, half an hour at most, as
            predicted.

    Sources: sparse spectrum processes, Lazaro-Gredilla et al. (2010); nearest-neighbour processes, Vecchia (1988),
    Datta et al. (2016); inducing points, Quinonero-Candela and Rasmussen (2005); couplings as named there.

    Raises:
        InvalidArgumentError: an unknown name, m, M or k not a positive integer, starting values of a local process
            that is not there, or options that no candidate has together.
    """

    fixes_approximation = True
    kinds_of_options = (KernelOptions, FeatureOptions, InducingOptions, LocalOptions)

    @plain()
    def __init__(
        self,
        features: str | None = AUTO,
        spectrum: str | spectra.Spectrum = AUTO,
        num_frequencies: int | str = AUTO,
        coupling: str | couplings.Coupling = AUTO,
        frequencies: str = AUTO,
        *,
        num_inducing: int | str = AUTO,
        inducing: str = AUTO,
        learn_inducing: bool | str = AUTO,
        diagonal: str | None = AUTO,
        local: str | None = AUTO,
        num_neighbors: int | str = AUTO,
        condition_on: str = "auto",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        local_lengthscale: Any = None,
        local_outputscale: float | None = None,
        likelihood: str | Likelihood = "normal",
        inference: str | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        memory: str | float | None = None,
        time_limit: str | float | None = None,
    ) -> None:
        options = options_from(OpenOptions, locals())
        space = None if is_settled(options) else TableSpace(options)
        Process.__init__(self, ModelSpec(open_options(options).changed(search_space=space)))

    @property
    def options(self) -> KernelOptions | OpenOptions:
        """What the constructor was given; once a fit has chosen, what was chosen."""
        space: TableSpace | None = self.family.options.search_space
        return table_options(self.family) if space is None else space.options
