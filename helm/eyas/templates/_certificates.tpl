{{- /* A CA only for one purpose, and its certificates by Secret: (list $ PART (dict SUFFIX SERVER) DURATION) */ -}}
{{- define "eyas.certificates" }}
{{- $ := index . 0 }}
{{- $name := printf "%s-%s" (include "eyas.name" $) (index . 1) }}
{{- $labels := include "eyas.labels" (list $ (index . 1)) }}
{{- $certificates := index . 2 }}
{{- $duration := index . 3 }}
{{- $tls := $.Values.triton.tls }}
{{- if $tls.certManager }}
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $name }}-self-signed
  labels: {{- $labels | nindent 4 }}
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name }}-ca
  labels: {{- $labels | nindent 4 }}
spec:
  secretName: {{ $name }}-ca
  commonName: {{ $name }}-ca
  isCA: true
  duration: 87600h
  privateKey: { algorithm: ECDSA, size: 256 }
  issuerRef: { name: {{ $name }}-self-signed, kind: Issuer }
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: {{ $name }}-ca
  labels: {{- $labels | nindent 4 }}
spec:
  ca: { secretName: {{ $name }}-ca }
{{- range $part, $server := $certificates }}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: {{ $name }}-{{ $part }}
  labels: {{- $labels | nindent 4 }}
spec:
  secretName: {{ $name }}-{{ $part }}
  dnsNames: [{{ $server }}]
  usages: [server auth, client auth]
  duration: {{ $duration }}
  renewBefore: 720h
  privateKey: { algorithm: ECDSA, size: 256, rotationPolicy: Always }
  issuerRef: { name: {{ $name }}-ca, kind: Issuer }
{{- end }}
{{- else }}
{{- $ca := genCAWithKey (printf "%s-ca" $name) 3650 (genPrivateKey "ecdsa") }}
{{- with (lookup "v1" "Secret" $.Release.Namespace (printf "%s-ca" $name)).data }}
{{- $ca = buildCustomCert (get . "tls.crt") (get . "tls.key") }}
{{- end }}
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}-ca
  labels: {{- $labels | nindent 4 }}
type: kubernetes.io/tls
data:
  # No pod mounts the CA: it signs at upgrades. Created once: upgrades keep it.
  tls.crt: {{ $ca.Cert | b64enc }}
  tls.key: {{ $ca.Key | b64enc }}
{{- range $part, $server := $certificates }}
{{- $secret := printf "%s-%s" $name $part }}
{{- $present := lookup "v1" "Secret" $.Release.Namespace $secret | default dict }}
{{- $data := $present.data }}
{{- if ne (dig "metadata" "annotations" "eyas/issue" "" $present) $tls.issue }}
{{- $issued := genSignedCertWithKey $server nil (list $server) 3650 $ca (genPrivateKey "ecdsa") }}
{{- $data = dict "ca.crt" (b64enc $ca.Cert) "tls.crt" (b64enc $issued.Cert) "tls.key" (b64enc $issued.Key) }}
{{- end }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ $secret }}
  labels: {{- $labels | nindent 4 }}
  annotations: { eyas/issue: {{ $tls.issue | quote }} }
type: kubernetes.io/tls
data: {{- toYaml $data | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
