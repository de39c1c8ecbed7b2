"""The command line: `python -m tfjac COMMAND [flags]`."""

from __future__ import annotations

import sys

from absl import app

_USAGE = """usage: python -m tfjac COMMAND [flags]

commands:
  bench   the strategies on a function of your own, timed beside TensorFlow's ways

python -m tfjac COMMAND --help lists the flags of a command."""


def main() -> None:
    """Runs the command that the first argument names."""
    arguments = sys.argv[1:]
    if arguments[:1] != ["bench"]:
        is_help = arguments[:1] in (["--help"], ["-h"], ["help"])
        print(_USAGE, file=sys.stdout if is_help else sys.stderr)
        sys.exit(0 if is_help else 2)
    from tfjac.bench import command  # needs the `bench` extra

    command.define_own_flags()
    app.run(command.main, ["python -m tfjac bench", *arguments[1:]])
