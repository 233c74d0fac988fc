{{/* Volumes, and where they are mounted. */}}

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

{{/* The whole folder of the rank table: a mounted single file would never be renewed. */}}
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

{{/* The ConfigMap that an operator writes the rank table to. Empty where there is none. */}}
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

