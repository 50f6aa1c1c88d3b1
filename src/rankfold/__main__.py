"""``rankfold`` and ``python -m rankfold``: the command line."""

import os

from rankfold.interrupts import interruptible


def main() -> None:
    """Run a command. Ctrl-C also works while modules are imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads of torch sleep while they wait
    with interruptible():
        from rankfold.cli import main as run

        run()


if __name__ == "__main__":
    main()
