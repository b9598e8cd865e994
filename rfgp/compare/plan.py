"""The numbers of splits and draws of a comparison, and its seed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rfgp import random
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.messages import counted


@dataclass(frozen=True)
class Plan:
    """The numbers of splits and draws of a comparison, and its seed.

    Attributes:
        splits: The number of random splits into a training set and a test set.
        draws: The number of draws per method, size and split.
        seed: The seed of all splits and draws.

    Examples:
        >>> Plan(splits=2, draws=5).extent
        '2 splits x 5 draws'
    """

    splits: int = 1
    draws: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("splits", "draws"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} must be at least 1, got {getattr(self, name)}.")
        random.resolve_seed(self.seed)

    @property
    def extent(self) -> str:
        """The numbers of splits and draws, as text."""
        return f"{counted(self.splits, 'split')} x {counted(self.draws, 'draw')}"

    def order(self, split: int, count: int) -> NDArray[np.int64]:
        """Return the random order of `count` items in one split, (count,).

        Args:
            split: The number of the split.
            count: The number of items.
        """
        return random.numpy_generator(self.seed, random.Role.SPLIT, split).permutation(count)

    def draw_seed(self, split: int, repeat: int) -> int:
        """Return the seed of one draw, which is the same for all methods.

        Args:
            split: The number of the split.
            repeat: The number of the draw.
        """
        return random.child_seed(self.seed, random.Role.FREQUENCIES, split, repeat)

    def parts(
        self,
        split: int,
        groups: NDArray[np.int64],  # (n,)
        num_train: int,
        num_test: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return training and test observations that do not share a group.

        A group is, for example, a node, or rows that are equal. Groups are in a uniformly random order. In a random
        order of observations large groups would tend to be first. The group at the border between the two sets is in
        the training set.

        Args:
            split: The number of the split.
            groups: The group (n,) of each observation.
            num_train: The number of training observations.
            num_test: The largest number of test observations.

        Returns:
            The indices of the training observations and of the test observations.

        Raises:
            DataError: If no group is left for the test set.
        """
        distinct, member = np.unique(groups, return_inverse=True)
        order = self.order(split, len(groups))
        if len(distinct) < len(groups):
            order = np.argsort(self.order(split, len(distinct))[member.reshape(-1)], kind="stable")
        train, test = order[:num_train], order[num_train : num_train + num_test]
        test = test[~np.isin(groups[test], groups[train])]
        if len(test) == 0:
            raise DataError(
                "All test observations are at nodes, or repeat rows, of the training part. Use a smaller num_train."
            )
        return train, test
