"""Devices of a test's own: a test that fails may write over what it is given, and so never has the machine's."""

import os
import stat

import pytest

_NUMBERS = {"null": 3, "full": 7}


def device(folder, name):
    """Make a device that is like /dev/null or /dev/full in a folder; where that is not allowed the test is skipped."""
    path = folder / name
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, _NUMBERS[name]))
        path.open("wb").close()
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    return path
