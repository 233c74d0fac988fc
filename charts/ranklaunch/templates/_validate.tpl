{{/* Checks that values.schema.json cannot express. Each message begins with the value's name; all messages are shown at once. */}}

{{- define "ranklaunch.validate" -}}
{{- $problems := include "ranklaunch.wrongShapes" (dict "values" .Values "table" (.Files.Get "keys.json" | fromJson)) | fromYamlArray -}}
{{- range ternary list (list "keys" "name" "upgrade" "foreign" "program" "devices" "env" "mode" "restart" "rankTable" "scheduling" "network" "monitoring" "volumes" "containers" "security" "labels" "engine" "nul") (gt (len $problems) 0) -}}
{{- $problems = concat $problems (include (printf "ranklaunch.validate.%s" .) $ | fromYamlArray) -}}
{{- end -}}
{{- if $problems -}}
{{- printf "the values do not fit:\n  %s" (join "\n  " $problems) | fail -}}
{{- end -}}
{{- end -}}

{{- define "ranklaunch.validate.name" -}}
{{- $name := include "ranklaunch.name" . -}}
{{- $suffix := include "ranklaunch.lastSuffix" . -}}
{{- $most := sub 63 (len $suffix) -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
- {{ printf "name: %s: expected small letters, digits and dashes, beginning with a letter; rename the release, or set name" $name | toJson }}
{{- else if gt (len $name) (int $most) }}
- {{ printf "name: %s has %d characters, expected at most %d, for pods are called NAME%s" $name (len $name) $most $suffix | toJson }}
{{- end }}
{{- if and .Values.namespace (ne .Values.namespace .Release.Namespace) }}
- {{ printf "namespace: %s, but the release is in %s: leave it out, or use helm's --namespace" .Values.namespace .Release.Namespace | toJson }}
{{- end }}
{{- end -}}

{{/* Refuse an upgrade that changes a running job: the engine's webhook or the API server would only say that a field is immutable; some engines
accept the change, and the job breaks. */}}
{{- define "ranklaunch.validate.upgrade" -}}
{{- $was := dig "metadata" "annotations" "ranklaunch/values" "" (include "ranklaunch.live" . | fromJson) -}}
{{- if and $was (ne $was (include "ranklaunch.digest" .)) }}
- {{ include "ranklaunch.name" . | printf "name: the run %s exists with other values, and a run cannot be changed: install another release, upgrade with nameSuffix=values, which ends this run and starts a new one, or delete this run first" | toJson }}
{{- end }}
{{- end -}}

{{/* Suffix of the last pod's name, behind the job's name. */}}
{{- define "ranklaunch.lastSuffix" -}}
{{- $last := sub (max .Values.nodes .Values.tf.ps) 1 -}}
{{- $forms := dict "volcano" "-worker-%d" "jobset" "-worker-0-%d-xxxxx" "job" "-%d-xxxxx" "trainjob" "-node-0-%d-xxxxx" "acjob" "-worker-%d" -}}
{{- if eq .Values.engine "mpijob" -}}
{{- /* The longer of the launcher's suffix and the last worker's. */ -}}
{{- ternary "-launcher-xxxxx" (printf "-worker-%d" $last) (lt (len (printf "-worker-%d" $last)) 15) -}}
{{- else -}}
{{- printf (get $forms .Values.engine) $last -}}
{{- end -}}
{{- end -}}

{{/* Refuse values that the engine has no field for: they would be lost silently. */}}
{{- define "ranklaunch.validate.foreign" -}}
{{- $values := .Values -}}
{{- $restarts := dict
  "job" "a Job restarts single pods while the others wait for them; use jobset or volcano"
  "mpijob" "an MPIJob restarts only the launcher, after every exit code; use jobset or volcano" -}}
{{- $why := get $restarts $values.engine }}
{{- if and $why $values.restart.maxRestarts }}
- {{ printf "restart.maxRestarts: %s" $why | toJson }}
{{- end }}
{{- if and $why (eq $values.restart.onEviction "restart") }}
- {{ printf "restart.onEviction: restart: %s" $why | toJson }}
{{- end }}
{{- $alone := dict
  "scheduling.queue" (list (list "volcano" "trainjob" "mpijob" "acjob") $values.scheduling.queue "the engine has no queues; for a queue of Kueue, set scheduling.kueueQueue")
  "scheduling.kueueQueue" (list (list "job" "jobset" "trainjob" "mpijob") $values.scheduling.kueueQueue "Volcano's scheduler has queues of its own; use scheduling.queue")
  "scheduling.minAvailable" (list (list "volcano" "mpijob" "acjob") $values.scheduling.minAvailable)
  "lifecycle.cleanPodPolicy" (list (list "mpijob" "acjob") (ne $values.lifecycle.cleanPodPolicy "Running"))
  "mpi.slots" (list (list "mpijob") $values.mpi.slots)
  "mpi.launcherAsWorker" (list (list "mpijob") (not $values.mpi.launcherAsWorker))
  "trainer.runtime" (list (list "trainjob") $values.trainer.runtime)
  "trainer.runtimeKind" (list (list "trainjob") (ne $values.trainer.runtimeKind "TrainingRuntime"))
-}}
{{- range $path, $rule := $alone }}
{{- if and (index $rule 1) (not (has $values.engine (index $rule 0))) }}
{{- $why := printf "engine %s has no place for it; %s have" $values.engine (index $rule 0 | join ", ") }}
{{- if gt (len $rule) 2 }}{{ $why = index $rule 2 }}{{ end }}
- {{ printf "%s: %s" $path $why | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.validate.program" -}}
{{- if eq (empty .Values.script) (empty .Values.module) }}
- "script: expected one of script and module"
{{- end }}
{{- if hasPrefix "-" .Values.script }}
- {{ printf "script: %s begins with a dash; for a file of this name write ./%s" .Values.script .Values.script | toJson }}
{{- end }}
{{- $first := `^(\S+\.(py|sh)|python[0-9.]*|bash|sh|torchrun|accelerate|deepspeed|mpirun|msrun)\s+\S` }}
{{- if regexMatch (printf `%s|\s--?[A-Za-z]` $first) .Values.script }}
- {{ printf "script: %s: the program and its arguments in one text: put the program alone into script, and each word after it into args" .Values.script | toJson }}
{{- end }}
{{- if not .Values.image.repository }}
- "image.repository: required"
{{- end }}
{{- if regexMatch "[^!-~]|^-" .Values.image.repository }}
- {{ printf "image.repository: %s: expected the name of an image, such as registry.example.com/team/train" .Values.image.repository | toJson }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.validate.devices" -}}
{{- if and (ne .Values.device.kind "cpu") (not .Values.devicesPerNode) }}
- {{ printf "devicesPerNode: 0: expected at least 1 with device.kind %s" .Values.device.kind | toJson }}
{{- end }}
{{- if and (eq .Values.device.kind "cpu") .Values.device.resourceName }}
- "device.resourceName: with device.kind cpu there are no devices; put other resources into device.extra"
{{- end }}
{{- $rdma := .Values.network.rdma.resource -}}
{{- $device := include "ranklaunch.device" . -}}
{{- range $path, $name := dict "device.resourceName" .Values.device.resourceName "network.rdma.resource" $rdma }}
{{- if and $name (not (contains "/" $name)) }}
- {{ printf "%s: %s: expected the name of a device plugin's resource, such as vendor.example/%s" $path $name $name | toJson }}
{{- end }}
{{- end }}
{{- $foreign := get (dict "gpu" "^huawei[.]com/" "npu" "^(nvidia|amd|gpu[.]intel)[.]com/") .Values.device.kind -}}
{{- $other := ternary "npu" "gpu" (eq .Values.device.kind "gpu") -}}
{{- if and $foreign (regexMatch $foreign .Values.device.resourceName) }}
- {{ printf "device.resourceName: %s: a resource of %ss; expected device.kind %s" .Values.device.resourceName (upper $other) $other | toJson }}
{{- end }}
{{- range $name, $quantity := .Values.device.extra }}
{{- if and $foreign (regexMatch $foreign $name) }}
- {{ printf "device.extra.%s: a resource of %ss; expected device.kind %s, and their number in devicesPerNode" $name (upper $other) $other | toJson }}
{{- end }}
{{- end }}
{{- if and $rdma (eq $rdma $device) }}
- {{ printf "network.rdma.resource: %s: the devices' own" $rdma | toJson }}
{{- end }}
{{- /* A resource name that is set twice would silently keep only the last quantity. */}}
{{- $made := dict "cpu" "resources.cpu" "memory" "resources.memory" $device "devicesPerNode" $rdma "network.rdma.count" -}}
{{- range $name, $quantity := .Values.device.extra }}
{{- if get $made $name }}
- {{ printf "device.extra.%s: made from %s; set that" $name (get $made $name) | toJson }}
{{- else if hasPrefix "hugepages-" $name }}
{{- if not (or $.Values.resources.cpu $.Values.resources.memory) }}
- {{ printf "device.extra.%s: expected resources.cpu or resources.memory too, without which Kubernetes gives none" $name | toJson }}
{{- end }}
{{- else if not (or (contains "/" $name) (eq $name "ephemeral-storage")) }}
- {{ printf "device.extra.%s: Kubernetes has no such resource; one of a device plugin has a slash, as vendor.example/%s" $name $name | toJson }}
{{- end }}
{{- $pattern := ternary "^[0-9]+$" "^[0-9]+([.][0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$" (contains "/" $name) -}}
{{- if not (regexMatch $pattern $quantity) }}
- {{ printf "device.extra.%s: %s: expected %s" $name $quantity (ternary "an integer" "a quantity such as 4 or 16Gi" (contains "/" $name)) | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Refuse a variable that is set twice: the API server refuses it, or one of the two is lost. */}}
{{- define "ranklaunch.validate.env" -}}
{{- $env := .Values.env -}}
{{- /* Refused even if the chart sets no such variable: it would contradict the values, which are the checked ones. */}}
{{- $table := .Files.Get "keys.json" | fromJson -}}
{{- $derived := $table.variables.derived -}}
{{- range $name, $from := $derived }}
{{- if hasKey $env $name }}
- {{ printf "env.%s: made from %s; set that" $name $from | toJson }}
{{- end }}
{{- end }}
{{- $skip := concat (keys $derived) (list "RANKLAUNCH_GRACE_S") -}}
{{- if eq .Values.engine "trainjob" }}{{ $skip = concat $skip (include "ranklaunch.ofTrainer" . | splitList " ") }}{{ end }}
{{ include "ranklaunch.wrongVariables" (dict "values" .Values "table" $table "skip" $skip) }}
{{- range include "ranklaunch.ownEnv" (dict "root" . "task" (ternary "worker" "" (gt (int .Values.tf.ps) 0))) | fromYamlArray }}
{{- if ge (len (printf "%s=%s" .name (.value | default ""))) 131072 }}
- {{ printf "nodes: %d: %s is too long: expected fewer than 131072 bytes, the limit of Linux for one variable; use fewer nodes" (int64 $.Values.nodes) .name | toJson }}
{{- end }}
{{- end }}
{{- range $name, $value := $env }}
{{- if ge (len (printf "%s=%s" $name $value)) 131072 }}
- {{ printf "env.%s: too long: expected fewer than 131072 bytes, the limit of Linux for one variable; put the text into a file" $name | toJson }}
{{- end }}
{{- end }}
{{- range $name, $path := include "ranklaunch.setByValues" . | fromYaml }}
{{- if hasKey $env $name }}
- {{ printf "env.%s: %s sets it too; leave one of the two out" $name $path | toJson }}
{{- end }}
{{- end }}
{{- if hasKey $env "RANKLAUNCH_GRACE_S" }}
{{- $grace := $env.RANKLAUNCH_GRACE_S }}
{{- if $.Values.trainer.runtime }}
{{- /* The pod template of an existing runtime has its own grace period. */}}
{{- else if or (not (regexMatch "^[0-9]+([.][0-9]*)?$" $grace)) (ge (float64 $grace) (float64 $.Values.lifecycle.gracePeriodSeconds)) }}
- {{ printf "env.RANKLAUNCH_GRACE_S: %s: expected seconds below lifecycle.gracePeriodSeconds, after which the pod is killed" $grace | toJson }}
{{- end }}
{{- end }}
{{- if eq .Values.engine "trainjob" }}
{{- range include "ranklaunch.ofTrainer" . | splitList " " }}
{{- if hasKey $env . }}
- {{ printf "env.%s: Kubeflow Trainer's own" . | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.validate.mode" -}}
{{ include "ranklaunch.wrongWord" (dict "path" "mode" "value" .Values.mode "table" (.Files.Get "keys.json" | fromJson)) }}
{{- if and (eq .Values.mode "ranktable") (eq .Values.rankTable.source "none") }}
- "mode: ranktable: expected a rankTable.source"
{{- end }}
{{- $byMpi := list "mpirun" "mpi" "horovod" -}}
{{- if and (eq .Values.engine "mpijob") (not (has .Values.mode (append $byMpi "auto"))) }}
- {{ printf "mode: %s: expected mpirun with mpijob" .Values.mode | toJson }}
{{- end }}
{{- if eq .Values.engine "acjob" }}
{{- if ne .Values.device.kind "npu" }}
- {{ printf "device.kind: %s: expected npu with acjob" .Values.device.kind | toJson }}
{{- end }}
{{- if has .Values.mode $byMpi }}
- {{ printf "mode: %s: an AscendJob's workers have no names by which MPI could reach them; use volcano or mpijob" .Values.mode | toJson }}
{{- end }}
{{- if has .Values.mode (list "tensorflow" "ray") }}
- {{ printf "mode: %s: an AscendJob's workers have no names by which they could reach each other; use volcano" .Values.mode | toJson }}
{{- end }}
{{- end }}
{{- if and (eq .Values.device.kind "gpu") (has .Values.mode (list "ranktable" "msrun")) }}
- {{ printf "mode: %s: expected device.kind npu%s" .Values.mode (ternary " or cpu" "" (eq .Values.mode "msrun")) | toJson }}
{{- end }}
{{- if and (eq .Values.engine "job") (has .Values.mode $byMpi) }}
- {{ printf "mode: %s: expected a method without SSH for engine job; use jobset, volcano or mpijob" .Values.mode | toJson }}
{{- end }}
{{- if .Values.tf.ps }}
{{- if ne .Values.engine "volcano" }}
- {{ printf "tf.ps: %s has one kind of pod; use engine volcano" .Values.engine | toJson }}
{{- end }}
{{- if ne .Values.mode "tensorflow" }}
- {{ printf "tf.ps: expected mode tensorflow, found %s" .Values.mode | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.validate.restart" -}}
{{- with .Values.restart -}}
{{- if and (eq .onEviction "restart") (not .maxRestarts) (not (has $.Values.engine (list "job" "mpijob"))) }}
- "restart.onEviction: restart: expected restart.maxRestarts above 0"
{{- end }}
{{- if ne (len .noRetryExitCodes) (len (uniq .noRetryExitCodes)) }}
- "restart.noRetryExitCodes: expected each code once"
{{- end }}
{{- end -}}
{{- end -}}

{{- define "ranklaunch.validate.rankTable" -}}
{{- with .Values.rankTable -}}
{{- if and (ne .source "none") (ne $.Values.device.kind "npu") }}
- {{ printf "rankTable.source: %s: expected device.kind npu, found %s" .source $.Values.device.kind | toJson }}
{{- end }}
{{- if and (eq .source "ascend-operator") (not (has $.Values.engine (list "acjob" "volcano"))) }}
- {{ printf "rankTable.source: the Ascend Operator writes none for %s; use acjob or volcano" $.Values.engine | toJson }}
{{- end }}
{{- if and (eq .source "cce") (ne $.Values.engine "volcano") }}
- {{ printf "rankTable.source: the plugin of cce writes none for %s; use volcano" $.Values.engine | toJson }}
{{- end }}
{{- if and (eq .source "cce") (not .configMapName) }}
- "rankTable.configMapName: required with rankTable.source cce; its name differs between clusters"
{{- end }}
{{- $own := printf "rings-config-%s" (include "ranklaunch.name" $) -}}
{{- if and (eq .source "ascend-operator") .configMapName (ne .configMapName $own) }}
- {{ printf "rankTable.configMapName: the Ascend Operator writes %s alone" $own | toJson }}
{{- end }}
{{- if and (eq .source "file") (not .mountPath) }}
- "rankTable.mountPath: required with rankTable.source file"
{{- end }}
{{- end -}}
{{- end -}}

{{- define "ranklaunch.validate.scheduling" -}}
{{- $pods := add .Values.nodes .Values.tf.ps (include "ranklaunch.launchersAlone" .) -}}
{{- with .Values.scheduling -}}
{{- if gt (int .minAvailable) (int $pods) }}
- {{ printf "scheduling.minAvailable: %d: expected at most %d, the number of pods" (int64 .minAvailable) $pods | toJson }}
{{- end }}
{{- range $name := list "podAffinity" "podAntiAffinity" }}
{{- $given := index $.Values.scheduling.affinity $name }}
{{- $terms := ternary (index (ternary $given dict (kindIs "map" $given)) "requiredDuringSchedulingIgnoredDuringExecution") nil (kindIs "map" $given) }}
{{- if not (and (has (kindOf $given) (list "map" "invalid")) (has (kindOf $terms) (list "slice" "invalid"))) }}
- {{ printf "scheduling.affinity.%s: expected an object, with lists of terms" $name | toJson }}
{{- end }}
{{- end }}
{{- if and .minAvailable $.Values.tf.ps }}
- "scheduling.minAvailable: with tf.ps every pod is needed"
{{- end }}
{{- range $name, $value := .nodeSelector }}
{{- if not (regexMatch (include "ranklaunch.labelPattern" $) $value) }}
- {{ printf "scheduling.nodeSelector.%s: %s: expected the value of a label: at most 63 letters, digits, dashes, dots and underscores" $name $value | toJson }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "ranklaunch.validate.network" -}}
{{- with .Values.network -}}
{{- if and .hostNetwork (eq (int .sshPort) 22) }}
- "network.sshPort: the host's own sshd listens at 22, with network.hostNetwork"
{{- end }}
{{- $ports := list -}}
{{- range $name := list "masterPort" "musterPort" "sshPort" }}
{{- $port := int (get $.Values.network $name) }}
{{- if $port }}{{ $ports = append $ports $port }}{{ end }}
{{- if and $port (lt $port 1024) $.Values.security.runAsUser }}
- {{ printf "network.%s: %d: expected 1024 or more, for security.runAsUser is not root" $name $port | toJson }}
{{- end }}
{{- end }}
{{- if not (int .musterPort) }}{{ $ports = append $ports 18889 }}{{ end }}
{{- if ne (len $ports) (len (uniq $ports)) }}
- "network.masterPort, network.musterPort, network.sshPort: expected different ports; musterPort is 18889 unless it is set"
{{- end }}
{{- $metrics := ternary (int $.Values.metrics.port) 0 $.Values.metrics.enabled }}
{{- if and $metrics (lt $metrics 1024) $.Values.security.runAsUser }}
- {{ printf "metrics.port: %d: expected 1024 or more, for security.runAsUser is not root" $metrics | toJson }}
{{- end }}
{{- $leaders := ternary (list (int ($.Values.network.masterPort | default 2222))) list (eq $.Values.engine "acjob") }}
{{- if and $metrics (has $metrics (concat $ports $leaders (list 18889))) }}
- {{ printf "metrics.port: %d: expected another port than those of network" $metrics | toJson }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "ranklaunch.validate.monitoring" -}}
{{- range $name := list "podMonitor" "rules" }}
{{- if and (get $.Values.metrics $name) (not $.Values.metrics.enabled) }}
- {{ printf "metrics.%s: expected metrics.enabled too" $name | toJson }}
{{- end }}
{{- end }}
{{- range $path, $there := dict "networkPolicy.enabled" .Values.networkPolicy.enabled "metrics.enabled" .Values.metrics.enabled }}
{{- if and $.Values.networkPolicy.metricsNamespaces (not $there) }}
- {{ printf "networkPolicy.metricsNamespaces: expected %s too" $path | toJson }}
{{- end }}
{{- end }}
{{- if and .Values.networkPolicy.enabled .Values.network.hostNetwork }}
- "networkPolicy.enabled: no policy holds for pods on the hosts' network, network.hostNetwork; leave one of the two out"
{{- end }}
{{- end -}}

{{- define "ranklaunch.validate.volumes" -}}
{{- $names := list -}}
{{- range .Values.volumes }}
{{- $names = append $names (.name | toString) }}
{{- if not (and (kindIs "string" .name) (regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" (.name | toString))) }}
- {{ printf "volumes: name %v: expected small letters, digits and dashes, at most 63" .name | toJson }}
{{- else if has .name (list "shm" "rank-table" "ranklaunch-tmp") }}
- {{ printf "volumes: name %s: ranklaunch's own" .name | toJson }}
{{- end }}
{{- end }}
{{- if ne (len $names) (len (uniq $names)) }}
- "volumes: expected different names"
{{- end }}
{{- $taken := ternary (list "/dev/shm") list .Values.shm.enabled -}}
{{- if include "ranklaunch.rankTableMap" . }}{{ $taken = append $taken (include "ranklaunch.rankTablePath" .) }}{{ end -}}
{{ include "ranklaunch.wrongMounts" (dict "path" "volumeMounts" "mounts" .Values.volumeMounts "volumes" $names "taken" $taken) }}
{{- end -}}

{{/* Variables that the set values define, as NAME: path of the value. */}}
{{- define "ranklaunch.setByValues" -}}
{{- range $name, $path := (.Files.Get "keys.json" | fromJson).variables.setBy }}
{{- $value := $.Values }}
{{- range splitList "." $path }}{{ $value = get $value . }}{{ end }}
{{- if $value }}
{{ $name }}: {{ $path }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.ofTrainer" -}}
PET_NNODES PET_NPROC_PER_NODE PET_NODE_RANK PET_MASTER_ADDR PET_MASTER_PORT
{{- end -}}

{{- define "ranklaunch.validate.containers" -}}
{{- $volumes := list -}}
{{- range include "ranklaunch.volumes" . | fromYamlArray }}{{ $volumes = append $volumes (.name | toString) }}{{ end -}}
{{- include "ranklaunch.wrongContainers" (dict "values" .Values "main" (include "ranklaunch.container" .) "volumes" $volumes) }}
{{- $refused := dict "RANKLAUNCH_GRACE_S" "made from lifecycle.gracePeriodSeconds; set that, or env.RANKLAUNCH_GRACE_S" }}
{{- range $name, $from := (.Files.Get "keys.json" | fromJson).variables.derived }}
{{- $_ := set $refused $name (printf "made from %s; set that" $from) }}
{{- end }}
{{- range $name, $path := include "ranklaunch.setByValues" . | fromYaml }}
{{- $_ := set $refused $name (printf "%s sets it too; leave one of the two out" $path) }}
{{- end }}
{{- if eq .Values.engine "trainjob" }}
{{- range include "ranklaunch.ofTrainer" . | splitList " " }}
{{- $_ := set $refused . "Kubeflow Trainer's own" }}
{{- end }}
{{- end }}
{{ include "ranklaunch.wrongEnv" (dict "values" .Values "refused" $refused) }}
{{- end -}}

{{- define "ranklaunch.validate.security" -}}
{{ include "ranklaunch.wrongSecurity" .Values }}
{{ include "ranklaunch.wrongOfHost" (dict "given" .Values.podTemplate "hostNetwork" .Values.network.hostNetwork) }}
{{ include "ranklaunch.wrongTolerations" (dict "path" "scheduling.tolerations" "given" .Values.scheduling.tolerations) }}
{{- end -}}

{{- define "ranklaunch.labelPattern" -}}
^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$
{{- end -}}

{{- define "ranklaunch.validate.labels" -}}
{{- $own := "^(ranklaunch|app[.]kubernetes[.]io|kueue[.]x-k8s[.]io|batch[.]kubernetes[.]io)/|^ring-controller[.]" -}}
{{- range $place := list "labels" "annotations" }}
{{- range $name, $value := get $.Values $place }}
{{- $read := and (eq $place "labels") (eq $.Values.engine "acjob") (has $name (list "framework" "fault-scheduling" "fault-retry-times")) }}
{{- if or $read (regexMatch $own $name) }}
- {{ printf "%s.%s: the engine's or ranklaunch's own%s" $place $name (ternary "; set scheduling.kueueQueue" "" (eq $name "kueue.x-k8s.io/queue-name")) | toJson }}
{{- end }}
{{- if and (eq $place "labels") (not (regexMatch (include "ranklaunch.labelPattern" $) $value)) }}
- {{ printf "labels.%s: %s: expected at most 63 letters, digits, dashes, dots and underscores" $name $value | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ranklaunch.validate.engine" -}}
{{- $ports := list (.Values.network.masterPort | default 2222 | int64) (.Values.network.musterPort | default 18889 | int64) -}}
{{- if and (eq .Values.engine "acjob") (eq (len (uniq $ports)) 1) }}
- {{ printf "network.masterPort, network.musterPort: expected different ports, found %d for both" (index $ports 0) | toJson }}
{{- end }}
{{- $pods := add .Values.nodes (include "ranklaunch.launchersAlone" .) -}}
{{- if and (eq .Values.engine "mpijob") .Values.network.hostNetwork (gt (int $pods) 1) }}
- "network.hostNetwork: an MPIJob's worker takes its index from its host name, which is the host's there; use engine volcano or jobset"
{{- end }}
{{- if and (eq .Values.engine "volcano") .Values.lifecycle.deadlineSeconds .Values.restart.maxRestarts }}
- "lifecycle.deadlineSeconds: volcano would restart the job after the deadline; leave this or restart.maxRestarts out"
{{- end }}
{{- if eq .Values.engine "acjob" }}
{{- range list "hostUsers" "schedulingGates" }}
{{- if hasKey $.Values.podTemplate . }}
- {{ printf "podTemplate.%s: an AscendJob's definition has none" . | toJson }}
{{- end }}
{{- end }}
{{- $stays := .Values.extraContainers -}}
{{- range .Values.initContainers }}{{ if .restartPolicy }}{{ $stays = append $stays . }}{{ end }}{{ end -}}
{{- if $stays }}
{{- $place := ternary "extraContainers" "initContainers: restartPolicy" (not (empty .Values.extraContainers)) }}
- {{ printf "%s: an AscendJob's definition has no sidecars, and it would wait for them for ever; use volcano" $place | toJson }}
{{- end }}
{{- end }}
{{- if and (eq .Values.engine "acjob") .Values.restart.maxRestarts }}
{{- if eq .Values.restart.onEviction "fail" }}
- "restart.onEviction: fail: the pods then end with 143, and an AscendJob restarts after 143 too; leave restart.maxRestarts out"
{{- end }}
{{- range .Values.restart.noRetryExitCodes }}
{{- if ge (int .) 128 }}
- {{ printf "restart.noRetryExitCodes: an AscendJob restarts after every code from 128 on: %d; expected codes below 128" (int64 .) | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq .Values.engine "trainjob") .Values.trainer.runtime -}}
{{- range $path, $given := include "ranklaunch.ofTheRuntime" . | fromYaml }}
{{- if $given }}
- {{ printf "%s: the runtime %s sets it; leave it or trainer.runtime out" $path $.Values.trainer.runtime | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Values about the pod template, as path: true if set. With an existing runtime they are refused: its own template holds. */}}
{{- define "ranklaunch.ofTheRuntime" -}}
{{- with .Values -}}
envFrom: {{ not (empty .envFrom) }}
workingDir: {{ not (empty .workingDir) }}
volumes: {{ not (empty .volumes) }}
volumeMounts: {{ not (empty .volumeMounts) }}
shm.enabled: {{ not .shm.enabled }}
shm.sizeLimit: {{ not (empty .shm.sizeLimit) }}
network.hostNetwork: {{ .network.hostNetwork }}
scheduling.schedulerName: {{ not (empty .scheduling.schedulerName) }}
scheduling.queue: {{ not (empty .scheduling.queue) }}
scheduling.priorityClass: {{ not (empty .scheduling.priorityClass) }}
scheduling.nodeSelector: {{ not (empty .scheduling.nodeSelector) }}
scheduling.tolerations: {{ not (empty .scheduling.tolerations) }}
scheduling.affinity: {{ not (empty .scheduling.affinity) }}
scheduling.topology: {{ not (empty .scheduling.topology) }}
restart.maxRestarts: {{ gt (int .restart.maxRestarts) 0 }}
restart.noRetryExitCodes: {{ ne (toJson .restart.noRetryExitCodes) "[2,69,76,78]" }}
restart.onEviction: {{ not (empty .restart.onEviction) }}
security.runAsUser: {{ ne (int .security.runAsUser) 1000 }}
security.runAsGroup: {{ ne (int .security.runAsGroup) 100 }}
security.fsGroup: {{ ne (int .security.fsGroup) 100 }}
security.readOnlyRootFilesystem: {{ .security.readOnlyRootFilesystem }}
initContainers: {{ not (empty .initContainers) }}
extraContainers: {{ not (empty .extraContainers) }}
podTemplate: {{ not (empty .podTemplate) }}
security.capabilities: {{ not (empty .security.capabilities) }}
serviceAccountName: {{ not (empty .serviceAccountName) }}
image.pullPolicy: {{ ne .image.pullPolicy "IfNotPresent" }}
image.pullSecrets: {{ not (empty .image.pullSecrets) }}
lifecycle.ttlSeconds: {{ ne (int .lifecycle.ttlSeconds) 86400 }}
lifecycle.gracePeriodSeconds: {{ ne (int .lifecycle.gracePeriodSeconds) 60 }}
network.rdma.resource: {{ not (empty .network.rdma.resource) }}
network.rdma.count: {{ ne (int .network.rdma.count) 1 }}
metrics.podMonitor: {{ .metrics.podMonitor }}
{{- end -}}
{{- end -}}

{{/* Refuse NUL: neither an argument nor a variable can hold it. Refuse U+FFFD: Helm puts it for bytes of --set that are not UTF-8. */}}
{{- define "ranklaunch.validate.nul" -}}
{{- range $name, $value := .Values }}
{{- if printf "%v" $value | contains "\uFFFD" }}
- {{ printf "%s: expected valid UTF-8, found U+FFFD, which Helm puts in place of other bytes" $name | toJson }}
{{- end }}
{{- if regexMatch `(^|[^\\])(\\\\)*\\u0000` (toJson $value) }}
- {{ printf "%s: expected text without NUL" $name | toJson }}
{{- end }}
{{- end }}
{{- end -}}
