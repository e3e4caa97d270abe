{{/* Names and labels. A selector cannot change later, so it never contains helm.sh/chart. */}}
{{- define "barrierscope.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "barrierscope.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "barrierscope.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "barrierscope.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The helpers below take (dict "root" $ "component" "api"). */}}
{{- define "barrierscope.selectorLabels" -}}
app.kubernetes.io/name: {{ include "barrierscope.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "barrierscope.labels" -}}
{{ include "barrierscope.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "barrierscope.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "barrierscope.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The account of a pipeline that creates pods: its own one, unless the release uses an existing account. */}}
{{- define "barrierscope.pipelineAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- include "barrierscope.fullname" . }}-pipeline
{{- else }}
{{- include "barrierscope.serviceAccountName" . }}
{{- end }}
{{- end }}

{{/* The sections that read the cluster of this release, as a list in JSON: those without a kubeconfig. */}}
{{- define "barrierscope.clusterSections" -}}
{{- $found := list }}
{{- range (dig "kubernetes" list .Values.discovery) }}
{{- if not .kubeconfig }}{{- $found = append $found . }}{{- end }}
{{- end }}
{{- if and (or .Values.collector.enabled .Values.trial.enabled) $found }}{{ toJson $found }}{{- end }}
{{- end }}

{{/* The account of a collector that reads the cluster: its own one, unless the release uses an existing account. */}}
{{- define "barrierscope.collectorAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- include "barrierscope.fullname" . }}-collector
{{- else }}
{{- include "barrierscope.serviceAccountName" . }}
{{- end }}
{{- end }}

{{/* A digest overrides a tag. */}}
{{- define "barrierscope.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "barrierscope.runtimeUrl" -}}
http://{{ include "barrierscope.fullname" . }}-runtime:{{ .Values.runtime.service.port }}/runtime/v1
{{- end }}

{{/* Public address of the pages: the configured one, otherwise that of the ingress. */}}
{{- define "barrierscope.publicUrl" -}}
{{- if .Values.access.publicUrl -}}
{{ .Values.access.publicUrl }}
{{- else if and .Values.ingress.enabled .Values.ingress.hosts -}}
{{ ternary "https" "http" (not (empty .Values.ingress.tls)) }}://{{ (first .Values.ingress.hosts).host }}
{{- end }}
{{- end }}

{{/* The database: the whole URL from a secret, or its parts from values and the password from the secret, for libpq. */}}
{{- define "barrierscope.databaseEnv" -}}
{{- $secret := required "database.existingSecret: name the secret that holds the database's URL or password" .Values.database.existingSecret }}
{{- if .Values.database.host }}
- name: BARRIERSCOPE_DATABASE_URL
  value: {{ printf "postgresql://%s@%s:%v/%s?sslmode=%s" (urlquery .Values.database.user) .Values.database.host .Values.database.port (urlquery .Values.database.name) .Values.database.sslMode | quote }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ .Values.database.passwordKey }}
{{- else }}
- name: BARRIERSCOPE_DATABASE_URL
  valueFrom:
    secretKeyRef:
      name: {{ $secret }}
      key: {{ .Values.database.urlKey }}
{{- end }}
{{- end }}

{{- define "barrierscope.tokenEnv" -}}
- name: BARRIERSCOPE_API_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ required "access.existingSecret: name the secret that holds the API's token" .Values.access.existingSecret }}
      key: {{ .Values.access.tokenKey }}
{{- end }}

{{- define "barrierscope.logEnv" -}}
- name: BARRIERSCOPE_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- end }}

{{/* Retention of checkpoints, which the API, the collector and the alerts need. */}}
{{- define "barrierscope.retentionEnv" -}}
- name: BARRIERSCOPE_RETENTION_MAX_AGE_DAYS
  value: {{ .Values.retention.maxAgeDays | quote }}
- name: BARRIERSCOPE_RETENTION_ARRAYS_MAX_AGE_DAYS
  value: {{ .Values.retention.arraysMaxAgeDays | quote }}
- name: BARRIERSCOPE_RETENTION_RULES
  value: {{ join "," .Values.retention.rules | quote }}
- name: BARRIERSCOPE_RETENTION_MAX_SIZE_MIB
  value: {{ .Values.retention.maxSizeMib | int64 | quote }}
- name: BARRIERSCOPE_ROLLUP_RETENTION_MAX_AGE_DAYS
  value: {{ .Values.retention.rollupsMaxAgeDays | quote }}
{{- end }}

{{/* "yes" if the pipeline creates its executors as pods of this cluster. */}}
{{- define "barrierscope.sparkOnKubernetes" -}}
{{- if and .Values.pipeline.enabled (hasPrefix "k8s://" .Values.pipeline.master) }}yes{{ end }}
{{- end }}

{{- define "barrierscope.executorUrlFolder" -}}
/etc/barrierscope/database
{{- end }}

{{/* Options of the pipeline for Spark. The chart's own settings come first, so that sparkConf overrides them. */}}
{{- define "barrierscope.sparkArgs" -}}
{{- $conf := dict }}
{{- with .Values.pipeline.master }}
- --master
- {{ . | quote }}
{{- $conf = dict "spark.driver.host" "$(POD_IP)" }}
{{- end }}
{{- $options := dict "archive" "--archive" "executorPython" "--executor-python" "executorUrlFile" "--executor-url-file" }}
{{- range $name, $option := $options }}
{{- with index $.Values.pipeline $name }}
{{- if not (hasPrefix "spark://" $.Values.pipeline.master) }}
{{- fail (printf "pipeline.%s: only with a pipeline.master of spark://" $name) }}
{{- end }}
- {{ $option }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- if include "barrierscope.sparkOnKubernetes" . }}
{{- $_ := set $conf "spark.kubernetes.namespace" .Release.Namespace }}
{{- $_ := set $conf "spark.kubernetes.driver.pod.name" "$(POD_NAME)" }}
{{- $_ := set $conf "spark.kubernetes.container.image" (include "barrierscope.image" .) }}
{{- $_ := set $conf "spark.kubernetes.container.image.pullPolicy" .Values.image.pullPolicy }}
{{- $_ := set $conf "spark.kubernetes.executor.podTemplateFile" "/etc/barrierscope/spark/executor.yaml" }}
{{- $_ := set $conf "spark.kubernetes.executor.podTemplateContainerName" "executor" }}
{{- if .Values.database.host }}
{{- $_ := set $conf "spark.kubernetes.executor.secretKeyRef.PGPASSWORD" (printf "%s:%s" .Values.database.existingSecret .Values.database.passwordKey) }}
{{- else }}
{{- $_ := set $conf (printf "spark.kubernetes.executor.secrets.%s" .Values.database.existingSecret) (include "barrierscope.executorUrlFolder" .) }}
- --executor-url-file
- {{ include "barrierscope.executorUrlFolder" . }}/{{ .Values.database.urlKey }}
{{- end }}
{{- end }}
{{- range $name, $value := merge (dict) .Values.pipeline.sparkConf $conf }}
- --conf
- {{ printf "%s=%s" $name $value | quote }}
{{- end }}
{{- end }}

{{- define "barrierscope.metricsPort" -}}
{{- if .Values.metrics.enabled -}}
- {name: metrics, containerPort: {{ .Values.metrics.port }}, protocol: TCP}
{{- end }}
{{- end }}

{{/* The components with metrics, of those that are enabled. The pipeline's pods end soon, so they have none. */}}
{{- define "barrierscope.metered" -}}
{{- $names := list -}}
{{- if .Values.metrics.enabled -}}
{{- range list "api" "collector" "alert" "lab" "runtime" -}}
{{- if ne (toString (index $.Values .).enabled) "false" -}}{{- $names = append $names . -}}{{- end -}}
{{- end -}}
{{- end -}}
{{ join "," $names }}
{{- end }}

{{/* Refuses values that need the metrics while there are none. Takes (dict "root" $ "value" "NAME"). */}}
{{- define "barrierscope.needMetrics" -}}
{{- if not .root.Values.metrics.enabled -}}
{{- fail (printf "metrics.%s: only with metrics.enabled" .value) }}
{{- end }}
{{- end }}

{{- define "barrierscope.containerBasics" -}}
image: {{ include "barrierscope.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- end }}

{{/* One container migrates under an advisory lock while the others wait. An up-to-date schema is not changed. */}}
{{- define "barrierscope.migrate" -}}
- name: migrate
  {{- include "barrierscope.containerBasics" . | nindent 2 }}
  args: ["migrate", "--wait", {{ .root.Values.migrations.wait | quote }}]
  env:
    {{- include "barrierscope.databaseEnv" .root | trim | nindent 4 }}
    {{- include "barrierscope.logEnv" .root | nindent 4 }}
    {{- if eq .component "api" }}
    - name: BARRIERSCOPE_BUILT_IN_TARGET
      value: {{ ternary (include "barrierscope.runtimeUrl" .root) "" .root.Values.runtime.enabled | quote }}
    {{- end }}
  {{- with .root.Values.migrations.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    {{- with (index .root.Values .component).extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The API tests targets and the collectors read them, so both need the credentials. */}}
{{- define "barrierscope.targetCredentialsEnv" }}
{{- with .Values.access.targetCredentials.envPrefix }}
- name: BARRIERSCOPE_TARGET_CREDENTIALS_ENV_PREFIX
  value: {{ . | quote }}
{{- end }}
{{- with .Values.access.targetCredentials.dir }}
- name: BARRIERSCOPE_TARGET_CREDENTIALS_DIR
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* The alert component and the API read credentials of receivers: one delivers alerts, the other tests a receiver. */}}
{{- define "barrierscope.receiversEnv" }}
{{- if .Values.alert.receiversSecret }}
- name: BARRIERSCOPE_SECRETS_DIR
  value: /etc/barrierscope/receivers
{{- end }}
{{- end }}

{{- define "barrierscope.hasReceivers" -}}
{{- if and .root.Values.alert.receiversSecret (has .component (list "api" "alert")) }}yes{{ end }}
{{- end }}

{{/* env, envFrom, resources and mounts of a component's main container; .env holds the component's own variables. */}}
{{- define "barrierscope.containerRest" -}}
{{- $values := index .root.Values .component -}}
env:
  {{- include "barrierscope.logEnv" .root | nindent 2 }}
  {{- .env | trim | nindent 2 }}
  {{- if and .root.Values.metrics.enabled (ne .component "pipeline") }}
  - name: BARRIERSCOPE_METRICS_HOST
    value: {{ .root.Values.listenAddress | quote }}
  - name: BARRIERSCOPE_METRICS_PORT
    value: {{ .root.Values.metrics.port | quote }}
  {{- end }}
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  {{- if include "barrierscope.hasReceivers" . }}
  - name: receivers
    mountPath: /etc/barrierscope/receivers
    readOnly: true
  {{- end }}
  {{- if eq .component "trial" }}
  - name: data
    mountPath: /var/lib/barrierscope
  {{- end }}
  {{- if and (has .component (list "collector" "trial")) (or .root.Values.targets .root.Values.discovery) }}
  - name: targets
    mountPath: /etc/barrierscope/targets
    readOnly: true
  {{- end }}
  {{- if and (eq .component "pipeline") (include "barrierscope.sparkOnKubernetes" .root) }}
  - name: executor-template
    mountPath: /etc/barrierscope/spark
    readOnly: true
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "barrierscope.podMetadata" -}}
{{- $values := index .root.Values .component -}}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- include "barrierscope.labels" . | nindent 2 }}
{{- end }}

{{/* The spec of a pod without its containers. */}}
{{- define "barrierscope.podSpec" -}}
{{- $values := index .root.Values .component -}}
{{- if and (eq .component "pipeline") (include "barrierscope.sparkOnKubernetes" .root) }}
serviceAccountName: {{ include "barrierscope.pipelineAccountName" .root }}
# Spark creates and deletes pods of executors.
automountServiceAccountToken: true
{{- else if and (has .component (list "collector" "trial")) (include "barrierscope.clusterSections" .root) }}
serviceAccountName: {{ include "barrierscope.collectorAccountName" .root }}
# The discovery reads Flink's resources.
automountServiceAccountToken: true
{{- else }}
serviceAccountName: {{ include "barrierscope.serviceAccountName" .root }}
# This component does not use the cluster's API.
automountServiceAccountToken: false
{{- end }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- if eq .component "trial" }}
  # PostgreSQL refuses a folder whose permissions the cluster has widened for fsGroup.
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  # The only writable folder; the root file system is read-only.
  - name: tmp
    emptyDir: {}
  {{- if include "barrierscope.hasReceivers" . }}
  - name: receivers
    secret:
      secretName: {{ .root.Values.alert.receiversSecret }}
  {{- end }}
  {{- if and (eq .component "pipeline") (include "barrierscope.sparkOnKubernetes" .root) }}
  - name: executor-template
    configMap:
      name: {{ include "barrierscope.fullname" .root }}-pipeline-executor
  {{- end }}
  {{- if eq .component "trial" }}
  - name: data
    persistentVolumeClaim:
      claimName: {{ include "barrierscope.fullname" .root }}-trial
  {{- end }}
  {{- if and (has .component (list "collector" "trial")) (or .root.Values.targets .root.Values.discovery) }}
  - name: targets
    configMap:
      name: {{ include "barrierscope.fullname" .root }}-targets
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* For roles without a server: the event loop touches a file every 5 s. Does not check the database or targets. */}}
{{- define "barrierscope.heartbeatProbes" -}}
startupProbe:
  exec: {command: [sh, -c, 'test -e "$BARRIERSCOPE_HEARTBEAT_FILE"']}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 60
livenessProbe:
  exec: {command: [sh, -c, 'test -n "$(find "$BARRIERSCOPE_HEARTBEAT_FILE" -mmin -1)"']}
  periodSeconds: 30
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  exec: {command: [sh, -c, 'test -n "$(find "$BARRIERSCOPE_HEARTBEAT_FILE" -mmin -1)"']}
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{- define "barrierscope.heartbeatEnv" -}}
- name: BARRIERSCOPE_HEARTBEAT_FILE
  value: /tmp/barrierscope-heartbeat
{{- end }}
