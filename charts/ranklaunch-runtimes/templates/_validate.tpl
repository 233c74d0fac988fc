{{/* Checks that values.schema.json cannot express. Each message begins with the value's name; all messages are shown at once. */}}

{{- define "ranklaunch-runtimes.validate" -}}
{{- $shapes := include "ranklaunch-runtimes.wrongShapes" (dict "values" .Values "table" (.Files.Get "keys.json" | fromJson)) | fromYamlArray -}}
{{- if $shapes }}{{ printf "the values do not fit:\n  %s" (join "\n  " $shapes) | fail }}{{ end -}}
{{- $problems := include "ranklaunch-runtimes.validate.keys" . | fromYamlArray -}}
{{- $skip := append (include "ranklaunch-runtimes.reserved" . | splitList " ") "RANKLAUNCH_GRACE_S" -}}
{{- $variables := dict "values" .Values "table" (.Files.Get "keys.json" | fromJson) "skip" $skip -}}
{{- $problems = include "ranklaunch-runtimes.wrongVariables" $variables | fromYamlArray | concat $problems -}}
{{- range list "some" "env" "volumes" "containers" "labels" "restart" "nul" -}}
{{- $problems = concat $problems (include (printf "ranklaunch-runtimes.validate.%s" .) $.Values | fromYamlArray) -}}
{{- end -}}
{{- if $problems -}}
{{- printf "the values do not fit:\n  %s" (join "\n  " $problems) | fail -}}
{{- end -}}
{{- end -}}

{{- define "ranklaunch-runtimes.validate.some" -}}
{{- if not .namePrefix }}
- "namePrefix: empty: expected the beginning of the runtimes' names, such as ranklaunch"
{{- end }}
{{- range $device := list "gpu" "npu" }}
{{- $values := get $ $device }}
{{- if and $values.enabled (not $values.resourceName) }}
- {{ printf "%s.resourceName: empty: expected the resource name of the devices, or %s.enabled=false" $device $device | toJson }}
{{- end }}
{{- end }}
{{- if not (or .gpu.enabled .npu.enabled) }}
- "gpu.enabled, npu.enabled: expected true for one or both, or no runtime is made"
{{- end }}
{{- if not (or .runtimes.plain .runtimes.torch .runtimes.mpi) }}
- "runtimes: expected true for one or more of plain, torch and mpi, or no runtime is made"
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.reserved" -}}
RANKLAUNCH_JOB_NAME RANKLAUNCH_NODES RANKLAUNCH_ACCELERATOR RANKLAUNCH_METHOD RANKLAUNCH_HOSTS RANKLAUNCH_MASTER_ADDR RANKLAUNCH_TASK RANKLAUNCH_RESTARTS RANKLAUNCH_LAUNCHER_AS_WORKER RANKLAUNCH_JOB_UID PET_NNODES PET_NPROC_PER_NODE PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT
{{- end -}}

