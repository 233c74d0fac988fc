{{/* Placement of pods: scheduler, priority, node selector, tolerations, affinity. */}}

{{- define "ranklaunch.placement" -}}
{{- /* Kubeflow Trainer makes a PodGroup, but does not set the scheduler that reads it. */ -}}
{{- $queued := and (eq .Values.engine "trainjob") (not (empty .Values.scheduling.queue)) -}}
{{- $default := ternary "volcano" "" (or (eq .Values.engine "acjob") $queued) -}}
{{- with .Values.scheduling.schedulerName | default $default }}
schedulerName: {{ . | quote }}
{{- end }}
{{- with .Values.scheduling.priorityClass }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.scheduling.nodeSelector }}
nodeSelector:
  {{- include "ranklaunch.given" . | nindent 2 }}
{{- end }}
{{- with .Values.scheduling.tolerations }}
tolerations:
  {{- include "ranklaunch.given" . | nindent 2 }}
{{- end }}
{{- with include "ranklaunch.affinity" . | fromYaml }}
affinity:
  {{- include "ranklaunch.given" . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* schedulerName of the job object, for engines that have the field there. */}}
{{- define "ranklaunch.scheduler" -}}
{{- .Values.scheduling.schedulerName | default "volcano" | quote -}}
{{- end -}}

{{/*
The user's affinity, with two terms added: all pods on nodes with the same value of scheduling.topology; on the host's network, no two pods
of ranklaunch on one host, because they would use the same ports.
*/}}
{{- define "ranklaunch.affinity" -}}
{{- $affinity := deepCopy .Values.scheduling.affinity -}}
{{- with .Values.scheduling.topology -}}
{{- $chosen := dict "app.kubernetes.io/instance" (include "ranklaunch.name" $) -}}
{{- include "ranklaunch.addTerm" (dict "affinity" $affinity "kind" "podAffinity" "topology" . "chosen" $chosen) -}}
{{- end -}}
{{- if .Values.network.hostNetwork -}}
{{- $chosen := dict "app.kubernetes.io/name" "ranklaunch" -}}
{{- include "ranklaunch.addTerm" (dict "affinity" $affinity "kind" "podAntiAffinity" "topology" "kubernetes.io/hostname" "chosen" $chosen) -}}
{{- end -}}
{{- include "ranklaunch.given" $affinity -}}
{{- end -}}

{{/* Add a required term to .affinity, in place. */}}
{{- define "ranklaunch.addTerm" -}}
{{- $required := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $given := get .affinity .kind | default dict -}}
{{- $term := dict "topologyKey" .topology "labelSelector" (dict "matchLabels" .chosen) -}}
{{- $_ := set $given $required (append (get $given $required | default list) $term) -}}
{{- $_ := set .affinity .kind $given -}}
{{- end -}}
