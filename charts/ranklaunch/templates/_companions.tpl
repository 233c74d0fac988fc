{{/* What objects beside the run have in common. */}}

{{/* Called with a dict: root, name. */}}
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

{{/* Of the run's pods. A runtime that somebody else made does not label those of a TrainJob as the others are. */}}
{{- define "ranklaunch.selector" -}}
matchLabels:
  {{ ternary "jobset.sigs.k8s.io/jobset-name" "app.kubernetes.io/instance" (eq .Values.engine "trainjob") }}: {{ include "ranklaunch.name" . | quote }}
{{- end -}}
