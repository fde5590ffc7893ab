"""Files that appear whole or not at all."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from qnumba.io.files import atomic_write
from qnumba.io.safetensors import write_safetensors


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
    for target in (tmp_path, Path(os.devnull)):
        with pytest.raises(FileExistsError, match="regular file"), atomic_write(target):
            pass
    with pytest.raises(FileNotFoundError, match="create it first"), atomic_write(tmp_path / "x/y"):
        pass
