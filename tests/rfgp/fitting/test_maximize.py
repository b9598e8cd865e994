"""Searches over all rows by L-BFGS."""

import numpy as np
import pytest
from problems import table
from scipy.optimize import OptimizeResult, minimize

import rfgp
from rfgp import descent


class TestFailedLineSearches:
    """A line search may fail because of rounding or a curved valley. A restart distinguishes the two."""

    @staticmethod
    def stop(monkeypatch, *iterations):
        """End call i of the minimizer like a failed line search, after some iterations."""
        left, starts = list(iterations), []

        def stopping(objective, start, **keywords):
            starts.append(start.copy())
            if not left:
                return minimize(objective, start, **keywords)
            most = left.pop(0)
            options = {**keywords.pop("options"), "maxiter": most}
            found = minimize(objective, start, options=options, **keywords) if most else None
            x, fun = (start, objective(start)[0]) if found is None else (found.x, found.fun)
            return OptimizeResult(x=x, fun=fun, success=False, status=2, nit=most, nfev=1, message="ABNORMAL: ")

        monkeypatch.setattr(descent, "minimize", stopping)
        return starts

    def test_search_restarts_where_it_stopped(self, monkeypatch):
        X, y = table(80)
        whole = rfgp.ExactGP().fit(X, y).fit_report
        starts = self.stop(monkeypatch, 3)
        report = rfgp.ExactGP().fit(X, y).fit_report
        assert len(starts) == 2
        assert not np.array_equal(starts[0], starts[1])
        assert report.converged
        assert report.log_marginal_likelihood == pytest.approx(whole.log_marginal_likelihood, abs=1e-5)

    def test_restart_without_a_gain_converges(self, monkeypatch):
        self.stop(monkeypatch, 3, 0)
        report = rfgp.ExactGP().fit(*table(80)).fit_report
        assert report.converged
        assert "no further progress at this precision" in report.message

    def test_gain_and_another_failure_do_not_converge(self, monkeypatch):
        self.stop(monkeypatch, 3, 1)
        with pytest.warns(rfgp.ConvergenceWarning, match="without converging"):
            report = rfgp.ExactGP().fit(*table(80)).fit_report
        assert not report.converged
        assert "the line search found no better point" in report.message
