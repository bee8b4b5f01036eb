"""Operators of PyTorch's examples that opwright.torch refuses, by reason, and those that are not
compared."""

from __future__ import annotations

_BY_REASON = {
    "FP64": """
        double float_power log_softmax.with_dtype
        nn.functional.softmin.with_dtype softmax.with_dtype to
    """,
    "INT16": """
        short
    """,
    "in both examples: divisor_override with ceil_mode": """
        nn.functional.avg_pool2d
    """,
    "order statistics and unique elements": """
        mode nanmedian nonzero_static unique unique_consecutive
    """,
    "random numbers": """
        nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.rrelu
    """,
    "seldom used, and not written": """
        frexp gcd hash_tensor lcm nextafter nn.functional.pdist
    """,
    "sparse tensors, bags and segments": """
        _segment_reduce.lengths _segment_reduce.offsets sparse.mm.reduce sparse.sampled_addmm
        to_sparse
    """,
    "special functions": """
        digamma erfinv i0 igamma igammac lgamma mvlgamma.mvlgamma_p_1 mvlgamma.mvlgamma_p_3
        mvlgamma.mvlgamma_p_5 polygamma.polygamma_n_0 polygamma.polygamma_n_1
        polygamma.polygamma_n_2 polygamma.polygamma_n_3 polygamma.polygamma_n_4 special.airy_ai
        special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
        special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.chebyshev_polynomial_v
        special.chebyshev_polynomial_w special.erfcx special.hermite_polynomial_h
        special.hermite_polynomial_he special.i0e special.i1 special.i1e
        special.laguerre_polynomial_l special.legendre_polynomial_p special.log_ndtr
        special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0
        special.modified_bessel_k1 special.ndtri special.polygamma.special_polygamma_n_0
        special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1
        special.shifted_chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
        special.shifted_chebyshev_polynomial_v special.shifted_chebyshev_polynomial_w
        special.spherical_bessel_j0 special.zeta
    """,
    "systems and decompositions of matrices": """
        cholesky cholesky_inverse cholesky_solve geqrf linalg.cholesky linalg.cholesky_ex
        linalg.cond linalg.det linalg.eigh linalg.eigvalsh linalg.householder_product linalg.inv
        linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve linalg.lu
        linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve linalg.matrix_rank.hermitian
        linalg.pinv.hermitian linalg.pinv.singular linalg.qr linalg.slogdet linalg.solve
        linalg.solve_ex linalg.solve_triangular linalg.svd linalg.svdvals linalg.tensorinv logdet lu
        lu_solve lu_unpack matrix_exp norm.nuc ormqr pinverse qr svd triangular_solve
    """,
    "what training needs: statistics as results or as state, gradients": """
        _batch_norm_with_update _native_batch_norm_legit max_pool2d_with_indices_backward
        native_batch_norm
    """,
    "writes and views by places in memory": """
        as_strided_scatter
    """,
}
#: The reason, by the operator's name.
REFUSED = {name: reason for reason, names in _BY_REASON.items() for name in names.split()}

#: Operators whose results are random or not initialized, which need a GPU, or whose examples in
#: PyTorch are wrong.
NOT_COMPARED = set(
    """
    bernoulli multinomial normal rand_like randint randint_like randn randn_like uniform cauchy exponential geometric
    log_normal empty empty_like empty_permuted empty_strided new_empty new_empty_strided randperm svd_lowrank
    pca_lowrank resize_ resize_as_ nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.alpha_dropout nn.functional.feature_alpha_dropout jiterator_unary jiterator_binary
    jiterator_binary_return_by_ref jiterator_4inputs_with_extra_args jiterator_2inputs_2outputs
    """.split()
)
