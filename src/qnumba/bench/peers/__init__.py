"""Other libraries that do the same jobs: what is installed takes part in the benchmark.

Each is called in the fastest way that it allows, and imported by its own jobs only.
"""

from __future__ import annotations

from qnumba.bench.peers import ggml, jax, litert, mlx, numeric, onnxruntime, piquant, torch, torchao
from qnumba.bench.peers.job import Job, Peer

__all__ = ["PEERS", "Job", "Peer"]

PEERS: tuple[Peer, ...] = tuple(
    peer
    for module in (piquant, ggml, numeric, onnxruntime, litert, torch, torchao, jax, mlx)
    for peer in module.PEERS
)
