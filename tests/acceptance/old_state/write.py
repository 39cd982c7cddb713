"""Write the state that the test of old state continues. Run it with the previous version."""

import json
import pathlib
import shutil

from tidewheel import Job, sinks, sources

root = pathlib.Path("/tmp/tidewheel-old-state")
shutil.rmtree(root, ignore_errors=True)
for folder in ("in", "frame"):
    (root / folder).mkdir(parents=True)
    for number in range(300 if folder == "in" else 5):
        (root / folder / f"{number:03}.json").write_text(
            json.dumps({"user": f"u{number % 3}", "amount": number}) + "\n"
        )
job = Job("old", state=str(root / "state"), n_shards=2)
schema = "user string, amount long"
parts = [
    job.source("files", sources.files(str(root / "in"), "json", schema=schema, max_files_per_trigger=100)),
    job.source("items", sources.iterable([{"user": "u0", "amount": number} for number in range(7)], batch_size=3)),
    job.source("frame", sources.dataframe(lambda spark: spark.readStream.schema(schema).json(str(root / "frame")))),
]
keyed = parts[0].union("all", parts[1], parts[2]).key_by("by-user", "user")


def total(key: str, row: dict, before: int) -> tuple[dict, int]:
    """Sum up a user's amounts."""
    return {"user": key, "total": before + row["amount"]}, before + row["amount"]


keyed.stateful_map("sums", total, default=0).sink("out", sinks.discard())
print(job.run(until="caught-up", parallelism=1))
print([job.query("sums", f"u{number}").value for number in range(3)])
