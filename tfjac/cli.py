"""The command line: `python -m tfjac COMMAND [flags]`."""

from __future__ import annotations

import sys

from absl import app

from tfjac import coverage

_USAGE = """usage: python -m tfjac COMMAND [flags]

commands:
  bench   the strategies on a function of your own, timed beside TensorFlow's ways
  rules   which op types are understood, and how far they cover the layers of Keras

python -m tfjac bench --help lists its flags."""


def main() -> None:
    """Runs the command that the first argument names."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["bench"]:
        _bench(arguments)
    elif command == ["rules"] and not arguments:
        print(coverage.report(coverage.of_keras()))
    else:
        is_help = command in (["--help"], ["-h"], ["help"])
        print(_USAGE, file=sys.stdout if is_help else sys.stderr)
        sys.exit(0 if is_help else 2)


def _bench(arguments: list[str]) -> None:
    try:
        from tfjac.bench import command
    except ImportError as error:
        sys.exit(
            f"python -m tfjac bench: {error}. Install what it needs: pip install 'tfjac[bench]'"
        )
    command.define_own_flags()
    app.run(command.main, ["python -m tfjac bench", *arguments])
