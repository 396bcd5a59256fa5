"""Expands a run of a rule with Spark: a fan-out under the run's key, which can be resumed.

A run keeps the audience that was frozen for it to its end; later changes count for the next run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from pushlane.pipeline.fanout.request import MEMORY, AudienceCounts, FanoutRequest
from pushlane.pipeline.rules.rule import Rule
from pushlane.pipeline.rules.rule_file import rule_spec
from pushlane.pipeline.rules.runner import Expanded, RunOrder
from pushlane.pipeline.session import MASTER
from pushlane.producers.request import OnProgress
from pushlane.producers.task_builder import KeyEnded
from pushlane.settings import Settings

log = logging.getLogger("pushlane.rules")


@dataclass(frozen=True)
class SparkExpander:
    """Runs the fan-outs of rules on the cluster of `master`, with Spark's own settings."""

    settings: Settings
    master: str = MASTER
    memory: str = MEMORY
    spark_options: Mapping[str, str] = field(default_factory=dict)
    on_progress: OnProgress | None = None
    told: set[tuple[str, str]] = field(default_factory=set)

    async def __call__(self, order: RunOrder) -> Expanded:
        from pushlane.pipeline.fanout.fan_out import fan_out

        request = self._request(order.rule, order.key, order.most, frozen=True)
        try:
            result = await fan_out(self.settings, request, self.on_progress)
        except KeyEnded as error:
            if error.task.total is None:
                raise
            return Expanded(error.task.id, error.task.total)  # cancelled once it was complete
        assert result.task is not None
        return Expanded(result.task.id, result.task.total or 0)

    async def count(self, rule: Rule) -> AudienceCounts:
        """Count what a run would publish; raises BadInput if SQL, audience or task cannot be."""
        from pushlane.pipeline.fanout.fan_out import fan_out

        request = self._request(rule, f"rule-{rule.name}", rule.budget_run, dry_run=True)
        result = await fan_out(self.settings, request, self.on_progress)
        assert result.counts is not None
        return result.counts

    def _request(
        self, rule: Rule, key: str, most: int | None, *, frozen: bool = False, dry_run: bool = False
    ) -> FanoutRequest:
        return FanoutRequest(
            audience=rule.audience,
            spec=rule_spec(rule),
            where=rule.where,
            zone=rule.zone,
            exclude=rule.exclude,
            format=rule.format,
            options=rule.options,
            key=key,
            most=most,
            dry_run=dry_run,
            frozen=frozen,
            advise=partial(self._advise, rule.name) if rule.silent is None else None,
            master=self.master,
            memory=self.memory,
            spark_options=self.spark_options,
        )

    def _advise(self, name: str, text: str) -> None:
        """Log once what a rule does that an older version has saved, and a new one may not."""
        if (name, text) not in self.told:
            self.told.add((name, text))
            log.warning(
                "rule %s: %s. It still runs, as it was saved before this was checked; correct "
                "it and save it again",
                name,
                text,
                extra={"action": "rule_unmeant", "rule": name},
            )
