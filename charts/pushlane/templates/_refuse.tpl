{{/*
What the schema cannot say: values that contradict one another. Each check gives a line for each
problem it finds; all of them are told at once.
*/}}
{{- define "pushlane.refuse" -}}
{{- $problems := list -}}
{{- range list "Settings" "Sinks" "Secrets" "Variables" "Groups" "Scaling" "Embedded" "Stores" "Spark" "Memory" "Parts" "Serve" "Ingests" -}}
{{- range splitList "\n" (include (printf "pushlane.refuse%s" .) $) -}}
{{- with trim . }}{{ $problems = append $problems . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $problems -}}
{{- fail (printf "these values cannot be used:\n  - %s\n" (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}

{{- define "pushlane.refuseSettings" -}}
{{- $settings := .Values.settings }}
{{- if not $settings.broker }}
settings.broker is needed: pulsar://HOST:6650, or embedded to try it in one pod
{{- end }}
{{- range $name, $form := include "pushlane.urlForms" . | fromYaml }}
{{- $value := get $settings $name | default "" | toString }}
{{- if and $value (not (regexMatch $form.pattern $value)) }}
settings.{{ $name }} cannot be used: give {{ $form.like }}
{{- end }}
{{- if regexMatch "//[^/?#]*@" $value }}
settings.{{ $name }} holds a user or a password that would stand in a ConfigMap for all to read: leave them out of the URL, and name a secret in secrets, or give the whole as PUSHLANE_{{ upper $name }} in pod.extraEnv, from a secret
{{- end }}
{{- end }}
{{- if and (hasPrefix "pulsar" (toString $settings.broker)) (not (and $settings.admin_url $settings.redis_url)) }}
settings.admin_url and settings.redis_url are needed with Pulsar: http://HOST:8080 and redis://HOST:6379/0
{{- end }}
{{- if not (or $settings.sink $settings.sinks) }}
settings.sinks or settings.sink is needed, as it says where pushes go; sink: "null" throws them away
{{- end }}
{{- range $name, $value := include "pushlane.ownSettings" . | fromYaml }}
{{- if hasKey $settings $name }}
{{- if hasSuffix "_dir" $name }}
settings.{{ $name }} is the chart's to set: see storage
{{- else }}
settings.{{ $name }} is given, and by secrets too: leave one of them out
{{- end }}
{{- end }}
{{- end }}
{{- range $name := list "pulsar_token" "redis_password" "address_key" "receipts_key" }}
{{- if hasKey $settings $name }}
settings.{{ $name }} would stand in a ConfigMap for all to read: name a secret in secrets instead
{{- end }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" (include "pushlane.fullname" .)) }}
the name {{ include "pushlane.fullname" . }} cannot be part of a service's, which has a-z, 0-9 and -, and begins with a letter: set fullnameOverride
{{- end }}
{{- if gt (len (include "pushlane.fullname" .)) 30 }}
the name {{ include "pushlane.fullname" . }} is longer than 30 characters, so names made of it would be too long: set fullnameOverride
{{- end }}
{{- end -}}

{{/* How the URLs among the settings look: a pattern, and what to say of one that does not. YAML. */}}
{{- define "pushlane.urlForms" -}}
broker: {pattern: "^(embedded$|pulsar(\\+ssl)?://.)", like: "pulsar://HOST:6650, pulsar+ssl://HOST:6651 or embedded"}
admin_url: {pattern: "^https?://.", like: "http://HOST:8080 or https://HOST:8443"}
redis_url: {pattern: "^redis(s|s?\\+sentinel|s?\\+cluster)?://.", like: "redis://HOST:6379/0, rediss:// for TLS, redis+sentinel:// or redis+cluster://"}
sink: {pattern: "", like: ""}
{{- end -}}

{{/* Names of what is mostly secret: not those of files, nor of the code that looks for it. */}}
{{- define "pushlane.secretName" -}}
{{- $named := regexMatch "(?i)authorization|cookie|passw|secret|token|api[-_]?key|(access|account)[.]key" . -}}
{{- if and $named (not (regexMatch "(?i)(file|path|provider|enabled)$" .)) -}}yes{{- end -}}
{{- end -}}

{{- define "pushlane.refuseSinks" -}}
{{- range $name, $sink := .Values.settings.sinks }}
{{- if or (eq $name "default") (hasSuffix "-later" $name) (hasSuffix "-dead" $name) }}
settings.sinks.{{ $name }}: a sink is not called default, and its name does not end in -later or -dead
{{- end }}
{{- range $option := list "key" "credentials" "vapid_key" "secrets" "authorization" }}
{{- if hasKey $sink $option }}
settings.sinks.{{ $name }}.{{ $option }} would stand in a ConfigMap for all to read: put it into the secret that secrets.sinks names, and give {{ $option }}_file: /run/secrets/pushlane/sinks/KEY
{{- end }}
{{- end }}
{{- if regexMatch "//[^/?#]*@" (toString $sink.url) }}
settings.sinks.{{ $name }}.url holds a user or a password that would stand in a ConfigMap for all to read: put the URL into the secret that secrets.sinks names, and give url_file: /run/secrets/pushlane/sinks/KEY
{{- end }}
{{- range $header := kindIs "map" $sink.headers | ternary $sink.headers dict | keys | sortAlpha }}
{{- if include "pushlane.secretName" $header }}
settings.sinks.{{ $name }}.headers.{{ $header }} would stand in a ConfigMap for all to read: use authorization_file: /run/secrets/pushlane/sinks/KEY
{{- end }}
{{- end }}
{{- range $option, $value := $sink }}
{{- if and (hasSuffix "_file" $option) (hasPrefix "/run/secrets/pushlane/sinks/" (toString $value)) (not $.Values.secrets.sinks.existingSecret) }}
settings.sinks.{{ $name }}.{{ $option }} is a file of the secret of the sinks, and secrets.sinks.existingSecret names none
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "pushlane.refuseSecrets" -}}
{{- range $kind, $secret := omit .Values.secrets "sinks" }}
{{- $keys := list }}
{{- range $name, $value := omit $secret "existingSecret" }}{{ if $value }}{{ $keys = append $keys $name }}{{ end }}{{ end }}
{{- if and $secret.existingSecret (not $keys) }}
secrets.{{ $kind }}.existingSecret is {{ $secret.existingSecret }}, and no key of it is named: give one of {{ keys (omit $secret "existingSecret") | sortAlpha | join ", " }}
{{- end }}
{{- if and $keys (not $secret.existingSecret) }}
secrets.{{ $kind }}.{{ first $keys }} names a key of no secret: give secrets.{{ $kind }}.existingSecret
{{- end }}
{{- if and (hasKey $secret "certKey") (ne (empty $secret.certKey) (empty $secret.keyKey)) }}
secrets.{{ $kind }}.certKey and keyKey go together: give both or none
{{- end }}
{{- end }}
{{- end -}}

{{/* Variables stand in the pods, so what is secret has to come from a secret there, too. */}}
{{- define "pushlane.refuseVariables" -}}
{{- $owners := list .Values .Values.serve .Values.rules .Values.alerts .Values.receipts }}
{{- range include "pushlane.groups" . | fromYaml }}{{ $owners = append $owners . }}{{ end }}
{{- range list .Values.sparkJobs .Values.ingests }}{{ range . }}{{ $owners = append $owners . }}{{ end }}{{ end }}
{{- $told := list }}
{{- range $owners }}
{{- range (.pod | default dict).extraEnv }}
{{- if and (hasKey . "value") (regexMatch "^PUSHLANE_(PULSAR_TOKEN|REDIS_PASSWORD|ADDRESS_KEY|RECEIPTS_KEY)$" (toString .name)) }}
{{- $told = append $told .name }}
{{- end }}
{{- end }}
{{- end }}
{{- range uniq $told }}
pod.extraEnv has the value of {{ . }}, which would stand in the pods for all to read: name a secret in secrets instead
{{- end }}
{{- end -}}

{{- define "pushlane.refuseGroups" -}}
{{- $known := (include "pushlane.sinks" . | fromJson).names }}
{{- range $name, $group := include "pushlane.groups" . | fromYaml }}
{{- range $group.sinks }}
{{- if not (has . $known) }}
dispatchers.{{ $name }}.sinks: there is no sink {{ . }} in settings.sinks, which has {{ join ", " $known }}
{{- end }}
{{- end }}
{{- $least := include "pushlane.leastGrace" $ | int }}
{{- with $group.terminationGracePeriodSeconds }}
{{- if lt (int .) $least }}
dispatchers.{{ $name }}.terminationGracePeriodSeconds is {{ . }}, and drain_timeout_s with what follows it takes {{ $least }}: what is in flight would be sent again
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "pushlane.refuseScaling" -}}
{{- range $name, $group := include "pushlane.groups" . | fromYaml }}
{{- $by := $group.autoscaling.by }}
{{- $given := dig "autoscaling" dict (get (default dict $.Values.dispatchers) $name | default dict) }}
{{- range $other := list "hpa" "keda" }}
{{- if and (hasKey $given $other) (ne $by $other) }}
dispatchers.{{ $name }}.autoscaling has options of {{ $other }}, and by is {{ $by }}: choose one, as two would fight over the pods
{{- end }}
{{- end }}
{{- if and (ne $by "none") $group.replicas }}
dispatchers.{{ $name }}.replicas is {{ $group.replicas }}, and autoscaling.by is {{ $by }}: leave one of them out
{{- end }}
{{- if gt (int $group.autoscaling.minReplicas) (int $group.autoscaling.maxReplicas) }}
dispatchers.{{ $name }}.autoscaling.minReplicas {{ $group.autoscaling.minReplicas }} is over maxReplicas {{ $group.autoscaling.maxReplicas }}
{{- end }}
{{- if and (eq $by "keda") (eq $group.autoscaling.keda.trigger "prometheus") (not $group.autoscaling.keda.serverAddress) }}
dispatchers.{{ $name }}.autoscaling.keda.serverAddress is needed by the trigger prometheus: http://HOST:9090
{{- end }}
{{- end }}
{{- end -}}

