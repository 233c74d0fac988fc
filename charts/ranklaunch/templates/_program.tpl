{{/* The program's container: image, command, environment, devices. */}}

{{- define "ranklaunch.program" -}}
image: {{ include "ranklaunch.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{ include "ranklaunch.command" . }}
{{- end -}}

{{- define "ranklaunch.command" -}}
command: [ranklaunch, run, --]
args:
  {{- if .Values.module }}
  - "-m"
  - {{ .Values.module | quote }}
  {{- else }}
  - {{ include "ranklaunch.literal" .Values.script }}
  {{- end }}
  {{- range .Values.args }}
  - {{ include "ranklaunch.literal" . }}
  {{- end }}
{{- end -}}

{{- define "ranklaunch.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}{{ with .tag }}:{{ . }}{{ end }}{{- end -}}
{{- end -}}
{{- end -}}

{{/* A text that Kubernetes leaves unchanged: it would replace $(NAME) by a variable, and $$ by $. */}}
{{- define "ranklaunch.literal" -}}
{{- $text := ternary (replace "$" "$$" .) . (or (contains "$(" .) (contains "$$" .)) -}}
{{- include "ranklaunch.json" $text -}}
{{- end -}}

{{/* JSON that is valid YAML too: characters that JSON leaves unescaped and YAML misreads or refuses are escaped. */}}
{{- define "ranklaunch.json" -}}
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
{{- define "ranklaunch.given" -}}
{{- $json := include "ranklaunch.json" . -}}
{{- if or (ne $json (toJson .)) (regexMatch `\\u202|(\\n|\pZ)"|"(<|\\u003c){2}":` $json) }}{{ $json }}{{ else }}{{ toYaml . }}{{ end -}}
{{- end -}}

{{- define "ranklaunch.env" -}}
{{- $values := .root.Values -}}
{{- include "ranklaunch.ownEnv" . -}}
{{- range $name, $value := $values.env }}
- name: {{ $name | quote }}
  value: {{ include "ranklaunch.literal" $value }}
{{- end }}
{{- range $values.extraEnv }}
- {{ include "ranklaunch.json" . }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.ownEnv" -}}
{{- $values := .root.Values -}}
- name: RANKLAUNCH_JOB_NAME
  value: {{ include "ranklaunch.name" .root | quote }}
- name: RANKLAUNCH_NODES
  value: {{ add $values.nodes (include "ranklaunch.launchersAlone" .root) | quote }}
- name: RANKLAUNCH_SLOTS
  value: {{ include "ranklaunch.slots" .root | quote }}
- name: RANKLAUNCH_ACCELERATOR
  value: {{ $values.device.kind | quote }}
{{- if not (or $values.trainer.runtime (hasKey $values.env "RANKLAUNCH_GRACE_S")) }}
{{- /* The last 5 s of the period are for ranklaunch's own exit. An existing runtime sets this variable itself. */}}
- name: RANKLAUNCH_GRACE_S
  value: {{ sub $values.lifecycle.gracePeriodSeconds 5 | quote }}
{{- end }}
{{- $method := ternary "mpirun" $values.mode (and (eq $values.engine "mpijob") (eq $values.mode "auto")) }}
{{- if ne $method "auto" }}
- name: RANKLAUNCH_METHOD
  value: {{ $method | quote }}
{{- end }}
{{- with include "ranklaunch.onTheHostsNetwork" .root | trim }}
{{ . }}
{{- end }}
{{- with $values.network.interface }}
- name: RANKLAUNCH_INTERFACE
  value: {{ . | quote }}
{{- end }}
{{- with $values.network.masterPort }}
- name: RANKLAUNCH_MASTER_PORT
  value: {{ int64 . | quote }}
{{- end }}
{{- with $values.network.musterPort }}
- name: RANKLAUNCH_MUSTER_PORT
  value: {{ int64 . | quote }}
{{- end }}
{{- with $values.network.sshPort }}
- name: RANKLAUNCH_SSHD_PORT
  value: {{ int64 . | quote }}
{{- end }}
{{- with include "ranklaunch.rankTablePath" .root }}
- name: RANKLAUNCH_RANK_TABLE
  value: {{ . | quote }}
{{- end }}
{{- with .task }}
- name: RANKLAUNCH_TASK
  value: {{ . }}
{{- end }}
{{- range $name, $value := include "ranklaunch.running" .root | fromYaml }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- if eq $values.engine "mpijob" }}
- name: RANKLAUNCH_LAUNCHER_AS_WORKER
  value: {{ $values.mpi.launcherAsWorker | quote }}
{{- end }}
{{- with include "ranklaunch.restarts" .root | trim }}
{{ . }}
{{- end }}
{{- with include "ranklaunch.key" .root | trim }}
{{ . }}
{{- end }}
{{- end -}}

{{/* Variables from the values of restart.inPlace, hang, save, metrics and the log folder, if set. */}}
{{- define "ranklaunch.running" -}}
{{- with .Values.restart.inPlace }}
RANKLAUNCH_MAX_RESTARTS: {{ int64 . | quote }}
{{- end }}
{{- with .Values.hang.action }}
RANKLAUNCH_HANG: {{ . | quote }}
{{- end }}
{{- with .Values.hang.seconds }}
RANKLAUNCH_HANG_S: {{ int64 . | quote }}
{{- end }}
{{- with .Values.save.signal }}
RANKLAUNCH_SAVE_SIGNAL: {{ . | quote }}
{{- end }}
{{- with .Values.save.file }}
RANKLAUNCH_SAVE_FILE: {{ . | quote }}
{{- end }}
{{- if .Values.metrics.enabled }}
RANKLAUNCH_METRICS_PORT: {{ int64 .Values.metrics.port | quote }}
{{- end }}
{{- if include "ranklaunch.logsGoToTmp" . }}
RANKLAUNCH_LOG_DIR: /tmp/ranklaunch-logs
{{- end }}
{{- end -}}

{{/* Host names for pods on the host's network: such a pod has the host's name, and cannot derive its peers' names from it. */}}
{{- define "ranklaunch.onTheHostsNetwork" -}}
{{- $form := get (dict "job" "%[1]s-%[2]d.%[1]s" "jobset" "%[1]s-worker-0-%[2]d.%[1]s" "trainjob" "%[1]s-node-0-%[2]d.%[1]s") .Values.engine -}}
{{- if and $form (gt (int .Values.nodes) 1) .Values.network.hostNetwork -}}
{{- $name := include "ranklaunch.name" . -}}
{{- if has .Values.mode (list "mpirun" "mpi" "horovod" "deepspeed" "tensorflow" "ray") -}}
- name: RANKLAUNCH_HOSTS
  value: "{{ range $index := until (int .Values.nodes) }}{{ if $index }},{{ end }}{{ printf $form $name $index }}{{ end }}"
{{- else -}}
- name: RANKLAUNCH_MASTER_ADDR
  value: {{ printf $form $name 0 | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* RANKLAUNCH_RESTARTS, from the label or annotation in which the engine counts restarts. */}}
{{- define "ranklaunch.restarts" -}}
{{- $jobset := "metadata.labels['jobset.sigs.k8s.io/restart-attempt']" -}}
{{- $volcano := "metadata.annotations['volcano.sh/job-retry-count']" -}}
{{- with get (dict "volcano" $volcano "jobset" $jobset "trainjob" $jobset "acjob" "metadata.labels['version']") .Values.engine }}
- name: RANKLAUNCH_RESTARTS
  valueFrom:
    fieldRef:
      fieldPath: {{ . }}
{{- end }}
{{- end -}}

{{/*
Source of the muster's key, for jobs of several nodes: the user's Secret, or a random id that the engine made. The chart makes no random
value itself, so that two renders are the same.
*/}}
{{- define "ranklaunch.key" -}}
{{- $group := "metadata.annotations['scheduling.k8s.io/group-name']" -}}
{{- $jobset := "metadata.labels['jobset.sigs.k8s.io/jobset-uid']" -}}
{{- $uids := dict "volcano" $group "jobset" $jobset "job" "metadata.labels['batch.kubernetes.io/controller-uid']" "trainjob" $jobset -}}
{{- if has .Values.scheduling.schedulerName (list "" "volcano") }}{{ $_ := set $uids "acjob" $group }}{{ end -}}
{{- if gt (add .Values.nodes .Values.tf.ps (include "ranklaunch.launchersAlone" .) | int) 1 -}}
{{- if .Values.muster.secretName }}
- name: RANKLAUNCH_SECRET
  valueFrom:
    secretKeyRef:
      name: {{ .Values.muster.secretName | quote }}
      key: secret
{{- else if eq .Values.engine "mpijob" }}
{{- /* The MPI Operator makes this Secret for ssh before any pod starts. */}}
- name: RANKLAUNCH_JOB_UID
  valueFrom:
    secretKeyRef:
      name: {{ printf "%s-ssh" (include "ranklaunch.name" .) | quote }}
      key: ssh-privatekey
{{- else }}
{{- with get $uids .Values.engine }}
- name: RANKLAUNCH_JOB_UID
  valueFrom:
    fieldRef:
      fieldPath: {{ . }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* Requests and limits. A parameter server and a launcher without ranks have no devices. */}}
{{- define "ranklaunch.resources" -}}
{{- $values := .root.Values -}}
{{- $limits := dict -}}
{{- if not (or (eq .task "ps") .alone) -}}
{{- $device := include "ranklaunch.device" .root -}}
{{- if and $device $values.devicesPerNode }}{{ $_ := set $limits $device (int64 $values.devicesPerNode | toString) }}{{ end -}}
{{- with $values.network.rdma }}{{ if .resource }}{{ $_ := set $limits .resource (int64 .count | toString) }}{{ end }}{{ end -}}
{{- range $name, $quantity := $values.device.extra }}{{ $_ := set $limits $name $quantity }}{{ end -}}
{{- end -}}
{{- with $values.resources.memory }}{{ $_ := set $limits "memory" . }}{{ end -}}
{{- $requests := merge dict $limits -}}
{{- with $values.resources.cpu }}{{ $_ := set $requests "cpu" . }}{{ end -}}
{{- if $limits }}
limits:
  {{- toYaml $limits | nindent 2 }}
{{- end }}
{{- if $requests }}
requests:
  {{- toYaml $requests | nindent 2 }}
{{- end }}
{{- end -}}
