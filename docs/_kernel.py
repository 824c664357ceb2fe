"""What the site's notebooks start with: TensorFlow's log on standard error.

In a notebook it would write to standard output, but not where the root logger
has a handler.
"""

import logging

logging.basicConfig()
