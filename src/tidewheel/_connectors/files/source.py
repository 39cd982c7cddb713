"""files: a folder of files, as Spark reads them."""

from __future__ import annotations

import difflib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tidewheel._connectors.bad_lines import BAD_LINE
from tidewheel._connectors.direct import DirectReader
from tidewheel._connectors.files.age import max_file_age_ms
from tidewheel._connectors.files.extensions import (
    check_folder,
    check_format,
    check_header,
    inferred_format,
    is_there,
    listed_files,
    no_folder,
)
from tidewheel._connectors.files.format_names import check_format_name, no_reader
from tidewheel._connectors.files.json_columns import absent_columns
from tidewheel._connectors.files.ordered import OrderedFiles
from tidewheel._connectors.files.paths import local_path
from tidewheel._connectors.files.spark_options import OPTIONS
from tidewheel._connectors.schema import known_fields, spark_schema
from tidewheel._connectors.source import Source
from tidewheel._core.urls import without_login
from tidewheel._values import Shape
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Reader = Literal["auto", "spark", "arrow"]
_OWN_SCHEMA = ("arrow", "parquet", "orc", "avro")
"""Formats whose files tell their columns, and tell them alike at every start."""


def files(
    path: str | os.PathLike[str],
    format: str | None = None,
    *,
    schema: Any = None,
    max_files_per_trigger: int | None = None,
    ordered: bool = False,
    reader: Reader = "auto",
    **options: Any,
) -> Source:
    """Read the files of a folder, and those that are added to it: parquet, json, csv, text, orc, whatever Spark reads, and arrow.

    `format` follows from the names of the files in a local folder: `.parquet`, `.orc`, `.avro`, `.arrow`, `.arrows`, `.feather`,
    `.ipc`, `.json`, `.jsonl`, `.ndjson`, `.csv`, `.tsv`, `.txt`, each perhaps compressed (`.json.gz`). Give it for a folder that
    is empty yet. Files whose names tell another format than the one given are refused before Spark starts.

    `schema` is a DDL string ("user string, amount long"), a StructType, a dataclass or a `msgspec.Struct`; without it the
    type that the program declares at the source (`value=…`) serves, and Parquet, ORC, Avro and Arrow files tell their own.
    `max_files_per_trigger` bounds a batch; `options` are Spark's.

    Files must appear whole (written elsewhere, then renamed) and never change. Spark takes them roughly by age, splits
    large ones and packs small ones. On replay a batch has the same files again, so they must still be there: what is
    deleted must be older than the job's last commit. Which files were read is part of the job's state, for as long as it
    matters: a file that is a week older than the newest one is not read any more, so what was seen of it is forgotten.
    Spark's option `maxFileAge` sets another time.

    Tasks read Parquet, ORC, JSON and CSV files of a local folder themselves, in columns, where that gives the values that Spark
    would give; Spark reads all others. `tidewheel graph` and the start of a run say who reads a source, and why.
    `reader="spark"` leaves all to Spark. `reader="arrow"` refuses a source that only Spark can read. Arrow files are read by
    tasks alone, from a local folder: Spark has no reader for them.

    `ordered=True` reads one file per batch, unsplit, in the order of their names, for arrow, parquet, json (a line each),
    csv and text in a local folder: records then come in the order of the files and of their lines. Names must grow: a file
    that turns up behind the last one read is an error, not a gap. Reading is done in Python, and slower.
    """
    _check_options(options)
    if max_files_per_trigger is not None and max_files_per_trigger < 1:
        raise ConfigError(f"max_files_per_trigger is at least 1, not {max_files_per_trigger}")
    where = _absolute(without_login(os.fspath(path), "a source of files"))
    if not ordered:
        if max_files_per_trigger is not None:
            options["maxFilesPerTrigger"] = max_files_per_trigger
        return Files(where, format, schema, options, reader)
    if max_files_per_trigger not in (None, 1):
        raise ConfigError("ordered=True reads one file per batch; leave max_files_per_trigger out")
    local = local_path(where)
    if local is None:
        raise ConfigError(f"ordered=True reads local folders, and {where} is not one")
    return OrderedFiles(local, format, schema, options)


