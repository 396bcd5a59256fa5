{{/* Names, labels and images, the same words for all that the chart makes. */}}

{{- define "pushlane.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "pushlane" .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-pushlane" .Release.Name -}}
{{- end -}}
{{- end -}}

{{- define "pushlane.selector" -}}
app.kubernetes.io/name: pushlane
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "pushlane.labels" -}}
{{ include "pushlane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Of one component: dict "root" $ "component" "dispatcher" "group" "main" (group may be left out). */}}
{{- define "pushlane.componentSelector" -}}
{{ include "pushlane.selector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .group }}
pushlane/group: {{ quote . }}
{{- end }}
{{- end -}}

{{/* metadata of an object: dict "root" $ "name" "…" and, where it is of one, "component" and "group". */}}
{{- define "pushlane.metadata" -}}
name: {{ quote .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "pushlane.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .group }}
  pushlane/group: {{ quote . }}
  {{- end }}
{{- end -}}

{{- define "pushlane.dispatcherName" -}}
{{ include "pushlane.fullname" .root }}-dispatch-{{ .group }}
{{- end -}}

{{- define "pushlane.ingestName" -}}
{{ include "pushlane.fullname" .root }}-ingest-{{ .group }}
{{- end -}}

{{/* dict "root" $ "image" .Values.image */}}
{{- define "pushlane.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}