{{/* Refuse variables of a single job: a runtime is for many jobs, and such variables belong in the TrainJob's env. */}}
{{- define "ranklaunch-runtimes.validate.env" -}}
{{- $env := .env -}}
{{- range include "ranklaunch-runtimes.reserved" . | splitList " " }}
{{- if hasKey $env . }}
- {{ printf "env.%s: set by the runtime, a TrainJob or Kubeflow Trainer; leave it out" . | toJson }}
{{- end }}
{{- end }}
{{- $period := .lifecycle.gracePeriodSeconds -}}
{{- range $name, $value := $env }}
{{- if ge (len (printf "%s=%s" $name $value)) 131072 }}
- {{ printf "env.%s: too long: expected fewer than 131072 bytes, the limit of Linux for one variable; put the text into a file" $name | toJson }}
{{- end }}
{{- if eq $name "RANKLAUNCH_GRACE_S" }}
{{- if not (regexMatch "^[0-9]+([.][0-9]*)?$" $value) }}
- {{ printf "env.RANKLAUNCH_GRACE_S: %s: expected seconds" $value | toJson }}
{{- else if ge (float64 $value) (float64 $period) }}
- {{ printf "env.RANKLAUNCH_GRACE_S: %s: expected less than lifecycle.gracePeriodSeconds, after which the pod is killed" $value | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.validate.volumes" -}}
{{- $names := list -}}
{{- range .volumes }}
{{- $names = append $names (.name | toString) }}
{{- if not (and (kindIs "string" .name) (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" (.name | toString))) }}
- {{ printf "volumes: name %v: expected small letters, digits and dashes, at most 63" .name | toJson }}
{{- else if has .name (list "shm" "ranklaunch-tmp") }}
- {{ printf "volumes: name %s: ranklaunch's own" .name | toJson }}
{{- end }}
{{- end }}
{{- if ne (len $names) (len (uniq $names)) }}
- "volumes: expected different names"
{{- end }}
{{ include "ranklaunch-runtimes.wrongMounts" (dict "path" "volumeMounts" "mounts" .volumeMounts "volumes" $names "taken" (list "/dev/shm")) }}
{{ include "ranklaunch-runtimes.wrongContainers" (dict "values" . "main" "node" "volumes" (concat (list "shm" "ranklaunch-tmp") $names)) }}
{{- end -}}

{{- define "ranklaunch-runtimes.validate.containers" -}}
{{- $refused := dict "RANKLAUNCH_GRACE_S" "made from lifecycle.gracePeriodSeconds; set that, or env.RANKLAUNCH_GRACE_S" }}
{{- range include "ranklaunch-runtimes.reserved" . | splitList " " }}
{{- $_ := set $refused . "set by the runtime, a TrainJob or Kubeflow Trainer; leave it out" }}
{{- end }}
{{ include "ranklaunch-runtimes.wrongEnv" (dict "values" . "refused" $refused) }}
{{ include "ranklaunch-runtimes.wrongSecurity" . }}
{{ include "ranklaunch-runtimes.wrongOfHost" (dict "given" .podTemplate "hostNetwork" false) }}
{{ include "ranklaunch-runtimes.wrongTolerations" (dict "path" "gpu.tolerations" "given" .gpu.tolerations) }}
{{ include "ranklaunch-runtimes.wrongTolerations" (dict "path" "npu.tolerations" "given" .npu.tolerations) }}
{{- end -}}

{{- define "ranklaunch-runtimes.validate.restart" -}}
{{- if and (eq .restart.onEviction "restart") (not .restart.maxRestarts) }}
- "restart.onEviction: restart: expected restart.maxRestarts above 0"
{{- end }}
{{- if ne (len .restart.noRetryExitCodes) (len (uniq .restart.noRetryExitCodes)) }}
- "restart.noRetryExitCodes: expected each code once"
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.labelPattern" -}}
^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$
{{- end -}}

{{- define "ranklaunch-runtimes.validate.labels" -}}
{{- $pattern := include "ranklaunch-runtimes.labelPattern" . -}}
{{- range $path, $labels := dict "labels" .labels "gpu.nodeSelector" .gpu.nodeSelector "npu.nodeSelector" .npu.nodeSelector }}
{{- range $name, $value := $labels }}
{{- if not (regexMatch $pattern $value) }}
- {{ printf "%s.%s: %s: expected at most 63 letters, digits, dashes, dots and underscores" $path $name $value | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $value := .labels }}
{{- if regexMatch "^(app[.]kubernetes[.]io|trainer[.]kubeflow[.]org)/" $name }}
- {{ printf "labels.%s: set by Trainer or ranklaunch; leave it out" $name | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Refuse NUL: neither an argument nor a variable can hold it. Refuse U+FFFD: Helm puts it for bytes of --set that are not UTF-8. */}}
{{- define "ranklaunch-runtimes.validate.nul" -}}
{{- range $name, $value := . }}
{{- if printf "%v" $value | contains "\uFFFD" }}
- {{ printf "%s: expected valid UTF-8, found U+FFFD, which Helm puts in place of other bytes" $name | toJson }}
{{- end }}
{{- if regexMatch `(^|[^\\])(\\\\)*\\u0000` (toJson $value) }}
- {{ printf "%s: expected text without NUL" $name | toJson }}
{{- end }}
{{- end }}
{{- end -}}
