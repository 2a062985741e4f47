{{/* A role: its settings, service and pods. Takes root, role, section (of the settings file), values,
kind and replicas. */}}
{{- define "hqueue.workload" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "hqueue.fullname" $root) .role -}}
{{- $ports := index (include "hqueue.ports" $root | fromYaml) .role -}}
{{- $drain := int64 (default 10000 .values.settings.drain_ms) -}}
{{- $file := include "hqueue.file" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  labels: {{- include "hqueue.labels" . | nindent 4 }}
data:
  hqueue.toml: |
    {{- $file | nindent 4 }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  labels: {{- include "hqueue.labels" . | nindent 4 }}
spec:
  {{- if eq .kind "StatefulSet" }}
  # Each pod has a name of its own, also before it is ready: the processes call each other by it.
  clusterIP: None
  publishNotReadyAddresses: true
  {{- end }}
  selector: {{- include "hqueue.selector" . | nindent 4 }}
  ports:
    {{- range $port, $number := $ports }}
    - {name: {{ $port }}, port: {{ $number }}, targetPort: {{ $port }}}
    {{- end }}
---
apiVersion: apps/v1
kind: {{ .kind }}
metadata:
  name: {{ $name }}
  labels: {{- include "hqueue.labels" . | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  {{- if eq .kind "StatefulSet" }}
  serviceName: {{ $name }}
  podManagementPolicy: Parallel
  {{- end }}
  selector:
    matchLabels: {{- include "hqueue.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "hqueue.labels" . | nindent 8 }}
      annotations:
        checksum/settings: {{ sha256sum $file }}
        {{- with .values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
    spec:
      serviceAccountName: {{ include "hqueue.serviceAccount" $root }}
      automountServiceAccountToken: false
      # Variables of Services have names like those of settings.
      enableServiceLinks: false
      # Calls under way end within drain_ms; registrations and connections end within 20 s more.
      terminationGracePeriodSeconds: {{ add (div (add $drain 999) 1000) 20 }}
      {{- with $root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- toYaml $root.Values.podSecurityContext | nindent 8 }}
      containers:
        - name: {{ .role }}
          image: {{ printf "%s:%s" $root.Values.image.repository (default $root.Chart.AppVersion $root.Values.image.tag) | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: {{- toYaml (concat .args .values.extraArgs) | nindent 12 }}
          env:
            - {name: HQUEUE_CONFIG, value: /etc/hqueue/settings/hqueue.toml}
            {{- if or (eq .role "worker") (eq .role "hub") }}
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - name: POD_NAMESPACE
              valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
            {{- end }}
            {{- $service := printf "$(POD_NAME).%s.$(POD_NAMESPACE).svc.%s" $name $root.Values.clusterDomain }}
            {{- $metrics := upper .section }}
            {{- if eq .role "worker" }}
            - {name: HQUEUE_WORKER_HOST, value: {{ $service | quote }}}
            - {name: HQUEUE_WORKER_LISTEN_HOST, value: 0.0.0.0}
            - {name: HQUEUE_WORKER_PORT, value: {{ $ports.notify | quote }}}
            {{- if .values.regionHostIsNode }}
            - {name: HQUEUE_WORKER_REGION_HOST, value: $(NODE_NAME)}
            {{- end }}
            {{- else if eq .role "hub" }}
            - {name: HQUEUE_HUB_HOST, value: {{ ternary "$(NODE_NAME)" $service .values.hostIsNode | quote }}}
            - {name: HQUEUE_HUB_LISTEN_HOST, value: 0.0.0.0}
            - {name: HQUEUE_HUB_PORT, value: {{ $ports.hub | quote }}}
            {{- else if eq .role "console" }}
            - {name: HQUEUE_CONSOLE_HOST, value: 0.0.0.0}
            - {name: HQUEUE_CONSOLE_PORT, value: {{ $ports.console | quote }}}
            {{- if .values.spnegoKeytabSecretName }}
            # Kerberos' replay cache.
            - {name: KRB5RCACHEDIR, value: /tmp}
            {{- end }}
            {{- end }}
            {{- if $ports.metrics }}
            - {name: HQUEUE_{{ $metrics }}_METRICS_HOST, value: 0.0.0.0}
            - {name: HQUEUE_{{ $metrics }}_METRICS_PORT, value: {{ $ports.metrics | quote }}}
            {{- end }}
          ports:
            {{- range $port, $number := $ports }}
            - {name: {{ $port }}, containerPort: {{ $number }}}
            {{- end }}
          # A process without ZooKeeper is alive: a restart would not help it. It is not ready.
          startupProbe:
            exec: {command: [/opt/hqueue/bin/python, -m, hqueue_workers.probe, {{ .section }}, --alive]}
            periodSeconds: 5
            timeoutSeconds: 10
            failureThreshold: 60
          livenessProbe:
            exec: {command: [/opt/hqueue/bin/python, -m, hqueue_workers.probe, {{ .section }}, --alive]}
            periodSeconds: 30
            timeoutSeconds: 10
            failureThreshold: 4
          readinessProbe:
            exec: {command: [/opt/hqueue/bin/python, -m, hqueue_workers.probe, {{ .section }}]}
            periodSeconds: 15
            timeoutSeconds: 10
          securityContext: {{- toYaml $root.Values.securityContext | nindent 12 }}
          resources: {{- toYaml .values.resources | nindent 12 }}
          volumeMounts:
            - {name: settings, mountPath: /etc/hqueue/settings, readOnly: true}
            - {name: tmp, mountPath: /tmp}
            {{- if $root.Values.tls.secretName }}
            - {name: tls, mountPath: /etc/hqueue/tls, readOnly: true}
            {{- end }}
            {{- if $root.Values.kerberos.keytabSecretName }}
            - {name: keytab, mountPath: /etc/hqueue/keytab, readOnly: true}
            {{- end }}
            {{- if $root.Values.kerberos.configMapName }}
            - {name: kerberos, mountPath: /etc/hqueue/kerberos, readOnly: true}
            {{- end }}
            {{- if .values.spnegoKeytabSecretName }}
            - {name: spnego, mountPath: /etc/hqueue/spnego, readOnly: true}
            {{- end }}
            {{- if $root.Values.zookeeperAuth.secretName }}
            - {name: zookeeper, mountPath: /etc/hqueue/zookeeper, readOnly: true}
            {{- end }}
      volumes:
        - name: settings
          configMap: {name: {{ $name }}}
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- with $root.Values.tls.secretName }}
        - name: tls
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- with $root.Values.kerberos.keytabSecretName }}
        - name: keytab
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- with $root.Values.kerberos.configMapName }}
        - name: kerberos
          configMap: {name: {{ . }}}
        {{- end }}
        {{- with .values.spnegoKeytabSecretName }}
        - name: spnego
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- with $root.Values.zookeeperAuth.secretName }}
        - name: zookeeper
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
      {{- with .values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "hqueue.selector" . | nindent 14 }}
      {{- $beside := $root.Values.besideRegionServers }}
      {{- if .values.affinity }}
      affinity: {{- toYaml .values.affinity | nindent 8 }}
      {{- else if and $beside.labels (ne .role "console") }}
      affinity:
        podAffinity:
          {{- if $beside.required }}
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector: {matchLabels: {{ toJson $beside.labels }}}
              {{- with $beside.namespaces }}
              namespaces: {{ toJson . }}
              {{- end }}
          {{- else }}
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector: {matchLabels: {{ toJson $beside.labels }}}
                {{- with $beside.namespaces }}
                namespaces: {{ toJson . }}
                {{- end }}
          {{- end }}
      {{- end }}
{{- with .values.podDisruptionBudget }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels: {{- include "hqueue.labels" $ | nindent 4 }}
spec:
  {{- toYaml . | nindent 2 }}
  selector:
    matchLabels: {{- include "hqueue.selector" $ | nindent 6 }}
{{- end }}
{{- end -}}
