{{/* What a pod may do: as little as training needs. */}}

{{/* The user's own come over the kind of seccomp and when a volume's owner is changed. */}}
{{- define "ranklaunch.podSecurity" -}}
{{- $security := .Values.security -}}
{{- $made := dict "runAsNonRoot" (gt (int $security.runAsUser) 0) "runAsUser" (int64 $security.runAsUser) -}}
{{- if ge (int $security.runAsGroup) 0 }}{{ $_ := set $made "runAsGroup" (int64 $security.runAsGroup) }}{{ end -}}
{{- /* A volume of millions of files that has the group already is not gone through again. */ -}}
{{- if ge (int $security.fsGroup) 0 }}
{{- $_ := set $made "fsGroup" (int64 $security.fsGroup) }}
{{- $_ := set $made "fsGroupChangePolicy" "OnRootMismatch" }}
{{- end -}}
{{- $_ := set $made "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- range $name, $value := .Values.podTemplate.securityContext | default dict }}{{ $_ := set $made $name $value }}{{ end -}}
{{- include "ranklaunch.given" $made -}}
{{- end -}}

{{/* RDMA pins memory. */}}
{{- define "ranklaunch.containerSecurity" -}}
{{- $add := ternary (list "IPC_LOCK") list (ne .Values.network.rdma.resource "") -}}
allowPrivilegeEscalation: false
{{- if .Values.security.readOnlyRootFilesystem }}
readOnlyRootFilesystem: true
{{- end }}
capabilities:
  drop: [ALL]
  {{- with concat $add .Values.security.capabilities | uniq | sortAlpha }}
  add: {{ toJson . }}
  {{- end }}
{{- end -}}
