"""BLAS and LAPACK of SciPy in compiled loops.

SciPy exports the addresses of its routines (`scipy.linalg.cython_blas`). They are passed to the loops as integers in an
array, `ADDRESSES`, since function pointers could not be cached on disk. Matrices are column-major, given as
one-dimensional arrays from their first entry on, with the distance of columns ("ld").
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from graphs.compiled import jit

_NAMES = ("blas.dgemm", "blas.dsyrk", "blas.dtrsm", "blas.dsymm", "lapack.dpotrf", "lapack.dpotri")
_GEMM, _SYRK, _TRSM, _SYMM, _POTRF, _POTRI = range(len(_NAMES))
ADDRESSES = np.array(
    [
        get_cython_function_address("scipy.linalg.cython_" + library, name)
        for library, name in (n.split(".") for n in _NAMES)
    ],
    dtype=np.int64,
)
LOWER, PLAIN, TRANSPOSED, LEFT, RIGHT = (np.uint8(ord(letter)) for letter in "LNTLR")
_NOT_UNIT = PLAIN


@intrinsic
def _call(typing_context, address, arguments):
    """Call the C function at an address; numbers are passed by reference, addresses (uintp) directly."""

    def generate(context, builder, signature, values):
        byte = ir.IntType(8).as_pointer()
        passed = []
        for kind, value in zip(signature.args[1], cgutils.unpack_tuple(builder, values[1]), strict=True):
            if kind == types.uintp:
                passed.append(builder.inttoptr(value, byte))
            else:
                passed.append(builder.bitcast(cgutils.alloca_once_value(builder, value), byte))
        kind = ir.FunctionType(ir.VoidType(), [byte] * len(passed))
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), passed)
        return context.get_dummy_value()

    return types.void(types.int64, arguments), generate


@jit
def gemm(f, a_is, b_is, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """Overwrite C (m, n) with alpha op(A) op(B) + beta C, op(A) (m, k); `a_is`, `b_is` are PLAIN or TRANSPOSED."""
    sizes, left, right = (
        (np.int32(m), np.int32(n), np.int32(k)),
        (a.ctypes.data, np.int32(lda)),
        (b.ctypes.data, np.int32(ldb)),
    )
    _call(f[_GEMM], (a_is, b_is, *sizes, float(alpha), *left, *right, float(beta), c.ctypes.data, np.int32(ldc)))


@jit
def syrk(f, n, k, alpha, a, lda, beta, c, ldc):
    """Overwrite the lower triangle of C (n, n) with alpha A A^T + beta C, A (n, k)."""
    sizes, left = (np.int32(n), np.int32(k)), (a.ctypes.data, np.int32(lda))
    _call(f[_SYRK], (LOWER, PLAIN, *sizes, float(alpha), *left, float(beta), c.ctypes.data, np.int32(ldc)))


@jit
def symm(f, m, n, alpha, a, lda, b, ldb, beta, c, ldc):
    """Overwrite C (m, n) with alpha A B + beta C, given the lower triangle of A (m, m)."""
    sizes, left, right = (np.int32(m), np.int32(n)), (a.ctypes.data, np.int32(lda)), (b.ctypes.data, np.int32(ldb))
    _call(f[_SYMM], (LEFT, LOWER, *sizes, float(alpha), *left, *right, float(beta), c.ctypes.data, np.int32(ldc)))


@jit
def trsm(f, a_is, m, n, a, lda, b, ldb):
    """Overwrite B (m, n) with B op(A)^-1, A lower triangular; `a_is` is PLAIN or TRANSPOSED."""
    sizes, left = (np.int32(m), np.int32(n)), (a.ctypes.data, np.int32(lda))
    _call(f[_TRSM], (RIGHT, LOWER, a_is, _NOT_UNIT, *sizes, 1.0, *left, b.ctypes.data, np.int32(ldb)))


@jit
def potrf(f, n, a, lda, info):
    """Overwrite A (n, n) with its lower Cholesky factor.

    Returns:
        0, or the number, from 1, of a pivot that is not positive.
    """
    _call(f[_POTRF], (LOWER, np.int32(n), a.ctypes.data, np.int32(lda), info.ctypes.data))
    return info[0]


@jit
def potri(f, n, a, lda, info):
    """Overwrite the lower triangle of A (n, n), a Cholesky factor L, with that of (L L^T)^-1."""
    _call(f[_POTRI], (LOWER, np.int32(n), a.ctypes.data, np.int32(lda), info.ctypes.data))
