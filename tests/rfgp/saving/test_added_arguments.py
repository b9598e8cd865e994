"""Arguments that older files lack, or have under other names, are read as models of their time had them."""

import pytest

import rfgp
from rfgp.saving.values import Decoder, Encoder


def without(content, key):
    """Return JSON without a key of its mappings."""
    if isinstance(content, dict):
        return {name: without(one, key) for name, one in content.items() if name != key}
    return content


@pytest.mark.parametrize("size", [1, 8, 16])
def test_block_sizes_are_always_written(size):
    written = Encoder().encode(rfgp.InducingPoints(8, residual=rfgp.Vecchia(6, block_size=size)))
    assert Decoder([], {}).decode(written) == rfgp.InducingPoints(8, residual=rfgp.Vecchia(6, block_size=size))
    assert Decoder([], {}).decode(Encoder().encode(rfgp.Vecchia(block_size=size))) == rfgp.Vecchia(block_size=size)


def test_files_without_block_sizes_have_neighbors_of_each_row():
    written = Encoder().encode(rfgp.Vecchia(6))
    assert str(written).count("block_size") == 1
    old = without(written, "block_size")
    assert "block_size" not in str(old)
    assert Decoder([], {}).decode(old) == rfgp.Vecchia(6, block_size=1)


def test_files_keep_former_names_of_arguments():
    walks = rfgp.RandomWalks(8, p_halt=0.3, step_coupling="repelling")
    written = Encoder().encode(walks)
    assert written["arguments"] == {"num_walkers": 8, "halt": 0.3, "directions": "repelling"}
    assert Decoder([], {}).decode(written) == walks
