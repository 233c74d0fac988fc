{{- define "ranklaunch-runtimes.pod" -}}
{{- $values := .root.Values -}}
{{- $device := get $values .device -}}
metadata:
  labels:
    app.kubernetes.io/name: ranklaunch
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int64 $values.lifecycle.gracePeriodSeconds }}
  {{- if $values.scheduling.volcanoQueue }}
  {{- /* Trainer makes the PodGroup, but does not set the scheduler that reads it. */}}
  schedulerName: volcano
  {{- end }}
  {{- with $values.scheduling.priorityClass }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- with $device.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $device.tolerations }}
  tolerations:
    {{- include "ranklaunch-runtimes.given" . | nindent 4 }}
  {{- end }}
  {{- with include "ranklaunch-runtimes.givenFields" .root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- include "ranklaunch-runtimes.podSecurity" .root | trim | nindent 4 }}
  {{- with include "ranklaunch-runtimes.before" .root | trim }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    - name: node
      {{- with $values.image.repository }}
      image: {{ printf "%s%s" . (ternary (printf ":%s" $values.image.tag) "" (ne $values.image.tag "")) | quote }}
      {{- end }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- /* The program comes from the TrainJob, as args. */}}
      command: [ranklaunch, run, --]
      env:
        {{- include "ranklaunch-runtimes.env" . | trim | nindent 8 }}
      resources:
        limits:
          {{ $device.resourceName | quote }}: {{ int64 $device.devicesPerNode | quote }}
        requests:
          {{ $device.resourceName | quote }}: {{ int64 $device.devicesPerNode | quote }}
      securityContext:
        allowPrivilegeEscalation: false
        {{- if $values.security.readOnlyRootFilesystem }}
        readOnlyRootFilesystem: true
        {{- end }}
        capabilities:
          drop: [ALL]
          {{- with $values.security.capabilities }}
          add: {{ toJson . }}
          {{- end }}
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - name: shm
          mountPath: /dev/shm
        {{- if include "ranklaunch-runtimes.needsTmp" .root }}
        - name: ranklaunch-tmp
          mountPath: /tmp
        {{- end }}
        {{- range $values.volumeMounts }}
        - {{ include "ranklaunch-runtimes.given" . | nindent 10 | trim }}
        {{- end }}
  volumes:
    - name: shm
      emptyDir:
        medium: Memory
        {{- with $values.shm.sizeLimit }}
        sizeLimit: {{ . | quote }}
        {{- end }}
    {{- if include "ranklaunch-runtimes.needsTmp" .root }}
    - name: ranklaunch-tmp
      emptyDir: {}
    {{- end }}
    {{- range $values.volumes }}
    - {{ include "ranklaunch-runtimes.given" . | nindent 6 | trim }}
    {{- end }}
{{- end -}}

{{/* Environment. The chart's env overrides ranklaunch's own variables; a TrainJob's env overrides both. */}}
{{- define "ranklaunch-runtimes.env" -}}
{{- $values := .root.Values -}}
{{- $own := dict "RANKLAUNCH_ACCELERATOR" .device -}}
{{- $_ := set $own "RANKLAUNCH_GRACE_S" (sub $values.lifecycle.gracePeriodSeconds 5 | toString) -}}
{{- if include "ranklaunch-runtimes.logsGoToTmp" .root }}{{ $_ := set $own "RANKLAUNCH_LOG_DIR" "/tmp/ranklaunch-logs" }}{{ end -}}
{{- with get (dict "torch" "torchrun" "mpi" "mpirun") .policy }}{{ $_ := set $own "RANKLAUNCH_METHOD" . }}{{ end -}}
{{- range $name, $value := merge dict $values.env $own }}
- name: {{ $name | quote }}
  value: {{ include "ranklaunch-runtimes.literal" $value }}
{{- end }}
{{- range $values.extraEnv }}
- {{ include "ranklaunch-runtimes.json" . }}
{{- end }}
- name: RANKLAUNCH_RESTARTS
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['jobset.sigs.k8s.io/restart-attempt']
{{- /* Source of the muster's key. */}}
- name: RANKLAUNCH_JOB_UID
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['jobset.sigs.k8s.io/jobset-uid']
{{- end -}}

{{/* A text that Kubernetes leaves unchanged: it would replace $(NAME) by a variable, and $$ by $. */}}
{{- define "ranklaunch-runtimes.literal" -}}
{{- $text := ternary (replace "$" "$$" .) . (or (contains "$(" .) (contains "$$" .)) -}}
{{- include "ranklaunch-runtimes.json" $text -}}
{{- end -}}

{{/* JSON that is valid YAML too: characters that JSON leaves unescaped and YAML misreads or refuses are escaped. */}}
{{- define "ranklaunch-runtimes.json" -}}
{{- $text := toJson . -}}
{{- range $code := concat (untilStep 127 160 1) (list 65534 65535) }}{{ $text = replace (printf "%c" $code) (printf "\\u%04x" $code) $text }}{{ end -}}
{{- $text -}}
{{- end -}}

{{/*
Any value of the user, as YAML; as JSON in three cases that toYaml gets wrong:
- characters that YAML misreads or refuses, or U+2028 and U+2029: its output is empty or no YAML;
- text that ends with a newline or other white space: an indented block loses it;
- a key <<: it becomes YAML's merge key.
*/}}
{{- define "ranklaunch-runtimes.given" -}}
{{- $json := include "ranklaunch-runtimes.json" . -}}
{{- if or (ne $json (toJson .)) (regexMatch `\\u202|(\\n|\pZ)"|"(<|\\u003c){2}":` $json) }}{{ $json }}{{ else }}{{ toYaml . }}{{ end -}}
{{- end -}}
