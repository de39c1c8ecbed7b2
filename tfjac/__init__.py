"""tfjac: Jacobians of TensorFlow graphs.

J  = tfjac.jacobian(y, x)             # y.shape + x.shape
Jb = tfjac.batch_jacobian(y, x)       # [B] + y.shape[1:] + x.shape[1:]
jac = tfjac.prepare(model, batch=True)
Jb = jac(x)                           # from eager code; built once
"""

from tfjac import errors, flags, rules, strategies, testing
from tfjac.blocks import BlockDiagonal
from tfjac.compiled import JacobianFunction, prepare
from tfjac.host_memory import keep_freed_memory
from tfjac.independence import explain_dependence
from tfjac.jacobians import (
    batch_jacobian,
    jacobian,
    plan,
    value_and_batch_jacobian,
    value_and_jacobian,
)
from tfjac.products import jvp, vjp
from tfjac.second_order import hessian
from tfjac.structure import diag_jacobian, jacobian_sparsity

__version__ = "0.1.0"

__all__ = [
    "BlockDiagonal",
    "JacobianFunction",
    "batch_jacobian",
    "diag_jacobian",
    "errors",
    "explain_dependence",
    "flags",
    "hessian",
    "jacobian",
    "jacobian_sparsity",
    "jvp",
    "keep_freed_memory",
    "plan",
    "prepare",
    "rules",
    "strategies",
    "testing",
    "value_and_batch_jacobian",
    "value_and_jacobian",
    "vjp",
]
