{{/*
The one pod template of all engines. Called with a dict:
  root  the chart's context
  task  worker or ps, where the job has both; empty elsewhere
  alone true for a launcher without ranks
*/}}
{{- define "ranklaunch.pod" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "ranklaunch.podLabels" .root | trim | nindent 4 }}
  {{- with $values.annotations }}
  annotations:
    {{- include "ranklaunch.given" . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int64 $values.lifecycle.gracePeriodSeconds }}
  {{- if eq $values.engine "job" }}
  subdomain: {{ include "ranklaunch.name" .root | quote }}
  {{- end }}
  {{- if eq $values.engine "volcano" }}
  {{- with include "ranklaunch.deadline" .root }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- with $values.serviceAccountName }}
  serviceAccountName: {{ . | quote }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- if $values.network.hostNetwork }}
  hostNetwork: true
  {{- if not $values.podTemplate.dnsPolicy }}
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- end }}
  {{- with include "ranklaunch.placement" .root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with include "ranklaunch.givenFields" .root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- include "ranklaunch.podSecurity" .root | trim | nindent 4 }}
  {{- with include "ranklaunch.before" .root | trim }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ include "ranklaunch.container" .root }}
      {{- include "ranklaunch.program" .root | trim | nindent 6 }}
      {{- with $values.workingDir }}
      workingDir: {{ . | quote }}
      {{- end }}
      {{- with $values.envFrom }}
      envFrom:
        {{- include "ranklaunch.given" . | nindent 8 }}
      {{- end }}
      env:
        {{- include "ranklaunch.env" . | trim | nindent 8 }}
      {{- if or (eq $values.engine "acjob") $values.metrics.enabled }}
      ports:
        {{- if eq $values.engine "acjob" }}
        {{- /* The Service of AscendJob's leader forwards declared ports only. */}}
        - name: ascendjob-port
          containerPort: {{ int64 ($values.network.masterPort | default 2222) }}
        - name: muster
          containerPort: {{ int64 ($values.network.musterPort | default 18889) }}
        {{- end }}
        {{- if $values.metrics.enabled }}
        - name: metrics
          containerPort: {{ int64 $values.metrics.port }}
        {{- end }}
      {{- end }}
      {{- with include "ranklaunch.resources" . | trim }}
      resources:
        {{- . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "ranklaunch.containerSecurity" .root | trim | nindent 8 }}
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: FallbackToLogsOnError
      {{- with include "ranklaunch.mounts" .root | trim }}
      volumeMounts:
        {{- . | nindent 8 }}
      {{- end }}
  {{- with include "ranklaunch.volumes" .root | trim }}
  volumes:
    {{- . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* Name of the program's container: the operators of acjob and trainjob expect a fixed one. */}}
{{- define "ranklaunch.container" -}}
{{- get (dict "acjob" "ascend" "trainjob" "node") .Values.engine | default "train" -}}
{{- end -}}
