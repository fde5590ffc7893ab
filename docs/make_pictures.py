"""Make the pictures of the documentation: python docs/make_pictures.py."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import qnumba as qn
from qnumba.data import attention_weight

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

IMAGES = Path(__file__).resolve().parent / "img"
BLOCKS = (16, 32, 64, 128, 256)
FAMILIES = {
    "4 bits": {
        "Q4S, F16 scales": "Q4S block={}:F16",
        "E2M1, UE4M3 under F32": "E2M1 block={}:UE4M3 tensor=F32",
        "E2M1, UE8M0 scales": "E2M1 block={}:UE8M0",
        "nf4 table, F16 scales": "U4 lookup table=nf4 block={}:F16",
    },
    "8 bits": {
        "Q8S, F16 scales": "Q8S block={}:F16",
        "U8 affine, F16 scales": "U8 affine block={}:F16",
        "E4M3, UE8M0 scales": "E4M3 block={}:UE8M0",
        "E5M2, UE8M0 scales": "E5M2 block={}:UE8M0",
    },
}
PRESETS = {
    "4 bits": {"int4": (6, -3), "nvfp4": (6, -9), "mxfp4": (6, -9), "nf4": (6, 1)},
    "8 bits": {"int8": (7, -8), "uint8": (7, 2), "fp8": (-8, -14), "mxfp8": (2, 7)},
}
LOOKS = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "qnumba",  # the same ids in every file
}


def point(x: NDArray[np.float32], scheme: str) -> tuple[float, float]:
    """Return the bits per value and the signal-to-noise ratio in dB of a scheme on an array."""
    q = qn.quantize(x, scheme)
    noise = x.astype(np.float64) - q.dequantize()
    return q.bits_per_value, 10 * math.log10(np.sum(x.astype(np.float64) ** 2) / np.sum(noise**2))


def presets() -> Figure:
    """Draw what presets cost and give on real weights, among families of block sizes."""
    x = attention_weight()
    figure, panels = plt.subplots(1, 2, figsize=(8.5, 3.8), layout="constrained")
    for axes, (title, families) in zip(panels, FAMILIES.items(), strict=True):
        for family, scheme in families.items():
            points = [point(x, scheme.format(block)) for block in BLOCKS]
            axes.plot(*zip(*points, strict=True), ".-", lw=1, ms=4, alpha=0.7, label=family)
        for name, offset in PRESETS[title].items():
            place = point(x, name)
            axes.plot(*place, "o", color="black", ms=5)
            axes.annotate(name, place, xytext=offset, textcoords="offset points")
        axes.set(xlabel="bits per value, scales included", ylabel="signal to noise, dB")
        axes.set_title(f"{title}, blocks of 256 to 16", fontsize=10)
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=7.5)
    return figure


def report() -> Figure:
    """Draw the report of one scheme on the same weights."""
    x = attention_weight()
    return qn.report(x, qn.quantize(x, "int4")).plot()[0].figure


PICTURES: dict[str, Callable[[], Figure]] = {"presets.svg": presets, "report.png": report}


def make(folder: Path) -> None:
    """Write every picture into a folder."""
    for name, draw in PICTURES.items():
        with mpl.rc_context(LOOKS):
            figure = draw()
            date = {"Date": None} if name.endswith("svg") else {}
            figure.savefig(folder / name, dpi=120, metadata=date)
            plt.close(figure)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    make(IMAGES)
    print(f"wrote {', '.join(PICTURES)} to {IMAGES.relative_to(Path.cwd())}")
