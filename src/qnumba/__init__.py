"""qnumba: quantization of NumPy arrays, compiled with Numba, the same bits on every backend."""

from qnumba.calibrate import calibrate
from qnumba.errors import (
    DataError,
    DecodeError,
    QuantizationError,
    QuantizedTypeError,
    SchemeError,
    UnsupportedSchemeError,
)
from qnumba.matmul import matmul
from qnumba.params import QParams
from qnumba.qarray import QArray, scheme_of
from qnumba.quantize import dequantize, quantize, warmup
from qnumba.report import Report, report
from qnumba.scheme import PRESETS, Scheme
from qnumba.validate import Finding, validate

__version__ = "0.1.0"

__all__ = [
    "PRESETS",
    "DataError",
    "DecodeError",
    "Finding",
    "QArray",
    "QParams",
    "QuantizationError",
    "QuantizedTypeError",
    "Report",
    "Scheme",
    "SchemeError",
    "UnsupportedSchemeError",
    "calibrate",
    "dequantize",
    "matmul",
    "quantize",
    "report",
    "scheme_of",
    "validate",
    "warmup",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
