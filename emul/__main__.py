"""`python -m emul`: the commands, as the console script `emul` has them."""

from emul.cli import main

if __name__ == "__main__":
    main()
