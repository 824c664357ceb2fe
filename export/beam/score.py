"""python score.py MODEL ROWS OUT COLUMN [KEPT ...]: see README.md."""

import sys

import apache_beam as beam
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

import keras_posenc as kp


class Score(beam.DoFn):
    """From tables to those of their good and of their bad rows."""

    def process(self, table, scorer):
        for found in zip(("good", "bad"), scorer(table), strict=True):
            yield beam.pvalue.TaggedOutput(*found)


_, exported, rows, out, column, *names = sys.argv
keep = [name for name in names if not name.startswith("--")]
scorer = kp.Scorer(exported, column=column, keep=keep, threads=1)
first = FileSystems.match([rows])[0].metadata_list[0].path
schemas = scorer.schema(pq.read_schema(FileSystems.open(first)))
with beam.Pipeline() as pipeline:
    tables = pipeline | beam.io.ReadFromParquetBatched(rows)
    found = tables | beam.ParDo(Score(), scorer).with_outputs("good", "bad")
    for name, schema in zip(("good", "bad"), schemas, strict=True):
        to = beam.io.WriteToParquetBatched(f"{out}/{name}/part", schema)
        found[name] | name >> to
