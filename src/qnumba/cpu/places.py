"""Where rows and bands are, from the numbers of a job (jobs.py)."""

from __future__ import annotations

from qnumba.cpu.jit import inner


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
