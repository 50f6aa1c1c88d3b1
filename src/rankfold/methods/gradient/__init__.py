"""Methods trained by gradient descent, and RG2 by Newton steps."""
