"""``rankfold`` and ``python -m rankfold``: the command line."""

from rankfold.interrupts import interruptible


def main() -> None:
    """Run a command. Ctrl-C also works while modules are imported."""
    with interruptible():
        from rankfold.cli import main as run

        run()


if __name__ == "__main__":
    main()