class Files(Source):
    """Spark's file source."""

    kind = "files"

    def __init__(
        self, path: str, format: str | None, schema: Any, options: dict[str, Any], reader: Reader = "auto"
    ) -> None:
        self.path, self.format, self.schema, self.options, self.reader = path, format, schema, options, reader
        self._names: list[str] = []
        """All columns of the files, known when Spark has loaded the source."""

    def declared(self, shape: Shape) -> Source:
        """Take the columns from what the program declares, if nothing else tells them."""
        if self.schema is not None or shape.schema() is None:
            return self
        return Files(self.path, self.format, shape.schema(), self.options, self.reader)

    @cached_property
    def resolved(self) -> Files:
        """The same source with the format that its files have, if the program gives none."""
        if self.format is not None:
            return self
        format = inferred_format(self.path, self.options)
        return Files(self.path, format, self.schema, self.options, self.reader)

    def fields(self) -> dict[str, pa.DataType | None] | None:
        local = local_path(self.path)
        # Folders such as day=7 add columns of their own.
        if self.schema is None or local is None or any(Path(local).glob("*=*")):
            return None
        return known_fields(self.schema)

    def check(self) -> None:
        check_format_name(self.resolved._format)
        check_format(self.path, self.resolved._format, self.options)
        self.resolved._check_columns()
        check_header(self.path, self.resolved._format, self.fields(), self.options)
        self.resolved._check_arrow()

    def check_program(self) -> None:
        if is_there(self.path):
            self.check()
        elif self.format is not None:
            check_format_name(self.format)
            self._check_columns()
            self._check_arrow()

    def doubts(self) -> list[str]:
        if not is_there(self.path):
            return [no_folder(self.path)]
        return absent_columns(self.path, self.fields(), self.options) if self.resolved.format == "json" else []

    def _check_columns(self) -> None:
        """Refuse files that do not tell their columns, if the program does not either."""
        if self.schema is None and self.format not in (*_OWN_SCHEMA, "text"):
            raise ConfigError(
                f"{self.format} files in {self.path} do not tell their columns; give schema='user string, amount long', "
                "or declare a dataclass, value=…, at the source"
            )

    def _check_arrow(self) -> None:
        """Refuse for Arrow files what only Spark can do."""
        if self.format != "arrow":
            return
        import pyarrow as pa

        why_not = 'leave reader="spark" out' if self.reader == "spark" else self._why_spark(pa.schema([]))
        if why_not is not None:
            raise ConfigError(f"{self.describe()}: Spark has no reader for Arrow files, tasks read them; {why_not}")

    @property
    def _format(self) -> str:
        assert self.format is not None, "the format of a resolved source is known"
        return self.format

    def seen_age_ms(self) -> int | None:
        return max_file_age_ms(self.options)

    def describe(self) -> str:
        return f"{self.format} files in {self.path}" if self.format else f"files in {self.path}"

    def direct(self, columns: pa.Schema) -> DirectReader | str:
        if self.format is None and self.reader == "spark" and not is_there(self.path):
            return (
                "the program asks for Spark's reader"  # Whatever the files will be, but for Arrow's, which are refused.
            )
        source = self.resolved
        source._check_arrow()
        if self.reader == "spark":
            return "the program asks for Spark's reader"
        from tidewheel._connectors.files.direct import FilesReader

        why_not = source._why_spark(columns)
        if why_not is not None and self.reader == "arrow":
            raise ConfigError(f'{source.describe()} cannot be read with reader="arrow": {why_not}; leave reader out')
        root = local_path(self.path)
        return why_not or FilesReader(root or "", source._format, columns, self.options, self._names)

    def _why_spark(self, columns: pa.Schema) -> str | None:
        """Return why tasks cannot read these columns of the files; None: they can."""
        from tidewheel._connectors.files.direct import readable

        root = local_path(self.path)
        if root is None:
            return "the files are not on this machine's disk"
        if partitions := sorted(path.name for path in Path(root).glob("*=*")):
            return f"the folder {partitions[0]} is a column"
        return readable(self._format, columns, self.options)

    def load(self, spark: SparkSession) -> DataFrame:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StringType, StructField, StructType

        check_folder(self.path)
        source = self.resolved
        try:
            schema, options = source._schema(spark), source._checked_header | self.options
            self._names = schema.names
            if source._format == "arrow":
                from tidewheel._connectors.files.arrow_frame import arrow_frame

                return arrow_frame(spark, local_path(self.path) or "", schema, options)
            if source._keeps_bad_lines:
                schema = StructType([*schema.fields, StructField(BAD_LINE, StringType())])
                options["columnNameOfCorruptRecord"] = BAD_LINE
            frame = spark.readStream.format(source._format).schema(schema).options(**options).load(self.path)
            return _with_file(source._without_names(frame)) if source._keeps_bad_lines else frame
        except PySparkException as error:
            raise _explained(source, error) from error
        except Py4JJavaError as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                raise ConfigError(f"{source.describe()} cannot be read: {no_reader(source._format)}") from error
            raise

    def _without_names(self, frame: DataFrame) -> DataFrame:
        """Reject lines of CSV that are the names of the columns, where the program does not say whether these are records."""
        from pyspark.sql.functions import coalesce, col, concat_ws, lit, lower, trim, when

        types = {name: kind for name, kind in frame.dtypes if name != BAD_LINE}
        if self.format != "csv" or any(name.lower() == "header" for name in self.options):
            return frame
        if any(kind != "string" for kind in types.values()):
            return frame  # A name is no number or the like: such a line is no record as it is.
        columns = [col(f"`{name}`") for name in types]
        named = lit(True)
        for column, name in zip(columns, types, strict=True):
            named = named & (lower(trim(column)) == name.lower())
        return frame.withColumn(
            BAD_LINE, when(coalesce(named, lit(False)), concat_ws(",", *columns)).otherwise(col(BAD_LINE))
        )

    @property
    def _keeps_bad_lines(self) -> bool:
        """Whether lines that are no records are rejected with their text; the program may say what Spark does with them."""
        own = {"mode", "columnnameofcorruptrecord", "multiline"}
        return self.format in ("json", "csv") and not own & {name.lower() for name in self.options}

    @property
    def _checked_header(self) -> dict[str, Any]:
        """The option by which Spark compares the names in the first line of a CSV file with the schema's: it goes by position."""
        header = any(name.lower() == "header" and str(value).lower() == "true" for name, value in self.options.items())
        return {"enforceSchema": False} if self.format == "csv" and header else {}

    def _schema(self, spark: SparkSession) -> StructType:
        if self.schema is not None:
            return spark_schema(self.schema)
        if self.format == "text":
            return spark_schema("value string")
        self._check_columns()
        if self.format == "arrow":
            return self._arrow_schema()
        options = {name: value for name, value in self.options.items() if name.lower() != "maxfilespertrigger"}
        return spark.read.format(self._format).options(**options).load(self.path).schema

    def _arrow_schema(self) -> StructType:
        """Return the columns of the file whose name comes first."""
        from tidewheel._connectors.files.arrow_split import arrow_columns

        first = min(listed_files(self.path, self.options), default=None)
        if first is None:
            raise _no_columns(self)
        return spark_schema(arrow_columns(first))


