"""Operations on rules, which send to an audience by a schedule, and on alerts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from pushlane.client.connection import Connection
from pushlane.operations.alerts import (
    AcknowledgeAlert,
    AlertFigure,
    AlertListed,
    AlertNow,
    AlertView,
    GetAlert,
    ListAlerts,
    MeasureAlert,
    PutAlert,
    RemoveAlert,
)
from pushlane.operations.rules import (
    GetRule,
    ListRuleRuns,
    ListRules,
    PauseRule,
    PutRule,
    RemoveRule,
    ResumeRule,
    RuleRunView,
    RuleView,
    RunRule,
    WithdrawRuleRuns,
)

Duration = float | timedelta | str


class RuleOperations(Connection):
    """Operations on rules and alerts; on a backend those of rules need the extra `pipeline`."""

    async def put_rule(
        self,
        name: str,
        *,
        audience: str,
        task: Mapping[str, Any],
        cron: str,
        zone: str = "UTC",
        format: str = "",  # noqa: A002 - as everywhere
        options: Mapping[str, str] | None = None,
        where: str = "",
        exclude: Iterable[str] | str = (),
        budget_run: int | str | None = None,
        budget_day: int | str | None = None,
        catch_up: str = "latest",
        catch_up_s: Duration = 86_400.0,
        paused: bool = False,
        replace: bool = False,
    ) -> RuleView:
        """Save a rule; `task` has the options of a task spec. It runs while `rules serve` does.

        Whoever saves a rule can do what the user of `rules serve` may: take none from a form.

        Raises:
            BadInput: a field, the schedule or the task cannot be, or there is a rule of this name
                and it is not to `replace` that.
            NotAllowed: the server takes no rules, or not from this token.
        """
        wanted = PutRule.made(
            name=name,
            audience=audience,
            task=task,
            cron=cron,
            zone=zone,
            format=format,
            options=options or {},
            where=where,
            exclude=exclude,
            budget_run=budget_run,
            budget_day=budget_day,
            catch_up=catch_up,
            catch_up_s=catch_up_s,
            paused=paused,
            replace=replace,
        )
        return await self.do(wanted)

    async def rules(self) -> list[RuleView]:
        """Return the rules by name, with when each runs next and how its last run ended."""
        return await self.do(ListRules())

    async def rule(self, name: str) -> RuleView:
        """Return a rule, without passwords. Raises NotFound when there is none of this name."""
        return await self.do(GetRule.made(name=name))

    async def rule_runs(self, name: str = "", *, limit: int = 100) -> list[RuleRunView]:
        """Return what became of the runs of a rule, or of all; the latest first, 0 for all."""
        return await self.do(ListRuleRuns.made(name=name, limit=limit))

    async def pause_rule(self, name: str) -> RuleView:
        """Run a rule no more, but by hand; a run under way goes on to its end."""
        return await self.do(PauseRule.made(name=name))

    async def resume_rule(self, name: str) -> RuleView:
        """Let a paused rule run again; what came due meanwhile is not made up for."""
        return await self.do(ResumeRule.made(name=name))

    async def run_rule(self, name: str, *, at_ms: int = 0) -> RuleRunView:
        """Ask for a run now, or once more for a time when it was due: `rules serve` makes it.

        A run that waits already, or is done, is not asked for twice. Raises BadInput when it was
        not due then.
        """
        return await self.do(RunRule.made(name=name, at_ms=at_ms))

    async def withdraw_rule_runs(self, name: str, *, at_ms: int = 0) -> RuleView:
        """Take back the run of that time, or all, that were asked for and have not begun.

        Raises BadInput if none waits.
        """
        return await self.do(WithdrawRuleRuns.made(name=name, at_ms=at_ms))

    async def remove_rule(self, name: str) -> None:
        """Take a rule away, with the history of its runs. Its tasks stay."""
        await self.do(RemoveRule.made(name=name))

    async def put_alert(
        self,
        name: str,
        *,
        metric: str,
        when: str,
        to: str,
        app: str = "",
        by: str = "",
        where: Iterable[str] | str = (),
        window_s: Duration = 300,
        for_s: Duration = 0,
        at_least: int | str = 1,
        remind_s: Duration = 0,
        replace: bool = False,
    ) -> AlertView:
        """Save an alert, of an app alone if it is named. `alerts run` watches it.

        `when` is like `> 5%`, `to` the URL of a webhook. Raises BadInput for what cannot be, or
        when there is an alert of this name and it is not to `replace` that.
        """
        wanted = PutAlert.made(
            name=name,
            metric=metric,
            when=when,
            to=to,
            app=app,
            by=by,
            where=where,
            window_s=window_s,
            for_s=for_s,
            at_least=at_least,
            remind_s=remind_s,
            replace=replace,
        )
        return await self.do(wanted)

    async def alerts(self) -> list[AlertListed]:
        """Return the alerts by name."""
        return await self.do(ListAlerts())

    async def alert(self, name: str) -> AlertNow:
        """Return an alert, and which groups are alarming. Raises NotFound when there is none."""
        return await self.do(GetAlert.made(name=name))

    async def measure_alert(self, name: str) -> list[AlertFigure]:
        """Measure an alert now, by the receipts that are read, without telling anybody.

        On a backend it needs the extra `pipeline`. Raises BadInput when no receipts are read yet.
        """
        return await self.do(MeasureAlert.made(name=name))

    async def acknowledge_alert(
        self, name: str, group: str = "", *, reason: str = "", undo: bool = False
    ) -> AlertNow:
        """Say that you know of all that fires of an alert, or of one group, as `alert` names it.

        Its webhook is not reminded of that until it has recovered. With `undo` it is reminded
        again. Raises BadInput when that does not fire.
        """
        wanted = AcknowledgeAlert.made(name=name, group=group, reason=reason, undo=undo)
        return await self.do(wanted)

    async def remove_alert(self, name: str) -> None:
        """Remove an alert; its webhook gets no more messages."""
        await self.do(RemoveAlert.made(name=name))
