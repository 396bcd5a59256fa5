{{/* A scalar as it was written: a large number of a file is a float to Helm, which prints 1e+06. */}}
{{- define "pushlane.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end -}}
{{- end -}}

{{/* TOML of a map: dict "table" map "path" list. Scalars and lists look in TOML as they do in JSON. */}}
{{- define "pushlane.toml" -}}
{{- $inner := dict -}}
{{- range $name, $value := .table -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $inner $name $value -}}
{{- else if not (kindIs "invalid" $value) -}}
{{ include "pushlane.tomlKey" $name }} = {{ toRawJson $value }}
{{ end -}}
{{- end -}}
{{- $path := .path -}}
{{- range $name, $table := $inner }}
{{- $here := append $path (include "pushlane.tomlKey" $name) }}
[{{ join "." $here }}]
{{ include "pushlane.toml" (dict "table" $table "path" $here) }}
{{- end -}}
{{- end -}}

{{- define "pushlane.tomlKey" -}}
{{- if regexMatch "^[A-Za-z0-9_-]+$" . -}}{{ . }}{{- else -}}{{ toRawJson . }}{{- end -}}
{{- end -}}
