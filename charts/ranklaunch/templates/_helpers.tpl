{{/* Names, labels and small values. */}}

{{/* The run's name: value name, or the release's name, with nameSuffix. It is never truncated, so that two runs never share a name. */}}
{{- define "ranklaunch.name" -}}
{{- $suffix := get (dict "revision" (printf "-r%d" .Release.Revision) "values" (include "ranklaunch.digest" . | trunc 8 | printf "-%s")) .Values.nameSuffix -}}
{{- .Values.name | default .Release.Name }}{{ $suffix -}}
{{- end -}}

{{/* Digest of the values: equal for equal values. */}}
{{- define "ranklaunch.digest" -}}
{{- omit .Values "global" | toJson | sha256sum | trunc 16 -}}
{{- end -}}

{{/* Labels of all objects. Without the chart's version: labels of a running job's pods cannot change. */}}
{{- define "ranklaunch.labels" -}}
app.kubernetes.io/name: ranklaunch
app.kubernetes.io/instance: {{ include "ranklaunch.name" . | quote }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.podLabels" -}}
{{ include "ranklaunch.labels" . }}
{{- with include "ranklaunch.ringLabel" . }}
{{ . }}
{{- end }}
{{- if eq .Values.engine "acjob" }}
framework: pytorch
{{- end }}
{{- end -}}

{{/* Chip label by which the writer of the rank table finds the pods. */}}
{{- define "ranklaunch.ringLabel" -}}
{{- $source := ternary "ascend-operator" .Values.rankTable.source (eq .Values.engine "acjob") -}}
{{- if eq $source "ascend-operator" -}}
ring-controller.atlas: {{ .Values.rankTable.label | default "ascend-910b" | quote }}
{{- else if eq $source "cce" -}}
ring-controller.cce: {{ .Values.rankTable.label | default "ascend-1980" | quote }}
{{- end -}}
{{- end -}}

{{/* Metadata of the run's objects; the rank table's ConfigMap has its own. */}}
{{- define "ranklaunch.metadata" -}}
name: {{ include "ranklaunch.name" . | quote }}
{{- with .Values.namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- include "ranklaunch.labels" . | trim | nindent 2 }}
  {{- with .Values.scheduling.kueueQueue }}
  kueue.x-k8s.io/queue-name: {{ . | quote }}
  {{- end }}
  {{- with include "ranklaunch.ringLabel" . }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if eq .Values.engine "acjob" }}
  {{- include "ranklaunch.acjobLabels" . | trim | nindent 2 }}
  {{- end }}
{{- /* An upgrade compares this digest to see if it would change the running job. */}}
annotations:
  {{- set (deepCopy .Values.annotations) "ranklaunch/values" (include "ranklaunch.digest" .) | include "ranklaunch.given" | nindent 2 }}
{{- end -}}

{{/* The run's object that an upgrade finds in the cluster, as JSON; {} if there is none. */}}
{{- define "ranklaunch.live" -}}
{{- $kinds := dict
  "volcano" (list "batch.volcano.sh/v1alpha1" "Job")
  "jobset" (list "jobset.x-k8s.io/v1alpha2" "JobSet")
  "job" (list "batch/v1" "Job")
  "trainjob" (list "trainer.kubeflow.org/v1alpha1" "TrainJob")
  "mpijob" (list "kubeflow.org/v2beta1" "MPIJob")
  "acjob" (list "mindxdl.gitee.com/v1" "AscendJob") -}}
{{- $kind := get $kinds .Values.engine -}}
{{- $live := dict -}}
{{- if .Release.IsUpgrade }}{{ $live = lookup (index $kind 0) (index $kind 1) .Release.Namespace (include "ranklaunch.name" .) }}{{ end -}}
{{- $live | default dict | toJson -}}
{{- end -}}

{{/* A job for Kueue starts suspended. An upgrade keeps the live value: a job that Kueue has admitted must go on. */}}
{{- define "ranklaunch.suspend" -}}
{{- $spec := dig "spec" dict (include "ranklaunch.live" . | fromJson) -}}
{{- if eq .Values.engine "mpijob" }}{{ $spec = dig "runPolicy" dict $spec }}{{ end -}}
suspend: {{ dig "suspend" true $spec }}
{{- end -}}

{{/* "true" if the whole job is restarted when the cluster takes a pod away. */}}
{{- define "ranklaunch.afterEviction" -}}
{{- if and .Values.restart.maxRestarts (ne .Values.restart.onEviction "fail") }}true{{ end -}}
{{- end -}}

{{/* 143, the exit code of all pods after one is taken away, if the job must not be restarted then; else empty. */}}
{{- define "ranklaunch.stoppedCode" -}}
{{- $outlives := or (not .Values.restart.maxRestarts) (include "ranklaunch.afterEviction" .) -}}
{{- if not (or $outlives (include "ranklaunch.stopIsFinal" .)) }}143{{ end -}}
{{- end -}}

{{/* "true" if restart.noRetryExitCodes contains 143. Compared as text: YAML's numbers are floats here, and `has` compares types too. */}}
{{- define "ranklaunch.stopIsFinal" -}}
{{- if regexMatch "\\b143\\b" (include "ranklaunch.noRetryCodes" .) }}true{{ end -}}
{{- end -}}

{{/* Labels of an AscendJob. fault-retry-times is left out: it retries after every exit code. */}}
{{- define "ranklaunch.acjobLabels" -}}
framework: pytorch
fault-scheduling: {{ ternary "force" "off" (eq (include "ranklaunch.afterEviction" .) "true") | quote }}
{{- end -}}

{{- define "ranklaunch.device" -}}
{{- $default := dict "gpu" "nvidia.com/gpu" "npu" "huawei.com/Ascend910" "cpu" "" -}}
{{- .Values.device.resourceName | default (get $default .Values.device.kind) -}}
{{- end -}}

{{/* Number of ranks on a node. */}}
{{- define "ranklaunch.slots" -}}
{{- $other := ternary .Values.mpi.slots 0 (eq .Values.engine "mpijob") -}}
{{- int64 ($other | default .Values.devicesPerNode) -}}
{{- end -}}

{{/* Number of pods without ranks: 1 for an MPIJob with mpi.launcherAsWorker false, else 0. */}}
{{- define "ranklaunch.launchersAlone" -}}
{{- ternary 1 0 (and (eq .Values.engine "mpijob") (not .Values.mpi.launcherAsWorker)) -}}
{{- end -}}

{{- define "ranklaunch.ttl" -}}
{{- with .Values.lifecycle.ttlSeconds -}}
ttlSecondsAfterFinished: {{ int64 . }}
{{- end -}}
{{- end -}}

{{- define "ranklaunch.deadline" -}}
{{- with .Values.lifecycle.deadlineSeconds -}}
activeDeadlineSeconds: {{ int64 . }}
{{- end -}}
{{- end -}}
