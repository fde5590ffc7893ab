"""Calibration of arrays that come in chunks: observers see each chunk once and keep a summary.

An observer is made for a scheme, sees chunks (``update``), joins with observers of other chunks
(``merge``), and gives the parameters that ``quantize`` takes (``params``).
"""

from qnumba.observers.base import Observer
from qnumba.observers.histograms import MSE, Percentile
from qnumba.observers.ranges import AbsMax, AbsMean, MinMax, MovingAverage

__all__ = ["MSE", "AbsMax", "AbsMean", "MinMax", "MovingAverage", "Observer", "Percentile"]
