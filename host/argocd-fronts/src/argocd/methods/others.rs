//! Methods about everything but Applications and ApplicationSets.

use super::{ApiMethod, MessageFields, Rest, RestBody, delete, get, post, put};

const NONE: MessageFields = MessageFields::NONE;
const MESSAGE: RestBody = RestBody::Message;
const REPO: RestBody = RestBody::Field("repo");

const ACCOUNT: &str = "account.AccountService";
const CERTIFICATE: &str = "certificate.CertificateService";
const CLUSTER: &str = "cluster.ClusterService";
const SETTINGS: &str = "cluster.SettingsService";
const GPG_KEY: &str = "gpgkey.GPGKeyService";
const NOTIFICATION: &str = "notification.NotificationService";
const PROJECT: &str = "project.ProjectService";
const REPO_CREDS: &str = "repocreds.RepoCredsService";
const REPOSITORY: &str = "repository.RepositoryService";
const SESSION: &str = "session.SessionService";
const VERSION: &str = "version.VersionService";

/// Services of accounts, their tokens and sessions.
pub(super) const SESSION_SERVICES: [&str; 3] = [ACCOUNT, PROJECT, SESSION];

const fn method(
    service: &'static str,
    name: &'static str,
    rest: Rest,
    permission: Permission,
    fields: MessageFields,
) -> ApiMethod {
    let (resource, action) = permission;
    ApiMethod {
        service,
        name,
        rest,
        resource,
        action,
        fields,
    }
}

/// A resource and an action of RBAC.
type Permission = (&'static str, &'static str);

/// Every authenticated caller may call it, or everybody.
const NO_PERMISSION: Permission = ("", "");

