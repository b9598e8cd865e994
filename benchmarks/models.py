"""Models of this and of other packages for races (`benchmarks.race`), each wrapped once.

A fit is a function of rows (n, d), targets (n,) and a seed. It returns a function of new rows to a distribution
(`benchmarks.scores`). Other packages are imported when they are used.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats
from scipy.optimize import minimize_scalar

from benchmarks.scores import Array, Counts, Normal

Predict = Callable[[Any], Any]
Fit = Callable[..., Predict]
"""`fit(X, y, seed)`."""
Make = Callable[[int], Any]
"""`make(seed)` returns a model of this package."""


class Predictor:
    """A function of new rows, with facts of the fit for the line of results."""

    def __init__(self, predict: Predict, **about: Any) -> None:
        self._predict, self.about = predict, about

    def __call__(self, Z: Any) -> Any:
        return self._predict(Z)


# --- this package ----------------------------------------------------------------------------------------------------


def gp(make: Make) -> Fit:
    """Fit `make(seed)`. Observations are normal, or mixtures if several models are averaged."""

    def fit(X: Any, y: Array, seed: int = 0) -> Predict:
        model = make(seed).fit(X, y)

        def predict(Z: Any) -> Any:
            members = getattr(model, "members", [])
            laws = [one.predict(Z).observed() for _, one in members] or [model.predict(Z).observed()]
            moments = (np.stack([getattr(law, name) for law in laws]) for name in ("mean", "variance"))
            return Normal(*moments, [share for share, _ in members] or [1.0])

        selection = getattr(model, "selection", None)
        return Predictor(predict, **({} if selection is None else {"chosen": selection.chosen.name}))

    return fit


def gp_observed(make: Make) -> Fit:
    """Fit `make(seed)` with any likelihood, and predict with the distribution of the package itself."""

    def fit(X: Any, y: Array, seed: int = 0) -> Predict:
        model = make(seed).fit(X, y)
        return lambda Z: model.predict(Z).observed()

    return fit


def gp_counts(make: Make) -> Fit:
    """Fit `make(seed)` with a likelihood of counts."""

    def fit(X: Any, y: Array, seed: int = 0) -> Predict:
        model = make(seed).fit(X, y)
        dispersion = getattr(model.hyperparameters, "dispersion", None)
        shape = None if dispersion is None else 1 / dispersion.item()

        def predict(Z: Any) -> Counts:
            law = model.predict(Z)
            return Counts(law.mean, law.variance, shape)

        return Predictor(predict, **({} if shape is None else {"shape": shape}))

    return fit


# --- scikit-learn ----------------------------------------------------------------------------------------------------


def sklearn_process(X: Array, y: Array, seed: int = 0) -> Predict:
    """Fit a constant times an RBF with a lengthscale a column, plus white noise, from one start."""
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels

    scales = kernels.RBF(np.full(X.shape[1], np.sqrt(X.shape[1])), (1e-3, 1e4))
    kernel = kernels.ConstantKernel(1.0, (1e-6, 1e6)) * scales + kernels.WhiteKernel(0.1, (1e-8, 1e2))
    model = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y)

    def predict(Z: Array) -> Normal:
        mean, deviation = model.predict(Z, return_std=True)
        return Normal(mean, deviation**2)

    return predict


def classifier(make: Callable[[], Any], most: int | None = None) -> Fit:
    """Fit `make()`, with `predict_proba` and `classes_`, to at most so many random rows."""

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        rows, num_classes = np.arange(len(y)), y.max() + 1
        if most is not None and len(y) > most:
            rows = np.random.default_rng(seed).choice(rows, most, replace=False)
        model = make().fit(X[rows], y[rows])
        return lambda Z: spread(model, Z, num_classes)

    return fit


def spread(model: Any, Z: Array, num_classes: int) -> Array:
    """Return probabilities of all codes, zero for those that a subset of rows did not have."""
    out = np.zeros((len(Z), num_classes))
    out[:, model.classes_] = model.predict_proba(Z)
    return out


def ridge(X: Array, y: Array, seed: int = 0) -> Predict:
    """Fit ridge regression; normal distributions with the deviation of the residuals."""
    from sklearn.linear_model import Ridge

    model = Ridge(1e-3).fit(X, y)
    variance = float(np.mean((y - model.predict(X)) ** 2))
    return lambda Z: Normal(model.predict(Z), np.full(len(Z), variance))


def poisson_regression(negative: bool = False) -> Fit:
    """Fit a log-linear model; negative binomial counts have the likeliest dispersion of the training rows."""

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        from sklearn.linear_model import PoissonRegressor

        model = PoissonRegressor(alpha=0, max_iter=1000).fit(X, y)
        shape = likely_shape(y, model.predict(X)) if negative else None
        return lambda Z: Counts.of_means(model.predict(Z), shape)

    return fit


def likely_shape(y: Array, mean: Array) -> float:
    """Return the shape of negative binomial distributions of given means that makes counts most likely."""
    found = minimize_scalar(lambda log: -Counts.of_means(mean, np.exp(log)).log_prob(y).sum(), bounds=(-5, 12))
    return float(np.exp(found.x))


# --- boosted trees ---------------------------------------------------------------------------------------------------


def _tenth(y: Array) -> tuple[Array, Array]:
    """Return a random tenth of the rows, on which trees are stopped, and the others."""
    order = np.random.default_rng(0).permutation(len(y))
    return order[: len(y) // 10], order[len(y) // 10 :]


def boosting(X: Any, y: Array, seed: int = 0) -> Predict:
    """Fit HistGradientBoosting; normal distributions with the variance of 5-fold out-of-fold errors."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.model_selection import cross_val_predict

    model = HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0)
    variance = float(np.mean((y - cross_val_predict(model, X, y, cv=5)) ** 2))
    model.fit(X, y)
    return lambda Z: Normal(model.predict(Z), np.full(len(Z), variance))


