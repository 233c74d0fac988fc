{{/* Warnings about legal values, the same as those of `ranklaunch spec`. A list, in YAML. */}}

{{- define "ranklaunch.warnings" -}}
{{- $secrets := (.Files.Get "keys.json" | fromJson).variables.secrets -}}
{{- $safe := "a Secret in envFrom or extraEnv does not" -}}
{{- range $name, $value := .Values.env }}
{{- if and $value (or (regexMatch $secrets.tokens $value) (include "ranklaunch.isSecret" (dict "name" $name "secrets" $secrets))) }}
- {{ printf "env.%s stands in the specification for all to read; %s" $name $safe | toJson }}
{{- end }}
{{ include "ranklaunch.literalVariables" (dict "place" (printf "env.%s" $name) "text" $value) }}
{{- end }}
{{- range .Values.extraEnv }}
{{- /* $(NAME) is no literal text: Kubernetes replaces it by another variable. */}}
{{- $text := regexReplaceAll `\$\([^)]*\)` (.value | default "" | toString) "" }}
{{- if and $text (or (regexMatch $secrets.tokens $text) (include "ranklaunch.isSecret" (dict "name" .name "secrets" $secrets))) }}
- {{ printf "extraEnv: %s stands in the specification for all to read; %s" .name $safe | toJson }}
{{- end }}
{{- end }}
{{- $option := "" }}
{{- range .Values.args }}
{{- $name := regexFind `^--?[A-Za-z][^=\s]*` . }}
{{- $secret := include "ranklaunch.isSecret" (dict "name" (trimAll "-" $name | replace "-" "_") "secrets" $secrets) }}
{{- if and $option (not (hasPrefix "-" .)) }}
- {{ printf "args hold a secret for all to read (%s '***'); %s" $option $safe | toJson }}
{{- end }}
{{- $option = "" }}
{{- if and $name $secret }}
{{- if eq $name . }}{{ $option = . }}{{ else }}
- {{ printf "args hold a secret for all to read (%s=***); %s" $name $safe | toJson }}
{{- end }}
{{- end }}
{{- if regexMatch $secrets.tokens . }}
- {{ printf "args hold a secret for all to read (%s); %s" (regexReplaceAll $secrets.tokens . "***") $safe | toJson }}
{{- else if and (not $secret) (regexMatch `^--?[A-Za-z][\w-]*\s+\S` .) }}
- {{ printf "args: '%s': an option and its value in one word are one argument to the program; make two words of them" . | toJson }}
{{- end }}
{{- end }}
{{- $shell := and .Values.args (regexMatch "(^|/)(ba|da|z)?sh$" .Values.script) (regexMatch "^-[a-z]*c$" (first (append .Values.args ""))) }}
{{- if not $shell }}
{{- range .Values.args }}
{{ include "ranklaunch.literalVariables" (dict "place" "args" "text" .) }}
{{- end }}
{{- end }}
{{ include "ranklaunch.literalVariables" (dict "place" "script" "text" .Values.script) }}
{{ include "ranklaunch.literalVariables" (dict "place" "workingDir" "text" .Values.workingDir) }}
{{ include "ranklaunch.warningsOfARun" . }}
{{- end -}}

{{- define "ranklaunch.warningsOfARun" -}}
{{- $inPlace := .Values.restart.inPlace | default (get .Values.env "RANKLAUNCH_MAX_RESTARTS" | default 0) | int -}}
{{- $again := int64 .Values.restart.maxRestarts -}}
{{- if and $inPlace $again }}
- {{ printf "RANKLAUNCH_MAX_RESTARTS=%d and restart.maxRestarts=%d: a permanent failure is tried %d times in each of %d starts" $inPlace $again (add $inPlace 1) (add $again 1) | toJson }}
{{- end }}
{{- if and (eq .Values.hang.action "restart") (not $inPlace) }}
- "hang.action=restart: acts as stop, because restart.inPlace is 0"
{{- end }}
{{- if eq .Values.mode "ray" }}
{{- $limit := .Values.shm.sizeLimit }}
{{- $memory := .Values.resources.memory }}
{{- if not .Values.shm.enabled }}
- "shm.enabled=false: Ray's object store goes to /tmp then; leave it out"
{{- else if and $limit $memory (lt (include "ranklaunch.bytes" $limit | float64) (mulf 0.3 (include "ranklaunch.bytes" $memory | float64))) }}
- {{ printf "shm.sizeLimit=%s: Ray's object store takes 30 %% of resources.memory=%s, and goes to /tmp where /dev/shm has less; leave it out" $limit $memory | toJson }}
{{- end }}
{{- end }}
{{- if and (eq .Values.engine "volcano") .Values.metrics.podMonitor (not .Values.networkPolicy.enabled) }}
- "metrics.podMonitor: Volcano makes a NetworkPolicy that keeps Prometheus from the pods, where policies are enforced; set networkPolicy.enabled"
{{- end }}
{{- if and .Values.security.readOnlyRootFilesystem .Values.envFrom (not (hasKey .Values.env "RANKLAUNCH_LOG_DIR")) }}
- "security.readOnlyRootFilesystem: logs cannot be written unless envFrom sets RANKLAUNCH_LOG_DIR; to be sure, set env.RANKLAUNCH_LOG_DIR, such as /tmp/ranklaunch-logs"
{{- end }}
{{- if include "ranklaunch.logsCannotBeWritten" . }}
- "security.readOnlyRootFilesystem: env.RANKLAUNCH_LOG_DIR is on no volume of volumeMounts that can be written, and a run that cannot write its logs ends with 78"
{{- end }}
{{- end -}}

{{/* "true" if the root file system is read-only and env.RANKLAUNCH_LOG_DIR is on no writable mount. */}}
{{- define "ranklaunch.logsCannotBeWritten" -}}
{{- $logs := get .Values.env "RANKLAUNCH_LOG_DIR" | default "" -}}
{{- if and $logs .Values.security.readOnlyRootFilesystem -}}
{{- if and .Values.workingDir (not (hasPrefix "/" $logs)) }}{{ $logs = printf "%s/%s" .Values.workingDir $logs }}{{ end -}}
{{- $paths := list -}}
{{- if .Values.shm.enabled }}{{ $paths = append $paths "/dev/shm" }}{{ end -}}
{{- if include "ranklaunch.needsTmp" . }}{{ $paths = append $paths "/tmp" }}{{ end -}}
{{- range .Values.volumeMounts }}{{ if not .readOnly }}{{ $paths = append $paths .mountPath }}{{ end }}{{ end -}}
{{- $writable := false -}}
{{- range $paths }}{{ if hasPrefix (printf "%s/" (clean .)) (printf "%s/" (clean $logs)) }}{{ $writable = true }}{{ end }}{{ end -}}
{{- if not $writable }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Bytes of a quantity of memory. */}}
{{- define "ranklaunch.bytes" -}}
{{- $factors := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- mulf (float64 $number) (float64 (get $factors (trimPrefix $number .))) -}}
{{- end -}}

{{- define "ranklaunch.isSecret" -}}
{{- if and (regexMatch .secrets.names .name) (not (regexMatch .secrets.plain .name)) }}true{{ end -}}
{{- end -}}

{{- define "ranklaunch.literalVariables" -}}
{{- range regexFindAll `\$\{[^}\s]{1,60}\}|\$[A-Z][A-Z0-9_]+` .text -1 | uniq }}
- {{ printf "%s: %s stays as it is written, for no shell replaces it by a value" $.place . | toJson }}
{{- end }}
{{- end -}}
