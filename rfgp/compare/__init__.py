"""Approximations against the exact process on one input, and fitted models against each other."""

from rfgp.compare.distance import Distance as Distance
from rfgp.compare.distance import distance_from_exact as distance_from_exact
from rfgp.compare.models import ModelComparison as ModelComparison
from rfgp.compare.models import ModelScore as ModelScore
from rfgp.compare.models import compare_models as compare_models
from rfgp.compare.protocol import WALKS as WALKS
from rfgp.compare.protocol import compare_file as compare_file
from rfgp.compare.protocol import compare_nodes as compare_nodes
from rfgp.compare.protocol import compare_table as compare_table
from rfgp.compare.results import Comparison as Comparison
from rfgp.compare.results import Draw as Draw
from rfgp.compare.results import Estimate as Estimate
from rfgp.compare.results import Exact as Exact
from rfgp.compare.results import Example as Example
from rfgp.compare.results import Plan as Plan
from rfgp.compare.results import to_json as to_json
from rfgp.compare.results import to_table as to_table
