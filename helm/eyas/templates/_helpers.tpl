{{- define "eyas.name" -}}
{{- if contains "eyas" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-eyas" (.Release.Name | trunc 35 | trimSuffix "-") }}{{ end -}}
{{- end }}

{{- /* The image of a role: (list $ "control") */ -}}
{{- define "eyas.image" -}}
{{- $ := index . 0 -}}
{{ with $.Values.images.registry }}{{ . }}/{{ end }}{{ get $.Values.images (index . 1) }}:{{ $.Values.images.tag | default $.Chart.AppVersion }}
{{- end }}

{{- define "eyas.secret" -}}
{{ .Values.token.existingSecret | default (printf "%s-token" (include "eyas.name" .)) }}
{{- end }}

{{- define "eyas.claim" -}}
{{ .Values.volume.existingClaim | default (include "eyas.name" .) }}
{{- end }}

{{- /* What chooses a part's pods: (list $ "control") */ -}}
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

{{- /* What all pods have in common: (list $ "control") */ -}}
{{- define "eyas.pod" -}}
{{- $ := index . 0 -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ $.Values.identity.user | int }}
  runAsGroup: {{ $.Values.identity.group | int }}
  fsGroup: {{ $.Values.identity.group | int }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with $.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with $.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What all containers have in common, by the role of their image: (list $ "control") */ -}}
{{- define "eyas.container" -}}
image: {{ include "eyas.image" . }}
imagePullPolicy: {{ (index . 0).Values.images.pullPolicy }}
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

{{- /* What both roles of the platform are told. */ -}}
{{- define "eyas.env" -}}
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
{{- if .Values.database.existingSecret }}
- name: EYAS_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret }}
      key: url
- name: EYAS_DATABASE_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ .Values.database.existingSecret }}
      key: password
      optional: true
{{- end }}
{{- if .Values.features.existingSecret }}
- name: EYAS_FEATURES
  valueFrom:
    secretKeyRef:
      name: {{ .Values.features.existingSecret }}
      key: url
{{- end }}
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
