{{/* Pods. All of them run as nobody in particular, on a root that is read-only. */}}

{{- define "pushlane.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "pushlane.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Volumes: dict "root" $ "stores" (list "reports") "certificate" name of a secret "sessions" a secret and its key "pod" options of the pod. */}}
{{- define "pushlane.volumes" -}}
{{- $name := include "pushlane.fullname" .root -}}
- name: settings
  configMap:
    name: {{ $name }}
- name: tmp
  emptyDir: {}
- name: data
{{- if include "pushlane.isEmbedded" .root }}
  {{- include "pushlane.claim" (dict "root" .root "store" "data") | nindent 2 }}
{{- else }}
  emptyDir: {}
{{- end }}
{{- range .stores }}
- name: {{ . }}
  {{- include "pushlane.claim" (dict "root" $.root "store" .) | nindent 2 }}
{{- end }}
{{- range $kind := list "pulsar" "redis" "sinks" }}
{{- with get (get $.root.Values.secrets $kind) "existingSecret" }}
- name: {{ $kind }}-secret
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- with .sessions }}
- name: sessions
  secret:
    secretName: {{ .existingSecret }}
    items: [{key: {{ .key | quote }}, path: key}]
    defaultMode: 0440
{{- end }}
{{- with .certificate }}
- name: certificate
  secret:
    secretName: {{ . }}
    defaultMode: 0440
{{- end }}
{{- with .pod.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The source of a store's volume: dict "root" $ "store" "reports". */}}
{{- define "pushlane.claim" -}}
{{- $store := get .root.Values.storage .store -}}
{{- if or $store.existingClaim $store.size -}}
persistentVolumeClaim:
  claimName: {{ $store.existingClaim | default (printf "%s-%s" (include "pushlane.fullname" .root) .store) }}
{{- else -}}
emptyDir: {}
{{- end -}}
{{- end -}}

{{- define "pushlane.mounts" -}}
{{- $folder := include "pushlane.dataFolder" .root -}}
- name: settings
  mountPath: /etc/pushlane
  readOnly: true
- name: tmp
  mountPath: /tmp
- name: data
  mountPath: {{ $folder }}
{{- range .stores }}
- name: {{ . }}
  mountPath: {{ $folder }}/{{ . }}
{{- end }}
{{- range $kind := list "pulsar" "redis" "sinks" }}
{{- if get (get $.root.Values.secrets $kind) "existingSecret" }}
- name: {{ $kind }}-secret
  mountPath: {{ include "pushlane.secretsFolder" $.root }}/{{ $kind }}
  readOnly: true
{{- end }}
{{- end }}
{{- if .sessions }}
- name: sessions
  mountPath: {{ include "pushlane.sessionsFolder" .root }}
  readOnly: true
{{- end }}
{{- if .certificate }}
- name: certificate
  mountPath: {{ include "pushlane.certificateFolder" .root }}
  readOnly: true
{{- end }}
{{- with .pod.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "pushlane.environment" -}}
- name: PUSHLANE_CONFIG
  value: /etc/pushlane/pushlane.toml
{{- if .sessions }}
- name: PUSHLANE_SESSION_KEY_FILE
  value: {{ include "pushlane.sessionsFolder" .root }}/key
{{- end }}
{{- $keys := .root.Values.secrets.keys }}
{{- range $key, $setting := include "pushlane.secretVariables" .root | fromYaml }}
{{- with get $keys $key }}
- name: PUSHLANE_{{ upper $setting }}
  valueFrom:
    secretKeyRef:
      name: {{ $keys.existingSecret }}
      key: {{ . }}
{{- end }}
{{- end }}
{{- with .pod.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What a driver of Spark on Kubernetes, a job and an ingest name in their arguments. */}}
{{- define "pushlane.podIdentity" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
{{- end -}}

{{/* /livez asks neither broker nor store, so an outage restarts nothing. A process whose loop hangs ends itself before the fourth failure. */}}
{{- define "pushlane.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 4
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/*
A pod's template. Of dict:
  root, component, group (or not), args (list), grace (seconds)
  values: the component's part of the values, with `resources` and `pod`
  stores: the shared folders it has, of "reports" and "fanout"
  spark: the image with Java, and executors where they are asked for; driverless: without these
  job: it ends by itself, so nobody probes it
  identity: its arguments name the pod: $(POD_NAME)
  http: it serves HTTP behind a service, with the certificate of the secret `certificate`, and the key of the secret `sessions`, if these are given
*/}}
{{- define "pushlane.podTemplate" -}}
{{- $root := .root -}}
{{- $pod := mergeOverwrite (deepCopy $root.Values.pod) (.values.pod | default dict) -}}
{{- $drives := and .spark (not .driverless) $root.Values.spark.executors.instances -}}
{{- $mounted := dict "root" $root "stores" (.stores | default list) "certificate" .certificate "sessions" .sessions "pod" $pod -}}
{{- $image := (.spark | default false) | ternary $root.Values.spark.image $root.Values.image -}}
metadata:
  labels:
    {{- include "pushlane.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    {{- with .group }}
    pushlane/group: {{ quote . }}
    {{- end }}
    {{- with $pod.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    pushlane/settings: {{ include (print $root.Template.BasePath "/config.yaml") $root | sha256sum }}
    {{- with $pod.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "pushlane.fullname" $root }}{{ if $drives }}-spark{{ end }}
  automountServiceAccountToken: {{ if $drives }}true{{ else }}false{{ end }}
  terminationGracePeriodSeconds: {{ .grace }}
  {{- if .job }}
  restartPolicy: Never
  {{- end }}
  securityContext:
    {{- include "pushlane.podSecurity" . | nindent 4 }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $pod.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- range $name := list "nodeSelector" "tolerations" "affinity" }}
  {{- with get $pod $name }}
  {{ $name }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- if and (or .group .http) $root.Values.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- range $root.Values.topologySpread.topologyKeys }}
    - maxSkew: {{ $root.Values.topologySpread.maxSkew }}
      topologyKey: {{ . }}
      whenUnsatisfiable: {{ $root.Values.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "pushlane.componentSelector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  containers:
    - name: pushlane
      image: {{ include "pushlane.image" (dict "root" $root "image" $image) | quote }}
      imagePullPolicy: {{ $image.pullPolicy }}
      args:
        {{- range .args }}
        - {{ . | quote }}
        {{- end }}
      env:
        {{- include "pushlane.environment" $mounted | nindent 8 }}
        {{- if or $drives .job .identity }}
        {{- include "pushlane.podIdentity" . | nindent 8 }}
        {{- end }}
        {{- if .job }}
        - name: JOB_NAME
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['job-name']"}}
        {{- end }}
      {{- if not .job }}
      ports:
        - name: metrics
          containerPort: 9095
        {{- if .http }}
        - name: http
          containerPort: 8400
        {{- end }}
      {{- include "pushlane.probes" . | nindent 6 }}
      {{- end }}
      {{- if .http }}
      lifecycle:
        preStop: {exec: {command: [sleep, "5"]}} # until no balancer sends requests here any more
      {{- end }}
      {{- with .values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "pushlane.containerSecurity" . | nindent 8 }}
      volumeMounts:
        {{- include "pushlane.mounts" $mounted | nindent 8 }}
  volumes:
    {{- include "pushlane.volumes" $mounted | nindent 4 }}
{{- end -}}

{{/* Of the pods of a component, or of a group of it: dict "root" $ "name" "…" "component" "…" "group" "…". */}}
{{- define "pushlane.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "pushlane.metadata" . | nindent 2 }}
spec:
  maxUnavailable: {{ .root.Values.podDisruptionBudget.maxUnavailable }}
  {{- if semverCompare ">=1.27-0" .root.Capabilities.KubeVersion.Version }}
  unhealthyPodEvictionPolicy: AlwaysAllow # in an outage no pod is ready, and nodes drain all the same
  {{- end }}
  selector:
    matchLabels:
      {{- include "pushlane.componentSelector" . | nindent 6 }}
{{- end -}}

{{/* The arguments that a long-running command serves its probes by, as a JSON list. */}}
{{- define "pushlane.metricsArgs" -}}
{{- list "--metrics-host" "0.0.0.0" "--metrics-port" "9095" | toJson -}}
{{- end -}}

{{/* The arguments that say where Spark runs, as a JSON list. */}}
{{- define "pushlane.sparkArgs" -}}
{{- $spark := .Values.spark -}}
{{- $args := list -}}
{{- $conf := deepCopy $spark.conf -}}
{{- if $spark.executors.instances -}}
{{- $args = list "--master" "k8s://https://kubernetes.default.svc" -}}
{{- $conf = merge $conf (include "pushlane.executorConf" . | fromYaml) -}}
{{- else if $spark.master -}}
{{- $args = list "--master" $spark.master -}}
{{- end -}}
{{- with $spark.memory -}}{{- $args = concat $args (list "--memory" .) -}}{{- end -}}
{{- range $name, $value := $conf -}}
{{- $args = concat $args (list "--conf" (printf "%s=%s" $name (include "pushlane.text" $value))) -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}

{{- define "pushlane.executorConf" -}}
{{- $executors := .Values.spark.executors -}}
spark.kubernetes.namespace: {{ .Release.Namespace }}
spark.kubernetes.container.image: {{ include "pushlane.image" (dict "root" . "image" .Values.spark.image) | quote }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.spark.image.pullPolicy }}
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "pushlane.fullname" . }}
spark.kubernetes.driver.pod.name: $(POD_NAME)
spark.driver.host: $(POD_IP)
spark.driver.bindAddress: $(POD_IP)
spark.kubernetes.executor.podTemplateFile: /etc/pushlane/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
spark.executor.instances: {{ $executors.instances | quote }}
spark.executor.cores: {{ $executors.cores | quote }}
spark.executor.memory: {{ $executors.memory | quote }}
{{- end -}}
