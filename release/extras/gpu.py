"""TensorFlow finds CUDA's libraries; a GPU is not asked for."""

import ctypes
from pathlib import Path

import nvidia
import tensorflow as tf

import keras_posenc as kp

assert tf.sysconfig.get_build_info()["is_cuda_build"]
(folder,) = map(Path, nvidia.__path__)
for name in ("libcudart", "libcublas", "libcudnn"):
    (library, *_) = folder.glob(f"*/lib/{name}.so.*")
    ctypes.CDLL(str(library))
assert kp.PositionalEncoding()(tf.zeros((1, 2, 4))).shape == (1, 2, 4)
