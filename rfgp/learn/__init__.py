"""Couplings learned for an objective: the copula of the norms, and their distribution with importance weights.

Frequencies are a differentiable function of the parameters and of random numbers that do not depend on them. So the
gradient of the mean objective is the mean of gradients (Reid et al., 2024, App. A.5). Each step draws new sets
of frequencies. The objective over a fixed validation set of other draws determines the best parameters and the end of
the search.
"""

from rfgp.learn.learners import learn_attention as learn_attention
from rfgp.learn.learners import learn_copula as learn_copula
from rfgp.learn.learners import learn_radial_distribution as learn_radial_distribution
from rfgp.learn.search import Learned as Learned
from rfgp.learn.search import Objective as Objective
from rfgp.learn.search import attention_error as attention_error
from rfgp.learn.search import kernel_error as kernel_error
from rfgp.learn.search import posterior_divergence as posterior_divergence
