{{- define "eyas.name" -}}
{{- if contains "eyas" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-eyas" (.Release.Name | trunc 35 | trimSuffix "-") }}{{ end -}}
{{- end }}

{{- /* An image with registry and tag, by its name: (list $ .Values.images.control) */ -}}
{{- define "eyas.image" -}}
{{- $ := index . 0 -}}
{{ with $.Values.images.registry }}{{ . }}/{{ end }}{{ index . 1 }}:{{ $.Values.images.tag | default $.Chart.AppVersion }}
{{- end }}

{{- define "eyas.tritonImage" -}}
{{ if .Values.triton.gpu }}{{ .Values.images.gpu.triton }}{{ else }}{{ .Values.images.triton }}{{ end }}
{{- end }}

{{- define "eyas.daskAddress" -}}
tls://{{ include "eyas.name" . }}-dask-scheduler:8786
{{- end }}

{{- define "eyas.secret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "eyas.name" .)) }}
{{- end }}

{{- define "eyas.claim" -}}
{{ .Values.volume.existingClaim | default (include "eyas.name" .) }}
{{- end }}

{{- /* Secrets with server addresses: the one in the values, or that of the chart's own server; empty if there is neither. */ -}}
{{- define "eyas.database" -}}
{{ .Values.database.existingSecret | default (ternary (printf "%s-postgresql" (include "eyas.name" .)) "" .Values.postgresql.enabled) }}
{{- end }}

{{- define "eyas.events" -}}
{{ .Values.events.existingSecret | default (ternary (printf "%s-nats" (include "eyas.name" .)) "" .Values.nats.enabled) }}
{{- end }}

{{- define "eyas.objects" -}}
{{ .Values.data.existingSecret | default (ternary (printf "%s-objects" (include "eyas.name" .)) "" .Values.objects.enabled) }}
{{- end }}

{{- /* The artifact store: the URL of its bucket, and the Secret with its credentials; empty for the volume. */ -}}
{{- define "eyas.artifacts" -}}
{{- $own := ternary (printf "s3://%s-artifacts" .Values.objects.bucket) "" (and .Values.objects.enabled .Values.objects.artifacts) -}}
{{ .Values.artifacts.url | default $own }}
{{- end }}

{{- define "eyas.artifactsSecret" -}}
{{- if .Values.artifacts.url -}}
{{ .Values.artifacts.existingSecret | default .Values.data.existingSecret }}
{{- else if include "eyas.artifacts" . -}}
{{ include "eyas.objects" . }}
{{- end -}}
{{- end }}

{{- /* Endpoint and region of the artifact store from the values, as environment variables. */ -}}
{{- define "eyas.artifactsEnv" -}}
{{- if include "eyas.artifacts" . -}}
{{- $found := dict -}}
{{- with .Values.artifacts.endpoint }}{{ $_ := set $found "EYAS_ARTIFACTS_AWS_ENDPOINT_URL" . }}{{ end -}}
{{- with .Values.artifacts.region }}{{ $_ := set $found "EYAS_ARTIFACTS_AWS_REGION" . }}{{ end -}}
{{ toJson $found }}
{{- else }}{}{{ end }}
{{- end }}

{{- define "eyas.roots" -}}
{{- $bucket := ternary (list (printf "s3://%s" .Values.objects.bucket)) list .Values.objects.enabled -}}
{{ join ":" (concat (list "/var/lib/eyas/data") $bucket .Values.data.roots) }}
{{- end }}

{{- /* A PriorityClass: (list $ "serving") */ -}}
{{- define "eyas.priority" -}}
{{- $ := index . 0 -}}
{{ get $.Values.priorities (index . 1) | default (ternary (printf "%s-%s-%s" $.Release.Namespace (include "eyas.name" $) (index . 1)) "" $.Values.priorities.create) }}
{{- end }}

{{- /* Labels that select the pods of a part: (list $ "control") */ -}}
{{- define "eyas.selector" -}}
app.kubernetes.io/name: eyas
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "eyas.labels" -}}
{{ include "eyas.selector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{- /* Common fields of all pods: (list $ "control"), or (list $ "postgresql" 999) for another user. */ -}}
{{- define "eyas.pod" -}}
{{- $ := index . 0 -}}
{{- $own := gt (len .) 2 -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $own | ternary (last .) $.Values.identity.user | int }}
  runAsGroup: {{ $own | ternary (last .) $.Values.identity.group | int }}
  fsGroup: {{ $own | ternary (last .) $.Values.identity.group | int }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- $dask := hasPrefix "dask-" (index . 1) }}
{{- if or $dask (has (index . 1) (list "control" "gateway" "triton")) }}
{{- with include "eyas.priority" (list $ (ternary "stages" "serving" $dask)) }}
priorityClassName: {{ . }}
{{- end }}
{{- $selector := include "eyas.selector" . }}
{{- with $.Values.spread.over }}
topologySpreadConstraints:
  {{- range . }}
  - topologyKey: {{ . }}
    maxSkew: 1
    whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" $.Values.spread.strict }}
    labelSelector:
      matchLabels: {{- $selector | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Common fields of all containers, by the role of their image: (list $ "control") */ -}}
{{- define "eyas.container" -}}
image: {{ include "eyas.image" . }}
imagePullPolicy: {{ (index . 0).Values.images.pullPolicy }}
{{ include "eyas.restricted" . }}
{{- end }}

{{- define "eyas.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  privileged: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "eyas.volume" -}}
- name: state
  {{- if .Values.volume.hostPath }}
  hostPath:
    path: {{ .Values.volume.hostPath }}
    type: Directory
  {{- else }}
  persistentVolumeClaim:
    claimName: {{ include "eyas.claim" . }}
  {{- end }}
- name: tmp
  emptyDir: {}
{{- end }}

{{- define "eyas.logEnv" }}
{{- if eq .Values.log "json" }}
- name: EYAS_LOG
  value: json
{{- end }}
{{- end }}

{{- /* Environment of both roles of the platform. */ -}}
{{- define "eyas.env" -}}
{{- if .Values.triton.tls.enabled }}
- name: EYAS_TRITON_TLS
  value: /run/eyas/triton-tls
{{- end }}
{{- include "eyas.logEnv" . }}
- name: EYAS_HOME
  value: /var/lib/eyas
- name: EYAS_HOST
  value: 0.0.0.0
- name: EYAS_REPLICA
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: EYAS_TOKEN_FILE
  value: /run/eyas/token/token
- name: EYAS_TRITON
  value: dns:{{ include "eyas.name" . }}-tritons:8001
{{- include "eyas.stateEnv" . }}
{{- with include "eyas.events" . }}
- name: EYAS_EVENTS
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: url
{{- end }}
{{- if .Values.features.existingSecret }}
- name: EYAS_FEATURES
  valueFrom:
    secretKeyRef:
      name: {{ .Values.features.existingSecret }}
      key: url
{{- end }}
{{- with .Values.oidc }}
{{- if .issuer }}
{{- range $name, $value := dict "ISSUER" .issuer "AUDIENCE" .audience "CLIENT_ID" .clientId "SCOPES" .scopes "GROUPS_CLAIM" .groupsClaim "NAME_CLAIM" .nameClaim }}
{{- with $value }}
- name: EYAS_OIDC_{{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
- name: EYAS_OIDC_ROLES
  value: {{ toJson .roles | quote }}
{{- with .consoleUrl }}
- name: EYAS_CONSOLE_URL
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.rates }}
- name: EYAS_{{ upper $name }}_RATE
  value: {{ $value | int64 | quote }}
{{- end }}
{{- with .Values.trustedProxies }}
- name: EYAS_TRUSTED_PROXIES
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{- /* The certificates of one side of the connections to Triton, as a volume and its mount: (list $ "client") */ -}}
{{- define "eyas.tls" -}}
{{- $ := index . 0 -}}
{{- if $.Values.triton.tls.enabled -}}
- name: triton-tls
  secret:
    secretName: {{ include "eyas.name" $ }}-triton-{{ index . 1 }}
    defaultMode: 0440
{{- end }}
{{- end }}

{{- define "eyas.tlsMount" -}}
{{- if .Values.triton.tls.enabled -}}
- { name: triton-tls, mountPath: /run/eyas/triton-tls, readOnly: true }
{{- end }}
{{- end }}

{{- /* Where database and artifacts are. */ -}}
{{- define "eyas.stateEnv" -}}
{{- include "eyas.databaseEnv" . }}
{{- with include "eyas.artifacts" . }}
- name: EYAS_ARTIFACTS_URL
  value: {{ . }}
{{- end }}
{{- range $name, $value := include "eyas.artifactsEnv" . | fromJson }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{- define "eyas.databaseEnv" -}}
{{- with include "eyas.database" . }}
- name: EYAS_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: url
- name: EYAS_DATABASE_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ . }}
      key: password
      optional: true
{{- end }}
{{- end }}

{{- /* Credentials of the artifact store, with a prefix, because data may have other credentials. */ -}}
{{- define "eyas.artifactsFrom" -}}
{{- with include "eyas.artifactsSecret" . }}
- prefix: EYAS_ARTIFACTS_
  secretRef: { name: {{ . }} }
{{- end }}
{{- end }}

{{- /* Existing value of a Secret, or a new random one: (list $ NAME KEY) */ -}}
{{- define "eyas.kept" -}}
{{- $found := (lookup "v1" "Secret" (index . 0).Release.Namespace (index . 1)).data | default dict -}}
{{ get $found (index . 2) | b64dec | default (printf "p%s" (randAlphaNum 40)) }}
{{- end }}

{{- define "eyas.probes" -}}
startupProbe:
  httpGet: { path: /healthz, port: api }
  periodSeconds: 2
  failureThreshold: 90
livenessProbe:
  httpGet: { path: /healthz, port: api }
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: api }
  periodSeconds: 3
  timeoutSeconds: 5
{{- end }}

{{- /* Parts with several replicas: one replica may be evicted at a time. */ -}}
{{- define "eyas.budgets" -}}
{{- $found := list -}}
{{- range $part := list "control" "gateway" "triton" -}}
{{- $values := get $.Values $part -}}
{{- $scaled := dig "autoscaling" "enabled" false $values -}}
{{- if and $.Values.disruptionBudgets.enabled (or $scaled (gt (int $values.replicas) 1)) }}{{ $found = append $found $part }}{{ end -}}
{{- end -}}
{{ join " " $found }}
{{- end }}
