"""An emulator for PTX: what libNVVM compiled runs on the CPU, all threads in lockstep.

It executes the opcodes that element-wise, reducing and packing kernels are made of (no textures,
tensor cores, calls or cooperative grids), and fails where hardware would not notice: accesses
outside an allocation, misaligned, or of bytes nobody wrote; races in shared memory; collectives
that a part of a warp reaches. It counts instructions, and 32-byte sectors per request.

``device.emulated`` puts it where numba-cuda expects a GPU, so that ordinary launches run on it. Its
reading of the instructions comes from the PTX ISA manual; what no emulator shows is what ptxas makes
of them.
"""
