"""``python -m rankfold``: the command line."""

from rankfold.cli import main

if __name__ == "__main__":
    main()
