#!/usr/bin/env bash
# The whole way on one machine: an audience, a rule over it, deliveries, receipts, reports.
# Usage: ./run.sh [ROWS]   Needs Java 17 and pushlane[pipeline]; PUSHLANE_* choose another backend.
set -euo pipefail
cd "$(dirname "$0")"
rows=${1:-1000000}
export PUSHLANE_DATA_DIR=${PUSHLANE_DATA_DIR:-$PWD/data/store}

shown() { echo "+ $*" >&2; "$@"; }

mkdir -p data
: >> data/events.jsonl  # what devices say is added here; the same line again counts once
shown python make_audience.py --rows "$rows"

task=$(shown pushlane fanout --audience data/audience --exclude data/suppressed.csv \
  --where "plan = 'free' AND last_seen_days <= 30" --task-spec welcome.toml --key "welcome-$rows")

shown pushlane dispatch --drain --sink devices:send --slots 2000
shown pushlane receipts add data/events.jsonl
shown pushlane pipeline run --until-idle

shown pushlane report "$task"
shown pushlane report "$task" --by attribute:app_version,outcome
shown pushlane report "$task" --html data/report.html
