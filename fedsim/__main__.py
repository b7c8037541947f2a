"""`python -m fedsim`: the `fedsim` command."""

from fedsim.commands.entry import main

if __name__ == "__main__":
    main()
