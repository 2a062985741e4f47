{{- define "hqueue.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hqueue.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "hqueue.labels" -}}
{{ include "hqueue.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "hqueue.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ default (include "hqueue.fullname" .) .Values.serviceAccount.name }}
{{- else -}}{{ default "default" .Values.serviceAccount.name }}{{- end -}}
{{- end -}}

{{/* The ports of a role: those that others call, then that of health and metrics. */}}
{{- define "hqueue.ports" -}}
worker: {notify: 7070, metrics: 9109}
hub: {hub: 9190, metrics: 9191}
api: {api: 9130, metrics: 9109}
console: {console: 9180, metrics: 9181}
{{- end -}}

{{/* Settings as TOML: whole numbers stay whole. */}}
{{- define "hqueue.toml" -}}
{{- range $key, $value := . }}
{{- if kindIs "slice" $value }}
{{ $key }} = {{ $value | toJson }}
{{- else if kindIs "bool" $value }}
{{ $key }} = {{ $value }}
{{- else if or (kindIs "float64" $value) (kindIs "int64" $value) (kindIs "int" $value) }}
{{ $key }} = {{ int64 $value }}
{{- else }}
{{ $key }} = {{ $value | toString | toJson }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The settings file of a role. */}}
{{- define "hqueue.file" -}}
{{- $own := dict -}}
{{- with .root.Values.tls.secretName }}
{{- $own = merge $own (dict "tls" true "tls_ca" "/etc/hqueue/tls/ca.crt" "tls_certificate" "/etc/hqueue/tls/tls.crt" "tls_key" "/etc/hqueue/tls/tls.key") }}
{{- end }}
{{- with .root.Values.kerberos.principal }}{{- $own = merge $own (dict "kerberos_principal" .) }}{{- end }}
{{- if .root.Values.kerberos.keytabSecretName }}{{- $own = merge $own (dict "kerberos_keytab" "/etc/hqueue/keytab/keytab") }}{{- end }}
{{- if .root.Values.kerberos.configMapName }}{{- $own = merge $own (dict "kerberos_config" "/etc/hqueue/kerberos/krb5.conf") }}{{- end }}
{{- if .root.Values.zookeeperAuth.secretName }}{{- $own = merge $own (dict "zookeeper_auth_file" "/etc/hqueue/zookeeper/credentials") }}{{- end }}
{{- include "hqueue.toml" (merge (deepCopy .root.Values.settings) $own) }}

[{{ .section }}]
{{- $table := deepCopy .values.settings -}}
{{- if .values.spnegoKeytabSecretName }}{{- $table = merge $table (dict "spnego_keytab" "/etc/hqueue/spnego/keytab") }}{{- end }}
{{- include "hqueue.toml" $table }}
{{- end -}}
