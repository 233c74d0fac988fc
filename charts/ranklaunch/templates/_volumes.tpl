{{/* Volumes and their mounts. */}}

{{- define "ranklaunch.volumes" -}}
{{- if .Values.shm.enabled }}
- name: shm
  emptyDir:
    medium: Memory
    {{- with .Values.shm.sizeLimit }}
    sizeLimit: {{ . | quote }}
    {{- end }}
{{- end }}
{{- with include "ranklaunch.rankTableMap" . }}
- name: rank-table
  configMap:
    name: {{ . | quote }}
{{- end }}
{{- if include "ranklaunch.needsTmp" . }}
- name: ranklaunch-tmp
  emptyDir: {}
{{- end }}
{{- range .Values.volumes }}
- {{ include "ranklaunch.given" . | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/* volumeMounts. The rank table is mounted as a folder: Kubernetes never updates a single file that is mounted by subPath. */}}
{{- define "ranklaunch.mounts" -}}
{{- if .Values.shm.enabled }}
- name: shm
  mountPath: /dev/shm
{{- end }}
{{- if include "ranklaunch.rankTableMap" . }}
- name: rank-table
  mountPath: {{ include "ranklaunch.rankTablePath" . | quote }}
{{- end }}
{{- if include "ranklaunch.needsTmp" . }}
- name: ranklaunch-tmp
  mountPath: /tmp
{{- end }}
{{- range .Values.volumeMounts }}
- {{ include "ranklaunch.given" . | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/* Name of the ConfigMap that the operator writes the rank table to; empty if there is none. */}}
{{- define "ranklaunch.rankTableMap" -}}
{{- if eq .Values.rankTable.source "ascend-operator" -}}
{{- .Values.rankTable.configMapName | default (printf "rings-config-%s" (include "ranklaunch.name" .)) -}}
{{- else if eq .Values.rankTable.source "cce" -}}
{{- .Values.rankTable.configMapName -}}
{{- end -}}
{{- end -}}

{{- define "ranklaunch.rankTablePath" -}}
{{- $default := dict "none" "" "ascend-operator" "/user/serverid/devindex/config" "cce" "/user/config" "file" "" -}}
{{- .Values.rankTable.mountPath | default (get $default .Values.rankTable.source) -}}
{{- end -}}

