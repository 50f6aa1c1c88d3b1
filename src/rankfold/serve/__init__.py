"""HTTP: models that answer over the network, and the page. Needs the extra ``serve``."""
