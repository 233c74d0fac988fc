{{/* Fields above the pod template that several engines share. */}}

{{/* An Indexed Job of all nodes. A pod that fails is never replaced alone: the others would wait for it. */}}
{{- define "ranklaunch.indexedJob" -}}
completionMode: Indexed
completions: {{ int64 .Values.nodes }}
parallelism: {{ int64 .Values.nodes }}
backoffLimit: 0
podReplacementPolicy: Failed
{{- if ne .Values.engine "trainjob" }}
{{- with include "ranklaunch.deadline" . }}
{{ . }}
{{- end }}
{{- end }}
podFailurePolicy:
  rules:
    {{- include "ranklaunch.podFailureRules" . | trim | nindent 4 }}
template:
  {{- include "ranklaunch.pod" (dict "root" . "task" "") | trim | nindent 2 }}
{{- end -}}

{{/* Rules of podFailurePolicy. A Job that a rule ends has the reason PodFailurePolicy, and a message that says which rule matched. */}}
{{- define "ranklaunch.podFailureRules" -}}
{{- with .Values.restart.noRetryExitCodes }}
- action: FailJob
  onExitCodes:
    containerName: {{ include "ranklaunch.container" $ }}
    operator: In
    values: {{ include "ranklaunch.noRetryCodes" $ }}
{{- end }}
{{- with include "ranklaunch.stoppedCode" . }}
- action: FailJob
  onExitCodes:
    containerName: {{ include "ranklaunch.container" $ }}
    operator: In
    values: [{{ . }}]
{{- end }}
- action: FailJob
  onPodConditions:
    {{- range include "ranklaunch.preempted" . | splitList " " }}
    - type: {{ . }}
      status: "True"
    {{- end }}
{{- end -}}

{{/* restart.noRetryExitCodes, sorted: the API server refuses them otherwise. */}}
{{- define "ranklaunch.noRetryCodes" -}}
{{- $words := list -}}
{{- range .Values.restart.noRetryExitCodes }}{{ $words = append $words (printf "%03d" (int .)) }}{{ end -}}
[{{ range $index, $word := sortAlpha $words }}{{ if $index }}, {{ end }}{{ $word | trimPrefix "0" | trimPrefix "0" }}{{ end }}]
{{- end -}}

{{/* A JobSet with one Job in it, which is restarted as a whole. A restart counts against maxRestarts unless a rule says otherwise. */}}
{{- define "ranklaunch.jobsetSpec" -}}
{{- with include "ranklaunch.ttl" . }}
{{ . }}
{{- end }}
network:
  enableDNSHostnames: true
  publishNotReadyAddresses: true
successPolicy:
  operator: All
failurePolicy:
  maxRestarts: {{ int64 .Values.restart.maxRestarts }}
  {{- if .Values.restart.maxRestarts }}
  restartStrategy: BlockingRecreate
  rules:
    {{- if include "ranklaunch.afterEviction" . }}
    - name: evicted
      action: RestartJobSetAndIgnoreMaxRestarts
      onJobFailureReasons: [PodFailurePolicy]
      onJobFailureMessagePatterns:
        {{- range include "ranklaunch.preempted" . | splitList " " }}
        - {{ printf "has condition %s " . | quote }}
        {{- end }}
    {{- end }}
    - name: neverAgain
      action: FailJobSet
      onJobFailureReasons: [PodFailurePolicy, DeadlineExceeded]
  {{- end }}
replicatedJobs:
  - name: {{ ternary "node" "worker" (eq .Values.engine "trainjob") }}
    replicas: 1
    template:
      {{- if eq .Values.engine "trainjob" }}
      metadata:
        labels:
          trainer.kubeflow.org/trainjob-ancestor-step: trainer
      {{- end }}
      spec:
        {{- include "ranklaunch.indexedJob" . | trim | nindent 8 }}
{{- end -}}

{{/* The gang: schedulingPolicy of the MPI Operator and the Ascend Operator. */}}
{{- define "ranklaunch.schedulingPolicy" -}}
{{- with .Values.scheduling -}}
minAvailable: {{ int64 (.minAvailable | default (add $.Values.nodes (include "ranklaunch.launchersAlone" $))) }}
{{- /* The Ascend Operator accepts no schedulingPolicy without a queue. */}}
{{- with .queue | default (ternary "default" "" (eq $.Values.engine "acjob")) }}
queue: {{ . | quote }}
{{- end }}
{{- with .priorityClass }}
priorityClass: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}