{{- define "pushlane.refuseEmbedded" -}}
{{- if include "pushlane.isEmbedded" . }}
{{- $groups := include "pushlane.groups" . | fromYaml }}
{{- $pods := list }}
{{- range $name, $group := $groups }}
{{- if ne $group.autoscaling.by "none" }}{{ $pods = append $pods (printf "dispatchers.%s.autoscaling" $name) }}{{ end }}
{{- if gt (int $group.replicas) 1 }}{{ $pods = append $pods (printf "dispatchers.%s.replicas %d" $name (int $group.replicas)) }}{{ end }}
{{- end }}
{{- if gt (len $groups) 1 }}{{ $pods = append $pods (printf "%d groups of dispatchers" (len $groups)) }}{{ end }}
{{- range list "serve" "rules" "alerts" "receipts" }}{{ if (get $.Values .).enabled }}{{ $pods = append $pods . }}{{ end }}{{ end }}
{{- range list "sparkJobs" "ingests" }}{{ if get $.Values . }}{{ $pods = append $pods . }}{{ end }}{{ end }}
{{- with $pods }}
settings.broker is embedded, an SQLite file that one pod alone can use; leave out {{ join ", " . }}, or name a Pulsar
{{- end }}
{{- end }}
{{- end -}}

{{/* Who uses a shared folder at once: a store that several pods use has to be ReadWriteMany. */}}
{{- define "pushlane.refuseStores" -}}
{{- $executors := .Values.spark.executors.instances }}
{{- $reports := list }}
{{- range list "receipts" "alerts" }}{{ if (get $.Values .).enabled }}{{ $reports = append $reports . }}{{ end }}{{ end }}
{{- if and .Values.receipts.enabled $executors }}{{ $reports = append $reports "spark.executors" }}{{ end }}
{{- $fanout := list }}
{{- if .Values.rules.enabled }}{{ range until (int .Values.rules.replicas) }}{{ $fanout = append $fanout (printf "rules %d" (add1 .)) }}{{ end }}{{ end }}
{{- range $name, $job := .Values.sparkJobs }}{{ $fanout = append $fanout (printf "sparkJobs.%s" $name) }}{{ end }}
{{- if and $fanout $executors }}{{ $fanout = append $fanout "spark.executors" }}{{ end }}
{{- range $name, $users := dict "reports" $reports "fanout" $fanout }}
{{- $store := get $.Values.storage $name }}
{{- if and $users (not (or $store.existingClaim $store.size)) }}
storage.{{ $name }} is needed by {{ first $users }}: give size, or existingClaim
{{- else if gt (len $users) 1 }}
{{- $mode := $store.accessMode }}
{{- with $store.existingClaim }}
{{- with lookup "v1" "PersistentVolumeClaim" $.Release.Namespace . }}{{ $mode = join "," .spec.accessModes }}{{ end }}
{{- end }}
{{- if not (contains "ReadWriteMany" $mode) }}
storage.{{ $name }} is {{ $mode }}, and used at once by {{ join ", " $users }}: it has to be ReadWriteMany
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "pushlane.refuseSpark" -}}
{{- $spark := .Values.spark }}
{{- range $name, $value := $spark.conf }}
{{- if and (include "pushlane.secretName" $name) (not (regexMatch "^\\$\\(\\w+\\)$" (toString $value))) }}
spark.conf has {{ $name }}, which would stand in the pods for all to read: give $(NAME), and NAME in pod.extraEnv, from a secret
{{- end }}
{{- end }}
{{- range $job, $options := .Values.sparkJobs }}
{{- range $name, $value := $options.options }}
{{- if and (include "pushlane.secretName" $name) (not (regexMatch "^\\$\\(\\w+\\)$" (toString $value))) }}
sparkJobs.{{ $job }}.options has {{ $name }}, which would stand in the pods for all to read: give $(NAME), and NAME in pod.extraEnv, from a secret
{{- end }}
{{- end }}
{{- end }}
{{- if and $spark.master (not (hasPrefix "local" $spark.master)) .Values.networkPolicy.enabled (not .Values.networkPolicy.sparkFrom) }}
spark.master is {{ $spark.master }}, whose workers connect to the driver, and networkPolicy lets nobody: say in networkPolicy.sparkFrom who they are
{{- end }}
{{- if and $spark.master $spark.executors.instances }}
spark.master is {{ $spark.master }}, and spark.executors.instances is {{ $spark.executors.instances }}: executors are pods of a driver here, so leave one of them out
{{- end }}
{{- if $spark.executors.instances }}
{{- range $name, $value := include "pushlane.executorConf" . | fromYaml }}
{{- if hasKey $spark.conf $name }}
spark.conf has {{ $name }}, which is the chart's to set with spark.executors.instances
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A size of Spark or of Kubernetes as a number of MiB; of their unit the first letter counts. */}}
{{- define "pushlane.mebibytes" -}}
{{- $size := include "pushlane.text" . -}}
{{- $units := dict "" 0.00000095367431640625 "k" 0.0009765625 "m" 1 "g" 1024 "t" 1048576 -}}
{{- mulf (regexFind "^[0-9.]+" $size) (get $units (regexFind "[a-zA-Z]" $size | lower) | default 1) -}}
{{- end -}}

