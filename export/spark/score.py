"""spark-submit score.py MODEL ROWS OUT COLUMN [KEPT ...]: see README.md."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession

import keras_posenc as kp

_, exported, rows, out, column, *keep = sys.argv
scorer = kp.Scorer(exported, column=column, keep=keep, threads=1)
spark = SparkSession.builder.appName("score").getOrCreate()
wanted = {*keep, *(each.column for each in scorer.inputs)}
table = spark.read.parquet(rows).select(*wanted)
good, bad = scorer.schema(table.limit(0).toArrow().schema)
both = spark.createDataFrame(good.append(bad.field("reason")).empty_table())
types = both.toArrow().schema  # Spark's lists are of any size


def answer(batches):
    scorer.path = Path(SparkFiles.get("model"), scorer.path.name)
    for good, bad in map(scorer, batches):
        parts = [good, bad.drop("position")]
        found = pa.concat_tables(parts, promote_options="default")
        yield from found.cast(types).to_batches()


with tempfile.TemporaryDirectory() as folder:
    place = os.path.split(scorer.path)
    packed = shutil.make_archive(f"{folder}/model", "tar", *place)
    spark.sparkContext.addArchive(f"{packed}#model")
    found = table.mapInArrow(answer, both.schema)
    found = found.selectExpr("*", "if(reason is null, 'good', 'bad') as rows")
    found.write.partitionBy("rows").parquet(out)
