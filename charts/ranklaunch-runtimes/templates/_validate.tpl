{{/* What values.schema.json cannot say. Each message begins with the value's name, and all of them are told at once. */}}

{{- define "ranklaunch-runtimes.validate" -}}
{{- $problems := list -}}
{{- range list "some" "env" "volumes" "mounts" "labels" "nul" -}}
{{- $problems = concat $problems (include (printf "ranklaunch-runtimes.validate.%s" .) $.Values | fromYamlArray) -}}
{{- end -}}
{{- if $problems -}}
{{- printf "the values do not fit:\n  %s" (join "\n  " $problems) | fail -}}
{{- end -}}
{{- end -}}

{{- define "ranklaunch-runtimes.validate.some" -}}
{{- if not (or .gpu.enabled .npu.enabled) }}
- "gpu.enabled, npu.enabled: expected one of the two, for else no runtime is made"
{{- end }}
{{- if not (or .runtimes.plain .runtimes.torch .runtimes.mpi) }}
- "runtimes: expected one of plain, torch and mpi, for else no runtime is made"
{{- end }}
{{- end -}}

{{/* A runtime is for many jobs: what is about one of them is in the TrainJob's env. */}}
{{- define "ranklaunch-runtimes.validate.env" -}}
{{- $env := .env -}}
{{- range list "JOB_NAME" "NODES" "ACCELERATOR" "METHOD" "HOSTS" "MASTER_ADDR" "TASK" "RESTARTS" "LAUNCHER_AS_WORKER" "JOB_UID" }}
{{- if hasKey $env (printf "RANKLAUNCH_%s" .) }}
- {{ printf "env.RANKLAUNCH_%s: the runtime's or a TrainJob's own" . | toJson }}
{{- end }}
{{- end }}
{{- range list "PET_NNODES" "PET_NPROC_PER_NODE" "PET_NODE_RANK" "PET_MASTER_ADDR" "PET_MASTER_PORT" }}
{{- if hasKey $env . }}
- {{ printf "env.%s: Kubeflow Trainer's own" . | toJson }}
{{- end }}
{{- end }}
{{- $period := .lifecycle.gracePeriodSeconds -}}
{{- range $name, $value := $env }}
{{- if ge (len (printf "%s=%s" $name $value)) 131072 }}
- {{ printf "env.%s: it has more bytes than Linux starts a program with, 131072" $name | toJson }}
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
- {{ printf "volumes: name %v: expected small letters, digits and dashes" .name | toJson }}
{{- else if eq .name "shm" }}
- "volumes: name shm: ranklaunch's own"
{{- end }}
{{- end }}
{{- if ne (len $names) (len (uniq $names)) }}
- "volumes: expected different names"
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.validate.mounts" -}}
{{- $names := list -}}
{{- range .volumes }}{{ $names = append $names (.name | toString) }}{{ end -}}
{{- $paths := list "/dev/shm" -}}
{{- range .volumeMounts }}
{{- if not (has (.name | toString) $names) }}
- {{ printf "volumeMounts: name %v: no volume of this name in volumes" .name | toJson }}
{{- end }}
{{- if not (hasPrefix "/" (.mountPath | toString)) }}
- {{ printf "volumeMounts: mountPath %v: expected a path from the root" .mountPath | toJson }}
{{- end }}
{{- $paths = append $paths (.mountPath | toString) }}
{{- end }}
{{- if ne (len $paths) (len (uniq $paths)) }}
- "volumeMounts: expected different mountPaths, of which /dev/shm is ranklaunch's own"
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.validate.labels" -}}
{{- range $name, $value := .labels }}
{{- if regexMatch "^(app[.]kubernetes[.]io|trainer[.]kubeflow[.]org)/" $name }}
- {{ printf "labels.%s: Trainer's or ranklaunch's own" $name | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* No program can be given one, and no variable holds one. Bytes of --set that are no text have become U+FFFD in Helm. */}}
{{- define "ranklaunch-runtimes.validate.nul" -}}
{{- range $name, $value := . }}
{{- if printf "%v" $value | contains "\uFFFD" }}
- {{ printf "%s: expected text that UTF-8 can say, found U+FFFD, which stands for bytes that are none" $name | toJson }}
{{- end }}
{{- if regexMatch `(^|[^\\])(\\\\)*\\u0000` (toJson $value) }}
- {{ printf "%s: expected text without NUL" $name | toJson }}
{{- end }}
{{- end }}
{{- end -}}
