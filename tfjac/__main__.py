"""Runs the command line."""

from tfjac import cli

if __name__ == "__main__":
    cli.main()
