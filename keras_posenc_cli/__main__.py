"""`python -m keras_posenc_cli`, which is `keras-posenc`."""

import sys

from keras_posenc_cli import main

sys.exit(main())
