"""`tidewheel replay`: run the batch of a commit again and compare."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidewheel._checkpoint.tools.text import key_candidates
from tidewheel._cli.differences import show_differences
from tidewheel._cli.echo import echo
from tidewheel._cli.failures import Verbose
from tidewheel._cli.program import load_job, split_target
from tidewheel._cli.run_options import with_run_options
from tidewheel._cli.stored import AsJson, ProgramState, shown
from tidewheel._spark.options import RunOptions
from tidewheel.errors import ConfigError

if TYPE_CHECKING:
    from tidewheel._replay.causes import Cause


@with_run_options(("master", "conf", "shared_state"))
def replay(
    job: Annotated[
        str, typer.Argument(metavar="PROGRAM|JOB", help="The program that made the commit; or, with --program, a job.")
    ],
    sequence: Annotated[
        str, typer.Argument(metavar="SEQ|next", help="The sequence of a commit, or the batch after the newest one.")
    ],
    program: Annotated[
        str | None,
        typer.Option("--program", metavar="CHANGED", help="Run this program instead, and compare it with the commit."),
    ] = None,
    state: ProgramState = None,
    local: Annotated[
        bool, typer.Option("--local", help="Run in this process, without Spark; --pdb and `next` always do.")
    ] = False,
    samples: Annotated[int, typer.Option(min=0, help="How many keys and rows to show per step and sink.")] = 5,
    rows: Annotated[bool, typer.Option("--rows", help="Print the rows that the batch writes, as JSON lines.")] = False,
    pdb: Annotated[
        bool, typer.Option("--pdb", help="Start the debugger at the first error of the program's functions.")
    ] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="With --pdb: stop in each function that gets a message of this key."),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
    *,
    options: RunOptions,
) -> None:
    """Run the batch of a commit again, on Spark or with --local in this process, and compare the results.

    The second run starts from the state before the commit and reads the same records, with the same time, epoch, cells
    and number of tasks. It publishes nothing and changes nothing of the job, which may be running. If the program is the
    same and deterministic, it prints "same"; otherwise the keys whose state differs, the rows that two runs do not have
    in common, and the step at which two runs begin to differ. Exit status 1 if anything differs. Another program than
    the one that made the commit is refused; with --program, a changed program runs instead, and its differences are
    shown.

    `next` runs the batch after the newest commit: the one that failed, if the job cannot continue. It begins at the same
    record, and nothing is compared.

    For example:

        tidewheel replay clicks.py 41

        tidewheel replay clicks.py 41 --local

        tidewheel replay clicks.py 41 --pdb --key ada

        tidewheel replay clicks.py 41 --program changed.py

        tidewheel replay clicks.py next --pdb
    """
    from tidewheel._engine.commit import operator_infos
    from tidewheel._program.stored_job import StoredJob

    if key is not None and not pdb:
        raise ConfigError("--key names the key for which the debugger stops, so it needs --pdb")
    loaded = load_job(program or job)
    name = job if program is not None and not split_target(job)[0].is_file() else load_job(job).name
    if loaded.name != name:
        raise ConfigError(f"{program} is the program of job {loaded.name!r}, not of {name!r}: give both the same name")
    stored = StoredJob(name, state=state or loaded.state)
    at: int | Literal["next"]
    try:
        at = "next" if sequence == "next" else int(sequence)
    except ValueError:
        raise ConfigError(f'{sequence!r} is neither the sequence of a commit nor "next"') from None
    chosen = None
    if key is not None:
        candidates, kinds = key_candidates(key), set(stored.show().key_kinds.values())
        chosen = next((each for each in candidates if type(each).__name__ in kinds), candidates[0])
    here = local or pdb or at == "next"
    found = stored.replay(
        loaded,
        at,
        changed=program is not None,
        samples=samples,
        debug=pdb,
        key=chosen,
        options=None if here else options,
        elsewhere=here and not pdb,
    )
    operators = operator_infos(loaded.plan()) | dict(stored.show(None if at == "next" else at).operators)
    if as_json:
        output = {sink: {"committed": was, "replayed": now} for sink, (was, now) in found.output.items()}
        causes = {name: asdict(cause) for name, cause in found.causes.items()}
        told = {"sequence": found.sequence, "same": found.same, "output": output, "unstable": found.unstable}
        echo(shown({**told, "causes": causes}))
    show_differences(found.state, operators, as_json=as_json)
    if rows:
        for sink, written in found.rows.items():
            for row in written:
                echo(shown({"sink": sink, "row": row}))
    if not as_json:
        for sink, (was, now) in found.output.items():
            echo(f"sink {sink!r}: {was} rows committed, {now} now")
        for sink, unstable in found.unstable.items():
            echo(f"sink {sink!r}: two runs of the batch wrote different rows: the program is not deterministic")
            for row in unstable:
                echo(f"  {shown(row)}")
        for text in dict.fromkeys(map(_text, found.causes.values())):
            echo(text)
        number = sum(map(len, found.rows.values()))
        if at == "next":
            echo(f"the batch after the newest commit runs without an error, and gives {number} rows of output")
        elif found.same:
            echo(f"same: commit {sequence} gives the same state and {number} rows of output again")
    if not found.same:
        raise typer.Exit(1)


def _text(cause: Cause) -> str:
    found = f"two runs begin to differ at step {cause.step!r}"
    if not cause.one and not cause.other:
        return found
    key = "" if cause.key is None else f", key {shown(cause.key)}"
    one, other = (", ".join(map(shown, values)) or "nothing" for values in (cause.one, cause.other))
    return f"{found}{key}: one emitted {one}, the other {other}"
