{{/* Parts that PodMonitor, PrometheusRule and NetworkPolicy share. */}}

{{/* Metadata of such an object. Called with a dict: root, name. */}}
{{- define "ranklaunch.companion" -}}
name: {{ .name | quote }}
{{- with .root.Values.namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "ranklaunch.labels" .root | trim | nindent 2 }}
{{- with .root.Values.annotations }}
annotations:
  {{- include "ranklaunch.given" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Selector of the run's pods. A TrainJob's pods are selected by JobSet's label: an existing runtime does not add ours. */}}
{{- define "ranklaunch.selector" -}}
matchLabels:
  {{ ternary "jobset.sigs.k8s.io/jobset-name" "app.kubernetes.io/instance" (eq .Values.engine "trainjob") }}: {{ include "ranklaunch.name" . | quote }}
{{- end -}}
