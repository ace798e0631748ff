"""Imported once by the fork server: every worker starts as a copy of a process that has torch already.

One thread for torch and for BLAS, set before NumPy and torch are imported: results must not depend on how a sum is
split. No ZeroMQ context is made here and CUDA is not touched: neither survives a fork.
"""

import atexit
import gc
import os
import shutil

# the fork server ends with its coordinator, which removes this directory itself unless it is killed
if _left := os.environ.pop("EMUL_FORK_SERVER", ""):
    atexit.register(shutil.rmtree, _left, ignore_errors=True)

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
gc.disable()                    # collections while modules are imported find nothing, and take a fifth of the time

import numpy  # noqa: E402, F401
import torch  # noqa: E402

import emul.learning.fused  # noqa: E402  (with all that trains: no training is charged with an import)
import emul.learning.together  # noqa: E402
import emul.workers.process  # noqa: E402, F401
from emul.workers.collections import keep_memory  # noqa: E402

torch.set_num_threads(1)
keep_memory()
gc.freeze()                     # no collection of a worker looks at it, and so copies no page of it
gc.enable()
