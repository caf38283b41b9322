{{/* Combinations of values that cannot work, each as a sentence. */}}
{{- define "tollgate.mistakes" -}}
{{- $values := .Values -}}
{{- $settings := include "tollgate.settings" . | fromYaml -}}
{{- $components := $values.components -}}
{{- $store := $settings.store | default dict -}}
{{- $hasUrl := or $store.url $store.urlFile -}}
{{- $isSqlite := hasPrefix "sqlite:" ($store.url | default "") -}}
{{- $fronts := list -}}
{{- if hasKey $settings "kubernetes" }}{{ $fronts = append $fronts "settings.kubernetes" }}{{ end -}}
{{- if $components.connectors }}{{ $fronts = append $fronts "components.connectors" -}}
{{- else if $components.agents }}{{ $fronts = append $fronts "components.agents" -}}
{{- else if hasKey $settings "connectors" }}{{ $fronts = append $fronts "settings.connectors" -}}
{{- else if hasKey $settings "agents" }}{{ $fronts = append $fronts "settings.agents" }}{{ end -}}
{{- $replicas := int $values.replicas -}}

{{- $found := list -}}
{{- if and (hasKey $settings "connectors") (hasKey $settings "agents") -}}
{{- $found = append $found "settings.agents is now called settings.connectors, and both are there: keep settings.connectors, with the keys of both" -}}
{{- end -}}
{{- $drain := $settings.drain | default "30s" | toString -}}
{{- $drainSeconds := 0 -}}
{{- range regexFindAll "[0-9]+(ms|d|h|m|s)" $drain -1 -}}
{{- $number := regexFind "^[0-9]+" . | int -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $drainSeconds = add $drainSeconds (mul $number (get (dict "d" 86400 "h" 3600 "m" 60 "s" 1 "ms" 0) $unit)) -}}
{{- end -}}
{{- if not (regexMatch "^([0-9]+(ms|d|h|m|s))+$" $drain) -}}
{{- $found = append $found (printf "settings.drain is %s: write it in whole hours, minutes and seconds, such as 1m30s, so that terminationGracePeriodSeconds can be compared with it" $drain) -}}
{{- else if lt (int $values.terminationGracePeriodSeconds) (int (add $drainSeconds 40)) -}}
{{- $found = append $found (printf "terminationGracePeriodSeconds is %d, and settings.drain is %s: it must be at least 40 s longer, or pods are killed before they have written what is in memory" (int $values.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- if and $values.store.urlSecret.name (or (dig "store" "url" "" $values.settings) (dig "store" "urlFile" "" $values.settings)) -}}
{{- $found = append $found "store.urlSecret.name and settings.store both say where the database is: remove one of them" -}}
{{- end -}}
{{- if and $fronts (not $hasUrl) -}}
{{- $found = append $found (printf "%s needs a database: set store.urlSecret.name to a Secret with the URL of a PostgreSQL database, or, with replicas: 1, settings.store.url to a SQLite file on a volume of extraVolumes" (join " and " $fronts)) -}}
{{- else if and $fronts $isSqlite (gt $replicas 1) -}}
{{- $found = append $found (printf "%s needs a database that all %d replicas share, and settings.store.url is a SQLite file: set store.urlSecret.name to a Secret with the URL of a PostgreSQL database, or replicas to 1" (join " and " $fronts) $replicas) -}}
{{- end -}}
{{- if and $components.admission (not $components.writeApplicationSets) -}}
{{- $found = append $found "components.admission needs the rights of components.writeApplicationSets: set that to true, too" -}}
{{- end -}}
{{- if and (hasKey $settings "admission") (not $components.admission) -}}
{{- $found = append $found "settings.admission is there, and nothing calls the webhook: set components.admission to true" -}}
{{- end -}}
{{- if $components.admissionAuthor -}}
{{- if not $components.admission -}}
{{- $found = append $found "components.admissionAuthor is a part of the admission webhook: set components.admission to true, too" -}}
{{- end -}}
{{- if not (dig "admission" "clientCertificateAuthority" "" $settings) -}}
{{- $found = append $found "components.admissionAuthor signs only for API servers that authenticate: set settings.admission.clientCertificateAuthority to the file with the authority of their certificates" -}}
{{- end -}}
{{- end -}}
{{- if and $components.onlyThroughTollgate (not (dig "argocd" "server" "" $settings)) -}}
{{- $found = append $found "components.onlyThroughTollgate keeps everybody but the gateway from argocd-server: set settings.argocd.server to its address, so that they reach it through the gateway" -}}
{{- end -}}
{{- if and $values.ingress.enabled (not $values.ingress.hosts) -}}
{{- $found = append $found "ingress.enabled needs a host name: set ingress.hosts, such as [tollgate.example.com]" -}}
{{- end -}}
{{- with $values.httpRoute -}}
{{- if .enabled -}}
{{- if not .parentRefs -}}
{{- $found = append $found "httpRoute.enabled needs a Gateway to attach to: set httpRoute.parentRefs, such as [{name: public, namespace: gateways}]" -}}
{{- end -}}
{{- if and .backendTLS.enabled (not .backendTLS.hostname) -}}
{{- $found = append $found "httpRoute.backendTLS.enabled needs the name for which the gateway's certificate is valid: set httpRoute.backendTLS.hostname" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.networkPolicy.egress.enabled (not $values.networkPolicy.egress.rules) -}}
{{- $found = append $found "networkPolicy.egress.enabled without rules cuts the gateway off from the API server: set networkPolicy.egress.rules" -}}
{{- end -}}
{{- if and $values.networkPolicy.egress.enabled (not $values.networkPolicy.enabled) -}}
{{- $found = append $found "networkPolicy.egress.enabled needs networkPolicy.enabled: set that to true, too" -}}
{{- end -}}
{{- range $front, $policy := $values.policies -}}
{{- if eq (empty $policy.files) (empty $policy.configMap) -}}
{{- $found = append $found (printf "policies.%s needs either files or configMap" $front) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $found -}}
{{- end }}
