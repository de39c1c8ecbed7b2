"""The command line: `python -m tfjac COMMAND [flags]`."""

from __future__ import annotations

import sys

from absl import app

from tfjac import calibration, coverage
from tfjac.audit import command as audit

_USAGE = """usage: python -m tfjac COMMAND [flags]

commands:
  bench   the strategies on a function of your own, timed beside TensorFlow's ways
  calibrate  measures what kernels reach on this machine, and keeps it for the predictions of auto
          --path=FILE: in that file, which the environment variable TFJAC_RATES then names
  rules   which op types are understood, and how far they cover the layers of Keras
          --audit: which of TensorFlow's own derivatives are wrong, and what is not as in the
          table that comes with tfjac (exit status 1 if something is not); --audit --write: puts
          what is found in its place

python -m tfjac bench --help lists its flags."""


def main() -> None:
    """Runs the command that the first argument names."""
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["bench"]:
        _bench(arguments)
    elif command == ["calibrate"] and all(a.startswith("--path=") for a in arguments):
        calibration.main(arguments[-1].removeprefix("--path=") if arguments else None)
    elif command == ["rules"] and not arguments:
        print(coverage.report(coverage.of_keras()))
    elif command == ["rules"] and arguments in (["--audit"], ["--audit", "--write"]):
        sys.exit(audit.main(write="--write" in arguments))
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
