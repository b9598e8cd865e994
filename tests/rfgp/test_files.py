import errno
import os
import pickle
import stat
import threading

import pytest
from devices import device

import rfgp
from rfgp.files import check_folder, check_target, made_folder, write_atomically


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("fails", ["os.replace", "os.fdopen"])
def test_a_full_disk_is_a_named_error_and_keeps_the_old_file(fails, tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(fails, full)
        with pytest.raises(rfgp.FileWriteError) as caught:
            write_atomically(path, b"new")
    assert (
        str(caught.value) == f"{path} cannot be written: No space left on device. Make room, or choose another place."
    )
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert isinstance(caught.value, OSError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_that_cannot_be_saved_is_a_named_error(tmp_path):
    gp = rfgp.SparseSpectrumGP(num_frequencies=2, seed=0).condition([[0.0], [1.0]], [0.0, 1.0])
    with pytest.raises(rfgp.FileWriteError, match=r"Is a directory\. Name a file in it"):
        gp.save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"nowhere/m cannot be written: .* Make its folder first"):
        gp.save(tmp_path / "nowhere" / "m")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(rfgp.FileWriteError, match="full cannot be written: No space left on device"):
        gp.save(device(tmp_path, "full"))


@pytest.mark.parametrize("is_there", [True, False])
def test_symbolic_link_stays_and_leads_to_the_file(is_there, tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    if is_there:
        target.write_bytes(b"old")
    (tmp_path / "second").symlink_to(target)
    link.symlink_to("second")
    write_atomically(link, b"new")
    assert target.read_bytes() == link.read_bytes() == b"new"
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path / "folder")) == ["target"]


def test_links_that_lead_nowhere_are_named(tmp_path):
    for name in ("loop", "lost"):
        (tmp_path / name).symlink_to({"loop": "loop", "lost": "nowhere/file"}[name])
        with pytest.raises(rfgp.FileWriteError, match=f"{name} cannot be written: "):
            write_atomically(tmp_path / name, b"")
        assert (tmp_path / name).is_symlink()


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"all")
    reader.join(10)
    assert found == [b"all"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_stays(tmp_path):
    null, link = device(tmp_path, "null"), tmp_path / "link"
    link.symlink_to(null)
    for path in (null, link):
        write_atomically(path, b"nothing")
    assert stat.S_ISCHR(null.stat().st_mode)
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link", "null"]


def test_unwritable_paths_are_found_before_the_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "f", tmp_path / "no" / "f"):
        with pytest.raises(rfgp.FileWriteError):
            check_target(path)
    with pytest.raises(rfgp.FileWriteError, match="Not a directory"):
        check_folder(tmp_path / "file" / "a" / "b")
    check_folder(tmp_path / "a" / "b")
    check_target(tmp_path / "new")
    monkeypatch.setattr("os.access", lambda *_: False)
    for check, path in ((check_folder, tmp_path / "a" / "b"), (check_target, tmp_path / "new")):
        with pytest.raises(rfgp.FileWriteError, match="Permission denied"):
            check(path)
    assert os.listdir(tmp_path) == ["file"]


def fail(folder, error, names=()):
    with made_folder(folder):
        for name in names:
            (folder / name).write_text("")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_folder_that_stays_empty_goes(error, tmp_path):
    with pytest.raises(error):
        fail(tmp_path / "a" / "b", error)
    assert os.listdir(tmp_path) == []
    with pytest.raises(error):
        fail(tmp_path / "a" / "b", error, ["file"])
    assert os.listdir(tmp_path / "a" / "b") == ["file"]
    (tmp_path / "mine").mkdir()
    with pytest.raises(error):
        fail(tmp_path / "mine", error)
    assert (tmp_path / "mine").exists()