def quantile_boosting(middle: float | None = None) -> Fit:
    """Fit HistGradientBoosting for the mean or a quantile, and normal distributions of the width of 90 % intervals."""

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        from sklearn.ensemble import HistGradientBoostingRegressor

        losses: list[dict[str, Any]] = [{"loss": "quantile", "quantile": q} for q in (0.05, 0.95)]
        losses.append({} if middle is None else {"loss": "quantile", "quantile": middle})
        models = [HistGradientBoostingRegressor(random_state=0, **loss).fit(X, y) for loss in losses]

        def predict(Z: Array) -> Normal:
            low, high, mean = (model.predict(Z) for model in models)
            return Normal(mean, np.maximum((high - low) / (2 * stats.norm.ppf(0.95)), 1e-3) ** 2)

        return predict

    return fit


def poisson_boosting(negative: bool = False) -> Fit:
    """Fit HistGradientBoosting with the Poisson loss, stopped early on a random tenth, which gives the dispersion."""

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        from sklearn.ensemble import HistGradientBoostingRegressor

        out, left = _tenth(y)
        model = HistGradientBoostingRegressor(loss="poisson", early_stopping=True, random_state=0)
        model.fit(X[left], y[left], X_val=X[out], y_val=y[out])
        shape = likely_shape(y[out], model.predict(X[out])) if negative else None
        return lambda Z: Counts.of_means(model.predict(Z), shape)

    return fit