{{/* Java takes what it is given, and a pod over its limit is killed. */}}
{{- define "pushlane.refuseMemory" -}}
{{- with .Values.spark.memory }}
{{- $pods := dict }}
{{- range $name := list "rules" "receipts" }}
{{- if (get $.Values $name).enabled }}{{ $_ := set $pods $name (get $.Values $name).resources }}{{ end }}
{{- end }}
{{- range $name, $job := include "pushlane.jobs" $ | fromYaml }}{{ $_ := set $pods (printf "sparkJobs.%s" $name) $job.resources }}{{ end }}
{{- range $name, $resources := $pods }}
{{- $limit := dig "limits" "memory" "" $resources }}
{{- if and $limit (ge (include "pushlane.mebibytes" $.Values.spark.memory | float64) (include "pushlane.mebibytes" $limit | float64)) }}
spark.memory is {{ $.Values.spark.memory }}, and {{ $name }}.resources.limits.memory {{ include "pushlane.text" $limit }}: Java alone would fill the pod, which Kubernetes then kills; give the pod more
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "pushlane.refuseParts" -}}
{{- if eq (include "pushlane.receipts" .) "off" }}
{{- range list "receipts" "alerts" }}
{{- if (get $.Values .).enabled }}
{{ . }}.enabled is true, and settings.receipts is off, so there is nothing to read
{{- end }}
{{- end }}
{{- end }}
{{- if and .Values.alerts.enabled (not .Values.receipts.enabled) (not .Values.storage.reports.existingClaim) }}
alerts.enabled is true, and nobody fills the store that they read: set receipts.enabled, or storage.reports.existingClaim
{{- end }}
{{- range $values, $file := dict "prometheusRule" "rules/pushlane.yaml" "dashboard" "dashboards/pushlane.json" }}
{{- if and (get $.Values $values).enabled (not ($.Files.Get $file)) }}
{{ $values }}.enabled is true, and this copy of the chart lacks {{ $file }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Tokens cross the network in the clear where nobody ends TLS. */}}
{{- define "pushlane.refuseServe" -}}
{{- $serve := .Values.serve }}
{{- if and $serve.enabled (not $serve.tls.existingSecret) (not $serve.behindProxy) }}
serve.enabled is true, and tokens would cross the network in the clear: give serve.tls.existingSecret, or serve.behindProxy with the addresses of the proxy that ends TLS
{{- end }}
{{- if and $serve.ingress.enabled (not $serve.enabled) }}
serve.ingress.enabled is true, and serve.enabled is not
{{- end }}
{{- end -}}

