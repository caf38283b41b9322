//! Methods about Applications and ApplicationSets.

use super::{
    ApiMethod, FieldPath, MessageFields, ResourceChangeFields, Rest, RestBody, Verb, delete, get, post, put, rest,
};

const NONE: MessageFields = MessageFields::NONE;

/// A query. Where it is about several Applications, its fields filter.
const QUERY: MessageFields = NONE.application("name", [1, 0, 0]).namespace("appNamespace", [7, 0, 0]);

/// The whole object.
const OBJECT: MessageFields = NONE
    .application("application.metadata.name", [1, 1, 1])
    .namespace("application.metadata.namespace", [1, 1, 3])
    .project("application.spec.project", [1, 2, 3]);

const FILES: MessageFields = NONE
    .application("query.name", [1, 1, 0])
    .namespace("query.appNamespace", [1, 3, 0])
    .project("query.project", [1, 4, 0]);

const TREE: MessageFields = NONE
    .application("applicationName", [1, 0, 0])
    .namespace("appNamespace", [7, 0, 0])
    .project("project", [8, 0, 0]);

const DIFF: MessageFields = NONE
    .application("appName", [1, 0, 0])
    .namespace("appNamespace", [2, 0, 0])
    .project("project", [3, 0, 0]);

const LINKS: MessageFields = NONE
    .application("name", [1, 0, 0])
    .namespace("namespace", [3, 0, 0])
    .project("project", [4, 0, 0]);

const LOGS: Rest = Rest {
    other_path: Some("/api/v1/applications/{name}/logs"),
    ..get("/api/v1/applications/{name}/pods/{podName}/logs")
};

const MESSAGE: RestBody = RestBody::Message;
const APPLICATION: RestBody = RestBody::Field("application");

const PATCH: ResourceChangeFields = ResourceChangeFields::Patch {
    patch: FieldPath {
        name: "patch",
        numbers: [7, 0, 0],
    },
    kind: FieldPath {
        name: "patchType",
        numbers: [8, 0, 0],
    },
};

/// Fields of a message whose first field is the name of the Application.
///
/// - `namespace`: number of `appNamespace`.
/// - `project`: number of `project`.
const fn named(namespace: u32, project: u32) -> MessageFields {
    NONE.application("name", [1, 0, 0])
        .namespace("appNamespace", [namespace, 0, 0])
        .project("project", [project, 0, 0])
}

const fn app(name: &'static str, rest: Rest, action: &'static str, fields: MessageFields) -> ApiMethod {
    ApiMethod {
        service: "application.ApplicationService",
        name,
        rest,
        resource: "applications",
        action,
        fields,
    }
}

/// argocd-server serves these while the ApplicationSet front is closed.
const fn set(name: &'static str, rest: Rest, action: &'static str) -> ApiMethod {
    ApiMethod {
        service: "applicationset.ApplicationSetService",
        name,
        rest,
        resource: "applicationsets",
        action,
        fields: NONE,
    }
}

