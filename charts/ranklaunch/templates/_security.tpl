{{/* Rights of the container: as few as training needs. */}}

{{/* securityContext of the container. IPC_LOCK with RDMA: it pins memory. */}}
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
