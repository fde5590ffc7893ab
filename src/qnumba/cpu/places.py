"""Where rows and bands are, from the numbers of a job (jobs.py), and its kind."""

from __future__ import annotations

from numba.extending import overload

from qnumba.cpu.jit import inner

VECTOR = 16  # values, at most
INTEGER, AFFINE, MINIFLOAT, LOOKUP = range(4)
KINDS = ("integer", "affine", "minifloat", "lookup")


def kind_of(job):
    """Return the kind of codes of a job's type: it has a field of that name.

    So a kernel is compiled for one kind of codes, and holds nothing that the others need.
    """
    return next(kind for kind, name in enumerate(KINDS) if name in job.fields)


def has_points(job):
    """Return whether a job has zero points."""
    return job.kind == AFFINE


@overload(has_points)
def _has_points(job):
    answer = kind_of(job) == AFFINE
    return lambda job: answer


@inner
def rows_of(job, group):
    """Return how many rows a group has."""
    if job.axes <= 1:
        return min(job.group_rows, job.rows - group * job.group_rows)
    count = 1
    for axis in range(job.axes - 1, -1, -1):
        extent, step = job.extents[axis], job.steps[axis]
        blocks = (extent + step - 1) // step
        count *= min(step, extent - group % blocks * step)
        group //= blocks
    return count


@inner
def row_of(job, group, k):
    """Return the number of the k-th row of a group; of several axes, a group is one band."""
    if job.axes <= 1:
        return group * job.group_rows + k
    row, stride = 0, 1
    for axis in range(job.axes - 1, -1, -1):
        extent, step = job.extents[axis], job.steps[axis]
        blocks = (extent + step - 1) // step
        start = group % blocks * step
        size = min(step, extent - start)
        row += (start + k % size) * stride
        stride *= extent
        group //= blocks
        k //= size
    return row


@inner
def band_of(job, group, row):
    """Return the band of a row: the rows of a band share one row of scales."""
    return row // job.steps[0] if job.axes <= 1 else group


@inner
def next_runs(job, tile, place, are_joined):
    """Return how many runs follow at a place of a tile, and how long each is.

    A run ends where a block ends or the tile's row does. Whole runs of a row come together, and
    those of all rows where they ``are_joined``.
    """
    rows, count, _, _, column = tile
    step = job.block_cols
    offset, left = (column + place % count) % step, count - place % count
    if offset > 0 or left < step:
        return 1, min(step - offset, left)
    if are_joined and count % step == 0:
        left = rows * count - place
    return left // step, step
