"""read_state: the committed state of a step as a DataFrame."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from tidewheel._checkpoint.encoding import decode, encode
from tidewheel._checkpoint.manifest import Manifest
from tidewheel._checkpoint.names import folder
from tidewheel._checkpoint.pages import PageReader
from tidewheel._checkpoint.store import CheckpointStore
from tidewheel._checkpoint.tools.export import batches, columns_of
from tidewheel._checkpoint.tools.savepoint import At, job_at
from tidewheel._checkpoint.tools.state_reader import StateReader, hold
from tidewheel._core import pickling
from tidewheel._core.pandas_warning import ignore_pandas_warning
from tidewheel._spark.cluster import default_parallelism
from tidewheel._spark.modules import is_own
from tidewheel._spark.newest_state import newest
from tidewheel._spark.shipping import ship
from tidewheel._storage import open_store
from tidewheel._time.duration import Duration, seconds
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidewheel._storage import Store

_TASK_BYTES = 32 * 1024 * 1024
"""How much of the state's files a task reads, where that makes more tasks than there are cores."""


def read_state(
    spark: SparkSession,
    url: str,
    step: str,
    *,
    job: str | None = None,
    at: At = None,
    type: Any = None,
    held_for: Duration = "1 hour",
) -> DataFrame:
    """Return a step's committed state as a DataFrame: the column `key`, then the fields of the value, or `value`.

    `at` is a sequence, the name of a savepoint, or None for the newest checkpoint; `job` may be left out where the state URL
    has only one. `type` (a dataclass, a Struct, `dict[str, int]`, …) fixes the columns; without it all states are
    read once to find them. Tasks read the shards in parallel, without disturbing a running job. The files are kept for
    `held_for`; until then the DataFrame can be used repeatedly.
    """
    store = open_store(url)
    manifest = _manifest(store, job or _only_job(store), at, seconds(held_for, "held_for="))
    reader = StateReader(store, manifest)
    columns = columns_of(reader, step, type)
    _by_value(type)
    ship(spark)
    task = _task(pickling.dumps((store.url, manifest.id.stream_id, encode(manifest), step, columns, type)))
    wanted = sum(file.size for file in manifest.files()) // _TASK_BYTES
    slices = max(1, min(len(manifest.shards), max(wanted, default_parallelism(spark))))
    # A row is the place of a shard in the manifest: a range is cut into tasks without a shuffle.
    places = spark.range(0, len(manifest.shards), 1, slices)
    ignore_pandas_warning()
    return places.mapInArrow(task, from_arrow_schema(columns.schema))


def _manifest(store: Store, job: str, at: At, hold_seconds: float) -> Manifest:
    """Return the checkpoint, which is held; or of a fleet all its runs' newest together, whose files stay for their grace."""
    manifest, _ = hold(job_at(store, job), at, hold_seconds)
    return manifest if at is not None else newest(store, manifest)


def _task(payload: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(places: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        url, stream, manifest, step, columns, declared = pickling.loads(payload)
        store = open_store(url)
        reader = StateReader(store, decode(manifest, load_page=PageReader(store.at(folder(stream)))))
        shards = sorted(reader.manifest.shards)
        for rows in places:
            chosen = [shards[place] for place in rows.column(0).to_pylist()]
            yield from batches(reader, step, columns, chosen, declared)

    return read


def _only_job(store: Store) -> str:
    jobs = CheckpointStore(store).streams()
    if len(jobs) != 1:
        there = f"there are {', '.join(map(repr, jobs))}" if jobs else "there is none"
        raise ConfigError(f"{store.url} does not have exactly one job ({there}); say which with job=")
    return jobs[0]


def _by_value(declared: Any) -> None:
    """Pickle the user's own class by value: the workers cannot import it."""
    module = sys.modules.get(getattr(declared, "__module__", "__main__"))
    if module is not None and is_own(module):
        cloudpickle.register_pickle_by_value(module)
