"""tfjac: Jacobians of TensorFlow graphs.

J  = tfjac.jacobian(y, x)             # y.shape + x.shape
Jb = tfjac.batch_jacobian(y, x)       # [B] + y.shape[1:] + x.shape[1:]
jac = tfjac.prepare(model, batch=True)
Jb = jac(x)                           # from eager code; built once
"""

from tfjac import errors, flags, rules, strategies, testing
from tfjac.blocks import BlockDiagonal
from tfjac.compiled import JacobianFunction
from tfjac.derived import det, gramian, logdet, slogdet
from tfjac.host_memory import keep_freed_memory
from tfjac.independence import explain_dependence
from tfjac.jacobians import (
    batch_jacobian,
    jacobian,
    plan,
    value_and_batch_jacobian,
    value_and_jacobian,
)
from tfjac.linearized import linearize
from tfjac.operators import JacobianOperator, jacobian_operator
from tfjac.per_example import per_example_gradient_norms, per_example_gradients
from tfjac.prepared import prepare
from tfjac.products import jvp, vjp
from tfjac.second_order import batch_hessian, ggn, hessian, hvp, laplacian, ntk
from tfjac.spectra import (
    condition_number,
    frobenius_norm,
    singular_values,
    spectral_norm,
    trace,
)
from tfjac.structure import diag_jacobian, jacobian_sparsity

__version__ = "0.1.0"

__all__ = [
    "BlockDiagonal",
    "JacobianFunction",
    "JacobianOperator",
    "batch_hessian",
    "batch_jacobian",
    "condition_number",
    "det",
    "diag_jacobian",
    "errors",
    "explain_dependence",
    "flags",
    "frobenius_norm",
    "ggn",
    "gramian",
    "hessian",
    "hvp",
    "jacobian",
    "jacobian_operator",
    "jacobian_sparsity",
    "jvp",
    "keep_freed_memory",
    "laplacian",
    "linearize",
    "logdet",
    "ntk",
    "per_example_gradient_norms",
    "per_example_gradients",
    "plan",
    "prepare",
    "rules",
    "singular_values",
    "slogdet",
    "spectral_norm",
    "strategies",
    "testing",
    "trace",
    "value_and_batch_jacobian",
    "value_and_jacobian",
    "vjp",
]
