"""An audit of TensorFlow's own derivatives: of each registered op type, which are right.

`families.SAMPLES` says where they are tried, `measure.measure` compares them with differences,
`table` keeps what is not right in `table.csv`, and `reasons` says what is not tried and why.
`python -m tfjac rules --audit` does it all again and tells what is otherwise.
"""
