"""saved model rnn"""
import numpy as np
import tensorflow as tf

SOURCE = ('https://github.com/tensorflow/tensorflow/issues/57343',
          'After save + load, the Jacobian of a recurrent model failed with pfor (fine without, fine before saving).')
KIND = 'saved-model'

def _cstep(f, x, h=1e-30):
    """Jacobian of a plain-numpy real-analytic f by complex step (float64 exact)."""
    x = np.asarray(x, complex)
    J = np.zeros(np.shape(f(x)) + x.shape)
    for i in np.ndindex(x.shape):
        xp = x.copy(); xp[i] += 1j * h
        J[(Ellipsis,) + i] = np.imag(f(xp)) / h
    return J


import tempfile

def case():
    rng = np.random.default_rng(71)
    U = rng.normal(size=(2, 2)) * .7; x = rng.normal(size=(2, 3, 2))
    class Net(tf.Module):
        def __init__(self):
            super().__init__(); self.U = tf.Variable(U)
        @tf.function(input_signature=[tf.TensorSpec([None, 3, 2], tf.float64)])
        def f(self, z):
            h = tf.zeros_like(z[:, 0])
            for t in tf.range(3):
                h = tf.tanh(tf.matmul(h, self.U) + z[:, t])
            return h
    with tempfile.TemporaryDirectory() as d:
        tf.saved_model.save(Net(), d)
        net = tf.saved_model.load(d)
    def npf(z):
        h = np.zeros_like(z[:, 0])
        for t in range(3):
            h = np.tanh(h @ U + z[:, t])
        return h
    fn = lambda z: net.f(z)
    return dict(fn=fn, inputs=[x], batch=True, expected=_cstep(npf, x), tol=1e-9, keep=net)