def class_boosting(**options: Any) -> Fit:
    """Fit HistGradientBoosting, stopped early on a random tenth without rows that are the only ones of their class."""

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        from sklearn.ensemble import HistGradientBoostingClassifier

        order = np.random.default_rng(0).permutation(len(y))
        first = np.unique(y[order], return_index=True)[1]
        kept = np.setdiff1d(np.arange(len(y) - len(y) // 10, len(y)), first)
        out, left = order[kept], np.delete(order, kept)
        model = HistGradientBoostingClassifier(early_stopping=True, random_state=0, **options)
        model.fit(X[left], y[left], X_val=X[out], y_val=y[out])
        return lambda Z: spread(model, Z, y.max() + 1)

    return fit


def catboost(stop: Callable[[Array], tuple[Array, Array]] = _tenth, **options: Any) -> Fit:
    """Fit CatBoost's mean and variance, stopped early on the first of two parts of the rows."""

    def fit(X: Any, y: Array, seed: int = 0) -> Predict:
        from catboost import CatBoostRegressor

        more = {"random_seed": 0, "verbose": False, "thread_count": 1, "allow_writing_files": False, **options}
        model = CatBoostRegressor(loss_function="RMSEWithUncertainty", early_stopping_rounds=50, **more)
        (out, left), part = stop(y), X.iloc if hasattr(X, "iloc") else X
        model.fit(part[left], y[left], eval_set=(part[out], y[out]))
        return lambda Z: Normal(*model.predict(Z).T)

    return fit


def ngboost(X: Array, y: Array, seed: int = 0) -> Predict:
    """Fit NGBoost with its defaults."""
    from ngboost import NGBRegressor

    trees = NGBRegressor(random_state=0, verbose=False).fit(X, y)

    def predict(Z: Array) -> Normal:
        found = trees.pred_dist(Z).params
        return Normal(found["loc"], found["scale"] ** 2)

    return predict


# --- GPBoost ---------------------------------------------------------------------------------------------------------


def gpboost(likelihood: str = "gaussian", exact: int = 0, nu: float = 1.5, **options: Any) -> Fit:
    """Fit GPBoost: a Matern kernel with a lengthscale a column, an intercept, and Vecchia beyond some rows.

    Args:
        likelihood: "gaussian", "t", "poisson", "negative_binomial" or "bernoulli_logit".
        exact: The most rows of an exact process.
        nu: The smoothness. If infinite, the Gaussian kernel.
        options: Further options of `gpboost.GPModel`.

    Rows may also be a mapping of "gp_coords" and "group_data".
    """

    def parts(X: Any) -> dict[str, Any]:
        return X if isinstance(X, dict) else {"gp_coords": X}

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        import gpboost as package

        kind: dict[str, Any] = {"cov_function": "matern_ard", "cov_fct_shape": nu}
        if math.isinf(nu):
            kind = {"cov_function": "gaussian_ard"}
        approximation = "none" if len(y) <= exact else "vecchia"
        given = {"gp_approx": approximation, "likelihood": likelihood, "num_parallel_threads": 1, **kind, **options}
        model = package.GPModel(**parts(X), **given)
        model.fit(y=np.asarray(y, dtype=float), X=np.ones((len(y), 1)))

        def predict(Z: Any) -> Any:
            observed = likelihood in ("gaussian", "bernoulli_logit")
            where = {f"{name}_pred": values for name, values in parts(Z).items()}
            ones = np.ones((len(next(iter(where.values()))), 1))
            found = model.predict(**where, X_pred=ones, predict_var=True, predict_response=observed)
            mean, variance = np.asarray(found["mu"]), np.asarray(found["var"])
            if likelihood == "bernoulli_logit":
                return np.stack([1 - mean, mean], axis=1)
            if likelihood == "poisson":
                return Counts(mean, variance)
            if likelihood == "negative_binomial":
                return Counts(mean, variance, float(np.ravel(model.get_aux_pars())[0]))
            if likelihood == "t":
                return Student(mean, variance, *np.ravel(model.get_aux_pars())[:2])
            return Normal(mean, variance)

        return predict

    return fit


class Student:
    """Student's distributions around normal latent values, integrated by Gauss-Hermite quadrature."""

    def __init__(self, mean: Array, variance: Array, scale: float, df: float) -> None:
        self.mean, self._deviation, self._scale, self._df = mean, np.sqrt(variance), scale, df

    def log_prob(self, y: Array) -> Array:
        """Return the log densities (n,)."""
        nodes, weights = np.polynomial.hermite_e.hermegauss(60)
        places = self.mean[:, None] + self._deviation[:, None] * nodes
        inside = stats.t(self._df, places, self._scale).logpdf(y[:, None]) + np.log(weights / weights.sum())
        return np.asarray(np.logaddexp.reduce(inside, axis=1))


# --- GPyTorch --------------------------------------------------------------------------------------------------------


def _approximate(x: Any, points: Any, nu: float, latents: int, near: int) -> Any:
    """Return GPyTorch's variational model with one kernel for `latents` processes, from inducing points (m, d).

    If `near` is not 0, it is the nearest-neighbor variational process with so many neighbors and batches of 1,024.
    """
    import gpytorch
    import torch

    shape = torch.Size([latents] if latents > 1 else [])
    variational = gpytorch.variational

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            strategy: Any
            if near:
                law: Any = variational.MeanFieldVariationalDistribution(len(points))
                kind: Any = variational.nearest_neighbor_variational_strategy.NNVariationalStrategy
                strategy = kind(self, points, law, k=near, training_batch_size=1024)
            else:
                law = variational.CholeskyVariationalDistribution(len(points), batch_shape=shape)
                strategy = variational.VariationalStrategy(self, points, law)
            if latents > 1:
                strategy = variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=latents)
            super().__init__(strategy)
            kernel = gpytorch.kernels.MaternKernel(nu=nu, ard_num_dims=x.shape[1])
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, inputs: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

        def __call__(self, inputs: Any, prior: bool = False, **more: Any) -> Any:
            return self.variational_strategy(x=inputs, prior=prior, **more)

    return Model()


def _ascend(model: Any, likelihood: Any, x: Any, y: Any, *, rate: float, batch: int, epochs: int, limit: float,
            settled: float = -math.inf, near: bool = False) -> None:  # fmt: skip
    """Raise the bound by Adam for some epochs or seconds, or until the mean of ten epochs gains less than `settled`."""
    import gpytorch
    import torch

    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=rate)
    begin, seen = time.perf_counter(), list[float]()
    for _ in range(epochs):
        total = 0.0
        for part in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            law = model(None if near else x[part])  # the nearest-neighbor process draws its own batches
            target = y[model.variational_strategy.current_training_indices] if near else y[part]
            loss = -objective(law, target)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(part) / len(x)
            if time.perf_counter() - begin > limit:
                return
        seen.append(total)
        if len(seen) >= 20 and np.mean(seen[-10:]) > np.mean(seen[-20:-10]) - settled:
            return


