{{/*
`true` if `cargo xtask manifests` renders the files of deploy/kubernetes. Then kustomize adds the
namespace and labels. No cluster serves this API.
*/}}
{{- define "tollgate.forKustomize" -}}
{{- if .Capabilities.APIVersions.Has "kustomize.config.k8s.io/v1beta1/Kustomization" }}true{{ end }}
{{- end }}

{{/* The labels that select the pods. They never change: a Deployment's selector is immutable. */}}
{{- define "tollgate.selector" -}}
app.kubernetes.io/name: tollgate
{{- end }}

{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/part-of: tollgate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
`metadata` of an object of the namespace. A list: the root, what follows `name`, labels and
annotations of this object alone.
*/}}
{{- define "tollgate.metadata" -}}
{{- $root := index . 0 -}}
metadata:
  name: {{ $root.Values.name }}{{ index . 1 }}
  {{- if not (include "tollgate.forKustomize" $root) }}
  namespace: {{ $root.Release.Namespace }}
  {{- end }}
  {{- include "tollgate.labelsAndAnnotations" . | nindent 2 | trimSuffix "\n  " }}
{{- end }}

{{/* The same of an object of the cluster. */}}
{{- define "tollgate.clusterMetadata" -}}
metadata:
  name: {{ (index . 0).Values.name }}{{ index . 1 }}
  {{- include "tollgate.labelsAndAnnotations" . | nindent 2 | trimSuffix "\n  " }}
{{- end }}

{{- define "tollgate.labelsAndAnnotations" -}}
{{- $root := index . 0 -}}
{{- $labels := dict -}}
{{- if gt (len .) 2 }}{{ $labels = index . 2 }}{{ end -}}
{{- if not (include "tollgate.forKustomize" $root) -}}
{{- $labels = merge (include "tollgate.labels" $root | fromYaml) $labels -}}
{{- end -}}
{{- with $labels -}}
labels:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- if gt (len .) 3 }}{{ with index . 3 }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}{{ end -}}
{{- end }}

{{- define "tollgate.serviceAccount" -}}
{{ .Values.serviceAccount.name | default .Values.name }}
{{- end }}

{{/* `subjects` of a binding. */}}
{{- define "tollgate.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "tollgate.serviceAccount" . }}
    {{- if not (include "tollgate.forKustomize" .) }}
    namespace: {{ .Release.Namespace }}
    {{- end }}
{{- end }}

{{- define "tollgate.image" -}}
{{- with .Values.image -}}
{{ .repository }}
{{- if not (include "tollgate.forKustomize" $) -}}
{{- if or .tag (not .digest) }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* `true` if replicas forward requests to each other's connectors. `components.agents` is a former name. */}}
{{- define "tollgate.sharesConnectors" -}}
{{- if or .Values.components.connectors .Values.components.agents }}true{{ end }}
{{- end }}

{{/*
What the chart adds to the settings: what components and the store need, and the names of this
release where they differ from the gateway's defaults.
*/}}
{{- define "tollgate.addedSettings" -}}
{{- $values := .Values -}}
{{- $account := include "tollgate.serviceAccount" . -}}
state:
  namespace: {{ .Release.Namespace }}
  {{- if $values.components.allNamespaces }}
  kubernetes:
    applicationNamespaces: ["*"]
  {{- end }}
{{- if include "tollgate.sharesConnectors" . }}
{{/* The gateway refuses both names in one file. */ -}}
{{ hasKey $values.settings "agents" | ternary "agents" "connectors" }}:
  peers:
    listen: 0.0.0.0:8445
{{- end }}
{{- if $values.store.urlSecret.name }}
store:
  urlFile: /etc/tollgate/store/{{ $values.store.urlSecret.key }}
{{- end }}
{{- if $values.components.writeApplicationSets }}
applicationSets:
  git:
    directory: /var/cache/tollgate
    cacheBytes: 1073741824
{{- end }}
{{- if $values.components.admission }}
admission:
  listen: 0.0.0.0:8444
  {{- if not (dig "admission" "tls" "certificate" "" $values.settings) }}
  tls:
    secret: {{ $values.name }}-admission-tls
    {{- if ne $values.name "tollgate" }}
    service: {{ $values.name }}-admission
    webhookConfiguration: {{ $values.name }}-admission
    {{- end }}
  {{- end }}
  {{- if ne $account "tollgate" }}
  writers:
    gateway: system:serviceaccount:{{ .Release.Namespace }}:{{ $account }}
  {{- end }}
{{- end }}
{{- end }}

{{/* tollgate.yaml. */}}
{{- define "tollgate.settings" -}}
{{- $added := include "tollgate.addedSettings" . | fromYaml -}}
{{- merge (deepCopy .Values.settings) $added | toYaml -}}
{{- end }}

{{- define "tollgate.dns" -}}
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end }}
