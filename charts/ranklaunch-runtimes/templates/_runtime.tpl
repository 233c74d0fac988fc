{{/* One runtime. Called with a dict: root, device (gpu or npu), policy (plain, torch or mpi). */}}
{{- define "ranklaunch-runtimes.runtime" -}}
{{- $values := .root.Values -}}
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata:
  name: {{ $values.namePrefix }}-{{ .device }}{{ if ne .policy "plain" }}-{{ .policy }}{{ end }}
  labels:
    app.kubernetes.io/name: ranklaunch-runtimes
    app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
    trainer.kubeflow.org/framework: {{ ternary "torch" "ranklaunch" (eq .policy "torch") }}
    {{- with $values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  mlPolicy:
    numNodes: 1
    {{- if eq .policy "torch" }}
    torch: {}
    {{- end }}
  {{- if $values.scheduling.volcanoQueue }}
  podGroupPolicy:
    volcano: {}
  {{- end }}
  template:
    {{- with $values.scheduling.volcanoQueue }}
    metadata:
      annotations:
        scheduling.volcano.sh/queue-name: {{ . | quote }}
    {{- end }}
    spec:
      {{- with $values.lifecycle.ttlSeconds }}
      ttlSecondsAfterFinished: {{ int64 . }}
      {{- end }}
      network:
        enableDNSHostnames: true
        publishNotReadyAddresses: true
      successPolicy:
        operator: All
      failurePolicy:
        maxRestarts: {{ int64 $values.restart.maxRestarts }}
        {{- if $values.restart.maxRestarts }}
        restartStrategy: BlockingRecreate
        rules:
          {{- if ne $values.restart.onEviction "fail" }}
          - name: evicted
            action: RestartJobSetAndIgnoreMaxRestarts
            onJobFailureReasons: [PodFailurePolicy]
            onJobFailureMessagePatterns:
              {{- range include "ranklaunch-runtimes.preempted" . | splitList " " }}
              - {{ printf "has condition %s " . | quote }}
              {{- end }}
          {{- end }}
          - name: neverAgain
            action: FailJobSet
            onJobFailureReasons: [PodFailurePolicy, DeadlineExceeded]
        {{- end }}
      replicatedJobs:
        - name: node
          replicas: 1
          template:
            metadata:
              labels:
                trainer.kubeflow.org/trainjob-ancestor-step: trainer
            spec:
              completionMode: Indexed
              backoffLimit: 0
              podReplacementPolicy: Failed
              podFailurePolicy:
                rules:
                  {{- include "ranklaunch-runtimes.rules" $values.restart | trim | nindent 18 }}
              template:
                {{- include "ranklaunch-runtimes.pod" . | trim | nindent 16 }}
{{- end -}}

{{/* Rules of podFailurePolicy. A Job that a rule ends has the reason PodFailurePolicy, and a message that says which rule matched. */}}
{{- define "ranklaunch-runtimes.rules" -}}
{{- $codes := list -}}
{{- range .noRetryExitCodes }}{{ $codes = append $codes (printf "%03d" (int .)) }}{{ end -}}
{{- if $codes }}
- action: FailJob
  onExitCodes:
    containerName: node
    operator: In
    values: [{{ range $index, $code := sortAlpha $codes }}{{ if $index }}, {{ end }}{{ $code | trimPrefix "0" | trimPrefix "0" }}{{ end }}]
{{- end }}
{{- with include "ranklaunch-runtimes.stoppedCode" . }}
- action: FailJob
  onExitCodes:
    containerName: node
    operator: In
    values: [{{ . }}]
{{- end }}
- action: FailJob
  onPodConditions:
    {{- range include "ranklaunch-runtimes.preempted" . | splitList " " }}
    - type: {{ . }}
      status: "True"
    {{- end }}
{{- end -}}

{{/* 143, the exit code of all pods after one is taken away, if the job must not be restarted then; else empty. */}}
{{- define "ranklaunch-runtimes.stoppedCode" -}}
{{- $named := false -}}
{{- range .noRetryExitCodes }}{{ if eq (int .) 143 }}{{ $named = true }}{{ end }}{{ end -}}
{{- if and .maxRestarts (eq .onEviction "fail") (not $named) }}143{{ end -}}
{{- end -}}
