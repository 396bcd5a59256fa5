{{/* Settings: those of the values, and those that follow from where the chart mounts what. */}}

{{- define "pushlane.secretsFolder" -}}/run/secrets/pushlane{{- end -}}
{{- define "pushlane.certificateFolder" -}}{{ include "pushlane.secretsFolder" . }}/certificate{{- end -}}
{{- define "pushlane.sessionsFolder" -}}{{ include "pushlane.secretsFolder" . }}/sessions{{- end -}}
{{- define "pushlane.dataFolder" -}}/var/lib/pushlane{{- end -}}

{{/* Secrets that are mounted as files: which key of which secret each setting names. YAML. */}}
{{- define "pushlane.secretFiles" -}}
pulsar:
  tokenKey: pulsar_token_file
  caKey: pulsar_ca_file
  certKey: pulsar_cert_file
  keyKey: pulsar_key_file
  oauth2KeyKey: pulsar_oauth2_key_file
redis:
  passwordKey: redis_password_file
  caKey: redis_ca_file
  certKey: redis_cert_file
  keyKey: redis_key_file
{{- end -}}

{{/* Secrets that are given as variables. YAML. */}}
{{- define "pushlane.secretVariables" -}}
addressKey: address_key
receiptsKey: receipts_key
{{- end -}}

{{/* The settings that the chart itself makes. YAML. */}}
{{- define "pushlane.ownSettings" -}}
{{- $folder := include "pushlane.dataFolder" . -}}
data_dir: {{ $folder }}
reports_dir: {{ $folder }}/reports
fanout_dir: {{ $folder }}/fanout
{{- $secrets := .Values.secrets }}
{{- range $service, $names := include "pushlane.secretFiles" . | fromYaml }}
{{- $given := get $secrets $service }}
{{- range $key, $setting := $names }}
{{- with get $given $key }}
{{ $setting }}: {{ include "pushlane.secretsFolder" $ }}/{{ $service }}/{{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The whole file of settings. */}}
{{- define "pushlane.settingsFile" -}}
{{- $own := include "pushlane.ownSettings" . | fromYaml -}}
{{- with include "pushlane.receipts" . }}{{ $_ := set $own "receipts" . }}{{ end -}}
{{- if kindIs "bool" .Values.settings.loop_patience_s }}{{ $_ := set $own "loop_patience_s" "off" }}{{ end -}}
{{- include "pushlane.toml" (dict "table" (merge $own .Values.settings) "path" list) -}}
{{- end -}}

{{/* The setting `receipts`: YAML takes off and on without quotes for false and true. */}}
{{- define "pushlane.receipts" -}}
{{- if hasKey .Values.settings "receipts" -}}
{{- $given := .Values.settings.receipts -}}
{{- if kindIs "bool" $given -}}{{ ternary "on" "off" $given }}{{- else -}}{{ $given }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "pushlane.isEmbedded" -}}
{{- if eq (toString .Values.settings.broker) "embedded" -}}yes{{- end -}}
{{- end -}}

{{/* The names of all sinks, as a JSON list under "names". */}}
{{- define "pushlane.sinks" -}}
{{- $names := keys (.Values.settings.sinks | default dict) | sortAlpha -}}
{{- if or (not $names) (not (has (toString (.Values.settings.sink | default "null")) (list "null"))) -}}
{{- $names = prepend $names "default" -}}
{{- end -}}
{{- dict "names" $names | toJson -}}
{{- end -}}

{{/* The groups of dispatchers, each with its defaults. YAML. One group of all sinks unless given. */}}
{{- define "pushlane.groups" -}}
{{- $groups := dict -}}
{{- range $name, $group := (.Values.dispatchers | default (dict "main" dict)) -}}
{{- $_ := set $groups $name (mergeOverwrite (deepCopy $.Values.dispatcherDefaults) ($group | default dict)) -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}

{{/* The jobs of Spark, each with the resources of rules unless it has its own. YAML. */}}
{{- define "pushlane.jobs" -}}
{{- $jobs := dict -}}
{{- range $name, $job := .Values.sparkJobs -}}
{{- $resources := $job.resources | default $.Values.rules.resources -}}
{{- $_ := set $jobs $name (merge (dict "resources" $resources) $job) -}}
{{- end -}}
{{- toYaml $jobs -}}
{{- end -}}

{{/* The sinks that a group serves, as a JSON list under "names": dict "root" $ "group" group. */}}
{{- define "pushlane.groupSinks" -}}
{{- if .group.sinks -}}{{ dict "names" .group.sinks | toJson }}{{- else -}}{{ include "pushlane.sinks" .root }}{{- end -}}
{{- end -}}

{{/* Seconds from SIGTERM to the end of a dispatcher, rounded up: it waits for deliveries for
drain_timeout_s, then leaves within 4.5 s; and 5 s are left for a slow node. */}}
{{- define "pushlane.leastGrace" -}}
{{- $drain := 30 -}}
{{- if hasKey .Values.settings "drain_timeout_s" -}}{{- $drain = .Values.settings.drain_timeout_s -}}{{- end -}}
{{- addf $drain 4.5 5 | ceil | int -}}
{{- end -}}

{{/* Seconds to drain that autoscalers aim at: dict "root" $ "scaling" group.autoscaling. */}}
{{- define "pushlane.drainTarget" -}}
{{- include "pushlane.text" (.scaling.targetSeconds | default .root.Values.settings.drain_target_s | default 300) -}}
{{- end -}}