def svgp(limit: float = math.inf, near: int = 0) -> Fit:
    """Fit SVGP: 512 inducing points, Matern 3/2, 60 epochs of batches of 1,024 rows, at most `limit` seconds.

    If `near` is not 0, all rows are inducing points of the nearest-neighbor variational process.
    """

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        import gpytorch
        import torch

        torch.manual_seed(0)
        x, target = torch.as_tensor(X).float(), torch.as_tensor(y).float()
        points = x.clone() if near else x[torch.randperm(len(x))[:512]].clone()
        model, likelihood = _approximate(x, points, 1.5, 1, near), gpytorch.likelihoods.GaussianLikelihood()
        _ascend(model, likelihood, x, target, rate=0.01, batch=1024, epochs=60, limit=limit, near=near > 0)
        return _batched(model, likelihood)

    return fit


def _batched(model: Any, likelihood: Any) -> Predict:
    """Return the distributions of observations, in batches."""
    import torch

    model.eval(), likelihood.eval()

    def predict(Z: Array) -> Normal:
        with torch.no_grad():
            laws = [likelihood(model(part)) for part in torch.as_tensor(Z).float().split(1024)]
        mean, variance = (torch.cat([getattr(law, name) for law in laws]) for name in ("mean", "variance"))
        return Normal(mean.double().numpy(), variance.double().numpy())

    return predict


def class_svgp(X: Array, y: Array, seed: int = 0) -> Predict:
    """Fit SVGP with a softmax, or a probit for two classes, until its bound settles: Matern 5/2, up to 512 points."""
    import gpytorch
    import torch

    torch.manual_seed(0)
    num_classes = y.max() + 1
    rows, binary = torch.as_tensor(X).float(), num_classes == 2
    points = rows[torch.randperm(len(rows))[: 512 if num_classes < 10 else 256]].clone()
    model = _approximate(rows, points, 2.5, 1 if binary else num_classes, 0)
    model.covar_module.base_kernel.lengthscale = X.shape[1] ** 0.5
    likelihood: Any = gpytorch.likelihoods.BernoulliLikelihood()
    if not binary:
        sizes = {"num_features": num_classes, "num_classes": num_classes}
        likelihood = gpytorch.likelihoods.SoftmaxLikelihood(**sizes, mixing_weights=False)
    batch = 1024 if len(rows) > 10_000 else 256
    target = torch.as_tensor(y).float() if binary else torch.as_tensor(y)
    _ascend(model, likelihood, rows, target, rate=0.03, batch=batch, epochs=100, limit=600, settled=0.002)
    model.eval(), likelihood.eval()

    def predict(Z: Array) -> Array:
        with torch.no_grad(), gpytorch.settings.num_likelihood_samples(256):
            laws = [likelihood(model(part)).probs for part in torch.as_tensor(Z).float().split(256)]
        found = torch.cat(laws) if binary else torch.cat([law.mean(0) for law in laws])
        return (torch.stack([1 - found, found], 1) if binary else found).double().numpy()

    return predict


def gpytorch_process(limit: float = math.inf, points: int = 0) -> Fit:
    """Fit GPyTorch's exact process, Matern 3/2, by 100 steps of Adam; with inducing points, its SGPR."""

    def fit(X: Array, y: Array, seed: int = 0) -> Predict:
        import gpytorch
        import torch

        torch.manual_seed(0)
        x, target = torch.as_tensor(X).float(), torch.as_tensor(y).float()
        chosen, likelihood = x[torch.randperm(len(x))[:points]].clone(), gpytorch.likelihoods.GaussianLikelihood()

        class Model(gpytorch.models.ExactGP):
            def __init__(self) -> None:
                super().__init__(x, target, likelihood)
                base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=x.shape[1]))
                self.mean_module = gpytorch.means.ConstantMean()
                inducing = gpytorch.kernels.InducingPointKernel
                self.covar_module = inducing(base, chosen, likelihood) if points else base

            def forward(self, inputs: Any) -> Any:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

        model, begin = Model(), time.perf_counter()
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(100):
            optimizer.zero_grad()
            (-objective(model(x), target)).backward()
            optimizer.step()
            if time.perf_counter() - begin > limit:
                break
        return _batched(model, likelihood)

    return fit
