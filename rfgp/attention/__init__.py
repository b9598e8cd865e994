"""Attention with random features, in time and memory linear in the number of positions."""

from rfgp.attention.draws import HeadFrequencies as HeadFrequencies
from rfgp.attention.functional import random_feature_attention as random_feature_attention
from rfgp.attention.module import RandomFeatureAttention as RandomFeatureAttention
