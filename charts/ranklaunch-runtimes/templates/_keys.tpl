{{/* Checks of keys, of the forms of texts, and of Kubernetes' objects. keys.json has the tables; tools/chart_values.py writes it. */}}

{{- define "ranklaunch-runtimes.validate.keys" -}}
{{- include "ranklaunch-runtimes.keys" (dict "values" .Values "place" "" "table" (.Files.Get "keys.json" | fromJson)) -}}
{{- end -}}

{{/* Values that are often written in Kubernetes' shape instead of the chart's. With one of these, no other rule runs. Called with a dict: values, table. */}}
{{- define "ranklaunch-runtimes.wrongShapes" -}}
{{- if not (kindIs "map" .values.env) }}
- "env: expected a map of strings; a list as Kubernetes has it goes into extraEnv"
{{- end }}
{{- if not (kindIs "map" .values.image) }}
- {{ printf "image: %v: expected a map with keys of %s" .values.image (join ", " .table.image) | toJson }}
{{- end }}
{{- end -}}

{{/* Faults of variables in env and extraEnv. Called with a dict: values, table, skip (names that other rules judge). */}}
{{- define "ranklaunch-runtimes.wrongVariables" -}}
{{- range $name, $value := .values.env }}
{{ include "ranklaunch-runtimes.wrongVariable" (dict "place" (printf "env.%s" $name) "name" $name "value" $value "table" $.table "skip" $.skip) }}
{{- end }}
{{- range .values.extraEnv }}
{{- /* Text with $(NAME) is not judged: Kubernetes replaces it by another variable. */}}
{{- $value := ternary (toString .value) "" (and (kindIs "string" .value) (not (contains "$(" (toString .value)))) }}
{{ include "ranklaunch-runtimes.wrongVariable" (dict "place" (printf "extraEnv: %v" .name) "name" (toString .name) "value" $value "table" $.table "skip" $.skip) }}
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.wrongVariable" -}}
{{- $known := .table.variables -}}
{{- $removed := has .name $known.removed -}}
{{- range $known.removed }}{{ if and (hasSuffix "*" .) (hasPrefix (trimSuffix "*" .) $.name) }}{{ $removed = true }}{{ end }}{{ end -}}
{{- if has .name .skip }}
{{- else if $removed }}
{{- $remedy := get $known.saidBy .name }}
- {{ printf "%s: ranklaunch removes it before ranks start, and sets what they need; %s" .place (ternary (printf "set %s" $remedy) "leave it out" (ne $remedy "")) | toJson }}
{{- else if hasPrefix "RANKLAUNCH_" .name }}
{{- if not (hasKey $known.forms .name) }}
- {{ printf "%s: ranklaunch has no such variable%s" .place (include "ranklaunch-runtimes.meantVariable" .) | toJson }}
{{- else }}
{{- with get $known.forms .name }}
{{- if and (trim $.value) (not (regexMatch .pattern $.value)) }}
- {{ printf "%s: %s: expected %s" $.place $.value .form | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- else if contains "_" .name }}
{{- $parts := splitn "_" 2 (upper .name) }}
{{- $own := printf "RANKLAUNCH_%s" $parts._1 }}
{{- if and (hasKey $known.forms $own) (include "ranklaunch-runtimes.near" (dict "word" $parts._0 "names" (list "ranklaunch") "least" 80)) }}
- {{ printf "%s: ranklaunch has no such variable%s" .place (include "ranklaunch-runtimes.meantVariable" (dict "name" $own "table" .table)) | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.meantVariable" -}}
{{- $known := .table.variables -}}
{{- $ending := trimPrefix "RANKLAUNCH_" .name | upper -}}
{{- $endings := list -}}
{{- range $name := keys $known.forms | sortAlpha }}{{ $endings = append $endings (trimPrefix "RANKLAUNCH_" $name) }}{{ end -}}
{{- with get $known.elsewhere $ending | default (include "ranklaunch-runtimes.near" (dict "word" $ending "names" $endings "least" 65)) -}}
{{- $meant := printf "RANKLAUNCH_%s" . -}}
, did you mean {{ $meant }}?{{ with get $known.derived $meant }} It is made from {{ . }}; set that{{ end }}
{{- end -}}
{{- end -}}

{{/* A word that is not legal, with the likely one: Helm's schema would refuse it without a hint. Called with a dict: path, value, table. */}}
{{- define "ranklaunch-runtimes.wrongWord" -}}
{{- $known := get .table.words .path -}}
{{- if not (has .value $known.legal) }}
{{- $meant := get $known.meant (lower .value) | default (include "ranklaunch-runtimes.near" (dict "word" .value "names" $known.legal)) }}
{{- $hint := ternary "" (printf ", did you mean '%s'?" $meant) (empty $meant) }}
- {{ printf "%s: %s: expected one of %s%s" .path .value (join ", " $known.legal) $hint | toJson }}
{{- end }}
{{- end -}}

{{/* Called with a dict: values (of a group), place (what comes before their names), table. */}}
{{- define "ranklaunch-runtimes.keys" -}}
{{- range $name, $value := .values }}
{{- $path := printf "%s%s" $.place $name }}
{{- if has $path $.table.groups }}
{{ include "ranklaunch-runtimes.keys" (dict "values" $value "place" (printf "%s." $path) "table" $.table) }}
{{- else if has $path $.table.keys }}
{{- with get $.table.forms $path }}
{{ include "ranklaunch-runtimes.form" (dict "path" $path "value" $value "form" .) }}
{{- end }}
{{- with get $.table.objects $path }}
{{ include "ranklaunch-runtimes.object" (dict "path" $path "value" $value "kind" . "table" $.table) }}
{{- end }}
{{- else if ne $path "global" }}
{{- $legal := list }}
{{- range concat $.table.keys $.table.groups }}
{{- $below := trimPrefix $.place . }}
{{- if and (hasPrefix $.place .) (not (contains "." $below)) }}{{ $legal = append $legal $below }}{{ end }}
{{- end }}
{{- $hint := include "ranklaunch-runtimes.meant" (dict "path" $path "table" $.table) | default (printf ": expected one of %s" (join ", " $legal)) }}
- {{ printf "%s: unknown key%s" $path $hint | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Hint for an unknown key: the key that other tools call so, that another group calls so, or that is spelt nearly so. */}}
{{- define "ranklaunch-runtimes.meant" -}}
{{- $familiar := .table.familiar -}}
{{- $path := .path | replace "-" "" | replace "_" "" | lower -}}
{{- $name := splitList "." $path | last -}}
{{- $exact := get $familiar $path | default (get $familiar $name) -}}
{{- $near := include "ranklaunch-runtimes.near" (dict "word" $name "names" (keys $familiar | sortAlpha)) -}}
{{- if $exact -}}
; here it is {{ $exact }}
{{- else if $near -}}
{{- $meant := get $familiar $near -}}
{{- if or (has $meant .table.keys) (has $meant .table.groups) }}, did you mean '{{ $meant }}'?{{ else }}; here it is {{ $meant }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* The most similar of `names`, by letters and pairs of letters in common with `word`; empty if it scores below `least` percent (default 70). */}}
{{- define "ranklaunch-runtimes.near" -}}
{{- $word := lower .word -}}
{{- $pairs := sub (len $word) 1 | max 0 | int -}}
{{- $best := "" -}}
{{- $most := sub (.least | default 70) 1 | int -}}
{{- range $name := .names -}}
{{- $common := 0 -}}
{{- range $i := until $pairs }}{{ if contains (substr $i (add $i 2 | int) $word) (lower $name) }}{{ $common = add1 $common }}{{ end }}{{ end -}}
{{- $rest := lower $name -}}
{{- range $letter := splitList "" $word -}}
{{- if contains $letter $rest }}{{ $common = add1 $common }}{{ $parts := splitn $letter 2 $rest }}{{ $rest = print $parts._0 $parts._1 }}{{ end -}}
{{- end -}}
{{- $score := div (mul 200 $common) (add $pairs (len $name) -1 (len $word) (len $name) | max 1) | int -}}
{{- if gt $score $most }}{{ $most = $score }}{{ $best = $name }}{{ end -}}
{{- end -}}
{{- $best -}}
{{- end -}}

{{- define "ranklaunch-runtimes.form" -}}
{{- $form := .form -}}
{{- if eq $form.of "names" }}
{{- range $name, $value := .value }}
{{- if not (regexMatch $form.pattern $name) }}
- {{ printf "%s: name %q: expected %s" $.path $name $form.form | toJson }}
{{- end }}
{{- end }}
{{- else if eq $form.of "items" }}
{{- range .value }}
{{- if not (regexMatch $form.pattern .) }}
- {{ printf "%s: %q: expected %s" $.path . $form.form | toJson }}
{{- end }}
{{- end }}
{{- else if and .value (not (regexMatch $form.pattern .value)) }}
- {{ printf "%s: %q: expected %s" .path .value $form.form | toJson }}
{{- end }}
{{- end -}}

{{/*
Faults of a value in Kubernetes' form. Called with a dict: path, value, kind (a type's name; with [] a list of it, with {} a map of it),
table.
*/}}
{{- define "ranklaunch-runtimes.object" -}}
{{- $path := .path -}}
{{- $table := .table -}}
{{- $kind := trimSuffix "!" .kind -}}
{{- if hasSuffix "[]" $kind }}
{{- if not (kindIs "slice" .value) }}
- {{ printf "%s: expected a list" $path | toJson }}
{{- else }}
{{- range $index, $each := .value }}
{{ include "ranklaunch-runtimes.object" (dict "path" (printf "%s[%d]" $path $index) "value" $each "kind" (trimSuffix "[]" $kind) "table" $table) }}
{{- end }}
{{- end }}
{{- else if hasSuffix "{}" $kind }}
{{- if not (kindIs "map" .value) }}
- {{ printf "%s: expected a map" $path | toJson }}
{{- else }}
{{- range $name, $each := .value }}
{{ include "ranklaunch-runtimes.object" (dict "path" (printf "%s.%s" $path $name) "value" $each "kind" (trimSuffix "{}" $kind) "table" $table) }}
{{- end }}
{{- end }}
{{- else if hasKey $table.types $kind }}
{{ include "ranklaunch-runtimes.fields" (dict "path" $path "value" .value "kind" $kind "table" $table) }}
{{- else if hasKey $table.scalars $kind }}
{{- if ne (include "ranklaunch-runtimes.fits" (dict "value" .value "kind" $kind "table" $table)) "true" }}
- {{ printf "%s: expected %s, found %v" $path (get $table.scalars $kind) .value | toJson }}
{{- end }}
{{- else if and (ne $kind "anything") (not (has (toString .value) (splitList "|" $kind))) }}
- {{ printf "%s: %v: expected one of %s" $path .value (splitList "|" $kind | join ", ") | toJson }}
{{- end }}
{{- end -}}

{{- define "ranklaunch-runtimes.fits" -}}
{{- $text := kindIs "string" .value -}}
{{- $number := has (kindOf .value) (list "int" "int64" "float64") -}}
{{- $whole := false -}}
{{- if $number }}{{ $whole = eq (float64 .value) (floor .value) }}{{ end -}}
{{- if eq .kind "string" }}{{ $text }}
{{- else if eq .kind "boolean" }}{{ kindIs "bool" .value }}
{{- else if eq .kind "integer" }}{{ $whole }}
{{- else if eq .kind "word" }}{{ or $text $whole }}
{{- else if $text }}{{ regexMatch (get .table.patterns .kind) .value }}
{{- else }}{{ and $number (eq .kind "quantity") }}
{{- end -}}
{{- end -}}

{{/* Faults of an object's fields. A field that is null counts as absent, as for Kubernetes. */}}
{{- define "ranklaunch-runtimes.fields" -}}
{{- $path := .path -}}
{{- $table := .table -}}
{{- $fields := get $table.types .kind -}}
{{- if not (kindIs "map" .value) }}
- {{ printf "%s: expected an object with one of %s" $path (keys $fields | sortAlpha | join ", ") | toJson }}
{{- else }}
{{- $given := list }}
{{- range $name, $each := .value }}
{{- if not (kindIs "invalid" $each) }}{{ $given = append $given $name }}
{{- if hasKey $fields $name }}
{{ include "ranklaunch-runtimes.object" (dict "path" (printf "%s.%s" $path $name) "value" $each "kind" (get $fields $name) "table" $table) }}
{{- else if and (eq $.kind "PodTemplate") (hasKey $table.madeFrom $name) }}
- {{ printf "%s.%s: made from %s; set that" $path $name (get $table.madeFrom $name) | toJson }}
{{- else }}
{{- $near := include "ranklaunch-runtimes.near" (dict "word" $name "names" (keys $fields | sortAlpha)) }}
{{- $hint := ternary (printf ", did you mean '%s'?" $near) (printf ": expected one of %s" (keys $fields | sortAlpha | join ", ")) (ne $near "") }}
- {{ printf "%s.%s: unknown key%s" $path $name $hint | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $holds := $fields }}
{{- if and (hasSuffix "!" $holds) (not (has $name $given)) }}
- {{ printf "%s.%s: required" $path $name | toJson }}
{{- end }}
{{- end }}
{{- if and (eq .kind "EnvVar") (has "value" $given) (has "valueFrom" $given) }}
- {{ printf "%s: expected one of value and valueFrom" $path | toJson }}
{{- end }}
{{- if hasKey $table.oneOf .kind }}
{{- $legal := without (keys $fields | sortAlpha) (get $table.oneOf .kind | join "") }}
{{- $found := list }}
{{- $known := true }}
{{- range $given }}{{ if has . $legal }}{{ $found = append $found . }}{{ end }}{{ if not (hasKey $fields .) }}{{ $known = false }}{{ end }}{{ end }}
{{- if and $known (ne (len $found) 1) }}
{{- $what := ternary "one source" "one of them" (eq .kind "Volume") }}
- {{ printf "%s: expected %s, %s, found %s" $path $what (get $table.common .kind | default ($legal | join ", ")) ($found | join ", " | default "none") | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
