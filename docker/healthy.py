"""Exit with 0 if the server in this container answers."""

import os
import sys
from urllib.request import urlopen

with urlopen(f"http://127.0.0.1:{os.environ.get('PORT', '8080')}/health", timeout=5) as response:
    sys.exit(response.status != 200)
