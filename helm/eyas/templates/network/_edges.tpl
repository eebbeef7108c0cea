{{- /* Head of the policy of a part: (list $ "control") */ -}}
{{- define "eyas.policy" -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "eyas.name" (index . 0) }}-{{ index . 1 }}
  labels: {{- include "eyas.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "eyas.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
{{- end }}

{{- /* Parts of this release as peers: (list $ "control" "gateway") */ -}}
{{- define "eyas.parts" -}}
{{- $ := first . -}}
{{- range rest . }}
- podSelector:
    matchLabels: {{- include "eyas.selector" (list $ .) | nindent 6 }}
{{- end }}
{{- end }}

{{- define "eyas.edge" -}}
- ports:
    {{- range .ports }}
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
  {{- with .to }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* Edge to an external server, or to the chart's own: (list $ PART SECRET EDGE PORT); empty if there is neither. */ -}}
{{- define "eyas.away" -}}
{{- $ := index . 0 -}}
{{- $part := index . 1 -}}
{{- if index . 2 -}}
{{ include "eyas.edge" (index . 3) }}
{{- else if and $part (dig $part "enabled" false $.Values.AsMap) -}}
- to: {{- include "eyas.parts" (list $ $part) | nindent 4 }}
  ports: [{ port: {{ index . 4 }}, protocol: TCP }]
{{- end }}
{{- end }}

{{- define "eyas.names" -}}
- ports:
    - { port: 53, protocol: UDP }
    - { port: 53, protocol: TCP }
  {{- with .Values.networkPolicies.dns }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{- /* Ingress of metrics: (list $ PORT); empty without peers in the values. */ -}}
{{- define "eyas.scraped" -}}
{{- $port := index . 1 }}
{{- with (index . 0).Values.networkPolicies.prometheus -}}
- from: {{- toYaml . | nindent 4 }}
  ports: [{ port: {{ $port }}, protocol: TCP }]
{{- end }}
{{- end }}

{{- /* Peers that may connect to the API of a part: (list $ "control"). Proxies are peers of a part with an Ingress or an HTTPRoute. */ -}}
{{- define "eyas.callers" -}}
{{- $net := (index . 0).Values.networkPolicies -}}
{{- $values := get (index . 0).Values (index . 1) -}}
{{- $exposed := or $values.ingress.enabled $values.httpRoute.enabled -}}
{{- with concat $net.clients (ternary $net.proxies list $exposed) }}
{{- toYaml . }}
{{- end }}
{{- end }}
