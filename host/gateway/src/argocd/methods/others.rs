//! Methods about everything but Applications and ApplicationSets.

use super::{ApiMethod, MessageFields, Rest, RestBody, delete, get, post, put};

const NONE: MessageFields = MessageFields::NONE;
const MESSAGE: RestBody = RestBody::Message;
const REPO: RestBody = RestBody::Field("repo");

const fn method(
    service: &'static str,
    name: &'static str,
    rest: Rest,
    (resource, action): Permission,
    fields: MessageFields,
) -> ApiMethod {
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

const fn account(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("account.AccountService", name, rest, permission, fields)
}

const fn certificate(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("certificate.CertificateService", name, rest, permission, fields)
}

const fn cluster(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("cluster.ClusterService", name, rest, permission, fields)
}

const fn settings(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("cluster.SettingsService", name, rest, permission, fields)
}

const fn gpg_key(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("gpgkey.GPGKeyService", name, rest, permission, fields)
}

const fn notification(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("notification.NotificationService", name, rest, permission, fields)
}

const fn project(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("project.ProjectService", name, rest, permission, fields)
}

const fn repo_creds(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("repocreds.RepoCredsService", name, rest, permission, fields)
}

const fn repository(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("repository.RepositoryService", name, rest, permission, fields)
}

const fn session(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("session.SessionService", name, rest, permission, fields)
}

const fn version(name: &'static str, rest: Rest, permission: Permission, fields: MessageFields) -> ApiMethod {
    method("version.VersionService", name, rest, permission, fields)
}

pub(super) const METHODS: &[ApiMethod] = &[
    account(
        "CanI",
        get("/api/v1/account/can-i/{resource}/{action}/{subresource=**}"),
        NO_PERMISSION,
        NONE,
    ),
    account(
        "UpdatePassword",
        put("/api/v1/account/password", MESSAGE),
        ("accounts", "update"),
        NONE,
    ),
    account("ListAccounts", get("/api/v1/account"), ("accounts", "get"), NONE),
    account("GetAccount", get("/api/v1/account/{name}"), ("accounts", "get"), NONE),
    account(
        "CreateToken",
        post("/api/v1/account/{name}/token", MESSAGE),
        ("accounts", "update"),
        NONE,
    ),
    account(
        "DeleteToken",
        delete("/api/v1/account/{name}/token/{id}"),
        ("accounts", "update"),
        NONE,
    ),
    certificate(
        "ListCertificates",
        get("/api/v1/certificates"),
        ("certificates", "get"),
        NONE,
    ),
    certificate(
        "CreateCertificate",
        post("/api/v1/certificates", RestBody::Field("certificates")),
        ("certificates", "create"),
        NONE,
    ),
    certificate(
        "DeleteCertificate",
        delete("/api/v1/certificates"),
        ("certificates", "delete"),
        NONE,
    ),
    cluster("List", get("/api/v1/clusters"), ("clusters", "get"), NONE),
    cluster(
        "Create",
        post("/api/v1/clusters", RestBody::Field("cluster")),
        ("clusters", "create"),
        NONE.project("cluster.project", [1, 11, 0]),
    ),
    cluster("Get", get("/api/v1/clusters/{id.value}"), ("clusters", "get"), NONE),
    cluster(
        "Update",
        put("/api/v1/clusters/{id.value}", RestBody::Field("cluster")),
        ("clusters", "update"),
        NONE.project("cluster.project", [1, 11, 0]),
    ),
    cluster(
        "Delete",
        delete("/api/v1/clusters/{id.value}"),
        ("clusters", "delete"),
        NONE,
    ),
    cluster(
        "RotateAuth",
        post("/api/v1/clusters/{id.value}/rotate-auth", RestBody::None),
        ("clusters", "update"),
        NONE,
    ),
    cluster(
        "InvalidateCache",
        post("/api/v1/clusters/{id.value}/invalidate-cache", RestBody::None),
        ("clusters", "update"),
        NONE,
    ),
    settings("Get", get("/api/v1/settings"), NO_PERMISSION, NONE),
    settings("GetPlugins", get("/api/v1/settings/plugins"), NO_PERMISSION, NONE),
    gpg_key("List", get("/api/v1/gpgkeys"), ("gpgkeys", "get"), NONE),
    gpg_key("Get", get("/api/v1/gpgkeys/{keyID}"), ("gpgkeys", "get"), NONE),
    gpg_key(
        "Create",
        post("/api/v1/gpgkeys", RestBody::Field("publickey")),
        ("gpgkeys", "create"),
        NONE,
    ),
    gpg_key("Delete", delete("/api/v1/gpgkeys"), ("gpgkeys", "delete"), NONE),
    notification(
        "ListTriggers",
        get("/api/v1/notifications/triggers"),
        NO_PERMISSION,
        NONE,
    ),
    notification(
        "ListServices",
        get("/api/v1/notifications/services"),
        NO_PERMISSION,
        NONE,
    ),
    notification(
        "ListTemplates",
        get("/api/v1/notifications/templates"),
        NO_PERMISSION,
        NONE,
    ),
    project(
        "CreateToken",
        post("/api/v1/projects/{project}/roles/{role}/token", MESSAGE),
        ("projects", "update"),
        NONE.project("project", [1, 0, 0]),
    ),
    project(
        "DeleteToken",
        delete("/api/v1/projects/{project}/roles/{role}/token/{iat}"),
        ("projects", "update"),
        NONE.project("project", [1, 0, 0]),
    ),
    project(
        "Create",
        post("/api/v1/projects", MESSAGE),
        ("projects", "create"),
        NONE.project("project.metadata.name", [1, 1, 1]),
    ),
    project("List", get("/api/v1/projects"), ("projects", "get"), NONE),
    project(
        "GetDetailedProject",
        get("/api/v1/projects/{name}/detailed"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    project(
        "Get",
        get("/api/v1/projects/{name}"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    project(
        "GetGlobalProjects",
        get("/api/v1/projects/{name}/globalprojects"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    project(
        "Update",
        put("/api/v1/projects/{project.metadata.name}", MESSAGE),
        ("projects", "update"),
        NONE.project("project.metadata.name", [1, 1, 1]),
    ),
    project(
        "Delete",
        delete("/api/v1/projects/{name}"),
        ("projects", "delete"),
        NONE.project("name", [1, 0, 0]),
    ),
    project(
        "ListEvents",
        get("/api/v1/projects/{name}/events"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    project(
        "GetSyncWindowsState",
        get("/api/v1/projects/{name}/syncwindows"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    project(
        "ListLinks",
        get("/api/v1/projects/{name}/links"),
        ("projects", "get"),
        NONE.project("name", [1, 0, 0]),
    ),
    repo_creds(
        "ListRepositoryCredentials",
        get("/api/v1/repocreds"),
        ("repositories", "get"),
        NONE,
    ),
    repo_creds(
        "ListWriteRepositoryCredentials",
        get("/api/v1/write-repocreds"),
        ("write-repositories", "get"),
        NONE,
    ),
    repo_creds(
        "CreateRepositoryCredentials",
        post("/api/v1/repocreds", RestBody::Field("creds")),
        ("repositories", "create"),
        NONE,
    ),
    repo_creds(
        "CreateWriteRepositoryCredentials",
        post("/api/v1/write-repocreds", RestBody::Field("creds")),
        ("write-repositories", "create"),
        NONE,
    ),
    repo_creds(
        "UpdateRepositoryCredentials",
        put("/api/v1/repocreds/{creds.url}", RestBody::Field("creds")),
        ("repositories", "update"),
        NONE,
    ),
    repo_creds(
        "UpdateWriteRepositoryCredentials",
        put("/api/v1/write-repocreds/{creds.url}", RestBody::Field("creds")),
        ("write-repositories", "update"),
        NONE,
    ),
    repo_creds(
        "DeleteRepositoryCredentials",
        delete("/api/v1/repocreds/{url}"),
        ("repositories", "delete"),
        NONE,
    ),
    repo_creds(
        "DeleteWriteRepositoryCredentials",
        delete("/api/v1/write-repocreds/{url}"),
        ("write-repositories", "delete"),
        NONE,
    ),
    repository(
        "List",
        get("/api/v1/repositories"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "Get",
        get("/api/v1/repositories/{repo}"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "GetWrite",
        get("/api/v1/write-repositories/{repo}"),
        ("write-repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "ListRepositories",
        get("/api/v1/repositories"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "ListWriteRepositories",
        get("/api/v1/write-repositories"),
        ("write-repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "ListRefs",
        get("/api/v1/repositories/{repo}/refs"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "ListOCITags",
        get("/api/v1/repositories/{repo}/oci-tags"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "ListApps",
        get("/api/v1/repositories/{repo}/apps"),
        ("repositories", "get"),
        NONE.project("appProject", [4, 0, 0]),
    ),
    repository(
        "GetAppDetails",
        post("/api/v1/repositories/{source.repoURL}/appdetails", MESSAGE),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "GetHelmCharts",
        get("/api/v1/repositories/{repo}/helmcharts"),
        ("repositories", "get"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "Create",
        post("/api/v1/repositories", REPO),
        ("repositories", "create"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    repository(
        "CreateRepository",
        post("/api/v1/repositories", REPO),
        ("repositories", "create"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    repository(
        "CreateWriteRepository",
        post("/api/v1/write-repositories", REPO),
        ("write-repositories", "create"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    repository(
        "Update",
        put("/api/v1/repositories/{repo.repo}", REPO),
        ("repositories", "update"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    repository(
        "UpdateRepository",
        put("/api/v1/repositories/{repo.repo}", REPO),
        ("repositories", "update"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    repository(
        "UpdateWriteRepository",
        put("/api/v1/write-repositories/{repo.repo}", REPO),
        ("write-repositories", "update"),
        NONE.project("repo.project", [1, 20, 0]),
    ),
    repository(
        "Delete",
        delete("/api/v1/repositories/{repo}"),
        ("repositories", "delete"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "DeleteRepository",
        delete("/api/v1/repositories/{repo}"),
        ("repositories", "delete"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "DeleteWriteRepository",
        delete("/api/v1/write-repositories/{repo}"),
        ("write-repositories", "delete"),
        NONE.project("appProject", [3, 0, 0]),
    ),
    repository(
        "ValidateAccess",
        post("/api/v1/repositories/{repo}/validate", REPO),
        ("repositories", "create"),
        NONE.project("project", [17, 0, 0]),
    ),
    repository(
        "ValidateWriteAccess",
        post("/api/v1/write-repositories/{repo}/validate", REPO),
        ("write-repositories", "create"),
        NONE.project("project", [17, 0, 0]),
    ),
    session("GetUserInfo", get("/api/v1/session/userinfo"), NO_PERMISSION, NONE),
    session("Create", post("/api/v1/session", MESSAGE), NO_PERMISSION, NONE),
    session("Delete", delete("/api/v1/session"), NO_PERMISSION, NONE),
    version("Version", get("/api/version"), NO_PERMISSION, NONE),
];
