"""`python -m keras_posenc_cli`: the same as `keras-posenc`."""

import sys

from keras_posenc_cli import main

sys.exit(main())
