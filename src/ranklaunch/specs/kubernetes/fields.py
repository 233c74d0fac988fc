"""Fields of a pod's objects. Made by tools/pod_fields.py from the schemas of Kubernetes 1.35; do not edit.

A line has a type and its fields, each with its kind of value: a type, a list of a type ([]), a map of a type ({}), one of some words
(a|b). ! marks a required field. A quantity is text or a number, a word text or an integer, a name the name of an object.
"""

from __future__ import annotations

FIELDS = """\
AWSElasticBlockStoreVolumeSource: fsType=string partition=integer readOnly=boolean volumeID!=string
Affinity: nodeAffinity=NodeAffinity podAffinity=PodAffinity podAntiAffinity=PodAntiAffinity
AppArmorProfile: localhostProfile=string type!=string
AzureDiskVolumeSource: cachingMode=string diskName!=string diskURI!=string fsType=string kind=string readOnly=boolean
AzureFileVolumeSource: readOnly=boolean secretName!=string shareName!=string
CSIVolumeSource: driver!=string fsType=string nodePublishSecretRef=LocalObjectReference readOnly=boolean volumeAttributes=string{}
Capabilities: add=string[] drop=string[]
CephFSVolumeSource: monitors!=string[] path=string readOnly=boolean secretFile=string secretRef=LocalObjectReference user=string
CinderVolumeSource: fsType=string readOnly=boolean secretRef=LocalObjectReference volumeID!=string
ClusterTrustBundleProjection: labelSelector=LabelSelector name=string optional=boolean path!=string signerName=string
ConfigMapEnvSource: name!=name optional=boolean
ConfigMapKeySelector: key!=string name!=name optional=boolean
ConfigMapProjection: items=KeyToPath[] name!=name optional=boolean
ConfigMapVolumeSource: defaultMode=integer items=KeyToPath[] name!=name optional=boolean
Container: args=string[] command=string[] env=EnvVar[] envFrom=EnvFromSource[] image!=string imagePullPolicy=Always|IfNotPresent|Never
  lifecycle=Lifecycle livenessProbe=Probe name!=string ports=ContainerPort[] readinessProbe=Probe resizePolicy=ContainerResizePolicy[]
  resources=ResourceRequirements restartPolicy=Always restartPolicyRules=ContainerRestartRule[] securityContext=SecurityContext
  startupProbe=Probe stdin=boolean stdinOnce=boolean terminationMessagePath=string terminationMessagePolicy=File|FallbackToLogsOnError
  tty=boolean volumeDevices=VolumeDevice[] volumeMounts=VolumeMount[] workingDir=string
ContainerPort: containerPort!=integer hostIP=string hostPort=integer name=string protocol=TCP|UDP|SCTP
ContainerResizePolicy: resourceName!=string restartPolicy!=string
ContainerRestartRule: action!=string exitCodes=ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator!=string values=integer[]
DownwardAPIProjection: items=DownwardAPIVolumeFile[]
DownwardAPIVolumeFile: fieldRef=ObjectFieldSelector mode=integer path!=string resourceFieldRef=ResourceFieldSelector
DownwardAPIVolumeSource: defaultMode=integer items=DownwardAPIVolumeFile[]
EmptyDirVolumeSource: medium=string sizeLimit=quantity
EnvFromSource: configMapRef=ConfigMapEnvSource prefix=string secretRef=SecretEnvSource
EnvVar: name!=string value=string valueFrom=EnvVarSource
EnvVarSource: configMapKeyRef=ConfigMapKeySelector fieldRef=ObjectFieldSelector fileKeyRef=FileKeySelector
  resourceFieldRef=ResourceFieldSelector secretKeyRef=SecretKeySelector
EphemeralVolumeSource: volumeClaimTemplate=PersistentVolumeClaimTemplate
ExecAction: command=string[]
FCVolumeSource: fsType=string lun=integer readOnly=boolean targetWWNs=string[] wwids=string[]
FileKeySelector: key!=string optional=boolean path!=string volumeName!=string
FlexVolumeSource: driver!=string fsType=string options=string{} readOnly=boolean secretRef=LocalObjectReference
FlockerVolumeSource: datasetName=string datasetUUID=string
GCEPersistentDiskVolumeSource: fsType=string partition=integer pdName!=string readOnly=boolean
GRPCAction: port!=integer service=string
GitRepoVolumeSource: directory=string repository!=string revision=string
GlusterfsVolumeSource: endpoints!=string path!=string readOnly=boolean
HTTPGetAction: host=string httpHeaders=HTTPHeader[] path=string port!=word scheme=HTTP|HTTPS
HTTPHeader: name!=string value!=string
HostAlias: hostnames=string[] ip!=string
HostPathVolumeSource: path!=string type=string
ISCSIVolumeSource: chapAuthDiscovery=boolean chapAuthSession=boolean fsType=string initiatorName=string iqn!=string iscsiInterface=string
  lun!=integer portals=string[] readOnly=boolean secretRef=LocalObjectReference targetPortal!=string
ImageVolumeSource: pullPolicy=string reference=string
KeyToPath: key!=string mode=integer path!=string
LabelSelector: matchExpressions=LabelSelectorRequirement[] matchLabels=string{}
LabelSelectorRequirement: key!=string operator!=In|NotIn|Exists|DoesNotExist values=string[]
Lifecycle: postStart=LifecycleHandler preStop=LifecycleHandler stopSignal=string
LifecycleHandler: exec=ExecAction httpGet=HTTPGetAction sleep=SleepAction tcpSocket=TCPSocketAction
LocalObjectReference: name=string
NFSVolumeSource: path!=string readOnly=boolean server!=string
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution=PreferredSchedulingTerm[]
  requiredDuringSchedulingIgnoredDuringExecution=NodeSelector
NodeSelector: nodeSelectorTerms!=NodeSelectorTerm[]
NodeSelectorRequirement: key!=string operator!=In|NotIn|Exists|DoesNotExist|Gt|Lt values=string[]
NodeSelectorTerm: matchExpressions=NodeSelectorRequirement[] matchFields=NodeSelectorRequirement[]
ObjectFieldSelector: apiVersion=string fieldPath!=string
PersistentVolumeClaimSpec: accessModes=string[] dataSource=TypedLocalObjectReference dataSourceRef=TypedObjectReference
  resources=VolumeResourceRequirements selector=LabelSelector storageClassName=string volumeAttributesClassName=string volumeMode=string
  volumeName=string
PersistentVolumeClaimTemplate: metadata=anything spec!=PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName!=name readOnly=boolean
PhotonPersistentDiskVolumeSource: fsType=string pdID!=string
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution=WeightedPodAffinityTerm[]
  requiredDuringSchedulingIgnoredDuringExecution=PodAffinityTerm[]
PodAffinityTerm: labelSelector=LabelSelector matchLabelKeys=string[] mismatchLabelKeys=string[] namespaceSelector=LabelSelector
  namespaces=string[] topologyKey!=string
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution=WeightedPodAffinityTerm[]
  requiredDuringSchedulingIgnoredDuringExecution=PodAffinityTerm[]
PodCertificateProjection: certificateChainPath=string credentialBundlePath=string keyPath=string keyType!=string
  maxExpirationSeconds=integer signerName!=string userAnnotations=string{}
PodDNSConfig: nameservers=string[] options=PodDNSConfigOption[] searches=string[]
PodDNSConfigOption: name=string value=string
PodSchedulingGate: name!=string
PodSecurityContext: appArmorProfile=AppArmorProfile fsGroup=integer fsGroupChangePolicy=string runAsGroup=integer runAsNonRoot=boolean
  runAsUser=integer seLinuxChangePolicy=string seLinuxOptions=SELinuxOptions seccompProfile=SeccompProfile supplementalGroups=integer[]
  supplementalGroupsPolicy=Merge|Strict sysctls=Sysctl[] windowsOptions=WindowsSecurityContextOptions
PodTemplate: dnsConfig=PodDNSConfig dnsPolicy=ClusterFirst|ClusterFirstWithHostNet|Default|None hostAliases=HostAlias[] hostIPC=boolean
  hostPID=boolean hostUsers=boolean nodeName=string preemptionPolicy=Never|PreemptLowerPriority runtimeClassName=string
  schedulingGates=PodSchedulingGate[] securityContext=PodSecurityContext shareProcessNamespace=boolean
  topologySpreadConstraints=TopologySpreadConstraint[]
PortworxVolumeSource: fsType=string readOnly=boolean volumeID!=string
PreferredSchedulingTerm: preference!=NodeSelectorTerm weight!=integer
Probe: exec=ExecAction failureThreshold=integer grpc=GRPCAction httpGet=HTTPGetAction initialDelaySeconds=integer periodSeconds=integer
  successThreshold=integer tcpSocket=TCPSocketAction terminationGracePeriodSeconds=integer timeoutSeconds=integer
ProjectedVolumeSource: defaultMode=integer sources=VolumeProjection[]
QuobyteVolumeSource: group=string readOnly=boolean registry!=string tenant=string user=string volume!=string
RBDVolumeSource: fsType=string image!=string keyring=string monitors!=string[] pool=string readOnly=boolean secretRef=LocalObjectReference
  user=string
ResourceClaim: name!=string request=string
ResourceFieldSelector: containerName=string divisor=quantity resource!=string
ResourceRequirements: claims=ResourceClaim[] limits=quantity{} requests=quantity{}
SELinuxOptions: level=string role=string type=string user=string
ScaleIOVolumeSource: fsType=string gateway!=string protectionDomain=string readOnly=boolean secretRef!=LocalObjectReference
  sslEnabled=boolean storageMode=string storagePool=string system!=string volumeName=string
SeccompProfile: localhostProfile=string type!=Localhost|RuntimeDefault|Unconfined
SecretEnvSource: name!=name optional=boolean
SecretKeySelector: key!=string name!=name optional=boolean
SecretProjection: items=KeyToPath[] name!=name optional=boolean
SecretVolumeSource: defaultMode=integer items=KeyToPath[] optional=boolean secretName!=name
SecurityContext: allowPrivilegeEscalation=boolean appArmorProfile=AppArmorProfile capabilities=Capabilities privileged=boolean
  procMount=string readOnlyRootFilesystem=boolean runAsGroup=integer runAsNonRoot=boolean runAsUser=integer seLinuxOptions=SELinuxOptions
  seccompProfile=SeccompProfile windowsOptions=WindowsSecurityContextOptions
ServiceAccountTokenProjection: audience=string expirationSeconds=integer path!=string
SleepAction: seconds!=integer
StorageOSVolumeSource: fsType=string readOnly=boolean secretRef=LocalObjectReference volumeName=string volumeNamespace=string
Sysctl: name!=string value!=string
TCPSocketAction: host=string port!=word
Toleration: effect=NoSchedule|PreferNoSchedule|NoExecute key=string operator=Exists|Equal tolerationSeconds=integer value=string
TopologySpreadConstraint: labelSelector=LabelSelector matchLabelKeys=string[] maxSkew!=integer minDomains=integer
  nodeAffinityPolicy=Honor|Ignore nodeTaintsPolicy=Honor|Ignore topologyKey!=string whenUnsatisfiable!=DoNotSchedule|ScheduleAnyway
TypedLocalObjectReference: apiGroup=string kind!=string name!=string
TypedObjectReference: apiGroup=string kind!=string name!=string namespace=string
Volume: awsElasticBlockStore=AWSElasticBlockStoreVolumeSource azureDisk=AzureDiskVolumeSource azureFile=AzureFileVolumeSource
  cephfs=CephFSVolumeSource cinder=CinderVolumeSource configMap=ConfigMapVolumeSource csi=CSIVolumeSource
  downwardAPI=DownwardAPIVolumeSource emptyDir=EmptyDirVolumeSource ephemeral=EphemeralVolumeSource fc=FCVolumeSource
  flexVolume=FlexVolumeSource flocker=FlockerVolumeSource gcePersistentDisk=GCEPersistentDiskVolumeSource gitRepo=GitRepoVolumeSource
  glusterfs=GlusterfsVolumeSource hostPath=HostPathVolumeSource image=ImageVolumeSource iscsi=ISCSIVolumeSource name!=string
  nfs=NFSVolumeSource persistentVolumeClaim=PersistentVolumeClaimVolumeSource photonPersistentDisk=PhotonPersistentDiskVolumeSource
  portworxVolume=PortworxVolumeSource projected=ProjectedVolumeSource quobyte=QuobyteVolumeSource rbd=RBDVolumeSource
  scaleIO=ScaleIOVolumeSource secret=SecretVolumeSource storageos=StorageOSVolumeSource vsphereVolume=VsphereVirtualDiskVolumeSource
VolumeDevice: devicePath!=string name!=string
VolumeMount: mountPath!=string mountPropagation=None|HostToContainer|Bidirectional name!=string readOnly=boolean recursiveReadOnly=string
  subPath=string subPathExpr=string
VolumeProjection: clusterTrustBundle=ClusterTrustBundleProjection configMap=ConfigMapProjection downwardAPI=DownwardAPIProjection
  podCertificate=PodCertificateProjection secret=SecretProjection serviceAccountToken=ServiceAccountTokenProjection
VolumeResourceRequirements: limits=quantity{} requests=quantity{}
VsphereVirtualDiskVolumeSource: fsType=string storagePolicyID=string storagePolicyName=string volumePath!=string
WeightedPodAffinityTerm: podAffinityTerm!=PodAffinityTerm weight!=integer
WindowsSecurityContextOptions: gmsaCredentialSpec=string gmsaCredentialSpecName=string hostProcess=boolean runAsUserName=string
"""
