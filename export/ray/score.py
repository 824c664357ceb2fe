"""python score.py MODEL ROWS OUT COLUMN [KEPT ...]: see README.md."""

import sys

import pyarrow as pa
import ray

import keras_posenc as kp


class Score:
    """From tables to their good and bad rows, in one."""

    def __init__(self, scorer):
        self.scorer = scorer

    def __call__(self, table):
        good, bad = self.scorer(table)
        good = good.append_column("rows", pa.repeat("good", good.num_rows))
        bad = bad.set_column(0, "rows", pa.repeat("bad", bad.num_rows))
        return pa.concat_tables([good, bad], promote_options="default")


_, exported, rows, out, column, *keep = sys.argv
scorer = kp.Scorer(exported, column=column, keep=keep, threads=1)
wanted = {*keep, *(each.column for each in scorer.inputs)}
table = ray.data.read_parquet(rows, columns=[*wanted])
given = {"batch_format": "pyarrow", "batch_size": scorer.window}
found = table.map_batches(Score, fn_constructor_args=[scorer], **given)
found.write_parquet(out, partition_cols=["rows"])
