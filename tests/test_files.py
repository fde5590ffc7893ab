"""Files that appear whole or not at all."""

import os
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from qnumba.accuracy import plot
from qnumba.io.burnpack import BurnpackFile
from qnumba.io.files import atomic_write
from qnumba.io.npy import read_npy, write_npy
from qnumba.io.safetensors import SafetensorsFile, save_safetensors, write_safetensors


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.safetensors"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_leaves_what_was_there(path, error):
    path.write_bytes(b"before")

    def tensors():
        yield "a", np.ones(2, np.float32)
        raise error

    with pytest.raises(error):
        write_safetensors(path, dict.fromkeys("ab", ("F32", (2,))), tensors())
    assert path.read_bytes() == b"before"
    assert list(path.parent.iterdir()) == [path]


def test_atomic_write_keeps_modes_and_follows_links(path):
    path.write_bytes(b"before")
    path.chmod(0o640)
    link = path.with_name("link")
    link.symlink_to(path)
    with atomic_write(link) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert link.is_symlink()
    assert path.read_bytes() == b"after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_atomic_write_refuses_what_is_no_file(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for target in (tmp_path, Path(os.devnull), loop):
        with pytest.raises(FileExistsError, match="regular file"), atomic_write(target):
            pass
    with pytest.raises(FileNotFoundError, match="create it first"), atomic_write(tmp_path / "x/y"):
        pass


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes of POSIX")
@pytest.mark.parametrize("read", [read_npy, SafetensorsFile, BurnpackFile])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path, read):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file.*pipe"):
        read(pipe)


X = np.ones((64, 64), np.float32)
WRITERS = {
    "npy": write_npy,
    "safetensors": lambda path, x: save_safetensors(path, {"a": x}),
    "picture": lambda path, x: plot(path.with_suffix(".svg")),
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("case", WRITERS)
def test_a_full_disk_is_named_with_the_file(path, monkeypatch, case):
    def full(self, mode):
        return open("/dev/full", "wb", buffering=0)  # noqa: PTH123 - stands for Path.open

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left") as caught:
        WRITERS[case](path, X)
    assert caught.value.filename == str(path.with_suffix(Path(caught.value.filename).suffix))
