"""The page docs/doctor.md: what `doctor` looks at, with each check of the code in its table."""

from __future__ import annotations

from pushlane.operations.examining import all_checks

_PAGE = """# Doctor

*Written by `python -m scripts.reference` from the checks; a test fails when it is not.*

`pushlane doctor` looks at the broker, Redis, the store, this host and the settings, and says of
each thing that is set up badly what it is, why that matters and what mends it. It sends nothing,
makes nothing, and changes nothing without `--fix`. Each question has a bound of time, and the whole
ends within about half a minute, whoever does not answer. Where processes are live it waits for some
seconds, since it looks at them twice.

    pushlane doctor
    pushlane doctor --json
    pushlane doctor --fix
    pushlane doctor --bookie-url http://bookie-0:8000

| severity | | exit code |
|---|---|---|
| **error** | pushes are lost, or cannot go | 1; 3 when a service does not answer |
| **warning** | it hurts under load, or after a crash | 4, when there is no error |
| **note** | good to know | 0 |

A check that lacks what it has to look at is told as skipped, with the reason: a token that may not
read the broker's configuration, for example, or a Redis user without `CONFIG`.

`--fix` mends what is pushlane's own: the policies of its namespaces, quotas by age and expiries of
subscriptions there. It then looks again and shows what is left. A subscription of somebody else on
one of our topics is removed only after a question, or with `--yes`, as what it holds is gone then.
It never changes the configuration of a broker, a bookie, Redis or a host.

`--json` prints one object: `version`, `findings` (each with `check`, `area`, `severity`, `what`,
`why`, `mend`, `can_fix`, `target`, `destroys`), `ok` and `skipped` by the names of checks, `fixed`
and `exit_code`.

Bookies do not tell their settings to the broker: `--bookie-url` names the web server of one
(`httpServerEnabled=true` in bookkeeper.conf). Of topics at most 50 are looked at, those that store
most first (`--topics N`); where there are over a thousand, some that are spread over all of them.

`GET /v1/doctor` and `Client.examine` tell operators of all apps what it finds where a server runs,
which looks once in a minute at most, and only once at the processes.

`pushlane stats-dump FILE` writes what doctor finds, stats and internal stats of topics, policies,
the broker's configuration, what Redis says of itself, the settings, live processes and versions
into a new `.tar.gz` or `.json.gz` that only its owner can read. Secrets, tokens, recipients and
payloads are not in it; ids of tasks, names of hosts and addresses of clients are.

## Checks

| area | check | looks at | why |
|---|---|---|---|
{rows}"""


def checks_page() -> str:
    """The page of all checks, in the order in which they are made."""
    rows = [
        f"| {check.area} | `{check.name}` | {check.looks_at} | {check.why} |\n"
        for check in all_checks()
    ]
    return _PAGE.format(rows="".join(rows))