pub(super) const METHODS: &[ApiMethod] = &[
    app("List", get("/api/v1/applications"), "get", QUERY),
    app(
        "ListResourceEvents",
        get("/api/v1/applications/{name}/events"),
        "get",
        named(5, 6),
    ),
    app("Watch", get("/api/v1/stream/applications"), "get", QUERY),
    app(
        "Create",
        post("/api/v1/applications", APPLICATION),
        "create",
        OBJECT.upsert(),
    ),
    app("Get", get("/api/v1/applications/{name}"), "get", QUERY),
    app(
        "GetApplicationSyncWindows",
        get("/api/v1/applications/{name}/syncwindows"),
        "get",
        named(2, 3),
    ),
    app(
        "RevisionMetadata",
        get("/api/v1/applications/{name}/revisions/{revision}/metadata"),
        "get",
        named(3, 4),
    ),
    app(
        "RevisionChartDetails",
        get("/api/v1/applications/{name}/revisions/{revision}/chartdetails"),
        "get",
        named(3, 4),
    ),
    app(
        "GetOCIMetadata",
        get("/api/v1/applications/{name}/revisions/{revision}/ocimetadata"),
        "get",
        named(3, 4),
    ),
    app(
        "GetManifests",
        get("/api/v1/applications/{name}/manifests"),
        "get",
        named(3, 4),
    ),
    app(
        "GetManifestsWithFiles",
        post("/api/v1/applications/manifestsWithFiles", MESSAGE),
        "get",
        FILES,
    ),
    app(
        "Update",
        put("/api/v1/applications/{application.metadata.name}", APPLICATION),
        "update",
        OBJECT,
    ),
    app(
        "UpdateSpec",
        put("/api/v1/applications/{name}/spec", RestBody::Field("spec")),
        "update",
        named(4, 5).project("spec.project", [2, 3, 0]),
    ),
    app(
        "Patch",
        rest(Verb::Patch, "/api/v1/applications/{name}", MESSAGE),
        "update",
        named(5, 6),
    ),
    app("Delete", delete("/api/v1/applications/{name}"), "delete", named(4, 5)),
    app(
        "Sync",
        post("/api/v1/applications/{name}/sync", MESSAGE),
        "sync",
        named(12, 13).manifests("manifests", [8, 0, 0]),
    ),
    app(
        "ManagedResources",
        get("/api/v1/applications/{applicationName}/managed-resources"),
        "get",
        TREE,
    ),
    app(
        "ServerSideDiff",
        get("/api/v1/applications/{appName}/server-side-diff"),
        "get",
        DIFF,
    ),
    app(
        "ResourceTree",
        get("/api/v1/applications/{applicationName}/resource-tree"),
        "get",
        TREE,
    ),
    app(
        "WatchResourceTree",
        get("/api/v1/stream/applications/{applicationName}/resource-tree"),
        "get",
        TREE,
    ),
    app(
        "Rollback",
        post("/api/v1/applications/{name}/rollback", MESSAGE),
        "sync",
        named(6, 7),
    ),
    app(
        "TerminateOperation",
        delete("/api/v1/applications/{name}/operation"),
        "sync",
        named(2, 3),
    ),
    app(
        "GetResource",
        get("/api/v1/applications/{name}/resource"),
        "get",
        named(7, 8),
    ),
    app(
        "PatchResource",
        post("/api/v1/applications/{name}/resource", RestBody::Field("patch")),
        "update",
        named(9, 10).resource(PATCH),
    ),
    app(
        "ListResourceActions",
        get("/api/v1/applications/{name}/resource/actions"),
        "get",
        named(7, 8),
    ),
    app(
        "RunResourceAction",
        post(
            "/api/v1/applications/{name}/resource/actions",
            RestBody::Field("action"),
        ),
        "action",
        named(8, 9).resource(ResourceChangeFields::Action),
    ),
    app(
        "RunResourceActionV2",
        post("/api/v1/applications/{name}/resource/actions/v2", MESSAGE),
        "action",
        named(8, 9).resource(ResourceChangeFields::Action),
    ),
    app(
        "DeleteResource",
        delete("/api/v1/applications/{name}/resource"),
        "delete",
        named(9, 10).resource(ResourceChangeFields::Delete),
    ),
    ApiMethod {
        resource: "logs",
        ..app("PodLogs", LOGS, "get", named(15, 16))
    },
    app("ListLinks", get("/api/v1/applications/{name}/links"), "get", LINKS),
    app(
        "ListResourceLinks",
        get("/api/v1/applications/{name}/resource/links"),
        "get",
        named(7, 8),
    ),
    set("Get", get("/api/v1/applicationsets/{name}"), "get"),
    set("Generate", post("/api/v1/applicationsets/generate", MESSAGE), "create"),
    set("List", get("/api/v1/applicationsets"), "get"),
    ApiMethod {
        fields: NONE.upsert(),
        ..set(
            "Create",
            post("/api/v1/applicationsets", RestBody::Field("applicationset")),
            "create",
        )
    },
    set("Delete", delete("/api/v1/applicationsets/{name}"), "delete"),
    set(
        "ResourceTree",
        get("/api/v1/applicationsets/{name}/resource-tree"),
        "get",
    ),
    set(
        "ListResourceEvents",
        get("/api/v1/applicationsets/{name}/events"),
        "get",
    ),
    set("Watch", get("/api/v1/stream/applicationsets"), "get"),
];
