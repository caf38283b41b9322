//! The names of all fields, without the keys of maps.

/// All fields of ApplicationSets and Applications that users write, separated by white space.
///
/// Source: Argo CD 3.5.7, `manifests/crds`; metadata: Kubernetes.
pub(super) const FIELD_NAMES: &str = "
    accessTokenRef allBranches allowEmpty annotationSelector annotations api apiVersion apiVersions
    appPasswordRef appSecretName applicationsSync apply applyNestedSelectors array
    autoHealAttemptsCount automated awsCodeCommit azureDevOps backoff basicAuth bearerToken
    bitbucket bitbucketServer branchMatch caRef chart cloneProtocol clusterDecisionResource clusters
    code commonAnnotations commonAnnotationsEnvsubst commonLabels components configMapName
    configMapRef continueOnRepoNotFoundError count creationTimestamp deletionGracePeriodSeconds
    deletionOrder deletionTimestamp destination directories directory dryRun drySource duration
    elements elementsYaml enabled env exclude excludeArchivedRepos extVars factor fileParameters
    files filters finalizers flatList force forceCommonAnnotations forceCommonLabels forceString
    generateName generation generators git gitea github gitlab goTemplate goTemplateOptions group
    helm hook hydrateTo ignoreApplicationDifferences ignoreDifferences ignoreMissingComponents
    ignoreMissingValueFiles images include includeArchivedRepos includeSharedProjects
    includeSubgroups info initiatedBy input insecure jqPathExpressions jsonPointers jsonnet key kind
    kubeVersion kustomize labelIncludeTemplates labelMatch labelSelector labelWithoutSelector labels
    libs limit list managedFields managedFieldsManagers managedNamespaceMetadata manifests map
    matchExpressions matchLabels matrix maxDuration maxUpdate merge mergeKeys metadata name
    namePrefix nameSuffix namespace operation operator options organization owner ownerReferences
    parameters passCredentials passwordRef patch patches path pathParamPrefix pathsDoNotExist
    pathsExist plugin preserveResourcesOnDeletion preservedFields project prune pullRequest
    pullRequestState recurse ref refresh region releaseName replicas repo repoURL repositoryMatch
    requeueAfterSeconds resourceVersion resources retry revision revisionHistoryLimit revisions role
    rollingSync scmProvider secretName selector selfHeal selfLink server skipCrds
    skipSchemaValidation skipTests source sourceHydrator sources spec status steps strategy string
    sync syncOptions syncPolicy syncSource syncStrategy tagFilters tagPrefix target targetBranch
    targetBranchMatch targetRevision teamProject template templatePatch titleMatch tlas tokenRef
    topic type uid user username value valueFiles values valuesObject version
";
