"""`python -m tfjac rules --audit`: runs the audit, and tells what is not as in the table."""

from __future__ import annotations

from tfjac.audit import families, samples, table


def main(write: bool) -> int:
    """Runs every sample, prints what is not right and what is not as committed.

    Args:
      write: whether to replace the committed table.

    Returns:
      The exit status: 1 if something is not as committed.
    """
    found = table.audited(samples.in_dtypes(families.SAMPLES))
    before = table.committed()
    print("\n".join(table.summary(found)))
    changed = table.changes(before, found)
    print(
        f"TensorFlow {before.version} in the table, {found.version} here; changed: {len(changed)}"
    )
    print("\n".join(changed), end="\n" if changed else "")
    if write:
        table.PATH.write_text(table.text(found))
    return int(bool(changed))