pub(super) const METHODS: &[ApiMethod] = &[
    method(
        ACCOUNT,
        "CanI",
        get("/api/v1/account/can-i/{resource}/{action}/{subresource=**}"),
        NO_PERMISSION,
        NONE,
    ),
    method(
        ACCOUNT,
        "UpdatePassword",
        put("/api/v1/account/password", MESSAGE),
        ("accounts", "update"),
        NONE,
    ),
    method(
        ACCOUNT,
        "ListAccounts",
        get("/api/v1/account"),
        ("accounts", "get"),
        NONE,
    ),
    method(
        ACCOUNT,
        "GetAccount",
        get("/api/v1/account/{name}"),
        ("accounts", "get"),
        NONE,
    ),
    method(
        ACCOUNT,
        "CreateToken",
        post("/api/v1/account/{name}/token", MESSAGE),
        ("accounts", "update"),
        NONE,
    ),
    method(
        ACCOUNT,
        "DeleteToken",
        delete("/api/v1/account/{name}/token/{id}"),
        ("accounts", "update"),
        NONE,
    ),
    method(
        CERTIFICATE,
        "ListCertificates",
        get("/api/v1/certificates"),
        ("certificates", "get"),
        NONE,
    ),
    method(
        CERTIFICATE,
        "CreateCertificate",
        post("/api/v1/certificates", RestBody::Field("certificates")),
        ("certificates", "create"),
        NONE.upsert(),
    ),
    method(
        CERTIFICATE,
        "DeleteCertificate",
        delete("/api/v1/certificates"),
        ("certificates", "delete"),
        NONE,
    ),
    method(CLUSTER, "List", get("/api/v1/clusters"), ("clusters", "get"), NONE),
    method(
        CLUSTER,
        "Create",
        post("/api/v1/clusters", RestBody::Field("cluster")),
        ("clusters", "create"),
        NONE.project("cluster.project", [1, 11, 0]).upsert(),
    ),
    method(
        CLUSTER,
        "Get",
        get("/api/v1/clusters/{id.value}"),
        ("clusters", "get"),
        NONE,
    ),
    method(
        CLUSTER,
        "Update",
        put("/api/v1/clusters/{id.value}", RestBody::Field("cluster")),
        ("clusters", "update"),
        NONE.project("cluster.project", [1, 11, 0]),
    ),
    method(
        CLUSTER,
        "Delete",
        delete("/api/v1/clusters/{id.value}"),
        ("clusters", "delete"),
        NONE,
    ),
    method(
        CLUSTER,
        "RotateAuth",
        post("/api/v1/clusters/{id.value}/rotate-auth", RestBody::None),
        ("clusters", "update"),
        NONE,
    ),
    method(
        CLUSTER,
        "InvalidateCache",
        post("/api/v1/clusters/{id.value}/invalidate-cache", RestBody::None),
        ("clusters", "update"),
        NONE,
    ),
    method(SETTINGS, "Get", get("/api/v1/settings"), NO_PERMISSION, NONE),
    method(
        SETTINGS,
        "GetPlugins",
        get("/api/v1/settings/plugins"),
        NO_PERMISSION,
        NONE,
    ),
    method(GPG_KEY, "List", get("/api/v1/gpgkeys"), ("gpgkeys", "get"), NONE),
    method(GPG_KEY, "Get", get("/api/v1/gpgkeys/{keyID}"), ("gpgkeys", "get"), NONE),
    method(
        GPG_KEY,
        "Create",
        post("/api/v1/gpgkeys", RestBody::Field("publickey")),
        ("gpgkeys", "create"),
        NONE.upsert(),
    ),
    method(
        GPG_KEY,
        "Delete",
        delete("/api/v1/gpgkeys"),
        ("gpgkeys", "delete"),
        NONE,
    ),
    method(
        NOTIFICATION,
        "ListTriggers",
        get("/api/v1/notifications/triggers"),
        NO_PERMISSION,
        NONE,
    ),
    method(
        NOTIFICATION,
        "ListServices",
        get("/api/v1/notifications/services"),
        NO_PERMISSION,
        NONE,
    ),
    method(
        NOTIFICATION,
        "ListTemplates",
        get("/api/v1/notifications/templates"),
        NO_PERMISSION,
        NONE,
    ),
    method(
        PROJECT,
        "CreateToken",
        post("/api/v1/projects/{project}/roles/{role}/token", MESSAGE),
        ("projects", "update"),
        NONE.project("project", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "DeleteToken",
        delete("/api/v1/projects/{project}/roles/{role}/token/{iat}"),
        ("projects", "update"),
        NONE.project("project", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "Create",
        post("/api/v1/projects", MESSAGE),
        ("projects", "create"),
        NONE.project("project.metadata.name", [1, 1, 1]).upsert(),
    ),
    method(PROJECT, "List", get("/api/v1/projects"), ("projects", "get"), NONE),
    method(
        PROJECT,
        "GetDetailedProject",
        get("/api/v1/projects/{name}/detailed"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "Get",
        get("/api/v1/projects/{name}"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "GetGlobalProjects",
        get("/api/v1/projects/{name}/globalprojects"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "Update",
        put("/api/v1/projects/{project.metadata.name}", MESSAGE),
        ("projects", "update"),
        NONE.project("project.metadata.name", [1, 1, 1]),
    ),
    method(
        PROJECT,
        "Delete",
        delete("/api/v1/projects/{name}"),
        ("projects", "delete"),
        NONE.project("name", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "ListEvents",
        get("/api/v1/projects/{name}/events"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "GetSyncWindowsState",
        get("/api/v1/projects/{name}/syncwindows"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    method(
        PROJECT,
        "ListLinks",
        get("/api/v1/projects/{name}/links"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    method(
        REPO_CREDS,
        "ListRepositoryCredentials",
        get("/api/v1/repocreds"),
        ("repositories", "get"),
        NONE,
    ),
    method(
        REPO_CREDS,
        "ListWriteRepositoryCredentials",
        get("/api/v1/write-repocreds"),
        ("write-repositories", "get"),
        NONE,
    ),
    method(
        REPO_CREDS,
        "CreateRepositoryCredentials",
        post("/api/v1/repocreds", RestBody::Field("creds")),
        ("repositories", "create"),
        NONE.upsert(),
    ),
    method(
        REPO_CREDS,
        "CreateWriteRepositoryCredentials",
        post("/api/v1/write-repocreds", RestBody::Field("creds")),
        ("write-repositories", "create"),
        NONE.upsert(),
    ),
    method(
        REPO_CREDS,
        "UpdateRepositoryCredentials",
        put("/api/v1/repocreds/{creds.url}", RestBody::Field("creds")),
        ("repositories", "update"),
        NONE,
    ),
    method(
        REPO_CREDS,
        "UpdateWriteRepositoryCredentials",
        put("/api/v1/write-repocreds/{creds.url}", RestBody::Field("creds")),
        ("write-repositories", "update"),
        NONE,
    ),
    method(
        REPO_CREDS,
        "DeleteRepositoryCredentials",
        delete("/api/v1/repocreds/{url}"),
        ("repositories", "delete"),
        NONE,
    ),
    method(
        REPO_CREDS,
        "DeleteWriteRepositoryCredentials",
        delete("/api/v1/write-repocreds/{url}"),
        ("write-repositories", "delete"),
        NONE,
    ),
    method(
        REPOSITORY,
        "List",
        get("/api/v1/repositories"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "Get",
        get("/api/v1/repositories/{repo}"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "GetWrite",
        get("/api/v1/write-repositories/{repo}"),
        ("write-repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "ListRepositories",
        get("/api/v1/repositories"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "ListWriteRepositories",
        get("/api/v1/write-repositories"),
        ("write-repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "ListRefs",
        get("/api/v1/repositories/{repo}/refs"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "ListOCITags",
        get("/api/v1/repositories/{repo}/oci-tags"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "ListApps",
        get("/api/v1/repositories/{repo}/apps"),
        ("repositories", "get"),
        NONE.project("appProject", [4, 0, 0]),
    ),
    method(
        REPOSITORY,
        "GetAppDetails",
        post("/api/v1/repositories/{source.repoURL}/appdetails", MESSAGE),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "GetHelmCharts",
        get("/api/v1/repositories/{repo}/helmcharts"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "Create",
        post("/api/v1/repositories", REPO),
        ("repositories", "create"),
        NONE.project("repo.project", [1, 20, 0]).upsert(),
    ),
    method(
        REPOSITORY,
        "CreateRepository",
        post("/api/v1/repositories", REPO),
        ("repositories", "create"),
        NONE.project("repo.project", [1, 20, 0]).upsert(),
    ),
    method(
        REPOSITORY,
        "CreateWriteRepository",
        post("/api/v1/write-repositories", REPO),
        ("write-repositories", "create"),
        NONE.project("repo.project", [1, 20, 0]).upsert(),
    ),
    method(
        REPOSITORY,
        "Update",
        put("/api/v1/repositories/{repo.repo}", REPO),
        ("repositories", "update"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    method(
        REPOSITORY,
        "UpdateRepository",
        put("/api/v1/repositories/{repo.repo}", REPO),
        ("repositories", "update"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    method(
        REPOSITORY,
        "UpdateWriteRepository",
        put("/api/v1/write-repositories/{repo.repo}", REPO),
        ("write-repositories", "update"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    method(
        REPOSITORY,
        "Delete",
        delete("/api/v1/repositories/{repo}"),
        ("repositories", "delete"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "DeleteRepository",
        delete("/api/v1/repositories/{repo}"),
        ("repositories", "delete"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "DeleteWriteRepository",
        delete("/api/v1/write-repositories/{repo}"),
        ("write-repositories", "delete"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    method(
        REPOSITORY,
        "ValidateAccess",
        post("/api/v1/repositories/{repo}/validate", REPO),
        ("repositories", "create"),
        NONE.project("project", [17, 0, 0]),
    ),
    method(
        REPOSITORY,
        "ValidateWriteAccess",
        post("/api/v1/write-repositories/{repo}/validate", REPO),
        ("write-repositories", "create"),
        NONE.project("project", [17, 0, 0]),
    ),
    method(
        SESSION,
        "GetUserInfo",
        get("/api/v1/session/userinfo"),
        NO_PERMISSION,
        NONE,
    ),
    method(SESSION, "Create", post("/api/v1/session", MESSAGE), NO_PERMISSION, NONE),
    method(SESSION, "Delete", delete("/api/v1/session"), NO_PERMISSION, NONE),
    method(VERSION, "Version", get("/api/version"), NO_PERMISSION, NONE),
];