def _with_file(frame: DataFrame) -> DataFrame:
    """Put the URL of its file before each line that is no record."""
    from pyspark.sql.functions import col, concat, lit

    # The file is in a column that Spark has beside those of the data, if these have none of its name.
    file = lit("") if "_metadata" in frame.columns else col("_metadata.file_path")
    return frame.withColumn(BAD_LINE, concat(file, lit("\n"), col(BAD_LINE)))


def _explained(source: Files, error: PySparkException) -> ConfigError:
    condition = error.getCondition()
    if condition == "PATH_NOT_FOUND":
        return ConfigError(no_folder(source.path))
    if condition == "UNABLE_TO_INFER_SCHEMA":
        return _no_columns(source)
    return ConfigError(f"{source.describe()} cannot be read: {' '.join(str(error).split())[:500]}")


def _no_columns(source: Files) -> ConfigError:
    return ConfigError(
        f"there is no {source.format} file in {source.path} yet to learn the columns from; "
        "give schema='user string, amount long', or declare value=… at the source"
    )


_NAMES = ("format", "schema", "max_files_per_trigger", "ordered", "reader")


def _check_options(options: dict[str, Any]) -> None:
    known = {name.lower() for name in OPTIONS}
    for name, value in options.items():
        # Spark ignores options that it does not know, and none of its own has this sign.
        meant = difflib.get_close_matches(name, (*_NAMES, *OPTIONS), 1, cutoff=0.6 if "_" in name else 0.8)
        if "_" in name or (meant and name.lower() not in known):
            hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(_NAMES)}, and"
            raise ConfigError(f"files() has no option {name!r}: {hint} Spark's options are written like maxFileAge")
        if name.lower() == "cleansource" and str(value).lower() != "off":
            raise ConfigError(
                "cleanSource removes files when Spark has read them, before anybody knows that the batch is committed; "
                "a batch that runs again would lack them. Remove files yourself, those older than the oldest checkpoint kept"
            )


def _absolute(path: str) -> str:
    return path if ":" in path.split("/")[0] else os.path.abspath(path)
