"""Files are written whole or not at all, through links, to pipes and to devices."""

import errno
import os
import pickle
import stat
import threading

import pytest
from devices import device

import rfgp

GP = rfgp.SparseSpectrumGP(num_frequencies=2, seed=0).condition([[0.0], [1.0]], [0.0, 1.0])


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fails", ["os.replace", "os.fdopen"])
def test_a_full_disk_is_a_named_error_and_keeps_the_old_file(fails, tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(fails, full)
        with pytest.raises(rfgp.FileWriteError, match=r"f cannot be written: No space left on device") as caught:
            GP.save(path)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert isinstance(caught.value, OSError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "lost").symlink_to("nowhere/file")
    for name, words in (
        ("", "Is a directory"),
        ("nowhere/m", "Make its folder"),
        ("file/m", "Not a directory"),
        ("loop", "loop"),
        ("lost", "lost"),
    ):
        with pytest.raises(rfgp.FileWriteError, match=words):
            GP.save(tmp_path / name)
    with pytest.raises(rfgp.MissingFolderError):
        GP.save(tmp_path / "nowhere" / "m")
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(rfgp.FileWriteError, match="Permission denied"):
        GP.save(tmp_path / "new")
    assert sorted(os.listdir(tmp_path)) == ["file", "loop", "lost"]


@pytest.mark.parametrize("is_there", [True, False])
def test_symbolic_links_stay_and_lead_to_the_file(is_there, tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    if is_there:
        target.write_bytes(b"old")
    (tmp_path / "second").symlink_to(target)
    link.symlink_to("second")
    GP.save(link)
    assert rfgp.load(target).num_observations == 2
    assert link.is_symlink()
    assert os.listdir(tmp_path / "folder") == ["target"]


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    GP.save(pipe)
    reader.join(10)
    GP.save(tmp_path / "file")
    assert found == [(tmp_path / "file").read_bytes()]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["file", "pipe"]


def test_devices_are_written_to_and_stay(tmp_path):
    null = device(tmp_path, "null")
    GP.save(null)
    assert stat.S_ISCHR(null.stat().st_mode)
    with pytest.raises(rfgp.FileWriteError, match="full cannot be written: No space left on device"):
        GP.save(device(tmp_path, "full"))
    assert sorted(os.listdir(tmp_path)) == ["full", "null"]
