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
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: {{ gt (int $values.security.runAsUser) 0 }}
    runAsUser: {{ int64 $values.security.runAsUser }}
    fsGroup: {{ int64 $values.security.fsGroup }}
    seccompProfile:
      type: RuntimeDefault
  containers:
    - name: node
      {{- with $values.image.repository }}
      image: {{ printf "%s%s" . (ternary (printf ":%s" $values.image.tag) "" (ne $values.image.tag "")) | quote }}
      {{- end }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- /* A TrainJob gives the program: args. */}}
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
        {{- with $values.volumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: shm
      emptyDir:
        medium: Memory
        {{- with $values.shm.sizeLimit }}
        sizeLimit: {{ . | quote }}
        {{- end }}
    {{- with $values.volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Of one name, the user's is taken; a TrainJob's env comes over both. */}}
{{- define "ranklaunch-runtimes.env" -}}
{{- $values := .root.Values -}}
{{- $own := dict "RANKLAUNCH_ACCELERATOR" .device -}}
{{- $_ := set $own "RANKLAUNCH_GRACE_S" (sub $values.lifecycle.gracePeriodSeconds 5 | toString) -}}
{{- with get (dict "torch" "torchrun" "mpi" "mpirun") .policy }}{{ $_ := set $own "RANKLAUNCH_METHOD" . }}{{ end -}}
{{- range $name, $value := merge dict $values.env $own }}
- name: {{ $name | quote }}
  value: {{ include "ranklaunch-runtimes.literal" $value }}
{{- end }}
- name: RANKLAUNCH_RESTARTS
  valueFrom:
    fieldRef:
      fieldPath: metadata.labels['jobset.sigs.k8s.io/restart-attempt']
{{- end -}}

{{/* Kubernetes replaces $(NAME) by a variable, and $$ by $. */}}
{{- define "ranklaunch-runtimes.literal" -}}
{{- $text := ternary (replace "$" "$$" .) . (or (contains "$(" .) (contains "$$" .)) -}}
{{- /* JSON leaves these two as they are, for which YAML has another meaning or none. */ -}}
{{- $text | toJson | replace "\u0085" `\u0085` | replace "\u007f" `\u007f` -}}
{{- end -}}
