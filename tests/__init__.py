"""What TensorFlow reads as it is loaded, for the tests and for mutants.py."""

import os

# As the command has them. TensorFlow reads them as it is loaded, so where they
# differ a prepared process is of no use, and another one takes its seconds.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.setdefault("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "1")
# A second thread for a product of a few numbers costs more than the product.
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
# ... and so does handing an operation to one.
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
