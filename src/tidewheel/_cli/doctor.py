"""`tidewheel doctor`: check what a job needs before it runs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidewheel._cli.echo import echo
from tidewheel._cli.failures import FAILED
from tidewheel._cli.program import load_job
from tidewheel._cli.run_options import Remote, with_remote, with_run_options
from tidewheel._cli.stored import DEFAULT_STATE, AsJson, shown
from tidewheel._doctor import Finding, examine
from tidewheel._spark.modules import used
from tidewheel._spark.options import RunOptions

_WIDTH = 9


@with_run_options(("state", "master", "local", "conf"), environment={"state": "TIDEWHEEL_STATE"})
def doctor(
    options: RunOptions,
    program: Annotated[
        str | None, typer.Argument(metavar="[PROGRAM]", help="A program whose packages the hosts need too.")
    ] = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Check a Spark session, its hosts, the state URL, local disks and packages.

    Each line is fine, slow (a job runs, but not well) or missing (a job cannot run), with the line that fixes it.

    For example:

        tidewheel doctor --state s3://bucket/state --master spark://host:7077

        tidewheel doctor clicks.py --state s3://bucket/state --remote sc://host:15002 --json

    Exit status: 0 a job can run, 1 something is missing.
    """
    options = with_remote(options, remote)
    job = None if program is None else load_job(program)
    packages = set() if job is None else used(job.plan())[1]
    state = options.state or (DEFAULT_STATE if job is None else job.state)
    findings: list[Finding] = []
    for finding in examine(state, options.master, options.conf, options.local, packages):
        findings.append(finding)
        if not as_json:
            echo("\n".join(lines(finding)))
    healthy = all(finding.level != "missing" for finding in findings)
    if as_json:
        report: dict[str, Any] = {"can_run": healthy, "findings": findings}
        echo(shown(report))
    if not healthy:
        raise typer.Exit(FAILED)


def lines(finding: Finding) -> list[str]:
    """Return a finding as lines of text.

    >>> lines(Finding("Spark", "missing", "there is no Java", "install one"))
    ['missing  Spark: there is no Java', '         fix: install one']
    """
    told = [f"{finding.level:<{_WIDTH}}{finding.subject}: {finding.text}"]
    return [*told, f"{'':<{_WIDTH}}fix: {finding.fix}"] if finding.fix else told
