"""Which operators autocast runs in the region's dtype (or only where the first tensor has it), which in float32, which
in the widest dtype they are given, and which it leaves alone.

The choices are PyTorch's, for its cpu and that of cards; parts that decide nothing of their own are left out.
"""

from __future__ import annotations

from tesserack import _native

__all__ = ["install"]

NONE, LOWER, FLOAT32, WIDEST, FIRST, EXEMPT = range(6)

_CPU = {
    LOWER: """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution prelu bmm mm baddbmm
        addmm addbmm linear matmul scaled_dot_product_attention linalg_vecdot lstm rnn_tanh rnn_relu rnn_tanh_cell
        rnn_relu_cell""",
    FLOAT32: """avg_pool3d binary_cross_entropy _grid_sample prod quantile nanquantile stft cdist trace polar
        view_as_complex pinverse max_unpool adaptive_avg_pool3d mse_loss cosine_embedding_loss nll_loss
        hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy l1_loss huber_loss margin_ranking_loss
        soft_margin_loss triplet_margin_loss multi_margin_loss _ctc_loss kl_div multilabel_margin_loss
        binary_cross_entropy_with_logits linalg_cond linalg_matrix_rank linalg_solve linalg_cholesky linalg_svd
        linalg_svdvals linalg_eigvals linalg_inv linalg_qr linalg_lstsq linalg_eig linalg_eigh linalg_eigvalsh
        linalg_inv_ex linalg_cholesky_ex linalg_householder_product linalg_tensorinv linalg_tensorsolve cholesky
        cholesky_inverse cholesky_solve geqrf inverse lu_solve orgqr ormqr svd""",
    WIDEST: "stack cat index_copy",
    FIRST: "gru gru_cell lstm_cell",
    EXEMPT: "dot vdot mv bilinear",
}
_DEVICE = {
    LOWER: """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution prelu addmm addmv addr
        matmul einsum mm mv linear addbmm baddbmm bmm scaled_dot_product_attention linalg_vecdot linalg_multi_dot
        lstm gru rnn_tanh rnn_relu gru_cell lstm_cell rnn_tanh_cell rnn_relu_cell""",
    FLOAT32: """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm
        group_norm cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss hinge_embedding_loss kl_div l1_loss
        smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
        triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp prod
        softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum norm rms_norm cross_entropy""",
    WIDEST: "addcdiv addcmul atan2 bilinear cross dot vdot _grid_sample index_put tensordot scatter_add stack cat",
}
_installed = False


def install() -> None:
    """Put the policies into the operators' tables; once, when the first region is entered."""
    global _installed
    if _installed:
        return
    _installed = True
    policies: dict[str, list[int]] = {}
    for column, table in enumerate((_CPU, _DEVICE)):
        for policy, names in table.items():
            for name in names.split():
                policies.setdefault(name, [NONE, NONE])[column] = policy
    known = {record["base"] for record in _native._operators()}
    for name, (cpu, device) in policies.items():
        if name in known:
            _native._set_autocast_policy(name, cpu, device)
