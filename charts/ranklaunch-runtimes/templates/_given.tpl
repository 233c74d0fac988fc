{{/*
Values in Kubernetes' own form (podTemplate, containers, mounts, tolerations): their rendering and their checks, for both charts.
tools/chart_values.py copies this file to charts/ranklaunch-runtimes.
*/}}

{{/* Fields of podTemplate, as lines of the pod's spec. */}}
{{- define "ranklaunch-runtimes.givenFields" -}}
{{- range $name, $value := omit .Values.podTemplate "securityContext" }}
{{- if not (kindIs "invalid" $value) }}
{{ $name }}: {{ include "ranklaunch-runtimes.json" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
The pod's initContainers: containers that end before the program starts, then sidecars, which stay beside it. A pod ends without waiting
for its sidecars, so they do not keep the engine from seeing the end of the job.
*/}}
{{- define "ranklaunch-runtimes.before" -}}
{{- range .Values.initContainers }}
- {{ include "ranklaunch-runtimes.json" . }}
{{- end }}
{{- range .Values.extraContainers }}
- {{ include "ranklaunch-runtimes.json" (set (deepCopy .) "restartPolicy" "Always") }}
{{- end }}
{{- end -}}

{{/* The pod's securityContext. podTemplate.securityContext overrides seccompProfile and fsGroupChangePolicy. */}}
{{- define "ranklaunch-runtimes.podSecurity" -}}
{{- $security := .Values.security -}}
{{- $made := dict "runAsNonRoot" (gt (int $security.runAsUser) 0) "runAsUser" (int64 $security.runAsUser) -}}
{{- if ge (int $security.runAsGroup) 0 }}{{ $_ := set $made "runAsGroup" (int64 $security.runAsGroup) }}{{ end -}}
{{- /* OnRootMismatch: a volume of millions of files that already has the group is not traversed again. */ -}}
{{- if ge (int $security.fsGroup) 0 }}
{{- $_ := set $made "fsGroup" (int64 $security.fsGroup) }}
{{- $_ := set $made "fsGroupChangePolicy" "OnRootMismatch" }}
{{- end -}}
{{- $_ := set $made "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- range $name, $value := .Values.podTemplate.securityContext | default dict }}{{ $_ := set $made $name $value }}{{ end -}}
{{- include "ranklaunch-runtimes.given" $made -}}
{{- end -}}

{{/* "true" if /tmp needs an emptyDir: the root file system is read-only, and no volume of the user is mounted at /tmp. */}}
{{- define "ranklaunch-runtimes.needsTmp" -}}
{{- $paths := list -}}
{{- range .Values.volumeMounts }}{{ $paths = append $paths .mountPath }}{{ end -}}
{{- if and .Values.security.readOnlyRootFilesystem (not (has "/tmp" $paths)) }}true{{ end -}}
{{- end -}}

{{/* "true" if the root file system is read-only and no value names a log folder. With envFrom a folder is assumed: its variables are unknown here. */}}
{{- define "ranklaunch-runtimes.logsGoToTmp" -}}
{{- $names := keys .Values.env -}}
{{- range .Values.extraEnv }}{{ $names = append $names (toString .name) }}{{ end -}}
{{- $named := or .Values.envFrom (has "RANKLAUNCH_LOG_DIR" $names) (has "MA_LOG_DIR" $names) -}}
{{- if and .Values.security.readOnlyRootFilesystem (not $named) }}true{{ end -}}
{{- end -}}

{{/* Conditions of a pod that is taken away: DisruptionTarget is Kubernetes' own, TerminationTarget comes from Kueue if it manages pods. */}}
{{- define "ranklaunch-runtimes.preempted" -}}
DisruptionTarget TerminationTarget
{{- end -}}

{{/* Faults of volumeMounts. Called with a dict: path, mounts, volumes (names), taken (paths of ranklaunch's own mounts). */}}
{{- define "ranklaunch-runtimes.wrongMounts" -}}
{{- $paths := .taken -}}
{{- if kindIs "slice" .mounts }}
{{- range .mounts }}
{{- if kindIs "map" . }}
{{- if not (or (kindIs "invalid" .name) (has .name $.volumes)) }}
- {{ printf "%s: name %v: no volume of this name in volumes" $.path .name | toJson }}
{{- end }}
{{- if not (or (kindIs "invalid" .mountPath) (hasPrefix "/" (.mountPath | toString))) }}
- {{ printf "%s: mountPath %v: expected a path from the root" $.path .mountPath | toJson }}
{{- end }}
{{- if regexMatch "^/|(^|/)[.][.](/|$)" (.subPath | default "" | toString) }}
- {{ printf "%s: subPath %v: expected a path within the volume" $.path .subPath | toJson }}
{{- end }}
{{- $paths = append $paths (.mountPath | toString) }}
{{- end }}
{{- end }}
{{- end }}
{{- if ne (len $paths) (len (uniq $paths)) }}
- {{ printf "%s: expected different mountPaths%s" .path (ternary "" (printf "; ranklaunch's own: %s" (join ", " .taken)) (empty .taken)) | toJson }}
{{- end }}
{{- end -}}

{{/* Faults of initContainers and extraContainers. Called with a dict: values, main (name of the program's container), volumes (names of all). */}}
{{- define "ranklaunch-runtimes.wrongContainers" -}}
{{- $names := list .main -}}
{{- range $place := list "initContainers" "extraContainers" }}
{{- range $index, $container := get $.values $place }}
{{- $path := printf "%s[%d]" $place $index }}
{{- with $container.name }}
{{- if has . $names }}
- {{ printf "%s.name: %v: another container has it" $path . | toJson }}
{{- end }}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" (toString .)) }}
- {{ printf "%s.name: %v: expected small letters, digits and dashes, at most 63" $path . | toJson }}
{{- end }}
{{- $names = append $names . }}
{{- end }}
{{- if and (eq $place "initContainers") (not $container.restartPolicy) }}
{{- range list "lifecycle" "livenessProbe" "readinessProbe" "startupProbe" }}
{{- if hasKey $container . }}
- {{ printf "%s.%s: an init container ends before the program starts; use extraContainers" $path . | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{ include "ranklaunch-runtimes.wrongMounts" (dict "path" (printf "%s.volumeMounts" $path) "mounts" $container.volumeMounts "volumes" $.volumes "taken" list) }}
{{- $variables := list }}
{{- if kindIs "slice" $container.env }}{{ range $container.env }}{{ if kindIs "map" . }}{{ $variables = append $variables .name }}{{ end }}{{ end }}{{ end }}
{{- if ne (len $variables) (len (uniq $variables)) }}
- {{ printf "%s.env: expected each name once" $path | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Faults of extraEnv. Called with a dict: values, refused (names of variables that are refused, with the reason). */}}
{{- define "ranklaunch-runtimes.wrongEnv" -}}
{{- $names := list -}}
{{- range .values.extraEnv }}
{{- $name := .name | toString }}
{{- if has $name $names }}
- {{ printf "extraEnv: given twice: %s" $name | toJson }}
{{- else if not (regexMatch "^[A-Za-z_][A-Za-z0-9_.-]*$" $name) }}
- {{ printf "extraEnv: name %q: expected letters, digits, dots, dashes and underscores, not beginning with a digit" $name | toJson }}
{{- else if hasKey $.refused $name }}
- {{ printf "extraEnv: %s: %s" $name (get $.refused $name) | toJson }}
{{- else if hasKey $.values.env $name }}
- {{ printf "extraEnv: %s: env has it too; leave one of the two out" $name | toJson }}
{{- end }}
{{- $names = append $names $name }}
{{- end }}
{{- end -}}

{{/* Faults of image and security. Called with the values. */}}
{{- define "ranklaunch-runtimes.wrongSecurity" -}}
{{- $names := .image.pullSecrets -}}
{{- if ne (len $names) (len (uniq $names)) }}
- {{ printf "image.pullSecrets: expected each name once, found %s" (join ", " $names) | toJson }}
{{- end }}
{{- $image := .image -}}
{{- $beside := "" -}}
{{- if $image.tag }}{{ $beside = printf "image.tag is %s" $image.tag }}{{ else if $image.digest }}{{ $beside = "image.digest is given" }}{{ end }}
{{- if contains "://" $image.repository }}
- {{ printf "image.repository: %s: expected no %s://" $image.repository (splitList "://" $image.repository | first) | toJson }}
{{- else if and $beside (contains ":" (splitList "/" $image.repository | last)) }}
- {{ printf "image.repository: %s: it has a tag, and %s: leave one of the two out" $image.repository $beside | toJson }}
{{- else if regexMatch "[A-Z]" (regexReplaceAll "^(?:localhost|[^/]*[.:][^/]*)/" $image.repository "") }}
- {{ printf "image.repository: %s: expected small letters after the registry's name" $image.repository | toJson }}
{{- end }}
{{- range .security.capabilities }}
{{- if hasPrefix "CAP_" . }}
- {{ printf "security.capabilities: %s: expected %s, as Kubernetes calls it" . (trimPrefix "CAP_" .) | toJson }}
{{- end }}
{{- end }}
{{- $given := .podTemplate.securityContext -}}
{{- if kindIs "map" $given }}
{{- range list "runAsUser" "runAsGroup" "runAsNonRoot" "fsGroup" }}
{{- if hasKey $given . }}
- {{ printf "podTemplate.securityContext.%s: made from security.%s; set that" . (ternary "runAsUser" . (eq . "runAsNonRoot")) | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Faults of combinations of host namespaces and of DNS fields in podTemplate. Called with a dict: given (podTemplate), hostNetwork. */}}
{{- define "ranklaunch-runtimes.wrongOfHost" -}}
{{- $given := .given -}}
{{- if and (hasKey $given "hostUsers") (eq (toString $given.hostUsers) "false") }}
{{- range $name, $shared := dict "hostNetwork" .hostNetwork "hostPID" $given.hostPID "hostIPC" $given.hostIPC }}
{{- if $shared }}
- {{ printf "podTemplate.hostUsers: false: expected no %s: Kubernetes refuses a user namespace together with it" $name | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $given.hostPID $given.shareProcessNamespace }}
- "podTemplate.hostPID: expected no shareProcessNamespace with it"
{{- end }}
{{- $config := ternary $given.dnsConfig dict (kindIs "map" $given.dnsConfig) }}
{{- if and (eq (toString $given.dnsPolicy) "None") (not $config.nameservers) }}
- "podTemplate.dnsPolicy: None: expected nameservers in podTemplate.dnsConfig"
{{- end }}
{{- end -}}

{{/* Faults of tolerations. Called with a dict: path, given (the list). */}}
{{- define "ranklaunch-runtimes.wrongTolerations" -}}
{{- range $index, $each := .given }}
{{- $path := printf "%s[%d]" $.path $index }}
{{- if and (eq (toString $each.operator) "Exists") $each.value }}
- {{ printf "%s.value: expected none with operator Exists" $path | toJson }}
{{- end }}
{{- if not (or $each.key (eq (toString $each.operator) "Exists")) }}
- {{ printf "%s.key: required, unless operator is Exists" $path | toJson }}
{{- end }}
{{- if and (not (kindIs "invalid" $each.tolerationSeconds)) (ne (toString $each.effect) "NoExecute") }}
- {{ printf "%s.tolerationSeconds: expected effect NoExecute" $path | toJson }}
{{- end }}
{{- end }}
{{- end -}}
