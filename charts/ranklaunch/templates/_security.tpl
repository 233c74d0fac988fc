{{/* What a pod may do: as little as training needs. */}}

{{- define "ranklaunch.podSecurity" -}}
runAsNonRoot: {{ gt (int .Values.security.runAsUser) 0 }}
runAsUser: {{ int64 .Values.security.runAsUser }}
fsGroup: {{ int64 .Values.security.fsGroup }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* RDMA pins memory. */}}
{{- define "ranklaunch.containerSecurity" -}}
{{- $add := ternary (list "IPC_LOCK") list (ne .Values.network.rdma.resource "") -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  {{- with concat $add .Values.security.capabilities | uniq | sortAlpha }}
  add: {{ toJson . }}
  {{- end }}
{{- end -}}