{{- define "pushlane.refuseIngests" -}}
{{- $streams := dict }}
{{- range $name, $ingest := .Values.ingests }}
{{- if gt (len (include "pushlane.ingestName" (dict "root" $ "group" $name))) 52 }}
ingests.{{ $name }}: the name {{ include "pushlane.ingestName" (dict "root" $ "group" $name) }} is longer than the 52 characters of a StatefulSet's: set fullnameOverride
{{- end }}
{{- if and (or $ingest.kafka $ingest.existingSecret) (not (hasPrefix "kafka:" $ingest.source)) }}
ingests.{{ $name }} has what is for Kafka alone (kafka, existingSecret), and its source is {{ $ingest.source }}
{{- end }}
{{- range $setting, $value := $ingest.kafka }}
{{- if eq $setting "group.instance.id" }}
ingests.{{ $name }}.kafka has group.instance.id, which is the chart's to set: the name of the pod
{{- else if and (include "pushlane.secretName" $setting) (not (hasPrefix "@" (include "pushlane.text" $value))) }}
ingests.{{ $name }}.kafka has {{ $setting }}, which would stand in the pods for all to read: name a secret in existingSecret, and give "@/run/secrets/pushlane/kafka/KEY"
{{- end }}
{{- end }}
{{- $stream := printf "%s of app %s" $ingest.stream ($ingest.app | default "-") }}
{{- with get $streams $stream }}
ingests.{{ $name }} and ingests.{{ . }} are of one stream, {{ $ingest.stream }}: each ingest needs a stream of its own
{{- end }}
{{- $_ := set $streams $stream $name }}
{{- end }}
{{- end -}}
