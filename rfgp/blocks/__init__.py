"""Latent blocks: the terms of a Gaussian process prior, as Gaussian vectors with linear projections to points."""

from rfgp.blocks.prior import MaternColumn as MaternColumn
from rfgp.blocks.prior import PrecisionBlock as PrecisionBlock
from rfgp.blocks.prior import Prior as Prior
from rfgp.blocks.prior import VecchiaBlock as VecchiaBlock
from rfgp.blocks.prior import predecessors_in_blocks as predecessors_in_blocks
from rfgp.blocks.role import KernelBlock as KernelBlock
from rfgp.blocks.role import LatentBlock as LatentBlock
from rfgp.blocks.role import Residual as Residual
from rfgp.blocks.role import SparseWeightBlock as SparseWeightBlock
from rfgp.blocks.role import WeightBlock as WeightBlock
from rfgp.blocks.role import Weights as Weights
