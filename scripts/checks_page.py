"""The page docs/doctor.md: what `doctor` looks at, with each check of the code in its table."""

from __future__ import annotations

from pushlane.operations.examining import all_checks

_PAGE = """# Doctor

*Written by `python -m scripts.reference` from the checks; a test fails when it is not.*

`pushlane doctor` finds what is set up badly: in the broker, Redis, the store, this host and your
settings. For each finding it says what it is, why it matters and how to fix it. It sends nothing,
makes nothing, and changes nothing without `--fix`. It ends within about half a minute, even if
services do not answer. Live processes are looked at twice, some seconds apart.

    pushlane doctor
    pushlane doctor --json
    pushlane doctor --fix
    pushlane doctor --bookie-url http://bookie-0:8000

| severity | meaning | exit code |
|---|---|---|
| **error** | pushes are lost, or cannot go | 1; 3 when a service does not answer |
| **warning** | it hurts under load, or after a crash | 4, when there is no error |
| **note** | good to know | 0 |

A check that cannot look is shown as skipped, with the reason: for example a token that may not read
the broker's configuration, or a Redis user without `CONFIG`.

`--fix` changes only what belongs to pushlane: the policies of its namespaces, quotas by age and
expiries of subscriptions there. Then it looks again and shows what is left. It removes a foreign
subscription on one of our topics only after a question, or with `--yes`, as its messages are lost
then. It never changes the configuration of a broker, a bookie, Redis or a host.

`--json` prints one object: `version`, `findings` (each with `check`, `area`, `severity`, `what`,
`why`, `mend`, `can_fix`, `target`, `destroys`), `ok` and `skipped` by the names of checks, `store`
(where it looked), `fixed` and `exit_code`.

The broker does not know the settings of bookies: `--bookie-url` names the web server of a bookie
(`httpServerEnabled=true` in bookkeeper.conf). At most 50 topics are looked at, the largest first
(`--topics N`); of over a thousand, a sample of all.

`GET /v1/doctor` and `Client.examine` show operators of all apps what doctor finds on a server. It
looks once a minute at most, and only once at the processes.

`pushlane stats-dump FILE` writes a new `.tar.gz` or `.json.gz` for a support request. Only its
owner can read it. It holds the findings, stats and internal stats of topics, policies, the broker's
configuration, Redis' own report, settings, live processes and versions. It has ids of tasks, names
of hosts and addresses of clients, but no secrets, tokens, recipients or payloads.

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
